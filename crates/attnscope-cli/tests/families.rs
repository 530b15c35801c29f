//! Every family against what the code that made the fixture says of it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Architecture, Model, Node, NormKind, NormPlace, Op, Stack, build};
use common::{expected, fixture, models_and_variants, open, shared};
use serde_json::Value;

fn node<'m>(model: &'m Model, path: &str) -> &'m Node {
    model.graph.node(model.graph.find(path).unwrap_or_else(|| panic!("no node {path}")))
}

/// A number, or the one of a stack where they differ.
fn number(value: &Value, stack: Stack) -> f64 {
    value.as_f64().or_else(|| value[stack.name()].as_f64()).unwrap_or_else(|| panic!("{value}"))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * b.abs().max(1.0)
}

#[test]
fn everything_is_bound_and_counted() {
    for (path, family, heads) in models_and_variants() {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let expected = expected(path);
        assert_eq!(model.family.id, family, "{path}");
        assert!(model.binding.is_complete(), "{path}: {:?}", model.obstacles);
        assert!(model.obstacles.is_empty(), "{path}: {:?}", model.obstacles);
        let parameters = expected.get("parameters_in_file").unwrap_or(&expected["parameters"]);
        assert_eq!(model.parameters().0, parameters.as_u64().unwrap(), "{path}");
        if let Some(n) = expected["tensors_in_file"].as_u64() {
            // fairseq's count is of the model; its file holds the optimizer's tensors and statistics too.
            let own = opened.checkpoint.tensors().iter().filter(|t| t.name.starts_with(&model.prefix));
            let counted = if family == "fairseq" { own.count() } else { opened.checkpoint.tensors().len() };
            assert_eq!(counted as u64, n, "{path}");
        }
        // What fairseq's modules keep for themselves, and what only LED's global attention reads; nobody else has anything left
        // over.
        let known = |name: &str| {
            name.ends_with(".version") || name.ends_with("._float_tensor") || name.contains("_global.")
        };
        let unused = model.binding.unused.iter().map(|&i| model.tensors[i].name.as_str());
        let odd: Vec<&str> = unused.filter(|n| n.starts_with(&model.prefix) && !known(n)).collect();
        assert!(odd.is_empty(), "{path}: {odd:?}");
    }
}

#[test]
fn norms_are_where_the_source_has_them() {
    for (path, _, heads) in models_and_variants() {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let expected = expected(path);
        let norms = &expected["norms"];
        if norms.is_null() {
            continue;
        }
        let Op::Norm { kind, eps, .. } = node(model, "decoder.0.cross_attn.norm").op else {
            panic!("{path}")
        };
        assert_eq!(kind == NormKind::Rms, norms["kind"] == "rmsnorm", "{path}");
        assert!(close(eps, norms["eps"].as_f64().unwrap()), "{path}: {eps}");
        assert_eq!(model.wiring.norm_place == NormPlace::Pre, norms["layer"] == "pre", "{path}");
        for stack in Stack::ALL {
            let last = node(model, &format!("{}.out", stack.name()));
            assert_eq!(matches!(last.op, Op::Norm { .. }), norms["stack_end"] == true, "{path}");
            let side = stack.side().name();
            let place = norms["embedding"][stack.name()].as_str();
            let after = matches!(node(model, &format!("{side}.embed_pos")).op, Op::Norm { .. });
            let before = model.graph.find(&format!("{side}.embed_norm")).is_some();
            assert_eq!(
                (after, before),
                (place == Some("after positions"), place == Some("before positions")),
                "{path}"
            );
        }
    }
}

#[test]
fn scales_are_the_numbers_the_source_uses() {
    for (path, _, heads) in models_and_variants() {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let expected = expected(path);
        if expected["attention_scale"].is_null() {
            continue;
        }
        for stack in Stack::ALL {
            let scores = node(model, &format!("{}.0.self_attn.scores", stack.name()));
            let Op::Scores { scale, .. } = scores.op else { panic!("{path}") };
            let value = scale.value(&model.sizes).unwrap();
            assert!(close(value, number(&expected["attention_scale"], stack)), "{path}: {value}");
            if let Op::Embed { scale } = node(model, &format!("{}.embed", stack.side().name())).op {
                let value = scale.value(&model.sizes).unwrap();
                assert!(close(value, number(&expected["embedding_scale"], stack)), "{path}: {value}");
            }
        }
        if let Some(wanted) = expected["logits_scale"].as_f64() {
            let Op::Logits { scale } = node(model, "logits").op else { panic!("{path}") };
            assert!(close(scale.value(&model.sizes).unwrap(), wanted), "{path}");
        }
    }
}

#[test]
fn activations_and_positions_agree() {
    for (path, _, heads) in models_and_variants() {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let expected = expected(path);
        if let Some(word) = expected["activation"].as_str() {
            let Op::Activate(activation) = node(model, "encoder.0.ffn.act").op else { panic!("{path}") };
            assert_eq!(attnscope::graph::Activation::from_config(word), Some(activation), "{path}");
        }
        for stack in Stack::ALL {
            let side = stack.side().name();
            let positions = &expected["positions"];
            let positions = positions.get(stack.name()).unwrap_or(positions);
            let found = model.graph.find(&format!("{side}.positions")).map(|id| model.graph.node(id).op);
            match positions["kind"].as_str() {
                Some("relative") => {
                    assert!(found.is_none(), "{path}");
                    let bias = node(model, &format!("{}.1.self_attn.bias", stack.name()));
                    let Op::RelativeBias { max_distance, .. } = bias.op else { panic!("{path}") };
                    assert_eq!(Some(max_distance as u64), positions["max_distance"].as_u64(), "{path}");
                    assert!(model.graph.find("decoder.0.cross_attn.bias").is_none(), "{path}");
                }
                Some(kind) => {
                    let Some(Op::Positions { kind: ours, offset, .. }) = found else { panic!("{path}") };
                    let stored = kind == "learned" || positions["in_file"] == true;
                    assert_eq!(!ours.is_sinusoid(), stored, "{path}");
                    assert_eq!(Some(offset as u64), positions["offset"].as_u64(), "{path}");
                }
                None => {}
            }
        }
    }
}

#[test]
fn whisper_has_no_key_bias_and_no_source_mask() {
    for path in ["whisper", "whisper-openai/tiny.pt", "whisper-ggml/ggml-tiny.bin"] {
        let opened = open(&fixture(path), None);
        let model = opened.model().unwrap();
        assert_eq!(node(model, "decoder.0.cross_attn.k").weights.len(), 1, "{path}");
        assert_eq!(node(model, "decoder.0.cross_attn.q").weights.len(), 2, "{path}");
        assert!(model.graph.find("decoder.0.cross_attn.mask").is_none(), "{path}");
        assert!(model.graph.find("decoder.0.self_attn.mask").is_some(), "{path}");
    }
}

#[test]
fn real_checkpoints_have_their_published_sizes() {
    let cases = [
        ("models/whisper-tiny.en/tiny.en.pt", "whisper", 37_184_256),
        ("models/marian-tiny-en-de", "marian", 1_174_528),
        ("models/bart-tiny-en-de", "bart", 1_208_320),
        ("models/t5-tiny-en-de", "t5", 1_169_152),
    ];
    for (path, family, parameters) in cases {
        let Some(path) = shared(path) else { continue };
        let opened = open(&path, None);
        let model = opened.model().unwrap();
        assert_eq!((model.family.id, model.parameters().0), (family, parameters), "{path}");
        assert!(model.obstacles.is_empty(), "{path}");
    }
}

#[test]
fn packed_projections_are_thirds_of_one_tensor() {
    let opened = open(&fixture("torch-nn/model.pt"), Some(4));
    let model = opened.model().unwrap();
    let rows = |leaf: &str| {
        let weight = node(model, &format!("decoder.1.cross_attn.{leaf}")).weights[0];
        match model.binding.slot(weight) {
            attnscope::graph::Slot::Bound(found) => found.rows.clone().unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((rows("q"), rows("k"), rows("v")), (0..24, 24..48, 48..72));
}

/// Nothing is put into a graph after it was built: building it again, or rewiring a model to its own wiring, changes
/// nothing. A trace's list of nodes is enough to know the architecture.
#[test]
fn a_graph_is_what_build_makes_of_its_architecture_and_wiring() {
    for (path, _, heads) in models_and_variants() {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        assert_eq!(model.graph, build(&model.architecture, &model.wiring), "{path}");
        assert_eq!(model.rewired(&model.wiring, None).graph, model.graph, "{path}");
        let paths = model.graph.nodes().iter().map(|node| node.path.as_str());
        assert_eq!(Architecture::of_paths(paths), model.architecture, "{path}");
        for node in model.graph.nodes() {
            assert_eq!(node.path.as_str(), node.role.to_string(), "{path}");
            assert_eq!(node.path.layer(), node.role.layer(), "{path}");
        }
    }
}
