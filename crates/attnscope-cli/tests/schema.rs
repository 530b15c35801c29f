//! What commands print for programs is what `schema/` says.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::{MODELS, attnscope, fixture, root, stderr};
use jsonschema::Validator;
use serde_json::Value;

/// Runs a command and holds what it prints against a schema.
fn check(schema: &Validator, args: &[&str]) {
    let output = attnscope(&[args, &["--format", "json"]].concat());
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", stderr(&output)));
    let errors: Vec<String> =
        schema.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path)).collect();
    assert!(errors.is_empty(), "{args:?}: {errors:#?}");
}

fn schema(name: &str) -> Validator {
    let file = root().join("schema").join(format!("{name}.json"));
    let schema: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn a_schema_refuses_what_is_no_answer() {
    assert!(!schema("summary").is_valid(&serde_json::json!({ "schema": 1, "model": "demo" })));
}

#[test]
fn doctor() {
    let schema = schema("doctor");
    check(&schema, &["doctor", "demo", "--src", "Two dogs play in the snow."]);
    check(&schema, &["doctor", &fixture("torch-nn/model.pt")]);
}

#[test]
fn generate() {
    let schema = schema("generate");
    let sentences = ["--src", "Two dogs play in the snow.", "--src", "A man sleeps."];
    check(&schema, &[&["generate", "demo", "--beams", "3", "--align"], &sentences[..]].concat());
    check(&schema, &["generate", &fixture("marian"), "--src-ids", "5,6,7,2", "--tgt-ids", "2,5"]);
    let (whisper, tone) = (fixture("whisper-openai/tiny.pt"), fixture("audio/tone.wav"));
    check(&schema, &["generate", &whisper, "--audio", &tone, "--max-length", "4", "--tgt-ids", "2,5,6"]);
}

#[test]
fn inspect() {
    let schema = schema("inspect");
    for (path, ..) in MODELS {
        check(&schema, &["inspect", &fixture(path)]);
    }
    for other in ["other/bert", "other/gpt2", "adapter", "bart-classifier", "formats/gguf/every-type.gguf"] {
        check(&schema, &["inspect", &fixture(other), "--stats"]);
    }
    check(&schema, &["inspect", "demo", "--tensors"]);
}

#[test]
fn masks() {
    let schema = schema("masks");
    let wrong = ["--wrong", "causal-cross,multiply-after,no-padding"];
    check(&schema, &[&["masks", "demo", "--src", "A dog.", "--src", "Two dogs play."], &wrong[..]].concat());
    check(
        &schema,
        &["masks", &fixture("whisper"), "--audio", &fixture("audio/tone.wav"), "--tgt-ids", "2,5,6"],
    );
}

#[test]
fn summary() {
    let schema = schema("summary");
    for (path, _, heads) in MODELS {
        let heads = heads.unwrap_or(4).to_string();
        check(&schema, &["summary", &fixture(path), "--heads", &heads]);
    }
}
