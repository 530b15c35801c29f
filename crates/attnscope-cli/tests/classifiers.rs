//! Text classifiers: every tensor against torch's own modules, every cell from the tensors before it, and every command.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::collections::BTreeMap;

use attnscope::diagnose::cell::Cells;
use attnscope::diagnose::rounding::Precision;
use attnscope::graph::{Architecture, Model, Side, build, snapshots};
use attnscope::run::{CheckedInput, Input, Kept, Rows, Sequence, Weights};
use common::run::{Keep, run, run_reference};
use common::{attnscope, fixture, open, stderr, stdout};
use safetensors::SafeTensors;

const CLASSIFIERS: [&str; 6] = ["rnn", "bilstm", "mlp", "conv", "conv-maxpool", "attention"];
const PAD: u32 = 0;

/// What torch computed, by node.
fn expected(name: &str) -> BTreeMap<String, (Vec<usize>, Vec<f64>)> {
    let bytes = std::fs::read(fixture(&format!("classifiers/{name}/expected.safetensors"))).unwrap();
    let tensor = |(path, view): (String, safetensors::tensor::TensorView<'_>)| {
        let values = match view.dtype() {
            safetensors::Dtype::F32 => {
                view.data().chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
            }
            _ => view.data().chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
        };
        (path, (view.shape().to_vec(), values))
    };
    SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter().map(tensor).collect()
}

/// The texts of a fixture: ids up to the padding.
fn texts(expected: &BTreeMap<String, (Vec<usize>, Vec<f64>)>) -> Vec<Vec<u32>> {
    let (shape, ids) = &expected["src.ids"];
    let row = |row: &[f64]| row.iter().map(|&id| id as u32).take_while(|&id| id != PAD).collect();
    ids.chunks(shape[1]).map(row).collect()
}

fn input(expected: &BTreeMap<String, (Vec<usize>, Vec<f64>)>) -> Input {
    Input::of(Side::Source, Sequence::Tokens(Rows::new(&texts(expected), PAD)))
}

fn worst(ours: &Kept, theirs: &[f64]) -> f64 {
    let largest = theirs.iter().fold(1e-3_f64, |most, x| most.max(x.abs()));
    ours.values.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest
}

#[test]
fn every_tensor_is_torchs() {
    for name in CLASSIFIERS {
        let expected = expected(name);
        let opened = open(&fixture(&format!("classifiers/{name}")), None);
        let model = opened.model().unwrap();
        assert!(model.obstacles.is_empty(), "{name}: {:?}", model.obstacles);
        assert!(model.binding.unused.is_empty(), "{name}: {:?}", model.binding.unused);
        assert_eq!(model.graph, build(&model.architecture, &model.wiring), "{name}");
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = input(&expected);
        let (mut native, mut reference) = (Keep::new(|_| true), Keep::new(|_| true));
        run(model, &weights, &input, &mut native).unwrap();
        run_reference(model, &weights, &input, &mut reference).unwrap();
        for (path, (shape, values)) in &expected {
            let node = model.graph.find(path).unwrap_or_else(|| panic!("{name} has no {path}"));
            for (which, kept) in
                [("native", &native.tensors[&node]), ("reference", &reference.tensors[&node])]
            {
                assert_eq!(&kept.shape, shape, "{name}: {path}, {which}");
                let off = worst(kept, values);
                assert!(off < 2e-6, "{name}: {path}, {which}: off by {off:e}");
            }
        }
        for (id, node) in model.graph.iter() {
            let off = worst(&native.tensors[&id], &reference.tensors[&id].values);
            assert!(off < 2e-6, "{name}: {}: off by {off:e}", node.path);
        }
    }
}

#[test]
fn every_cell_follows_from_the_tensors_before_it() {
    for name in CLASSIFIERS {
        let expected = expected(name);
        let opened = open(&fixture(&format!("classifiers/{name}")), None);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let checked = CheckedInput::new(model, input(&expected)).unwrap();
        let mut kept = Keep::new(|_| true);
        run(model, &weights, checked.input(), &mut kept).unwrap();
        let cells = Cells {
            model,
            weights: &weights,
            input: checked.input(),
            sizes: checked.sizes(),
            precision: Precision::F32,
            tensors: &kept.tensors,
        };
        for (id, node) in model.graph.iter() {
            let shape = &kept.tensors[&id].shape;
            let size: usize = shape.iter().product();
            // The ends and some between.
            for n in [0, size / 3, size / 2, size - 1] {
                let mut rest = n;
                let mut at: Vec<usize> = shape.iter().rev().map(|&d| (rest % d, rest /= d).0).collect();
                at.reverse();
                let told = cells.arithmetic(id, &at).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(told.agrees(), "{name}: {}{at:?}: {told:?}", node.path);
                assert!(
                    told.bound < 1e-4 * (1.0 + told.stored.abs()),
                    "{name}: {}: {}",
                    node.path,
                    told.bound
                );
            }
        }
    }
}

#[test]
fn the_walk_of_a_classifier_is_in_the_order_of_computation() {
    for name in CLASSIFIERS {
        let opened = open(&fixture(&format!("classifiers/{name}")), None);
        let model: &Model = opened.model().unwrap();
        let walk = snapshots(&model.graph, 0);
        let numbers: Vec<usize> = walk.iter().map(|stop| stop.number).collect();
        assert_eq!(numbers, (1..=walk.len()).collect::<Vec<_>>(), "{name}");
        assert_eq!(attnscope::graph::order_note(&model.graph, &walk), None, "{name}");
        let last = walk.last().unwrap();
        assert_eq!(last.view.path(&model.graph), "logits", "{name}");
        assert!(walk.len() > 5, "{name}: {walk:?}");
        assert_eq!(model.architecture.kind() == "classifier", name != "attention", "{name}");
        assert!(Architecture::classifier(&model.architecture).is_some(), "{name}");
    }
}

/// A row of ids as the command line takes them.
fn ids(row: &[u32]) -> String {
    row.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn commands_work_on_classifiers_or_say_why_not() {
    for name in CLASSIFIERS {
        let model = fixture(&format!("classifiers/{name}"));
        let expected = expected(name);
        let text = ids(&texts(&expected)[1]);
        for args in [
            vec!["inspect", &model],
            vec!["flow", &model],
            vec!["flow", &model, "--format", "json"],
            vec!["flow", &model, "--format", "svg"],
            vec!["summary", &model],
            vec!["trace", &model, "--src-ids", &text],
            vec!["trace", &model, "--src-ids", &text, "--payload"],
            vec!["trace", &model, "--src-ids", &text, "--format", "json"],
            vec!["explain", "logits", &model, "--src-ids", &text, "--at", "0,1"],
            vec!["doctor", &model, "--src-ids", &text],
        ] {
            let output = attnscope(&args);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {said}{}", stdout(&output));
        }
        for args in [
            vec!["generate", &model, "--src-ids", &text],
            vec!["trace", &model, "--src-ids", &ids(&[5; 31])],
            vec!["trace", &model, "--src-ids", "5,6", "--tgt-ids", "7"],
            vec!["masks", &model, "--src-ids", &text],
        ] {
            let output = attnscope(&args);
            let works = match args[..] {
                // Only what is flattened has a length of its own.
                ["trace", _, _, _] => !["mlp", "conv"].contains(&name),
                ["masks", ..] => name == "attention",
                _ => false,
            };
            let code = if works { 0 } else { 2 };
            assert_eq!(output.status.code(), Some(code), "{name} {args:?}: {}", stderr(&output));
        }
    }
}

/// The class and the probabilities of each row, as torch's scores give them.
#[test]
fn a_trace_says_which_class_it_is() {
    let model = fixture("classifiers/conv");
    let expected = expected("conv");
    let rows: Vec<String> = texts(&expected).iter().map(|row| ids(row)).collect();
    let args = ["trace", &model, "--src-ids", &rows.join(";")];
    let json: serde_json::Value =
        serde_json::from_slice(&attnscope(&[&args[..], &["--format", "json"]].concat()).stdout).unwrap();
    let (shape, scores) = &expected["logits"];
    assert_eq!(json["classified"].as_array().unwrap().len(), shape[0]);
    for (row, scores) in json["classified"].as_array().unwrap().iter().zip(scores.chunks(shape[1])) {
        let total: f64 = scores.iter().map(|score| score.exp()).sum();
        let best = (0..shape[1]).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        assert_eq!(row["class"], best);
        for (ours, score) in row["probabilities"].as_array().unwrap().iter().zip(scores) {
            assert!((ours.as_f64().unwrap() - score.exp() / total).abs() < 1e-5, "{row}");
        }
    }
    let text = stdout(&attnscope(&args));
    assert!(text.contains("softmax of the scores") && text.contains("Class "), "{text}");
    // Nothing is said where the scores are not looked at.
    let other = stdout(&attnscope(&[&args[..], &["--layer", "src.embed"]].concat()));
    assert!(!other.contains("softmax of the scores"), "{other}");
}

/// Without an input, the doctor makes one up that the model can read: some read one length only.
#[test]
fn the_doctor_runs_every_classifier_on_its_own() {
    for name in CLASSIFIERS {
        let output = attnscope(&["doctor", &fixture(&format!("classifiers/{name}"))]);
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{name}: {said}");
        assert!(said.contains("run on 2 rows of random tokens"), "{name}: {said}");
        for untrue in ["could not be run", "does not run", "error"] {
            assert!(!said.contains(untrue), "{name}: {said}");
        }
    }
}

#[test]
fn blocks_are_explained_with_the_model_s_own() {
    let topics = [
        ("lstm", "bilstm", "classifier.0.lstm.forward"),
        ("rnn", "rnn", "classifier.0.rnn"),
        ("conv", "conv", "kernel 7, stride 3"),
        ("pooling", "conv-maxpool", "max over positions"),
    ];
    for (topic, name, says) in topics {
        let output = attnscope(&["explain", topic, &fixture(&format!("classifiers/{name}"))]);
        assert_eq!(output.status.code(), Some(0), "{topic}: {}", stderr(&output));
        assert!(stdout(&output).contains(says), "{topic}: {}", stdout(&output));
    }
    let none = stdout(&attnscope(&["explain", "dropout", &fixture("classifiers/rnn")]));
    assert!(none.contains("1 / (1 − p)") && none.contains("This model has no node for dropout."), "{none}");
    let conv = stdout(&attnscope(&["explain", "classifier.0.conv", &fixture("classifiers/conv")]));
    assert!(conv.contains("slides along the positions") && !conv.contains("frames"), "{conv}");
    let (model, text) = (fixture("classifiers/conv"), ids(&[5; 9]));
    let cell = ["explain", "classifier.0.conv", &model, "--src-ids", &text, "--at", "0,1,0"];
    let cell = stdout(&attnscope(&cell));
    assert!(cell.contains("channel 0, position ") && !cell.contains("frame"), "{cell}");
    assert!(cell.contains("b 0, feature 1, ") && cell.contains(" × padding"), "{cell}");
    let class = ["explain", "logits", &model, "--src-ids", &text, "--at", "0,1"];
    assert!(stdout(&attnscope(&class)).contains("b 0, class 1\n"));
}

/// Models of Hugging Face that classify: their own heads, on texts that Hugging Face has scored. A decoder that classifies reads
/// its source once more.
#[test]
fn class_scores_are_hugging_faces() {
    for (name, pooled) in [
        ("bart-classifier", "last-token"),
        ("bert-classifier", "first-token"),
        ("roberta-classifier", "first-token"),
        ("distilbert-classifier", "first-token"),
    ] {
        let path = fixture(name);
        let opened = open(&path, None);
        let model = opened.model().unwrap();
        assert!(model.obstacles.is_empty() && model.binding.unused.is_empty(), "{name}: {:?}", model.binding);
        assert_eq!(model.graph, build(&model.architecture, &model.wiring), "{name}");
        assert_eq!(model.architecture.classifier().unwrap().blocks[0].name(), pooled);
        let scores = std::fs::read_to_string(fixture(&format!("{name}/scores.json"))).unwrap();
        let scores: serde_json::Value = serde_json::from_str(&scores).unwrap();
        let texts: Vec<Vec<u32>> = serde_json::from_value(scores["texts"].clone()).unwrap();
        let expected: Vec<Vec<f64>> = serde_json::from_value(scores["scores"].clone()).unwrap();
        let both = texts.iter().map(|row| ids(row)).collect::<Vec<_>>().join(";");
        for device in ["cpu", "reference"] {
            let args = ["trace", &path, "--src-ids", &both, "--layer", "logits", "--payload", "--full"];
            let output = attnscope(&[&args[..], &["--format", "json", "--device", device]].concat());
            assert!(output.status.success(), "{}", stderr(&output));
            let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let values: Vec<f64> = serde_json::from_value(said["nodes"][0]["values"].clone()).unwrap();
            let expected: Vec<f64> = expected.iter().flatten().copied().collect();
            assert_eq!(values.len(), expected.len(), "{said}");
            let off = values.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-5, "{name} on {device}: off by {off:e}");
        }
        let drawn = attnscope(&["flow", &path]);
        assert!(stdout(&drawn).contains("classifier.1.linear"), "{}", stdout(&drawn));
        assert!(stderr(&drawn).is_empty(), "{}", stderr(&drawn));
        for args in
            [vec!["inspect", &path], vec!["summary", &path], vec!["doctor", &path, "--src-ids", &both]]
        {
            let output = attnscope(&args);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", stderr(&output), stdout(&output));
        }
        let refused = attnscope(&["generate", &path, "--src-ids", "5,2"]);
        assert!(stderr(&refused).contains("does not generate"), "{}", stderr(&refused));
    }
}

/// Heads for every task of every family: a row of scores a text, or one a token.
#[test]
fn heads_of_other_tasks_give_hugging_face_s_scores() {
    let said = std::fs::read_to_string(fixture("task-heads/scores.json")).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let texts: Vec<Vec<u32>> = serde_json::from_value(said["texts"].clone()).unwrap();
    let both = texts.iter().map(|row| ids(row)).collect::<Vec<_>>().join(";");
    for (name, expected) in said["models"].as_object().unwrap() {
        let path = fixture(&format!("task-heads/{name}"));
        let opened = open(&path, None);
        let model = opened.model().unwrap();
        assert_eq!(model.family.id, expected["family"].as_str().unwrap(), "{name}");
        assert!(model.obstacles.is_empty() && model.binding.unused.is_empty(), "{name}: {:?}", model.binding);
        assert_eq!(model.graph, build(&model.architecture, &model.wiring), "{name}");
        let is_text = name.ends_with("-text") || name.ends_with("-mean");
        assert_eq!(model.architecture.text_classifier().is_some(), is_text, "{name}");
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let logits = model.graph.find("logits").unwrap();
        let rows = Rows::new(&texts, 0);
        let input = match model.architecture.reads(Side::Target) {
            // It reads its source again, after the token that begins a sentence.
            true => Input::pair(Sequence::Tokens(rows), Rows::new(&shifted(&texts), 0)),
            false => Input::of(Side::Source, Sequence::Tokens(rows)),
        };
        for run in [run, run_reference] {
            let mut kept = Keep::new(|id| id == logits);
            run(model, &weights, &input, &mut kept).unwrap();
            let ours = &kept.tensors[&logits];
            for (row, theirs) in expected["scores"].as_array().unwrap().iter().enumerate() {
                let theirs: Vec<f64> = match is_text {
                    true => serde_json::from_value(theirs.clone()).unwrap(),
                    false => serde_json::from_value::<Vec<Vec<f64>>>(theirs.clone()).unwrap().concat(),
                };
                let start = row * ours.values.len() / texts.len();
                for (a, b) in ours.values[start..].iter().zip(&theirs) {
                    assert!((a - b).abs() < 1e-5, "{name}, text {row}: {a} and {b}");
                }
            }
        }
        let facts = stdout(&attnscope(&["inspect", &path]));
        assert!(facts.contains("tensor names") && facts.contains("head"), "{name}: {facts}");
        for args in [
            vec!["flow", &path],
            vec!["summary", &path],
            vec!["trace", &path, "--src-ids", &both],
            vec!["trace", &path, "--src-ids", &both, "--format", "json"],
            vec!["masks", &path, "--src-ids", &both],
            vec!["explain", "logits", &path, "--src-ids", &both],
            vec!["doctor", &path, "--src-ids", &both],
        ] {
            let output = attnscope(&args);
            assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", stderr(&output), stdout(&output));
        }
        let refused = attnscope(&["generate", &path, "--src-ids", "5,2"]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
    }
}

/// BART's decoder input: the end of the sentence first, then all but its last token.
fn shifted(texts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let shift = |text: &Vec<u32>| [&text[text.len() - 1..], &text[..text.len() - 1]].concat();
    texts.iter().map(shift).collect()
}

/// A text that is padded to the one length that a classifier reads has its padding masked, in `masks` as in a run.
#[test]
fn masks_show_the_padding_that_a_run_has() {
    let model = fixture("classifiers/attention");
    let output = attnscope(&["masks", &model, "--src-ids", "3,4,5", "--format", "json"]);
    let masks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mask = &masks["masks"][0];
    assert_eq!(mask["shape"], serde_json::json!([1, 1, 30, 30]));
    assert_eq!(mask["rows"][0][0], format!("ooo{}", "p".repeat(27)));
}
