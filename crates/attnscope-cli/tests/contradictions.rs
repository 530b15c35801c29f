//! Configs that contradict their tensors: what is said of them, against what Hugging Face does.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Activation, Outcome};
use common::{attnscope, config_of, fixture, open, stderr, stdout};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// The weights of a fixture beside its config with some keys set, or left out where they are null.
fn edited(name: &str, keys: &Value) -> (TempDir, String) {
    let mut config = config_of(name);
    for (key, value) in keys.as_object().unwrap() {
        match value {
            Value::Null => config.as_object_mut().unwrap().remove(key),
            value => config.as_object_mut().unwrap().insert(key.clone(), value.clone()),
        };
    }
    let folder = tempdir().unwrap();
    std::fs::copy(fixture(&format!("{name}/model.safetensors")), folder.path().join("model.safetensors"))
        .unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let path = folder.path().display().to_string();
    (folder, path)
}

#[test]
fn what_hugging_face_does_is_what_is_said() {
    let text = std::fs::read_to_string(fixture("contradictions/expected.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 30);
    for case in &cases {
        let (_folder, path) = edited(case["fixture"].as_str().unwrap(), &case["config"]);
        let opened = open(&path, None);
        let model = opened.model().unwrap();
        if let Some(word) = case["activation"].as_str() {
            assert_eq!(Some(model.wiring.activation), Activation::from_config(word), "{case}");
        }
        let found = model.contradictions();
        // Of another family it is not foretold whether shapes do not fit or weights are missing.
        if case["config"].get("model_type").is_some() {
            let is_other = found.iter().any(|c| c.hugging_face == Some(Outcome::OtherFamily));
            assert_eq!(is_other, case["hugging_face"] != "loads", "{case}: {found:?}");
            continue;
        }
        let worst = found.iter().filter_map(|c| c.hugging_face).max().map_or("loads", Outcome::name);
        assert_eq!(worst, case["hugging_face"], "{case}: {found:?}");
    }
}

#[test]
fn the_doctor_reports_it_and_a_trace_says_which_model_runs() {
    let (_folder, path) = edited("t5", &json!({ "num_decoder_layers": 1 }));
    let output = attnscope(&["doctor", &path, "--rules", "config-contradicts-tensors", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let findings: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let found = &findings["findings"][0];
    assert_eq!(found["rule"], "config-contradicts-tensors");
    assert_eq!((&found["said"], &found["shown"]), (&json!(1), &json!(2)), "{found}");
    assert_eq!(found["hugging_face"], "ignores tensors");
    let output = attnscope(&["trace", &path, "--src-ids", "5,6,1", "--tgt-ids", "0,7", "--layer", "logits"]);
    let note = stderr(&output);
    assert!(note.contains("num_decoder_layers is 1, and the tensors show 2"), "{note}");
    assert!(note.contains("runs the first 1 and ignores the others"), "{note}");
    let healthy = attnscope(&["doctor", &fixture("t5"), "--rules", "config-contradicts-tensors"]);
    assert_eq!(healthy.status.code(), Some(0), "{}", stdout(&healthy));
}

/// Both are what a converter writes that copies a config from elsewhere: said before a run, too.
#[test]
fn an_output_that_is_not_there_and_another_family_are_said() {
    let (_folder, path) = edited("gpt2", &json!({ "tie_word_embeddings": false }));
    let said = "tie_word_embeddings is false, and the file has no output projection of its own";
    let report = attnscope(&["doctor", &path, "--rules", "config-contradicts-tensors"]);
    assert_eq!(report.status.code(), Some(1), "{}", stdout(&report));
    let words = stdout(&report).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(said), "{words}");
    let trace = attnscope(&["trace", &path, "--tgt-ids", "5,6", "--layer", "logits"]);
    assert!(stderr(&trace).contains(said), "{}", stderr(&trace));
    let (_folder, path) = edited("marian", &json!({ "model_type": "llama" }));
    let trace = attnscope(&["trace", &path, "--src-ids", "5,6,1", "--tgt-ids", "0,7", "--layer", "logits"]);
    let said = "model_type is \"llama\", and the tensors show \"marian\" (family)";
    assert!(stderr(&trace).contains(said), "{}", stderr(&trace));
}

/// `attnscope inspect` names both; a size that the user gave is nobody's contradiction.
#[test]
fn the_user_s_own_word_is_no_contradiction() {
    let (_folder, path) = edited("t5", &json!({ "num_heads": 8 }));
    let opened = open(&path, Some(2));
    let found = opened.model().unwrap().contradictions();
    assert!(found.is_empty(), "{found:?}");
}
