//! Two training steps against PyTorch's, in f64, on the same weights (`fixtures/learning/make.py`).

use std::sync::Arc;

use attnscope_graph::Model;
use attnscope_run::{
    AdamW, CheckedInput, Executor, Input, LearningBatch, Limits, Native, Nothing, Rows, Sequence, Targets,
    Weights,
};
use serde_json::Value;

use crate::case::load;
use crate::common::fixture;

/// The largest difference, as a part of a weight's largest value, or of a hundredth of the largest of all weights: a gradient that
/// is 0 by its formula, that of a bias of keys, is not quite 0 in f32.
const TOLERANCE: f64 = 1e-5;

fn rows(value: &Value) -> Vec<Vec<u32>> {
    let row = |row: &Value| row.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    value.as_array().unwrap().iter().map(row).collect()
}

/// The class of each row of the logits; padding has none.
fn targets(labels: &[Vec<u32>], smoothing: f32) -> Targets {
    let length = labels.iter().map(Vec::len).max().unwrap();
    let classes = labels.iter().flat_map(|row| (0..length).map(|at| row.get(at).copied())).collect();
    Targets { classes, smoothing }
}

fn close(what: &str, ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= TOLERANCE * theirs.abs(), "{what}: {ours}, PyTorch has {theirs}");
}

/// Every weight of a model, or what belongs to it, against what PyTorch saved in its place.
fn all_close(model: &Model, ours: impl Fn(usize) -> Vec<f64>, theirs: &Weights) {
    let most = |values: &[f32]| values.iter().fold(0f64, |most, &x| most.max(f64::from(x).abs()));
    let floor = model.graph.weight_ids().map(|id| most(&theirs.get(id).unwrap())).fold(0.0, f64::max) / 100.0;
    for (i, id) in model.graph.weight_ids().enumerate() {
        let (ours, theirs) = (ours(i), theirs.get(id).unwrap());
        assert_eq!(ours.len(), theirs.len());
        let bound = TOLERANCE * most(&theirs).max(floor);
        for (at, (a, &b)) in ours.iter().zip(theirs.iter()).enumerate() {
            let path = &model.graph.weight(id).path;
            assert!((a - f64::from(b)).abs() <= bound, "{path} at {at}: {a}, PyTorch has {b}");
        }
    }
}

#[test]
fn losses_gradients_and_weights_equal_pytorch_s() {
    let text = std::fs::read_to_string(fixture("learning/expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let number = |key: &str| expected[key].as_f64().unwrap() as f32;
    let (model, weights) = load("marian", None);
    let (_, gradients) = load("learning/gradients", None);
    let (_, after) = load("learning/after", None);
    let source = Sequence::Tokens(Rows::new(&rows(&expected["source"]), 98));
    let input = Input::pair(source, Rows::new(&rows(&expected["decoder"]), 98));
    let input = CheckedInput::new(&model, input).unwrap();
    let targets = targets(&rows(&expected["labels"]), number("smoothing"));
    let model = Arc::new(model);
    let mut learner = Native::new().learner(model.clone(), weights, &Limits::default()).unwrap();
    let batch = LearningBatch { input: &input, targets: &targets, dropout_seed: None };
    for (step, theirs) in expected["steps"].as_array().unwrap().iter().enumerate() {
        let loss = learner.step(&batch, &mut Nothing).unwrap();
        let count = loss.count as f64;
        close("loss", loss.nats / count, theirs["loss"].as_f64().unwrap());
        close("nll", loss.nll / count, theirs["nll"].as_f64().unwrap());
        assert_eq!(loss.correct as u64, theirs["correct"].as_u64().unwrap());
        if step == 0 {
            let ids: Vec<_> = model.graph.weight_ids().collect();
            let mean = |i: usize| learner.gradient(ids[i]).iter().map(|&g| f64::from(g) / count).collect();
            all_close(&model, mean, &gradients);
        }
        let rule = AdamW {
            learning_rate: number("learning_rate"),
            beta1: number("beta1"),
            beta2: number("beta2"),
            epsilon: number("epsilon"),
            weight_decay: number("weight_decay"),
            clip_norm: Some(number("clip_norm")),
            divide_by: count,
        };
        let report = learner.update(&rule).unwrap();
        close("gradient norm", report.gradient_norm, theirs["gradient_norm"].as_f64().unwrap());
        assert_eq!(report.step, step as u64 + 1);
    }
    let ours = learner.weights().unwrap();
    let ids: Vec<_> = model.graph.weight_ids().collect();
    all_close(&model, |i| ours.get(ids[i]).unwrap().iter().map(|&w| f64::from(w)).collect(), &after);
}
