//! Limits of a model: every call that takes long keeps them.

#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use attnscope::{
    Cancel, Counted, Device, DiffOptions, DoctorOptions, Failure, FailureKind, GenerateOptions, Input,
    Limits, MaskOptions, Model, Progress, TraceOptions, check_trace, diff, open,
};

/// What something may cost after it was cancelled, on all threads together.
const AT_ONCE: Duration = Duration::from_millis(500);

/// One test at a time: what each costs is measured.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process has computed so far: how long that took depends on who else uses the machine.
#[cfg(target_os = "linux")]
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name, which stands in brackets: user and system time are the 12th and 13th, in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let hundredths: u64 = fields[11..13].iter().map(|n| n.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * hundredths)
}

#[cfg(not(target_os = "linux"))]
fn spent() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

/// Runs something on a thread, cancels it from here once it is under way, and gives what came of it, and what it cost after that.
fn cancelled<T: Send + 'static>(
    work: impl FnOnce(Limits) -> Result<T, Failure> + Send + 'static,
) -> (Result<(), Failure>, Duration) {
    let _alone = alone();
    let cancel = Cancel::default();
    let (is_under_way, wait) = mpsc::channel();
    let progress = Progress::new(move |step| {
        if step.done < step.total {
            let _ = is_under_way.send(());
        }
    });
    let limits = Limits { cancel: cancel.clone(), progress, ..Limits::default() };
    let worker = thread::spawn(move || work(limits).map(drop));
    wait.recv().unwrap();
    let before = spent();
    cancel.cancel();
    let result = worker.join().unwrap();
    (result, spent() - before)
}

#[track_caller]
fn assert_cancelled<T: Send + 'static>(work: impl FnOnce(Limits) -> Result<T, Failure> + Send + 'static) {
    let (result, cost) = cancelled(work);
    let failure = result.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Cancelled, "{failure}");
    assert!(cost < AT_ONCE, "it went on for {cost:?}");
}

fn demo(limits: Limits) -> Model {
    open("demo").unwrap().with_limits(limits)
}

/// A pair that takes the demo seconds: attention over thousands of positions.
fn long() -> Input {
    of_length(2500)
}

fn of_length(length: u32) -> Input {
    let row = |from: u32| vec![(0..length).map(|i| from + i % 900).collect::<Vec<u32>>()];
    Input::ids(row(50)).with_target_ids(row(80))
}

#[test]
fn a_trace_is_cancelled() {
    assert_cancelled(|limits| demo(limits).trace(&long(), "logits"));
    assert_cancelled(|limits| demo(limits).on(Device::Reference).trace(&long(), "logits"));
}

#[test]
fn a_generation_is_cancelled() {
    let input = Input::texts(vec!["A dog plays in the snow, and two men look at it."; 500]);
    let options = GenerateOptions { beams: Some(4), ..GenerateOptions::default() };
    assert_cancelled(move |limits| demo(limits).generate(&input, &options));
}

#[test]
fn masks_and_explanations_are_cancelled() {
    assert_cancelled(|limits| demo(limits).masks(&of_length(500), &MaskOptions::default()));
    let options = attnscope::ExplainOptions { input: Some(long()), ..Default::default() };
    assert_cancelled(move |limits| demo(limits).explain("cross-attention", &options));
}

#[test]
fn a_diagnosis_is_cancelled() {
    assert_cancelled(|limits| demo(limits).doctor(&DoctorOptions::default()));
}

/// A folder with a trace of some length.
fn saved(folder: &Path, name: &str, words: usize) -> PathBuf {
    let input = Input::text("a dog ".repeat(words)).with_targets(["ein Hund ".repeat(words)]);
    let to = folder.join(name);
    let options = TraceOptions { save: Some(to.clone()), ..TraceOptions::default() };
    open("demo").unwrap().trace(&input, options).unwrap();
    to
}

#[test]
fn comparisons_are_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (saved(folder.path(), "a", 300), saved(folder.path(), "b", 300));
    let trace = a.clone();
    assert_cancelled(move |limits| check_trace(&trace, None, &limits));
    assert_cancelled(move |limits| diff(&a, &b, &DiffOptions { limits, ..DiffOptions::default() }));
}

#[test]
fn threads_and_memory_are_kept() {
    let _alone = alone();
    let input = Input::text("Two dogs play in the snow.");
    for device in Device::ALL {
        let limits = Limits { threads: Some(1), ..Limits::default() };
        let one = open("demo").unwrap().on(device).with_limits(limits).trace(&input, "logits").unwrap();
        let all = open("demo").unwrap().on(device).trace(&input, "logits").unwrap();
        // Sums do not depend on how work is shared out.
        assert_eq!(one.tensor("logits").unwrap().values, all.tensor("logits").unwrap().values);
        let limits = Limits { memory: Some(1 << 20), ..Limits::default() };
        let failure =
            open("demo").unwrap().on(device).with_limits(limits).trace(&input, "logits").unwrap_err();
        assert_eq!(failure.kind, FailureKind::Memory, "{failure}");
    }
}

#[test]
fn progress_is_told_and_ends_at_its_end() {
    let _alone = alone();
    let told: Arc<Mutex<Vec<attnscope::Step>>> = Arc::default();
    let list = told.clone();
    let progress = Progress::new(move |step| list.lock().unwrap().push(step));
    let model = open("demo").unwrap().with_limits(Limits { progress, ..Limits::default() });
    let input = Input::text("A dog.").with_targets(["Ein Hund."]);
    let counted = |of: Counted| {
        let steps: Vec<_> = std::mem::take(&mut *told.lock().unwrap());
        steps.into_iter().filter(|step| step.of == of).collect::<Vec<_>>()
    };
    model.trace(&input, "logits").unwrap();
    let steps = counted(Counted::Nodes);
    assert!(steps.len() > 20 && steps.iter().enumerate().all(|(i, step)| step.done == i + 1));
    assert!(steps.iter().all(|step| step.total == steps.len()));
    model.masks(&input, &MaskOptions::default()).unwrap();
    assert_eq!(counted(Counted::Proofs).len(), 8);
    model.generate(&input, &GenerateOptions::default()).unwrap();
    assert_eq!(counted(Counted::Decoded).last().map(|step| (step.done, step.total)), Some((1, 1)));
}

/// What others may do while a model is limited is their own affair.
#[test]
fn one_model_under_two_limits() {
    let _alone = alone();
    let model = open("demo").unwrap();
    let cancel = Cancel::default();
    let limited = model.clone().with_limits(Limits { cancel: cancel.clone(), ..Limits::default() });
    let input = Input::text("A dog.").with_targets(["Ein Hund."]);
    limited.trace(&input, "logits").unwrap();
    cancel.cancel();
    assert_eq!(limited.trace(&input, "logits").unwrap_err().kind, FailureKind::Cancelled);
    assert!(model.trace(&input, "logits").is_ok());
}
