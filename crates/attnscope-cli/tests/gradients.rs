//! `trace --gradients`: against PyTorch's on the same weights, for every family, on disk, and everything that is refused.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;

use attnscope::checkpoint::Checkpoint;
use attnscope::{Gradients, Input, TraceOptions};
use common::{attnscope, fixture, json, refused, stderr, stdout};
use serde_json::Value;

/// The largest difference, as a part of a gradient's largest value, or of a hundredth of the largest of all.
const TOLERANCE: f64 = 1e-5;

fn rows(value: &Value) -> Vec<Vec<u32>> {
    let row = |row: &Value| row.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    value.as_array().unwrap().iter().map(row).collect()
}

fn most(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

#[test]
fn gradients_of_tensors_equal_pytorchs() {
    let text = std::fs::read_to_string(fixture("learning/expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let theirs = Checkpoint::open(Path::new(&fixture("learning/tensors.safetensors"))).unwrap();
    let input = Input::ids(rows(&expected["source"])).with_target_ids(rows(&expected["decoder"]));
    let options = TraceOptions { gradients: Gradients::OfTarget, ..TraceOptions::from("*") };
    let trace = attnscope::open(&fixture("marian")).unwrap().trace(&input, options).unwrap();
    let loss = trace.loss.unwrap();
    let nll = expected["tensors"]["nll"].as_f64().unwrap();
    assert!((loss.nll - nll).abs() < TOLERANCE * nll, "{} and {nll}", loss.nll);
    assert_eq!(loss.targets as u64, expected["tensors"]["targets"].as_u64().unwrap());
    let read = |name: &str| theirs.read_f64(theirs.tensor(name).unwrap()).unwrap();
    let floor = theirs.tensors().iter().map(|t| most(&read(&t.name))).fold(0.0, f64::max) / 100.0;
    assert!(theirs.tensors().len() > 60);
    for tensor in theirs.tensors() {
        let (ours, theirs) = (trace.tensor(&tensor.name).unwrap(), read(&tensor.name));
        assert_eq!(ours.shape, tensor.shape, "{}", tensor.name);
        let bound = TOLERANCE * most(&theirs).max(floor);
        for (at, (a, b)) in ours.values.iter().zip(&theirs).enumerate() {
            assert!((a - b).abs() <= bound, "{} at {at}: {a}, PyTorch has {b}", tensor.name);
        }
    }
}

#[test]
fn every_tensor_but_ids_and_masks_has_one() {
    let audio = fixture("audio/tone.wav");
    let runs: [(&str, &[&str]); 7] = [
        ("bart", &["--src-ids", "5,6,2;7,2", "--tgt-ids", "2,0,5;2,0,9"]),
        ("t5", &["--src-ids", "5,6,1;7,1", "--tgt-ids", "0,5,6;0,8"]),
        ("m2m100", &["--src-ids", "5,6,2", "--tgt-ids", "2,5,6"]),
        ("whisper", &["--audio", &audio, "--tgt-ids", "2,5,6"]),
        ("gpt2", &["--tgt-ids", "5,6,7;8,9"]),
        ("llama", &["--tgt-ids", "5,6,7"]),
        ("classifiers/attention", &["--src-ids", "5,6,7;8,9", "--class", "0,1"]),
    ];
    for (model, input) in runs {
        let path = fixture(model);
        let answer = json(&[&["trace", &path, "--gradients", "--format", "json"], input].concat());
        assert!(answer["loss"]["nll"].as_f64().unwrap() > 0.0, "{model}");
        for node in answer["nodes"].as_array().unwrap() {
            let (path, op) = (node["path"].as_str().unwrap(), node["op"].as_str().unwrap());
            match ["ids", "type_ids", "mask"].contains(&op) {
                true => assert!(node["gradient"].is_null(), "{model}: {path}"),
                false => {
                    assert_eq!(node["gradient"]["name"], format!("grad:{path}"), "{model}: {path}");
                    assert_eq!(node["gradient"]["stats"]["nan"], 0, "{model}: {path}");
                }
            }
        }
    }
}

/// The gradient by the logits is softmax − 1 at the target and softmax elsewhere, over the number of targets: the only negative cell
/// of a row is its target.
#[test]
fn a_text_is_judged_with_its_end_and_padding_is_not() {
    let target = ["Zwei Hunde spielen.", "Ein Mann."];
    let input = Input::texts(["Two dogs play.", "A man."]).with_targets(target);
    let options = TraceOptions { gradients: Gradients::OfTarget, ..TraceOptions::from("logits") };
    let model = attnscope::open("demo").unwrap();
    let trace = model.trace(&input, options).unwrap();
    let gradient = trace.tensor("grad:logits").unwrap();
    let [_, length, vocabulary] = gradient.shape[..] else { panic!("three dimensions") };
    let values = gradient.values.as_f64();
    let tokenizer = model.opened().tokenizer().unwrap().unwrap();
    let mut count = 0;
    for (row, text) in target.iter().enumerate() {
        let labels = tokenizer.encode_target(text).unwrap();
        count += labels.len();
        for at in 0..length {
            let cells = &values[(row * length + at) * vocabulary..][..vocabulary];
            let negative: Vec<u32> = (0..vocabulary as u32).filter(|&i| cells[i as usize] < 0.0).collect();
            assert_eq!(negative, labels.get(at).copied().into_iter().collect::<Vec<_>>(), "{row}, {at}");
        }
    }
    assert_eq!(trace.loss.unwrap().targets, count);
}

#[test]
fn gradients_are_printed_and_saved_beside_their_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    let name = folder.to_str().unwrap();
    let output = attnscope(&["trace", "toy", "--gradients", "--save", name]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("Gradients of the mean NLL of 4 targets"), "{}", stdout(&output));
    assert!(stdout(&output).contains("grad:decoder.0.cross_attn.weights"));
    let trace = attnscope::run::trace::Trace::open(&folder).unwrap();
    let with: Vec<&str> = trace.nodes.iter().filter(|n| n.gradient_saved).map(|n| n.path.as_str()).collect();
    assert!(with.contains(&"decoder.1.ffn.act") && !with.contains(&"src.ids"), "{with:?}");
    let answer =
        json(&["trace", "toy", "--gradients", "--layer", "decoder.out", "--payload", "--format", "json"]);
    let shown = &answer["nodes"][0]["gradient"]["values"];
    let saved = trace.read("grad:decoder.out").unwrap().unwrap();
    let shown: Vec<f32> = shown.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
    assert_eq!(saved.values.iter().map(|&x| x as f32).collect::<Vec<_>>(), shown);
    let text = stdout(&attnscope(&["trace", "toy", "--gradients", "--layer", "logits", "--payload"]));
    assert!(text.contains("\ngrad:logits (1,5,5)\n"), "{text}");
    // What reads traces reads this one.
    assert!(attnscope(&["check", "--trace", name]).status.success());
    let other = dir.path().join("u");
    assert!(attnscope(&["trace", "toy", "--save", other.to_str().unwrap()]).status.success());
    assert!(attnscope(&["diff", name, other.to_str().unwrap()]).status.success());
}

#[test]
fn what_is_missing_is_said_before_anything_runs() {
    let no_target = refused(&["trace", "demo", "--gradients"]);
    assert!(no_target.contains("no target is given") && no_target.contains("--tgt TEXT"), "{no_target}");
    let reference = refused(&["trace", "toy", "--gradients", "--reference"]);
    assert!(reference.contains("computes no gradients") && reference.contains("--device"), "{reference}");
    let classifier = fixture("classifiers/conv");
    let no_class = refused(&["trace", &classifier, "--src-ids", "5,6,7", "--gradients"]);
    assert!(no_class.contains("--class"), "{no_class}");
    let class =
        |class: &str| refused(&["trace", &classifier, "--src-ids", "5,6,7", "--gradients", "--class", class]);
    assert!(class("7").contains("a number below 3"), "{}", class("7"));
    assert!(class("0,1").contains("expected 1, found 2"), "{}", class("0,1"));
    let none = refused(&["trace", "toy", "--gradients", "--class", "0"]);
    assert!(none.contains("not a classifier"), "{none}");
    let one = refused(&["trace", &fixture("gpt2"), "--tgt-ids", "5", "--gradients"]);
    assert!(one.contains("one token"), "{one}");
    let bert = refused(&["trace", &fixture("bert"), "--src-ids", "5,6,7", "--gradients"]);
    assert!(bert.contains("one text"), "{bert}");
    let headless = refused(&["trace", &fixture("bert-headless"), "--src-ids", "5,6,7", "--gradients"]);
    assert!(headless.contains("no logits"), "{headless}");
}
