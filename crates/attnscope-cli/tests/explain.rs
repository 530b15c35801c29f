//! `explain`: the arithmetic of a cell adds up to what the run stored, in every operation of every family; pages hold
//! the numbers of the model at hand.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::diagnose::cell::{CellError, Cells, needed};
use attnscope::diagnose::rounding::Precision;
use attnscope::run::CheckedInput;
use attnscope::{Opened, Ready};
use common::run::{Keep, run, run_reference};
use common::trace::Trace;
use common::{MODELS, attnscope, fixture, json, open, stderr, stdout};

/// Cells spread over a tensor: its first, its last, and some between.
fn some_cells(shape: &[usize]) -> Vec<Vec<usize>> {
    let count: usize = shape.iter().product();
    let place = |mut flat: usize| {
        let mut at = vec![0; shape.len()];
        for (index, length) in at.iter_mut().zip(shape).rev() {
            *index = flat % length;
            flat /= length;
        }
        at
    };
    [0, count / 3, count / 2, 2 * count / 3, count - 1].map(place).to_vec()
}

#[test]
fn every_cell_of_every_family_adds_up_to_what_was_stored() {
    for &(name, _, heads) in MODELS {
        let opened = open(&fixture(name), heads);
        let ready = Ready::new(&opened).unwrap();
        let input = Trace::open(name).input();
        let sizes = CheckedInput::new(ready.model, input.clone()).unwrap().sizes().clone();
        let (mut keep, mut judge) = (Keep::new(|_| true), Keep::new(|_| true));
        run(ready.model, ready.weights(), &input, &mut keep).unwrap();
        run_reference(ready.model, ready.weights(), &input, &mut judge).unwrap();
        let cells = Cells {
            model: ready.model,
            weights: ready.weights(),
            input: &input,
            sizes: &sizes,
            precision: Precision::F32,
            tensors: &keep.tensors,
        };
        for (id, node) in ready.model.graph.iter() {
            let reference = &judge.tensors[&id];
            let finite = reference.values.iter().filter(|v| v.is_finite());
            let largest = finite.fold(0.0, |m: f64, v| m.max(v.abs()));
            for at in some_cells(&reference.shape) {
                let told = cells.arithmetic(id, &at).unwrap();
                assert!(told.agrees(), "{name} {}{at:?}: {} and {}", node.path, told.value(), told.stored);
                let flat = at.iter().zip(&reference.shape).fold(0, |flat, (i, n)| flat * n + i);
                let (a, b) = (told.value(), reference.values[flat]);
                assert!(
                    a == b || (a - b).abs() <= 2e-5 * largest.max(1e-6),
                    "{name} {}{at:?}: {a} and {b}",
                    node.path
                );
            }
        }
    }
}

#[test]
fn a_cell_that_was_tampered_with_is_accused_and_a_cancelled_sum_is_not() {
    let opened = open(&fixture("bart"), None);
    let ready = Ready::new(&opened).unwrap();
    let input = Trace::open("bart").input();
    let sizes = CheckedInput::new(ready.model, input.clone()).unwrap().sizes().clone();
    let mut keep = Keep::new(|_| true);
    run(ready.model, ready.weights(), &input, &mut keep).unwrap();
    let mut accused = Vec::new();
    for leaf in ["scores", "mask", "weights", "context", "norm"] {
        let id = ready.model.graph.find(&format!("decoder.0.self_attn.{leaf}")).unwrap();
        let mut tensors = keep.tensors.clone();
        let kept = tensors.get_mut(&id).unwrap();
        kept.values[0] += 1e-3;
        let cells = Cells {
            model: ready.model,
            weights: ready.weights(),
            input: &input,
            sizes: &sizes,
            precision: Precision::F32,
            tensors: &tensors,
        };
        let told = cells.arithmetic(id, &vec![0; kept_rank(&tensors, id)]).unwrap();
        accused.push(!told.agrees());
    }
    assert_eq!(accused, [true; 5]);
    // Two large products that nearly cancel: what is left of them may be off by what they were rounded to.
    let id = ready.model.graph.find("decoder.0.ffn.out").unwrap();
    let node = ready.model.graph.node(id);
    let w = ready.weights().get(node.weights[0]).unwrap();
    let told = |terms: [f64; 2], off: f64| {
        let mut tensors = keep.tensors.clone();
        let x = tensors.get_mut(&node.inputs[0]).unwrap();
        x.values.fill(0.0);
        (x.values[0], x.values[1]) = (terms[0] / f64::from(w[0]), terms[1] / f64::from(w[1]));
        let bias = f64::from(ready.weights().get(node.weights[1]).unwrap()[0]);
        tensors.get_mut(&id).unwrap().values[0] = terms[0] + terms[1] + bias + off;
        let cells = Cells {
            model: ready.model,
            weights: ready.weights(),
            input: &input,
            sizes: &sizes,
            precision: Precision::F32,
            tensors: &tensors,
        };
        cells.arithmetic(id, &[0, 0, 0]).unwrap().agrees()
    };
    assert!(told([1e4, -9999.0], 5e-4));
    assert!(!told([1e4, -9999.0], 1.0));
    assert!(!told([0.5, 0.5], 5e-4));
}

fn kept_rank(
    tensors: &std::collections::BTreeMap<attnscope::graph::NodeId, attnscope::run::Kept>,
    id: attnscope::graph::NodeId,
) -> usize {
    tensors[&id].shape.len()
}

#[test]
fn the_terms_of_a_weight_are_its_products_and_exponentials() {
    let args = ["explain", "decoder.0.cross_attn.weights", "--at", "0,1,2,3", "--format", "json"];
    let cell = &json(&args)["cell"];
    let steps = cell["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["q·k", "scores", "masked_scores", "max", "sum", "weights"]);
    assert_eq!(steps[0]["terms"].as_array().unwrap().len(), 32);
    let stored = cell["stored"].as_f64().unwrap();
    assert!((steps[5]["value"].as_f64().unwrap() - stored).abs() < 1e-7);
    // By hand, from the printed terms alone.
    let q_k: f64 = steps[0]["terms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let factors = t["written"]["product"].as_array().unwrap();
            factors[0].as_f64().unwrap() * factors[1].as_f64().unwrap()
        })
        .sum();
    let scores = q_k / 32f64.sqrt();
    let (max, sum) = (steps[3]["value"].as_f64().unwrap(), steps[4]["value"].as_f64().unwrap());
    assert!(((scores - max).exp() / sum - stored).abs() < 1e-6);
}

#[test]
fn a_trace_needs_only_what_the_arithmetic_asks_for() {
    let opened = Opened::open("demo", None).unwrap();
    let graph = &opened.model().unwrap().graph;
    let names = |path: &str| -> Vec<&str> {
        needed(graph, graph.find(path).unwrap()).into_iter().map(|id| graph.node(id).path.leaf()).collect()
    };
    assert_eq!(
        names("encoder.0.self_attn.weights"),
        ["q_heads", "k_heads", "scores", "mask", "masked_scores", "weights"]
    );
    assert_eq!(names("encoder.0.self_attn.norm"), ["residual", "norm"]);
}

#[test]
fn cells_that_do_not_exist_are_refused() {
    let opened = open(&fixture("bart"), None);
    let ready = Ready::new(&opened).unwrap();
    let input = Trace::open("bart").input();
    let sizes = CheckedInput::new(ready.model, input.clone()).unwrap().sizes().clone();
    let tensors = std::collections::BTreeMap::new();
    let cells = Cells {
        model: ready.model,
        weights: ready.weights(),
        input: &input,
        sizes: &sizes,
        precision: Precision::F32,
        tensors: &tensors,
    };
    let logits = ready.model.graph.find("logits").unwrap();
    assert_eq!(cells.arithmetic(logits, &[0, 0, 0]), Err(CellError::NotCaptured("logits".into())));
    for (at, part) in [
        ("0,0,99,0", "index 99 of dimension 2"),
        ("0,0", "4 dimensions"),
        ("a,b", "expected indices"),
        ("-1,0,0,0", "expected indices"),
    ] {
        let output = attnscope(&["explain", "34", &format!("--at={at}")]);
        assert_eq!(output.status.code(), Some(2), "{at}");
        assert!(stderr(&output).contains(part), "{at}: {}", stderr(&output));
    }
}

#[test]
fn every_topic_has_a_page_in_every_form() {
    let index = json(&["explain", "--format", "json"]);
    let rows = index["pages"][0]["parts"][0]["rows"].as_array().unwrap();
    let topics: Vec<&str> = rows.iter().map(|r| r[0].as_str().unwrap()).collect();
    let ideas: Vec<&&str> = topics.iter().filter(|t| !t.is_empty() && !t.contains(['.', ' '])).collect();
    assert!(ideas.len() >= 17, "{ideas:?}");
    for topic in ideas {
        for model in ["demo", "toy"] {
            let text = stdout(&attnscope(&["explain", topic, model, "--width", "80"]));
            assert!(text.lines().count() > 5, "{topic}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{topic} {model}: {text}");
        }
    }
    let markdown = stdout(&attnscope(&["explain", "heads", "--format", "markdown"]));
    assert!(markdown.starts_with("# heads: ") && markdown.contains("| ---: |"), "{markdown}");
}

#[test]
fn answers_hold_the_numbers_of_the_model() {
    let t5 = fixture("t5");
    let scaled = stdout(&attnscope(&["explain", "scaled-dot-product", &t5]));
    assert!(scaled.contains("does not scale"), "{scaled}");
    assert!(scaled.contains("the model was not run"), "{scaled}");
    let relative =
        stdout(&attnscope(&["explain", "relative-bias", &t5, "--src-ids", "5,6,1", "--tgt-ids", "0,7"]));
    assert!(relative.contains("key − query"), "{relative}");
    let masks = stdout(&attnscope(&["explain", "q4"]));
    assert!(masks.contains("largest weight on a masked key is 0;"), "{masks}");
    let square = stdout(&attnscope(&["explain", "q3", "toy"]));
    assert!(square.contains("[1, 4, 5, 6]") && square.contains("not square"), "{square}");
}

#[test]
fn the_walk_has_43_stops_on_any_model() {
    let t5 = fixture("t5");
    for model in ["toy", &t5] {
        let text = stdout(&attnscope(&["explain", "--walk", model]));
        for number in 1..=43 {
            assert!(text.contains(&format!("\n{number}. ")), "{number} of {model}");
        }
    }
}

#[test]
fn an_unknown_topic_lists_the_nearest() {
    let output = attnscope(&["explain", "cross-atention"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cross-attention"), "{}", stderr(&output));
}

#[test]
fn cells_of_a_batch_carry_the_names_of_their_own_row() {
    let args = ["explain", "34", "--src", "A man.", "--src", "Two dogs are playing.", "--at", "1,0,0,1"];
    let text = stdout(&attnscope(&args));
    assert!(text.contains("s 1 (▁dogs)"), "{text}");
}

#[test]
fn a_layer_that_is_not_there_is_refused() {
    for args in [&["explain", "--walk", "--layer-index", "9"][..], &["explain", "heads", "toy", "--walk"]] {
        assert_eq!(attnscope(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn snapshots_that_are_no_whole_node_have_pages_of_their_own() {
    let corner = stdout(&attnscope(&["explain", "3"]));
    assert!(corner.contains("src.embed.weight [4000, 128]") && corner.contains("row"), "{corner}");
    let logits = stdout(&attnscope(&["explain", "43"]));
    assert!(logits.contains("</s>") && logits.contains("Snapshot 43"), "{logits}");
    let residual = stdout(&attnscope(&["explain", "14"]));
    assert!(residual.contains("Beside it: encoder.0.self_attn.out."), "{residual}");
}

#[test]
fn a_norm_is_added_up_from_its_features() {
    let cell = &json(&["explain", "15", "--at", "0,1,2", "--format", "json"])["cell"];
    let steps = cell["steps"].as_array().unwrap();
    let terms = |name: &str| {
        let step = steps.iter().find(|s| s["name"] == name).unwrap();
        step["terms"].as_array().unwrap().iter().map(|t| t["value"].as_f64().unwrap()).sum::<f64>()
    };
    let value = |name: &str| steps.iter().find(|s| s["name"] == name).unwrap()["value"].as_f64().unwrap();
    assert!((terms("Σx") / 128.0 - value("mean")).abs() < 1e-12);
    assert!((terms("Σ(x − mean)²") / 128.0 - value("var")).abs() < 1e-12);
}
