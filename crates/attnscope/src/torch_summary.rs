//! What torch-summary prints of a classifier: the figures of lectures and of many notebooks, which torchinfo, its successor, counts
//! otherwise.

use attnscope_graph::{Block, Dim, Model, Node, Op, Sizes};

use crate::answer::TorchSummary;

/// Bytes of an f32.
const F32: u64 = 4;
/// Bytes of an id.
const ID: u64 = 8;

/// Its figures of a classifier for a batch; nothing for other models, which it does not know how to run.
pub(crate) fn torch_summary(model: &Model, sizes: &Sizes) -> Option<TorchSummary> {
    model.architecture.classifier()?;
    let (batch, length) = (sizes.get(Dim::Batch)? as u64, sizes.get(Dim::Source)? as u64);
    let row = sizes.with_lengths(1, sizes.get(Dim::Source)?, 0);
    let elements =
        |dims: &[Dim]| row.shape(dims).map(|shape| shape.iter().map(|&n| n as u64).product::<u64>());
    let (mut mult_adds, mut outputs) = (0u64, 0u64);
    for node in model.graph.nodes() {
        mult_adds = mult_adds.checked_add(node_mult_adds(model, node, &elements)?)?;
        if !node.weights.is_empty() && !is_recurrent(node) {
            outputs = outputs.checked_add(elements(&node.dims)?)?;
        }
    }
    outputs = outputs.checked_add(recurrent_outputs(model).checked_mul(length)?)?;
    Some(TorchSummary {
        mult_adds,
        input_bytes: batch.checked_mul(length)?.checked_mul(ID)?,
        forward_backward_bytes: outputs.checked_mul(2 * F32)?,
        parameter_bytes: model.parameters().0.checked_mul(F32)?,
    })
}

/// The parameters of a module once; of a convolution the weights without the biases, once for every position that leaves it.
fn node_mult_adds(model: &Model, node: &Node, elements: &dyn Fn(&[Dim]) -> Option<u64>) -> Option<u64> {
    let weight = |i: usize| node.weights.get(i).map_or(Some(0), |&id| elements(&model.graph.weight(id).dims));
    match node.op {
        Op::Conv1d { length, .. } => weight(0)?.checked_mul(elements(&[length])?),
        _ => weight(0)?.checked_add(weight(1)?),
    }
}

/// A step of a recurrent layer, which torch counts as a part of its module.
fn is_recurrent(node: &Node) -> bool {
    use attnscope_graph::{BlockStep, Role};
    matches!(node.role, Role::Block(_, BlockStep::Recurrent(..)))
}

/// Features that leave torch's recurrent modules: layers that follow each other are one module, and its last layer's leave it.
fn recurrent_outputs(model: &Model) -> u64 {
    let blocks =
        model.architecture.classifier().map(|classifier| classifier.blocks.as_slice()).unwrap_or_default();
    let features = |block: &Block| match *block {
        Block::Rnn { hidden, bidirectional } | Block::Lstm { hidden, bidirectional } => {
            Some(hidden as u64 * if bidirectional { 2 } else { 1 })
        }
        _ => None,
    };
    let is_last = |i: usize| blocks.get(i + 1).is_none_or(|next| features(next).is_none());
    let all = blocks.iter().enumerate().filter(|(i, _)| is_last(*i));
    all.filter_map(|(_, block)| features(block)).sum()
}

#[cfg(test)]
mod tests {
    use attnscope_graph::{
        Architecture, Classifier, Config, Head, NO_STACK, Positions, Recognised, TensorSpec, Wiring, build,
        recognise,
    };
    use serde_json::json;

    use super::*;

    /// A classifier of the lecture, from a listing of its tensors.
    fn classifier(blocks: serde_json::Value) -> Model {
        let classifier =
            Classifier { blocks: serde_json::from_value(blocks).unwrap(), classes: 2, length: Some(500) };
        let config = json!({ "model_type": "attnscope-classifier", "classifier": classifier });
        let architecture = Architecture::new(NO_STACK, Head::Classifier(classifier), |_| 0);
        let graph = build(&architecture, &Wiring { source_positions: Positions::None, ..Wiring::VASWANI });
        let mut sizes = Sizes::default();
        sizes.set(Dim::Model, 128);
        sizes.set(Dim::Vocab(attnscope_graph::Side::Source), 20_000);
        let spec = |(storage, weight): (usize, &attnscope_graph::Weight)| TensorSpec {
            name: weight.path.clone(),
            shape: sizes.shape(&weight.dims).unwrap(),
            dtype: "f32",
            bytes: 0,
            storage,
        };
        let tensors = graph.weights().iter().enumerate().map(spec).collect();
        let config = Config { source: "config.json", facts: config.as_object().unwrap() };
        match recognise(tensors, &[config], None).unwrap() {
            Recognised::Model(model) => *model,
            Recognised::Other(other) => panic!("{other:?}"),
        }
    }

    /// Millions, and megabytes of 2²⁰ bytes, as torch-summary rounds them.
    fn printed(model: &Model) -> (u64, [String; 5]) {
        let figures = torch_summary(model, &model.sizes.with_lengths(32, 500, 0)).unwrap();
        let mb = |bytes: u64| format!("{:.2}", bytes as f64 / (1u64 << 20) as f64);
        let rounded = [
            format!("{:.2}", figures.mult_adds as f64 / 1e6),
            mb(figures.input_bytes),
            mb(figures.forward_backward_bytes),
            mb(figures.parameter_bytes),
            mb(figures.estimated_bytes()),
        ];
        (model.parameters().0, rounded)
    }

    /// The first three as the lecture prints them, the others as torch-summary 1.4.5 does.
    #[test]
    fn the_lectures_figures() {
        let relu = json!({ "kind": "activation", "function": "relu" });
        let conv =
            |channels: usize| json!({ "kind": "conv1d", "channels": channels, "kernel": 7, "stride": 3 });
        let linear = |features: usize| json!({ "kind": "linear", "features": features });
        let flatten = |features: usize| json!({ "kind": "flatten", "features": features });
        let lstm = json!({ "kind": "lstm", "hidden": 64, "bidirectional": true });
        let last = json!({ "kind": "last-state" });
        let cases = [
            (
                json!([flatten(64_000), linear(1024), relu, linear(128), relu]),
                68_228_482,
                ["68.23", "0.12"],
                None,
            ),
            (
                json!([conv(128), relu, conv(256), relu, flatten(13_568), linear(128), relu]),
                4_641_538,
                ["35.38", "0.12"],
                None,
            ),
            (
                json!([conv(128), relu, conv(128), relu, { "kind": "max-pool" }, linear(128), relu]),
                2_806_402,
                ["27.58", "0.12"],
                Some(["0.70", "10.71", "11.53"]),
            ),
            (
                json!([{ "kind": "rnn", "hidden": 64 }, last]),
                2_572_546,
                ["2.57", "0.12"],
                Some(["0.73", "9.81", "10.67"]),
            ),
            (json!([lstm, lstm, last]), 2_758_914, ["2.76", "0.12"], None),
        ];
        for (blocks, parameters, first, rest) in cases {
            let (count, figures) = printed(&classifier(blocks.clone()));
            assert_eq!(count, parameters, "{blocks}");
            assert_eq!(figures[..2], first, "{blocks}");
            if let Some(rest) = rest {
                assert_eq!(figures[2..], rest, "{blocks}");
            }
        }
    }
}
