//! `summary` against torchinfo's own answers, layer by layer.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Op, Slot, torchinfo_multiply_adds};
use common::{fixture, open, root};
use serde_json::Value;

#[test]
fn every_layer_that_torchinfo_counts() {
    let models = [
        ("marian", fixture("marian")),
        ("t5", fixture("t5")),
        ("whisper", fixture("whisper")),
        ("marian-tiny-en-de", "demo".to_owned()),
    ];
    for (name, path) in models {
        let text = std::fs::read_to_string(root().join(format!("fixtures/summary/{name}.json"))).unwrap();
        let answers: Value = serde_json::from_str(&text).unwrap();
        let opened = open(&path, None);
        let model = opened.model().unwrap();
        // The audio window is the whole position table; token models were given 7 positions.
        let source = if name == "whisper" { 30 } else { 7 };
        let sizes = model.sizes.with_lengths(2, source, 5);
        let mut compared = 0;
        for layer in answers["leaves"].as_array().unwrap() {
            let module = layer["path"].as_str().unwrap();
            let class = layer["class"].as_str().unwrap();
            let tensor = format!("{module}.weight");
            let is_here =
                |slot: &Slot| matches!(slot, Slot::Bound(f) if model.tensors[f.tensor].name == tensor);
            // Tied modules share a tensor under another name; they are compared by the table's own node.
            let node = model.graph.nodes().iter().find(|n| {
                n.weights.first().is_some_and(|&w| is_here(model.binding.slot(w)))
                    && !matches!(n.op, Op::Positions { .. } | Op::RelativeBias { .. })
            });
            let Some(node) = node else { continue };
            assert_eq!(
                torchinfo_multiply_adds(model, node, &sizes),
                layer["mult_adds"].as_u64(),
                "{name}: {module} ({class}), {}",
                node.path
            );
            if !module.contains("conv") {
                let shape: Vec<u64> = sizes.shape(&node.dims).unwrap().iter().map(|&n| n as u64).collect();
                let theirs: Vec<u64> =
                    layer["output"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
                assert_eq!(shape, theirs, "{name}: {module}");
            }
            compared += 1;
        }
        // All projections, norms, feed-forwards and embeddings under their own names.
        assert!(compared >= 30, "{name}: only {compared} layers were compared");
    }
}
