//! T5 as llama.cpp keeps it: what GGUF has no key for is what its writer means, and the vocabulary is in the file.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::graph::{Activation, LogitScale, Side};
use attnscope::run::generate::{Generator, Limit, Settings};
use attnscope::run::{Input, Rows, Sequence, Tokenizer, Weights};
use common::run::{Keep, run, session};
use common::{fixture, open};
use serde_json::Value;

fn said(file: &str) -> Value {
    let text = std::fs::read_to_string(fixture(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn logits_and_sentences_are_hugging_face_s() {
    let expected = said("t5-gguf/expected.json");
    for (name, activation, scale) in
        [("flan", Activation::GeluTanh, LogitScale::None), ("t5", Activation::Relu, LogitScale::RsqrtDModel)]
    {
        let expected = &expected[name];
        let opened = open(&fixture(&format!("t5-gguf/{name}.gguf")), None);
        let model = opened.model().unwrap();
        assert_eq!((model.wiring.activation, model.wiring.logit_scale), (activation, scale), "{name}");
        for field in ["activation", "logit_scale"] {
            let fact = model.facts.iter().find(|fact| fact.name == field).unwrap();
            assert!(!fact.source.contains("config"), "{name}: {field}: {}", fact.source);
        }
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let sources: Vec<Vec<u32>> = expected["source"].as_array().unwrap().iter().map(ids).collect();
        let source = Sequence::Tokens(Rows::new(&sources[..1], 0));
        let input = Input::pair(source, Rows::new(&[ids(&expected["target"])], 0));
        let logits = model.graph.find("logits").unwrap();
        let mut kept = Keep::new(|id| id == logits);
        run(model, &weights, &input, &mut kept).unwrap();
        let theirs: Vec<f64> =
            expected["logits"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let ours = &kept.tensors[&logits].values;
        let most = theirs.iter().fold(0f64, |most, x| most.max(x.abs()));
        for (a, b) in ours[ours.len() - theirs.len()..].iter().zip(&theirs) {
            assert!((a - b).abs() <= 1e-4 * most, "{name}: {a} and {b}");
        }
        let mut settings = Settings::of(model, opened.checkpoint.configs()).unwrap();
        assert_eq!((settings.start.as_slice(), settings.ends.as_slice()), (&[1][..], &[2][..]), "{name}");
        settings.limit = Limit::New(12);
        let generator = Generator::new(&settings);
        let made = generator.from_tokens(&mut *session(model, &weights), &sources).unwrap();
        for (made, theirs) in made.iter().zip(expected["greedy"].as_array().unwrap()) {
            assert_eq!([&[1][..], &made[0].tokens].concat(), ids(theirs), "{name}");
        }
        assert!(made.iter().any(|made| made[0].tokens.len() < 12), "{name}: no sentence ends");
    }
}

#[test]
fn the_vocabulary_in_the_file_is_the_tokenizer_s() {
    let mut compared = 0;
    for (file, case) in [("flan", "unigram"), ("t5", "bpe")] {
        let opened = open(&fixture(&format!("t5-gguf/{file}.gguf")), None);
        let tokenizer = opened.tokenizer().unwrap().unwrap();
        for case in said(&format!("tokenizers/{case}/expected.json"))["cases"].as_array().unwrap() {
            let Some(text) = case["text"].as_str() else { continue };
            let theirs = [ids(&case["ids"]), vec![2]].concat();
            assert_eq!(tokenizer.encode_source(text).unwrap(), theirs, "{file}: {text:?}");
            compared += 1;
        }
        assert_eq!(tokenizer.piece(Side::Target, 2).as_deref(), Some("</s>"));
    }
    assert!(compared > 40, "only {compared} texts were compared");
    let bytes = attnscope::checkpoint::Checkpoint::open(fixture("t5-gguf/bytes.gguf").as_ref()).unwrap();
    let tokenizer = Tokenizer::embedded(&bytes).unwrap().unwrap();
    for case in said("t5-gguf/expected.json")["bytes"]["texts"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let theirs = ids(&case["ids"]);
        assert_eq!(tokenizer.encode_source(text).unwrap(), theirs, "{text:?}");
        assert_eq!(tokenizer.decode(&theirs, true), text);
    }
}
