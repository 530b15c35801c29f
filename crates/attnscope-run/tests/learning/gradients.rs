//! Every operation's gradient against central differences of the reference executor, in f64.

use std::collections::BTreeMap;

use attnscope_graph::{NodeId, Op};
use attnscope_run::{Kept, LearningSink, Native, Nothing, RunError, Sink, SplitMix, Tensor};

use crate::case::Case;

/// Keeps every gradient.
#[derive(Default)]
struct Gradients(BTreeMap<NodeId, Kept>);

impl Sink for Gradients {
    fn wants(&self, _: NodeId) -> bool {
        false
    }

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, _: NodeId, _: &Tensor) -> Result<(), RunError> {
        Ok(())
    }
}

impl LearningSink for Gradients {
    fn wants_gradient(&self, _: NodeId) -> bool {
        true
    }

    fn put_gradient(&mut self, node: NodeId, gradient: &Tensor) -> Result<(), RunError> {
        assert!(self.0.insert(node, gradient.to_f64()).is_none(), "handed over twice");
        Ok(())
    }
}

/// One of each kind of operation: positions from sines and tables, norms before and after, with and without mean, ties, gates,
/// biases by distance, rotary positions, shared heads, norms of heads, caps, parallel sublayers, audio, token types, recurrent layers, convolutions, pools.
const CASES: &[(&str, Option<usize>)] = &[
    ("marian", None),
    ("m2m100", None),
    ("t5-v1_1", None),
    ("whisper", None),
    ("gpt2", None),
    ("llama", None),
    ("gemma2", None),
    ("qwen3", None),
    ("gpt-neox", None),
    ("bert", None),
    ("torch-nn/model.pt", Some(4)),
    ("classifiers/rnn", None),
    ("classifiers/bilstm", None),
    ("classifiers/mlp", None),
    ("classifiers/conv", None),
    ("classifiers/conv-maxpool", None),
    ("classifiers/attention", None),
];

fn random_direction(random: &mut SplitMix, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.unit()).collect()
}

/// The place of the largest value, alone.
fn steepest(gradient: &[f32]) -> Vec<f32> {
    let at = (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs())).unwrap();
    (0..gradient.len()).map(|i| if i == at { 1.0 } else { 0.0 }).collect()
}

#[test]
fn the_gradient_of_every_weight_is_the_slope_of_the_loss() {
    for &(path, heads) in CASES {
        let mut case = Case::open(path, heads);
        let mut learner = case.learner(&Native::new());
        let loss = case.step(&mut *learner, &mut Nothing);
        let expected = case.loss(&case.weights, &[]);
        assert!((loss.nats - expected).abs() <= 1e-5 * expected, "{path}: {} and {expected}", loss.nats);
        let mut random = SplitMix::new(11);
        for id in case.model.graph.weight_ids() {
            let gradient = learner.gradient(id);
            for direction in [random_direction(&mut random, gradient.len()), steepest(&gradient)] {
                case.assert_weight(id, &gradient, &direction);
            }
        }
    }
}

#[test]
fn the_gradient_of_every_tensor_is_the_slope_of_the_loss() {
    for &(path, heads) in CASES {
        let mut case = Case::open(path, heads);
        let mut gradients = Gradients::default();
        case.step(&mut *case.learner(&Native::new()), &mut gradients);
        let tensors = case.run(&case.weights, &[], |_| true);
        let mut random = SplitMix::new(13);
        for (id, node) in case.model.graph.iter() {
            let is_constant = matches!(node.op, Op::Ids(_) | Op::TypeIds(_) | Op::Mask(_));
            let Some(gradient) = gradients.0.get(&id) else {
                assert!(is_constant, "{path}: {} has no gradient", node.path);
                continue;
            };
            assert_eq!(gradient.shape, tensors[&id].shape, "{path}: {}", node.path);
            let gradient: Vec<f32> = gradient.values.iter().map(|&g| g as f32).collect();
            for direction in [random_direction(&mut random, gradient.len()), steepest(&gradient)] {
                case.assert_tensor(id, &tensors[&id], &gradient, &direction);
            }
        }
    }
}
