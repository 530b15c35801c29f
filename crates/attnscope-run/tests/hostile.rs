//! Tokenizer files from strangers: each is read or refused with words, and nothing else happens.

#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::borrow::Cow;
use std::path::Path;

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::Side;
use attnscope_run::{TokenError, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(path: &str) -> Vec<u8> {
    std::fs::read(root().join(path)).unwrap()
}

fn open(files: Vec<(&'static str, Vec<u8>)>) -> Result<Option<Tokenizer>, TokenError> {
    let weights = ("model.safetensors", file("fixtures/t5/model.safetensors"));
    let files = files.into_iter().chain([weights]).map(|(name, bytes)| (name, Cow::Owned(bytes))).collect();
    Tokenizer::from_companions(Checkpoint::from_memory("model", files).unwrap().tokenizer())
}

/// What the error says, which names the file and comes with help.
fn refused(files: Vec<(&'static str, Vec<u8>)>) -> String {
    let name = files[0].0;
    let error = open(files).unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
    assert!(!error.remedy().to_string().is_empty());
    error.to_string()
}

fn demo() -> Value {
    serde_json::from_slice(&file("crates/attnscope/models/demo/tokenizer.json")).unwrap()
}

/// A tokenizer that could be opened must also survive being used.
fn use_it(files: Vec<(&'static str, Vec<u8>)>) {
    if let Ok(Some(tokenizer)) = open(files) {
        for text in ["", " a man", "é🦀 ½ \u{0} x", "<|en|> aaaa"] {
            if let Ok(ids) = tokenizer.encode_source(text) {
                tokenizer.decode(&ids, false);
                ids.iter().for_each(|&id| drop(tokenizer.piece(Side::Target, id)));
            }
            drop(tokenizer.encode_target(text));
        }
        tokenizer.decode(&[0, 7, u32::MAX], true);
    }
}

#[test]
fn a_folder_without_a_tokenizer_has_none() {
    assert!(open(Vec::new()).unwrap().is_none());
    assert!(open(vec![("vocab.json", b"{}".to_vec())]).unwrap().is_none());
}

#[test]
fn a_padding_of_an_absurd_length_is_not_followed() {
    let mut tokenizer = demo();
    tokenizer["padding"] = json!({"strategy": {"Fixed": 1u64 << 60}, "direction": "Right",
        "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"});
    let tokenizer = open(vec![("tokenizer.json", tokenizer.to_string().into_bytes())]).unwrap().unwrap();
    assert_eq!(tokenizer.encode_source("").unwrap(), [1]);
}

#[test]
fn rules_that_double_a_text_again_and_again_are_refused() {
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let mut tokenizer = demo();
    tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": vec![double; 60]});
    let error = refused(vec![("tokenizer.json", tokenizer.to_string().into_bytes())]);
    assert!(error.contains("times longer"), "{error}");
}

#[test]
fn dropout_is_left_to_training() {
    let mut tokenizer = demo();
    tokenizer["model"]["dropout"] = json!(0.5);
    let dropping = open(vec![("tokenizer.json", tokenizer.to_string().into_bytes())]).unwrap().unwrap();
    let plain = open(vec![("tokenizer.json", demo().to_string().into_bytes())]).unwrap().unwrap();
    let text = "A man in an orange hat.";
    assert_eq!(dropping.encode_source(text).unwrap(), plain.encode_source(text).unwrap());
}

#[test]
fn a_panic_in_the_rules_is_an_error() {
    let with = |key: &str, rule: Value| {
        let mut tokenizer = demo();
        tokenizer[key] = rule;
        vec![("tokenizer.json", tokenizer.to_string().into_bytes())]
    };
    let table = |text: &str| json!({"type": "Precompiled", "precompiled_charsmap": text});
    for broken in ["", "AAAA", "/////w=="] {
        let error = refused(with("normalizer", table(broken)));
        assert!(error.contains("precompiled_charsmap"), "{error}");
    }
    // A table that leads outside itself, and words of no length: these fail only when they are used.
    for (key, rule, why) in [
        ("normalizer", table("BAAAAP////8="), "index out of bounds"),
        ("pre_tokenizer", json!({"type": "FixedLength", "length": 0}), "must be non-zero"),
    ] {
        let tokenizer = open(with(key, rule)).unwrap().unwrap();
        let error = tokenizer.encode_source("a man").unwrap_err().to_string();
        assert!(error.contains("\"a man\" cannot be encoded") && error.contains(why), "{error}");
    }
}

#[test]
fn broken_json_is_refused() {
    let whole = file("crates/attnscope/models/demo/tokenizer.json");
    for cut in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
        refused(vec![("tokenizer.json", whole[..cut].to_vec())]);
    }
    let deep = "[".repeat(1 << 20);
    refused(vec![("tokenizer.json", format!("{{\"model\": {deep}").into_bytes())]);
    refused(vec![("tokenizer.json", b"{\"model\": {\"type\": \"BPE\"}}".to_vec())]);
    refused(vec![("tokenizer.json", b"[]".to_vec())]);
}

#[test]
fn files_that_need_others_say_so() {
    let model = file("fixtures/tokenizers/marian/source.spm");
    let error = refused(vec![("source.spm", model.clone())]);
    assert!(error.contains("vocab.json"), "{error}");
    let list = ("vocab.json", file("fixtures/tokenizers/marian/vocab.json"));
    let error = refused(vec![("source.spm", model.clone()), list]);
    assert!(error.contains("target.spm"), "{error}");
    let bad = ("vocab.json", b"{\"a\": -1}".to_vec());
    let error = open(vec![("source.spm", model.clone()), ("target.spm", model), bad]).unwrap_err();
    assert!(error.to_string().contains("vocab.json"), "{error}");
}

#[test]
fn broken_models_name_what_is_wrong() {
    let cases: &[(&[u8], &str)] = &[
        (b"", "pieces, found none"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "more bytes"),
        (b"\x0a\x02\x0a\x05", "piece 0: expected 5 more bytes, found 0"),
        (b"\x0a\x03\x0a\x01a", "one of type unknown, found 0"),
        (b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01a", "a piece of its own"),
        (b"\x0a\x03\x0a\x01\xff", "UTF-8"),
        (b"\x0a\x08\x0a\x01a\x15\x00\x00\xc0\x7f", "a finite score"),
        (b"\x0a\x05\x0a\x01a\x18\x09", "a type from 1 to 6"),
        (b"\x0a\x05\x0a\x01a\x18\x02\x12\x02\x18\x04", "single characters"),
        (b"\x0a\x05\x0a\x01a\x18\x02\x12\x03\x98\x02\x01", "<0x00>, since byte_fallback"),
        (b"\x0a\x05\x0a\x01a\x18\x02\x1a\x03\x12\x01\x00", "precompiled_charsmap"),
        (b"\x0f", "wire type"),
    ];
    for (bytes, message) in cases {
        let error = refused(vec![("spiece.model", bytes.to_vec())]);
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn broken_ranks_name_the_line() {
    let cases = [
        ("IQ== 0\nIg== 2\n", "line 2: expected rank 1, found 2"),
        ("IQ== 0\nIQ== 1\n", "line 2: expected a token of its own"),
        ("IQ==\n", "line 1: expected base64, a space and a rank"),
        ("I! 0\n", "line 1"),
        ("", "256 bytes"),
    ];
    for (text, message) in cases {
        let error = refused(vec![("x.tiktoken", text.as_bytes().to_vec())]);
        assert!(error.contains(message), "{message}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_in_a_model_bring_nothing_down(
        which in 0..7usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let (case, name) = [
            ("bpe-unused/tokenizer.model", "tokenizer.model"),
            ("unigram-bytes/spiece.model", "spiece.model"),
            ("bpe/tokenizer.model", "tokenizer.model"),
            ("tiktoken/small.tiktoken", "small.tiktoken"),
            ("byte-level/tokenizer.json", "tokenizer.json"),
            ("unigram-json/tokenizer.json", "tokenizer.json"),
            ("mbart/tokenizer.json", "tokenizer.json"),
        ][which];
        let mut bytes = file(&format!("fixtures/tokenizers/{case}"));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        use_it(vec![(name, bytes)]);
    }

    #[test]
    fn any_text_comes_back_from_its_bytes(text in any::<String>()) {
        let ranks = open(vec![("x.tiktoken", file("fixtures/tokenizers/tiktoken/small.tiktoken"))]).unwrap().unwrap();
        let ids = ranks.encode_source(&text).unwrap();
        prop_assert_eq!(ranks.decode(&ids, false), text.clone());
        let pieces = open(vec![("tokenizer.model", file("fixtures/tokenizers/bpe/tokenizer.model"))]).unwrap().unwrap();
        let ids = pieces.encode_source(&text).unwrap();
        // Its space character is a space afterwards.
        prop_assert_eq!(pieces.decode(&ids, true), text.replace('▁', " "));
    }
}
