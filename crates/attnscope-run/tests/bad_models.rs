//! Models whose documents and tensors cannot both be true: each is an error, an obstacle or a contradiction that says what was
//! found, what was expected, and where.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::borrow::Cow;
use std::sync::Arc;

use attnscope_checkpoint::{Checkpoint, DType, HeldTensor};
use attnscope_graph::{Config, Model, Recognised, recognise};
use attnscope_run::{Weights, tensor_specs};
use common::fixture;
use serde_json::{Value, json};

/// The model, or why there is none.
fn recognised(checkpoint: &Checkpoint) -> Result<Model, String> {
    let configs: Vec<Config<'_>> =
        checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
    match recognise(tensor_specs(checkpoint), &configs, None) {
        Ok(Recognised::Model(model)) => Ok(*model),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Why a model that is drawn does not run.
fn obstacle(checkpoint: &Checkpoint) -> String {
    let model = recognised(checkpoint).unwrap();
    Weights::load(&model, checkpoint).unwrap_err().to_string()
}

/// Tensors of 0 in f32 with a config.json.
fn held(tensors: &[(String, Vec<usize>)], config: &Value) -> Checkpoint {
    let tensor = |(name, shape): &(String, Vec<usize>)| {
        let bytes = Arc::new(vec![0u8; 4 * shape.iter().product::<usize>()]);
        HeldTensor { name: name.clone(), dtype: DType::F32, shape: shape.clone(), bytes }
    };
    let documents = vec![("config.json".to_owned(), config.to_string().into_bytes())];
    Checkpoint::held("a model", tensors.iter().map(tensor).collect(), documents).unwrap()
}

fn fixture_config(folder: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(folder).join("config.json")).unwrap()).unwrap()
}

/// The tensors of a fixture, without their values, with an edited config.
fn edited(folder: &str, edit: impl FnOnce(&mut Value)) -> Checkpoint {
    let listed = Checkpoint::open(&fixture(folder)).unwrap();
    let tensors: Vec<_> = listed.tensors().iter().map(|t| (t.name.clone(), t.shape.clone())).collect();
    let mut config = fixture_config(folder);
    edit(&mut config);
    held(&tensors, &config)
}

#[test]
fn heads_of_keys_that_do_not_divide_the_heads_are_an_obstacle() {
    let listed = Checkpoint::open(&fixture("llama")).unwrap();
    let is_shared = |name: &str| name.contains("k_proj") || name.contains("v_proj");
    let tensors: Vec<_> = listed
        .tensors()
        .iter()
        .map(|t| (t.name.clone(), if is_shared(&t.name) { vec![36, 32] } else { t.shape.clone() }))
        .collect();
    let mut config = fixture_config("llama");
    config["num_key_value_heads"] = json!(3);
    let error = obstacle(&held(&tensors, &config));
    assert!(error.contains("3 heads of keys and values do not divide 4"), "{error}");
}

#[test]
fn a_window_of_0_is_refused_with_its_place() {
    let error = recognised(&edited("mistral", |config| config["sliding_window"] = json!(0))).unwrap_err();
    for word in ["config.json", "sliding_window", "a number of positions, or null", "0"] {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn a_scaling_of_an_unknown_type_is_named_and_does_not_run() {
    let spiral = edited("llama", |config| config["rope_parameters"]["rope_type"] = json!("spiral"));
    let error = obstacle(&spiral);
    assert!(error.contains("spiral") && error.contains("yarn"), "{error}");
}

/// llama.gguf with another number under one of its keys.
fn gguf_with(key: &str, value: u32) -> Checkpoint {
    let mut bytes = std::fs::read(fixture("decoder-gguf/llama.gguf")).unwrap();
    let at = bytes.windows(key.len()).position(|some| some == key.as_bytes()).unwrap() + key.len();
    // The type of the value, 4 for u32, then the value.
    assert_eq!(bytes[at..at + 4], [4, 0, 0, 0]);
    bytes[at + 4..at + 8].copy_from_slice(&value.to_le_bytes());
    Checkpoint::from_memory("llama.gguf", vec![("llama.gguf", Cow::Owned(bytes))]).unwrap()
}

#[test]
fn metadata_of_a_gguf_that_contradict_its_tensors_are_told() {
    for (key, value) in [
        ("llama.embedding_length", 64),
        ("llama.block_count", 7),
        ("llama.feed_forward_length", 41),
        ("llama.attention.head_count_kv", 3),
    ] {
        let model = recognised(&gguf_with(key, value)).unwrap();
        let told: Vec<String> = model.contradictions().iter().map(|found| format!("{found:?}")).collect();
        let said = format!("metadata: {key}");
        let is_told = |told: &String| told.contains(&said) && told.contains(&format!("Number({value})"));
        assert!(told.iter().any(is_told), "{key}: {told:?}");
    }
    // This one cannot be true of any tensors of these shapes.
    let error = obstacle(&gguf_with("llama.attention.head_count", 7));
    assert!(error.contains("metadata: llama.attention.head_count") && error.contains("48"), "{error}");
}
