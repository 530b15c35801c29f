//! `explain`: the arithmetic of a cell adds up to what the run stored, in every operation of every family; pages hold
//! the numbers of the model at hand.

mod common;

use attnscope::diagnose::cell::{CellError, Cells, needed};
use attnscope::run::{Keep, Native, sizes_of};
use attnscope::{Opened, Ready};
use common::trace::Trace;
use common::{MODELS, attnscope, fixture, open, stderr, stdout};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output = attnscope(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

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
        let sizes = sizes_of(ready.model, &input).unwrap();
        let mut keep = Keep::new(|_| true);
        Native::new().run(ready.model, &ready.weights, &input, &mut keep).unwrap();
        let cells =
            Cells { model: ready.model, weights: &ready.weights, sizes: &sizes, tensors: &keep.tensors };
        for (id, node) in ready.model.graph.iter() {
            let kept = &keep.tensors[&id];
            let largest =
                kept.values.iter().copied().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
            for at in some_cells(&kept.shape) {
                let told = cells.arithmetic(id, &at).unwrap();
                let last = told.steps.last().unwrap();
                let near =
                    last.value == told.stored || (last.value - told.stored).abs() <= 1e-5 * largest.max(1.0);
                assert!(near, "{name} {}{at:?}: {} and {}", node.path, last.value, told.stored);
                for step in told.steps.iter().filter(|s| !s.terms.is_empty()) {
                    let sum: f64 = step.terms.iter().map(|t| t.value).sum();
                    assert!(
                        sum == step.value || (sum - step.value).abs() < 1e-9,
                        "{name} {}: {step:?}",
                        node.path
                    );
                }
            }
        }
    }
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
    let graph = &opened.encoder_decoder().unwrap().graph;
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
    let sizes = sizes_of(ready.model, &input).unwrap();
    let tensors = std::collections::BTreeMap::new();
    let cells = Cells { model: ready.model, weights: &ready.weights, sizes: &sizes, tensors: &tensors };
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
    assert!(scaled.contains("nothing was run"), "{scaled}");
    let relative =
        stdout(&attnscope(&["explain", "relative-bias", &t5, "--src-ids", "5,6,1", "--tgt-ids", "0,7"]));
    assert!(relative.contains("key − query"), "{relative}");
    let masks = stdout(&attnscope(&["explain", "q4"]));
    assert!(masks.contains("largest weight on a shut key is 0;"), "{masks}");
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
