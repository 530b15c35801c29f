//! Weights that a converter lost, taken out of the built-in model: each loss is named with its place, and nothing else.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::faults::{Patient, copy_layer};
use common::{attnscope, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the rule finds in a broken copy of `demo`.
fn found(fault: impl FnOnce(&mut Patient)) -> Vec<Value> {
    let folder = TempDir::new().unwrap();
    let mut patient = Patient::of("demo");
    fault(&mut patient);
    let broken = patient.save(&folder.path().join("broken"));
    let rules = ["--rules", "misconverted-weight", "--format", "json", "--quiet", "--fail-on", "never"];
    let output = attnscope(&[&["doctor", &broken][..], &rules].concat());
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    report["findings"].as_array().unwrap().clone()
}

/// What is lost is told without pairs.
#[test]
fn losses_are_told_from_the_file() {
    let kinds = |fault: &dyn Fn(&mut Patient)| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let findings = found(fault);
        findings.iter().map(|f| (text(&f["repair"]["kind"]), text(&f["repair"]["weights"][0]))).collect()
    };
    let one = |kind: &str, weight: &str| vec![(kind.to_owned(), weight.to_owned())];
    assert_eq!(
        kinds(&|p| copy_layer(p, "decoder.0", "decoder.1")),
        one("copied_layer", "decoder.1.self_attn.q.weight")
    );
    let bias = "encoder.1.ffn.hidden.bias";
    assert_eq!(kinds(&|p| p.edit(bias, |w| w.fill(0.0))), one("dropped_bias", bias));
    assert_eq!(
        kinds(&|p| p.tensors.retain(|t| !t.name.contains("decoder.layers.1."))),
        one("missing_layer", "decoder.1.self_attn.q.weight")
    );
}

/// A whole model has lost nothing; a k bias has no effect, and is no more than information.
#[test]
fn nothing_else_is_accused() {
    assert_eq!(found(|_| ()), Vec::<Value>::new());
    let bias = found(|p| p.edit("encoder.0.self_attn.k.bias", |w| w.fill(0.0)));
    assert_eq!(bias.len(), 1, "{bias:#?}");
    assert_eq!((&bias[0]["severity"], &bias[0]["repair"]["kind"]), (&json!("info"), &json!("dropped_bias")));
}
