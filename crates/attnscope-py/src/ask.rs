//! What is asked without a model at hand: worked examples, saved traces, training, the list of topics; and the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use attnscope::answer::WorkedExamples;
use attnscope::diagnose::worked::MOST_BYTES;
use attnscope::training::{Metric, TrainWatcher};
use attnscope::{Failure, Limits, TrainOptions, check_example, check_trace, read_text};
use attnscope_render::training::write_curves;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::answer::Answer;
use crate::failure::raised;
use crate::model::Model;
use crate::one_of::one_of;
use crate::work::{at_once, run, threads};

/// Checks worked examples of attention, files in TOML, claim by claim; or one in `text`. With `trace`, the folder of a saved trace,
/// computes every tensor of it again, in f64, from its inputs; `model` is the model that was traced (a file, or an open model), where
/// the trace does not name it.
///
/// >>> import attnscope as at
/// >>> halves = at.check(text="[given]\nscores = [[0, 0]]\n[claims]\nweights = [[0.5, 0.6]]")
/// >>> halves.ok, halves["examples"][0]["claims"][0]["verdict"]
/// (False, 'wrong')
#[pyfunction]
#[pyo3(signature = (*examples, text = None, trace = None, model = None))]
pub(crate) fn check(
    py: Python<'_>,
    examples: &Bound<'_, PyTuple>,
    text: Option<String>,
    trace: Option<PathBuf>,
    model: Option<TracedModel<'_>>,
) -> PyResult<Answer> {
    let files: Vec<PathBuf> = examples.extract()?;
    let count = files.len() + usize::from(text.is_some());
    let wrong = |error: &str, help: &str| Err(raised(py, &Failure::new(error, help)));
    match (&trace, count) {
        (Some(_), 1..) => {
            return wrong("examples and trace=: only one of them can be checked at once", "call check twice");
        }
        (None, 0) => {
            return wrong("there is nothing to check", "pass the file of a worked example, text= or trace=");
        }
        (None, _) if model.is_some() => {
            return wrong("model=: a worked example has no model", "leave it out, or pass trace=DIR");
        }
        _ => {}
    }
    if let Some(folder) = trace {
        let (held, name) = match model {
            Some(TracedModel::Open(model)) => (Some(model.get().0.clone()), None),
            Some(TracedModel::File(file)) => (None, Some(file.display().to_string())),
            None => (None, None),
        };
        let answer = run(py, |cancel| {
            let limits = Limits { threads: threads(), cancel: cancel.clone(), ..Limits::default() };
            match held {
                Some(model) => model.with_limits(limits).check_trace(&folder),
                None => check_trace(&folder, name.as_deref(), &limits),
            }
        });
        return answer.map(Answer::new);
    }
    let answer = run(py, |_| {
        let mut examples = WorkedExamples { of_many: count > 1, ..WorkedExamples::default() };
        for file in &files {
            let name = file.display().to_string();
            let text = read_text(&name, file, MOST_BYTES, "give a worked example in TOML")?;
            examples.examples.push(check_example(&name, &text)?);
        }
        if let Some(text) = &text {
            examples.examples.push(check_example("text=", text)?);
        }
        Ok(examples)
    });
    answer.map(Answer::new)
}

one_of! {
    /// The model that was traced.
    pub(crate) enum TracedModel<'py> {
        Open(Bound<'py, Model>),
        File(PathBuf),
    }
    "a model that attnscope has opened, or its path"
}

/// Trains a classifier or an encoder-decoder by a recipe: a file (.toml), or the name of a shipped one. Everything that is kept of the
/// run is in the folder `out`; `at.open(out)` opens what was learned. Ctrl-C ends it after the step that is under way, and
/// `resume=True` goes on there, to the same bits as a run that never stopped. `init` names a model to begin with; `dry_run=True` says
/// what it would take, and trains nothing.
///
/// >>> import attnscope as at, tempfile
/// >>> plan = at.train("toy", dry_run=True)
/// >>> plan.name, plan["steps"] > 0
/// ('train-plan', True)
/// >>> run = at.train("toy", out=tempfile.mkdtemp() + "/run", steps=2)
/// >>> run["steps"], run["ended"]
/// (2, 'finished')
#[pyfunction]
#[pyo3(signature = (
    recipe, data = None, out = None, *, resume = false, init = None, skip_bad = false, seed = None, steps = None, dry_run = false
))]
#[allow(clippy::too_many_arguments)] // They are keywords.
pub(crate) fn train(
    py: Python<'_>,
    recipe: PathBuf,
    data: Option<PathBuf>,
    out: Option<PathBuf>,
    resume: bool,
    init: Option<PathBuf>,
    skip_bad: bool,
    seed: Option<u64>,
    steps: Option<u64>,
    dry_run: bool,
) -> PyResult<Answer> {
    let wrong = |error: &str, help: &str| Err(raised(py, &Failure::new(error, help)));
    let name = recipe.display().to_string();
    let init = init.map(|init| init.display().to_string());
    match (resume, init.is_some(), steps) {
        (true, true, _) => return wrong("init= and resume=: only one of them can be given", "leave one out"),
        (_, _, Some(0)) => return wrong("steps=0: expected 1 or more", "dry_run=True trains nothing"),
        _ => {}
    }
    let options = TrainOptions { data, skip_bad, resume, init, seed, steps, ..TrainOptions::default() };
    let limits = Limits { threads: threads(), ..Limits::default() };
    if dry_run {
        let plan = || attnscope::plan_training(&name, attnscope::recipe(&name)?, &options);
        return run(py, |_| limits.install(plan)?).map(Answer::new);
    }
    let Some(folder) = out else {
        return wrong("there is no folder for the run", "pass out=DIR, or dry_run=True");
    };
    let answer = run(py, |cancel| {
        let options = TrainOptions { stop: cancel.flag(), ..options };
        let mut curves = Curves { folder: &folder, title: &name };
        let learn = || attnscope::train(&name, attnscope::recipe(&name)?, &folder, &options, &mut curves);
        limits.install(learn)?
    });
    answer.map(Answer::new)
}

/// Draws the curves into the folder of the run, as far as it is.
struct Curves<'a> {
    folder: &'a Path,
    title: &'a str,
}

impl TrainWatcher for Curves<'_> {
    fn measured(&mut self, metrics: &[Metric]) {
        if matches!(metrics.last(), Some(Metric::Validation(_) | Metric::Monitor(_))) {
            // Curves are for looking at: where they cannot be written, learning goes on.
            let _ = write_curves(self.folder, self.title, metrics);
        }
    }
}

/// What `Model.explain` can be asked.
///
/// >>> import attnscope as at
/// >>> "softmax" in at.topics().text()
/// True
#[pyfunction]
pub(crate) fn topics(py: Python<'_>) -> PyResult<Answer> {
    at_once(py, || Ok(attnscope::topics())).map(Answer::new)
}

/// Runs a command line, the program's name first, and gives its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let code = py.detach(|| attnscope_cli::main(arguments));
    // An exit code does not give its number.
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(2)
}
