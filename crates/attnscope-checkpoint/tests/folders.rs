//! Folders: what is chosen, what is beside it, and what is refused.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are tests too.

mod common;

use std::fs;
use std::path::Path;

use attnscope_checkpoint::Checkpoint;
use common::safetensors;

fn one(name: &str) -> Vec<u8> {
    safetensors(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#), 1)
}

fn refused(path: &Path, because: &str) {
    let error = Checkpoint::open(path).unwrap_err();
    let shown = format!("{error} / {}", error.remedy());
    assert!(shown.contains(because), "{shown} does not mention {because:?}");
}

/// What somebody saved beside a model has the ending of weights, too.
#[test]
fn a_file_that_is_called_model_is_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("logits.safetensors"), one("logits")).unwrap();
    assert_eq!(Checkpoint::open(dir).unwrap().tensors()[0].name, "logits");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tiny-transformer/tiny.pt");
    fs::copy(model, dir.join("model.pt")).unwrap();
    let opened = Checkpoint::open(dir).unwrap();
    assert!(opened.tensors().len() > 10 && opened.tensors().iter().all(|tensor| tensor.name != "logits"));
}

#[test]
fn sharded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let index = |map: &str| fs::write(dir.join("model.safetensors.index.json"), map).unwrap();
    fs::write(dir.join("m-1.safetensors"), one("a")).unwrap();
    index(r#"{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#);
    refused(dir, "1 of 2 shards are missing: m-2.safetensors");
    fs::write(dir.join("m-2.safetensors"), one("b")).unwrap();
    let model = Checkpoint::open(dir).unwrap();
    assert_eq!(model.tensors().len(), 2);
    assert_eq!(model.files().count(), 2);
    assert!(model.ignored().is_empty());
    let by_index = Checkpoint::open(&dir.join("model.safetensors.index.json")).unwrap();
    assert_eq!(by_index.tensors(), model.tensors());

    index(r#"{"weight_map":{"a":"m-2.safetensors","b":"m-2.safetensors"}}"#);
    refused(dir, "nowhere");
    index(r#"{"weight_map":{"a":"../m-1.safetensors"}}"#);
    refused(dir, "same folder");
    index(r#"{"weight_map":{"a":"/etc/passwd"}}"#);
    refused(dir, "same folder");
    index(r#"{"weight_map":{}}"#);
    refused(dir, "at least one");
    index("{");
    refused(dir, "line 1, column 1");
    fs::write(dir.join("m-2.safetensors"), one("a")).unwrap();
    index(r#"{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#);
    refused(dir, "given twice");
}

#[test]
fn choices() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("README.md"), "hello").unwrap();
    fs::create_dir(dir.join("step-1")).unwrap();
    fs::write(dir.join("step-1/model.safetensors"), one("a")).unwrap();
    refused(dir, "README.md");
    refused(dir, "step-1");
    fs::write(dir.join("one.bin"), "not weights").unwrap();
    refused(dir, "begins \"not weights\"");
    fs::write(dir.join("two.bin"), one("b")).unwrap();
    fs::write(dir.join("training_args.bin"), "x").unwrap();
    assert!(Checkpoint::open(dir).unwrap().tensor("b").is_some());
    fs::write(dir.join("x.safetensors"), one("c")).unwrap();
    fs::write(dir.join("source.spm"), "x").unwrap();
    fs::write(dir.join("config.json"), r#"{"d_model": 8}"#).unwrap();
    let model = Checkpoint::open(dir).unwrap();
    assert!(model.tensor("c").is_some());
    assert_eq!(model.configs()[0].facts["d_model"], 8);
    assert_eq!(model.tokenizer()[0].name(), "source.spm");
    assert_eq!(model.ignored().len(), 2);
    fs::write(dir.join("y.safetensors"), one("d")).unwrap();
    refused(dir, "x.safetensors, y.safetensors");
    fs::write(dir.join("model.safetensors"), one("e")).unwrap();
    fs::write(dir.join("config.json"), "{\n  \"a\": ,\n}").unwrap();
    refused(dir, "line 2, column 8");
    fs::write(dir.join("config.json"), "[]").unwrap();
    refused(dir, "a JSON object");
    refused(&dir.join("absent"), "give a checkpoint file");
}

#[test]
fn metadata_of_a_header() {
    let header = r#"{"__metadata__":{"format":"pt","step":"12","config":"{\"d_model\":8}"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let files = vec![
        ("model.safetensors", safetensors(header, 1).into()),
        ("tokenizer.json", b"{}".as_slice().into()),
        ("config.json", b"{\"x\":1}".as_slice().into()),
    ];
    let model = Checkpoint::from_memory("demo", files).unwrap();
    let sources: Vec<_> = model.configs().iter().map(|c| c.source.as_str()).collect();
    assert_eq!(sources, ["config.json", "metadata", "metadata config"]);
    assert_eq!(model.configs()[1].facts["step"], 12);
    assert_eq!(model.configs()[2].facts["d_model"], 8);
    assert_eq!(model.tokenizer()[0].read().unwrap().as_ref(), b"{}");
}

#[test]
fn sharded_pytorch() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tensor = common::tensor("I0\n", "I4\n", "I1\n");
    for name in ["a", "b"] {
        let pickle = format!("(dS'{name}'\n{tensor}s.");
        fs::write(dir.join(format!("m-{name}.bin")), common::torch(pickle.as_bytes())).unwrap();
    }
    let index = r#"{"metadata":{},"weight_map":{"a":"m-a.bin","b":"m-b.bin"}}"#;
    fs::write(dir.join("pytorch_model.bin.index.json"), index).unwrap();
    let model = Checkpoint::open(dir).unwrap();
    assert_eq!(model.tensors().len(), 2);
    assert!(model.file_of(model.tensor("b").unwrap()).ends_with("m-b.bin"));
    assert!(model.shared().is_empty());
    fs::write(dir.join("m-b.bin"), one("b")).unwrap();
    refused(dir, "pytorch, like the others");
}
