//! Audio: whether the two runs read the same features, where they were dumped and where they were not.

use super::*;

/// Our trace of the Whisper fixture against a dump of a run on features, and with weights, that are edited.
fn heard(
    features: impl Fn(usize, &mut f32),
    fault: impl Fn(&mut FaultyModel),
    kept: &dyn Fn(&str) -> bool,
) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let ours = WHISPER.trace(dir.path());
    let mut faulty = FaultyModel::of(&WHISPER.path());
    fault(&mut faulty);
    let opened = open(&faulty.save(&dir.path().join("model")), None);
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let given = WHISPER.input();
    let Some(Sequence::Features(read)) = given.sequence(Side::Source) else { panic!("no features") };
    let mut read = read.clone();
    read.values.iter_mut().enumerate().for_each(|(i, x)| features(i, x));
    let input = given.with(Side::Source, Sequence::Features(read));
    diff(&[&ours, &dump(model, &weights, &input, kept, &dir.path().join("theirs.safetensors"))])
}

fn but_features(path: &str) -> bool {
    path != "audio.mel"
}

/// As much as `size`, differently everywhere.
fn noise(size: f32) -> impl Fn(usize, &mut f32) {
    move |i, x| *x += size * attnscope::run::SplitMix::new(i as u64).unit()
}

fn said(report: &Value) -> (Option<&str>, Option<&str>) {
    (report["inputs"].as_str(), report["input_difference"]["seen_in"].as_str())
}

#[test]
fn features_with_noise_are_another_input() {
    for size in [1.0, 0.01, 0.001] {
        let (code, report) = heard(noise(size), |_| {}, &but_features);
        assert_eq!((code, said(&report)), (1, (Some("different"), Some("audio.conv1"))), "{size}");
        let (code, report) = heard(noise(size), |_| {}, &|_| true);
        assert_eq!((code, said(&report)), (1, (Some("different"), None)), "{size}");
    }
    // One frame is enough.
    let frame = |i: usize, x: &mut f32| *x += if i % 60 == 17 { 0.01 } else { 0.0 };
    assert_eq!(said(&heard(frame, |_| {}, &but_features).1).0, Some("different"));
}

#[test]
fn features_that_differ_by_rounding_are_the_same_input() {
    let short = |_: usize, x: &mut f32| *x = half::bf16::from_f32(*x).to_f32();
    let (_, report) = heard(short, |_| {}, &|_| true);
    assert_eq!(said(&report).0, Some("same"));
    // As much as programs differ in making features, and more than the convolution rounds.
    for size in [1e-7, 1e-5] {
        for kept in [&(|_: &str| true) as &dyn Fn(&str) -> bool, &but_features] {
            let (code, report) = heard(noise(size), |_| {}, kept);
            let found = &report["first_divergence"];
            assert_eq!((code, said(&report).0), (0, Some("same")), "{size}: {found}");
        }
    }
}

/// Mistakes of the convolution itself, small and large, are still its own.
#[test]
fn a_fault_of_the_first_convolution_is_not_another_input() {
    const WEIGHT: &str = "audio.conv1.weight";
    type Fault = (&'static str, fn(&mut FaultyModel));
    let faults: [Fault; 4] = [
        ("kernel reversed", |p| {
            p.edit(WEIGHT, |w| w.chunks_exact_mut(3).for_each(<[f32]>::reverse));
        }),
        ("a row", |p| p.edit(WEIGHT, |w| w[..30].iter_mut().for_each(|x| *x *= 1.01))),
        ("bias", |p| p.edit("audio.conv1.bias", |b| b.iter_mut().for_each(|x| *x *= 1.01))),
        ("noise", |p| p.edit(WEIGHT, |w| w.iter_mut().enumerate().for_each(|(i, x)| noise(1e-3)(i, x)))),
    ];
    for (what, fault) in faults {
        let (code, report) = heard(|_, _| {}, fault, &but_features);
        let said = first(&report);
        assert_eq!((code, report["inputs"].as_str()), (1, Some("same")), "{what}");
        assert!(said.starts_with("audio.conv1 bug"), "{what}: {said}");
    }
}
