//! Tokenizers against the tools that made them: SentencePiece, tiktoken, OpenAI's Whisper, Hugging Face.

#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use attnscope_checkpoint::Remedy;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::Side;
use attnscope_run::Tokenizer;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file outside the repository. Every skip for want of one goes through here.
fn shared(path: &str) -> Option<PathBuf> {
    let base = std::env::var_os("ATTNSCOPE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let path = base.join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} not found", path.display());
    None
}

/// The files of a folder as a checkpoint has them beside it.
fn tokenizer(files: &[PathBuf], rows: Option<usize>) -> Tokenizer {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        std::fs::copy(file, dir.path().join(file.file_name().unwrap())).unwrap();
    }
    let weights = root().join("fixtures/t5/model.safetensors");
    std::fs::copy(weights, dir.path().join("model.safetensors")).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    Tokenizer::for_vocabulary(checkpoint.tokenizer(), rows).unwrap().unwrap()
}

fn expected(case: &str) -> Value {
    let path = root().join("fixtures/tokenizers").join(case).join("expected.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn text(case: &Value) -> String {
    match &case["text"] {
        Value::String(text) => text.clone(),
        pair => pair[0].as_str().unwrap().repeat(pair[1].as_u64().unwrap() as usize),
    }
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn files(case: &str, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| root().join("fixtures/tokenizers").join(case).join(name)).collect()
}

/// Collects what differs, so that one run shows all of it.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, text: &str, ours: T, theirs: T) {
        if ours != theirs {
            let text: String = text.chars().take(60).collect();
            self.0.push(format!("{what} of {text:?}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
        }
    }
}

impl Drop for Differences {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} differences\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

#[test]
fn sentencepiece_models_cut_texts_as_sentencepiece_does() {
    let mut differences = Differences::default();
    let cases = [
        ("unigram", "spiece.model"),
        ("unigram-bytes", "spiece.model"),
        ("bpe", "tokenizer.model"),
        ("bpe-unused", "tokenizer.model"),
        ("suffix", "tokenizer.model"),
    ];
    for (case, file) in cases {
        let tokenizer = tokenizer(&files(case, &[file]), None);
        let expected = expected(case);
        let end = tokenizer.id("</s>").unwrap();
        let unknown = tokenizer.id("<unk>").unwrap();
        assert_eq!(u64::from(unknown), expected["unknown"]);
        for row in expected["cases"].as_array().unwrap() {
            let (text, mut theirs) = (text(row), ids(&row["ids"]));
            theirs.push(end);
            let ours = tokenizer.encode_source(&text).unwrap();
            differences.check(case, &text, &ours, &theirs);
            assert_eq!(ours, tokenizer.encode_target(&text).unwrap());
            if let Some(decoded) = row["decoded"].as_str() {
                let ours = tokenizer.decode(&theirs, true);
                differences.check(&format!("{case}, decoded,"), &text, ours.as_str(), decoded);
            }
        }
    }
}

#[test]
fn marian_models_number_pieces_by_their_list() {
    let mut differences = Differences::default();
    let tokenizer = tokenizer(&files("marian", &["source.spm", "target.spm", "vocab.json"]), None);
    for row in expected("marian")["cases"].as_array().unwrap() {
        let text = text(row);
        differences.check("source", &text, tokenizer.encode_source(&text).unwrap(), ids(&row["ids"]));
        differences.check("target", &text, tokenizer.encode_target(&text).unwrap(), ids(&row["target"]));
    }
    assert_eq!(tokenizer.decode(&tokenizer.encode_target("Ein Mann").unwrap(), false), "Ein Mann</s>");
    assert_eq!(tokenizer.decode(&tokenizer.encode_target("Ein Mann").unwrap(), true), "Ein Mann");
    assert_eq!(tokenizer.id("<pad>"), Some(tokenizer.len() as u32 - 1));
}

#[test]
fn ranks_merge_as_tiktoken_merges() {
    let mut differences = Differences::default();
    let tokenizer = tokenizer(&files("tiktoken", &["small.tiktoken"]), None);
    let end = tokenizer.id("<|endoftext|>").unwrap();
    assert_eq!(end, 1000);
    for row in expected("tiktoken")["cases"].as_array().unwrap() {
        let (text, theirs) = (text(row), ids(&row["ids"]));
        differences.check("ids", &text, tokenizer.encode_source(&text).unwrap(), theirs.clone());
        if let Some(decoded) = row["decoded"].as_str() {
            differences.check("decoded", &text, tokenizer.decode(&theirs, true).as_str(), decoded);
        }
    }
    assert_eq!(tokenizer.encode_target("").unwrap(), [end]);
}

#[test]
fn whisper_tokens_are_openais() {
    let mut differences = Differences::default();
    let expected = expected("whisper");
    for (name, expected) in expected.as_object().unwrap() {
        let (file, rows) = name.rsplit_once('-').unwrap();
        assert!(["gpt2", "multilingual"].contains(&file), "{name}");
        let tokenizer = Tokenizer::whisper(rows.parse().unwrap()).unwrap().unwrap();
        assert_eq!(tokenizer.len() as u64, expected["len"], "{name}");
        for (special, id) in expected["specials"].as_object().unwrap() {
            differences.check(name, special, tokenizer.id(special).map(u64::from), id.as_u64());
        }
        for row in expected["cases"].as_array().unwrap() {
            let (text, theirs) = (text(row), ids(&row["ids"]));
            differences.check(name, &text, tokenizer.encode_source(&text).unwrap(), theirs.clone());
            differences.check("decoded", &text, tokenizer.decode(&theirs, false), text.clone());
        }
        for row in expected["cut"].as_array().unwrap() {
            let ours = tokenizer.decode(&ids(&row["ids"]), false);
            differences.check("cut", name, ours.as_str(), row["text"].as_str().unwrap());
        }
    }
}

#[test]
fn of_two_ranks_files_the_one_that_fits_is_taken() {
    let (Some(english), Some(multilingual)) =
        (shared("data/audio/gpt2.tiktoken"), shared("data/audio/multilingual.tiktoken"))
    else {
        return;
    };
    let both = [english, multilingual];
    assert_eq!(tokenizer(&both, Some(51864)).id("<|endoftext|>"), Some(50256));
    assert_eq!(tokenizer(&both, Some(51865)).id("<|endoftext|>"), Some(50257));
    assert_eq!(tokenizer(&both, Some(51865)).id("<|yue|>"), None);
    assert_eq!(tokenizer(&both, Some(51866)).id("<|endoftext|>"), Some(50257));
    assert_eq!(tokenizer(&both, Some(51866)).id("<|yue|>"), Some(50358));
}

#[test]
fn tokenizer_json_means_what_hugging_face_says() {
    let mut differences = Differences::default();
    let demo = root().join("crates/attnscope/models/demo/tokenizer.json");
    let of = |case: &str| files(case, &["tokenizer.json"]).remove(0);
    for (case, file) in
        [("demo", demo), ("byte-level", of("byte-level")), ("unigram-json", of("unigram-json"))]
    {
        let tokenizer = tokenizer(&[file], None);
        let expected = expected(case);
        assert_eq!(tokenizer.len() as u64, expected["len"], "{case}");
        for row in expected["cases"].as_array().unwrap() {
            let (text, theirs) = (text(row), ids(&row["ids"]));
            differences.check(case, &text, tokenizer.encode_source(&text).unwrap(), theirs.clone());
            differences.check(case, &text, tokenizer.encode_target(&text).unwrap(), theirs.clone());
            if let Some(decoded) = row["decoded"].as_str() {
                let ours = tokenizer.decode(&theirs, true);
                differences.check(&format!("{case}, decoded,"), &text, ours.as_str(), decoded);
            }
        }
    }
}

#[test]
fn pieces_are_shown_for_a_reader() {
    let demo = tokenizer(&[root().join("crates/attnscope/models/demo/tokenizer.json")], None);
    assert_eq!(demo.piece(Side::Target, demo.id("▁Mann").unwrap()).as_deref(), Some("▁Mann"));
    assert_eq!(demo.piece(Side::Target, demo.id("ßen.\n").unwrap()).as_deref(), Some("ßen.\\n"));
    assert_eq!(demo.piece(Side::Target, u32::MAX), None);
    let bytes = tokenizer(&files("byte-level", &["tokenizer.json"]), None);
    assert_eq!(bytes.piece(Side::Target, bytes.id("Ġman").unwrap()).as_deref(), Some("▁man"));
    assert_eq!(bytes.piece(Side::Target, bytes.id("Ã").unwrap()).as_deref(), Some("<0xC3>"));
    assert_eq!(bytes.piece(Side::Target, bytes.id("</s>").unwrap()).as_deref(), Some("</s>"));
    let ranks = tokenizer(&files("tiktoken", &["small.tiktoken"]), None);
    assert_eq!(ranks.piece(Side::Target, ranks.id(" the").unwrap()).as_deref(), Some("▁the"));
    assert_eq!(ranks.piece(Side::Target, 1000).as_deref(), Some("<|endoftext|>"));
    let words = Tokenizer::words(&["the cat sat", "the dog"], &["the cat sat", "the dog"]);
    assert_eq!((words.len(), words.id("cat"), words.id("cow")), (4, Some(0), None));
    assert_eq!(words.encode_source(" the  cat ").unwrap(), [3, 0]);
    assert_eq!(words.decode(&[3, 1], true), "the dog");
    let error = words.encode_target("the cow").unwrap_err();
    assert_eq!(error.to_string(), "word 2 of \"the cow\": \"cow\" is not in the vocabulary of 4 words");
}

#[test]
fn texts_in_models_of_many_languages_carry_theirs() {
    let mut m2m100 = tokenizer(&files("m2m100", &["sentencepiece.bpe.model", "vocab.json"]), None);
    assert_eq!(m2m100.encode_target("a").unwrap_err().remedy(), Remedy::TargetLanguage);
    m2m100.set_languages(None, Some("de")).unwrap();
    let expected = expected("m2m100");
    for row in expected["cases"].as_array().unwrap() {
        let text = text(row);
        assert_eq!(m2m100.encode_source(&text).unwrap(), ids(&row["ids"]), "{text:?}");
        assert_eq!(m2m100.encode_target(&text).unwrap(), ids(&row["target"]), "{text:?}");
    }
    assert_eq!(m2m100.id("__zu__").map(u64::from), expected["zu"].as_u64());
    assert!(m2m100.set_languages(Some("xx"), None).is_err());

    let mut mbart = tokenizer(&files("mbart", &["tokenizer.json"]), None);
    assert_eq!(mbart.encode_target("a").unwrap(), [4, 2, 6]);
    mbart.set_languages(None, Some("de_DE")).unwrap();
    assert_eq!(mbart.encode_source("a").unwrap(), [4, 2, 6]);
    assert_eq!(mbart.encode_target("a").unwrap(), [4, 2, 5]);
    assert_eq!(mbart.decode(&[4, 2, 5], true), "a");
    for none in ["</s>", "fr_XX", "▁a"] {
        assert!(mbart.set_languages(None, Some(none)).is_err(), "{none}");
    }
    let mut demo = tokenizer(&[root().join("crates/attnscope/models/demo/tokenizer.json")], None);
    assert!(demo.set_languages(Some("de"), None).is_err());
}
