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
    validate(schema, &value, &format!("{args:?}"));
}

fn validate(schema: &Validator, value: &Value, what: &str) {
    let errors: Vec<String> =
        schema.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path)).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}");
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
fn check_examples() {
    let schema = schema("check");
    let folder = root().join("examples/worked");
    let files = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path().display().to_string());
    let files: Vec<String> = files.filter(|file| file.ends_with(".toml")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    check(&schema, &[&["check"], &files[..]].concat());
}

#[test]
fn check_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    let ids = ["--src-ids", "5,6,7,2", "--tgt-ids", "2,5"];
    assert!(
        attnscope(&[&["trace", &fixture("marian"), "--gradients", "--save", &trace], &ids[..]].concat())
            .status
            .success()
    );
    check(&schema("check-trace"), &["check", "--trace", &trace]);
    let about = std::fs::read(folder.path().join("trace/trace.json")).unwrap();
    validate(&schema("trace-file"), &serde_json::from_slice(&about).unwrap(), "trace.json");
}

#[test]
fn diff() {
    let schema = schema("diff");
    let (trace, hooks) = (fixture("marian/trace.safetensors"), fixture("dumps/hooks.npz"));
    check(&schema, &["diff", &trace, &hooks, "--model", &fixture("marian")]);
    // Other weights; and a file that is no model's.
    check(&schema, &["diff", &fixture("marian"), &fixture("marian-untied"), "--checkpoint"]);
    check(&schema, &["diff", &trace, &fixture("bart/trace.safetensors"), "--model", &fixture("marian")]);
}

#[test]
fn doctor() {
    let schema = schema("doctor");
    check(&schema, &["doctor", "demo", "--src", "Two dogs play in the snow."]);
    check(&schema, &["doctor", &fixture("torch-nn/model.pt")]);
}

#[test]
fn explain() {
    let schema = schema("explain");
    let topics = ["34", "softmax", "causal-leak", "questions", "decoder.0.cross_attn.weights"];
    for topic in topics {
        check(&schema, &["explain", topic]);
    }
    check(&schema, &["explain"]);
    check(&schema, &["explain", "--walk", &fixture("t5")]);
    check(&schema, &["explain", "decoder.0.cross_attn.masked_scores", "--at", "0,1,2,3"]);
}

#[test]
fn flow() {
    let schema = schema("flow");
    for (path, ..) in MODELS {
        check(&schema, &["flow", &fixture(path)]);
    }
    check(&schema, &["flow", "demo", "--layer", "decoder.1"]);
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

/// A report holds other answers, each of which is what its own schema says.
#[test]
fn report() {
    let (whole, run) = (schema("report"), schema("run"));
    let source = ["--src", "Two dogs play in the snow.", "--repair-time", "0"];
    let trained = tempfile::tempdir().unwrap();
    let folder = trained.path().join("run").display().to_string();
    assert!(attnscope(&["train", "toy", "--out", &folder, "--quiet"]).status.success());
    let output =
        attnscope(&[&["report", "demo", "--train", &folder, "--format", "json"], &source[..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&whole, &report, "report");
    validate(&run, &report["run"], "run");
    for (name, part) in [
        ("inspect", &report["inspection"]),
        ("flow", &report["flow"]),
        ("doctor", &report["doctor"]),
        ("trace", &report["run"]["trace"]),
        ("generate", &report["run"]["generation"]),
        ("masks", &report["run"]["masks"]),
    ] {
        validate(&schema(name), part, name);
    }
}

#[test]
fn summary() {
    let schema = schema("summary");
    for (path, _, heads) in MODELS {
        let heads = heads.unwrap_or(4).to_string();
        check(&schema, &["summary", &fixture(path), "--heads", &heads]);
    }
}

#[test]
fn trace() {
    let schema = schema("trace");
    check(&schema, &["trace", "demo", "--src", "A dog."]);
    // With values, those of masks among them.
    check(&schema, &["trace", "demo", "--layer", "decoder.0.self_attn", "--payload"]);
    check(&schema, &["trace", "toy", "--gradients", "--layer", "decoder.0.ffn", "--payload"]);
    check(
        &schema,
        &["trace", &fixture("t5"), "--src-ids", "5,6,1;7,1", "--tgt-ids", "0,5;0", "--snapshots", "1-12"],
    );
    let tone = fixture("audio/tone.wav");
    check(&schema, &["trace", &fixture("whisper"), "--audio", &tone, "--tgt-ids", "2,5,6"]);
    check(&schema, &["trace", &fixture("gpt2"), "--tgt-ids", "5,6,7"]);
}
