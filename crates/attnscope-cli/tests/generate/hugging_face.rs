//! Greedy and beam search against what Hugging Face's `generate` says of the same checkpoints.

use std::path::Path;

use crate::common::run::session;
use crate::common::trace::Trace;
use crate::common::{MODELS, fixture, open};
use attnscope::Opened;
use attnscope::checkpoint::Checkpoint;
use attnscope::graph::{PositionCount, Side};
use attnscope::run::generate::{Generator, Hypothesis, Limit, Settings};
use attnscope::run::{CheckedInput, Features, Input, Rows, Sequence, Uncached, Weights};
use serde_json::Value;

/// What `fixtures/generate/<name>.json` holds.
fn said(name: &str) -> Value {
    let text = std::fs::read_to_string(fixture(&format!("generate/{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The three sources of a fixture, each by itself.
fn generate(name: &str, said: &Value, opened: &Opened, settings: &Settings) -> Vec<Vec<Hypothesis>> {
    let model = opened.model().unwrap();
    let weights = Weights::load(model, &opened.checkpoint).unwrap();
    let mut session = session(model, &weights);
    let generator = Generator::new(settings);
    if name != "whisper" {
        let rows: Vec<Vec<u32>> = said["inputs"].as_array().unwrap().iter().map(ids).collect();
        return generator.from_tokens(&mut *session, &rows).unwrap();
    }
    let file = Checkpoint::open(Path::new(&fixture("generate/whisper.safetensors"))).unwrap();
    let one = |number: usize| {
        let tensor = file.tensor(&number.to_string()).unwrap();
        let (mels, frames) = (tensor.shape[0], tensor.shape[1]);
        let features = Features { values: file.read_f32(tensor).unwrap(), batch: 1, mels, frames };
        generator.from_features(&mut *session, &features).unwrap().remove(0)
    };
    (0..3).map(one).collect()
}

#[test]
fn tokens_and_scores_are_hugging_face_s() {
    let mut sentences = 0;
    for name in ["marian", "bart", "t5", "whisper", "umt5", "encoder-decoder", "encoder-decoder-roberta"] {
        let said = said(name);
        let opened = open(&fixture(name), None);
        let model = opened.model().unwrap();
        for mode in ["greedy", "beam4", "greedy_ends", "beam4_ends"] {
            let asked = &said[mode]["settings"];
            let mut settings = Settings::of(model, opened.checkpoint.configs()).unwrap();
            settings.limit = Limit::New(said["max_new_tokens"].as_u64().unwrap() as usize);
            settings.beams = asked["num_beams"].as_u64().unwrap() as usize;
            if let Some(end) = asked["eos_token_id"].as_u64() {
                settings.ends = vec![end as u32];
            }
            if let Some(penalty) = asked["length_penalty"].as_f64() {
                settings.length_penalty = penalty;
            }
            let made = generate(name, &said, &opened, &settings);
            for (number, (ours, theirs)) in
                made.iter().zip(said[mode]["outputs"].as_array().unwrap()).enumerate()
            {
                let place = format!("{name}, {mode}, source {number}");
                agree(&place, &settings, ours, theirs.as_array().unwrap());
                sentences += ours.len();
            }
        }
    }
    // Three sources, one sentence greedily and four beams, twice each, in seven models.
    assert_eq!(sentences, 7 * 2 * 3 * 5);
}

fn agree(place: &str, settings: &Settings, ours: &[Hypothesis], theirs: &[Value]) {
    assert_eq!(ours.len(), theirs.len(), "{place}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        let tokens: Vec<u32> = settings.start.iter().chain(&ours.tokens).copied().collect();
        assert_eq!(tokens, ids(&theirs["ids"]), "{place}");
        let close = |a: f64, b: &Value| (a - b.as_f64().unwrap()).abs() <= 1e-4;
        let scores = theirs["token_log_probs"].as_array().unwrap();
        assert_eq!(ours.log_probs.len(), scores.len(), "{place}");
        for (ours, theirs) in ours.log_probs.iter().zip(scores) {
            assert!(close(*ours, theirs), "{place}: {ours} and {theirs}");
        }
        if !theirs["score"].is_null() {
            assert!(close(ours.score, &theirs["score"]), "{place}: {} and {}", ours.score, theirs["score"]);
        }
    }
}

/// Eight tokens, greedily and with three beams, from each family's own source with its padding.
#[test]
fn keys_and_values_that_are_kept_change_nothing() {
    for &(path, _, heads) in MODELS {
        let opened = open(&fixture(path), heads);
        let model = opened.model().unwrap();
        let weights = Weights::load(model, &opened.checkpoint).unwrap();
        let input = Trace::open(path).input();
        let mut settings = Settings::of(model, opened.checkpoint.configs()).unwrap();
        // Some fixtures do not say how the decoder begins, and random weights never end.
        settings.start = vec![input.rows(Side::Target).unwrap().ids()[0]];
        settings.limit = Limit::New(8);
        if model.wiring.position_count == PositionCount::Tokens {
            // A pad id that was generated takes a position with a cache and none in a whole pass, as in Hugging Face.
            settings.rules.suppressed.push(model.wiring.position_offset as u32 - 1);
        }
        // Buffers of one search are used again by the next.
        let mut cached = session(model, &weights);
        let mut whole = session(model, &weights);
        for beams in [1, 3] {
            settings.beams = beams;
            let generator = Generator::new(&settings);
            let rows = match input.sequence(Side::Source).unwrap() {
                Sequence::Tokens(rows) => rows.tokens(),
                Sequence::Features(_) => Vec::new(),
            };
            let kept = match input.sequence(Side::Source).unwrap() {
                Sequence::Tokens(_) => generator.from_tokens(&mut *cached, &rows),
                Sequence::Features(features) => generator.from_features(&mut *cached, features),
            };
            let kept = kept.unwrap();
            assert_eq!(kept.len(), input.batch(), "{path}");
            for (row, kept) in kept.iter().enumerate() {
                let source = Input::of(Side::Source, one_row(input.sequence(Side::Source).unwrap(), row));
                let source = CheckedInput::to_decode(model, source).unwrap();
                let mut uncached = Uncached::new(&mut *whole, &source);
                let rows = rows.get(row).cloned().into_iter().collect::<Vec<_>>();
                let plain = generator.search(&mut uncached, 1, &rows).unwrap().remove(0);
                assert_eq!(kept.len(), beams, "{path}");
                for (kept, plain) in kept.iter().zip(&plain) {
                    assert_eq!(kept.tokens, plain.tokens, "{path}, row {row}, {beams} beams");
                    for (a, b) in kept.log_probs.iter().zip(&plain.log_probs) {
                        assert!((a - b).abs() < 1e-4, "{path}, row {row}, {beams} beams: {a} and {b}");
                    }
                }
            }
        }
    }
}

fn one_row(source: &Sequence, row: usize) -> Sequence {
    match source {
        Sequence::Tokens(rows) => Sequence::Tokens(Rows::new(&[rows.tokens()[row].clone()], 0)),
        Sequence::Features(_) => source.select(&[row]),
    }
}

/// With a cache, Hugging Face counts the pad id that starts the decoder; in a whole pass it does not. One source has a
/// pad id in it that is not hidden.
#[test]
fn positions_after_a_pad_id_are_hugging_face_s() {
    let said: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("m2m100-pad0/generate.json")).unwrap())
            .unwrap();
    let opened = open(&fixture("m2m100-pad0"), None);
    let model = opened.model().unwrap();
    assert_eq!(model.wiring.position_offset, 1);
    let mut settings = Settings::of(model, opened.checkpoint.configs()).unwrap();
    settings.limit = Limit::New(said["max_new_tokens"].as_u64().unwrap() as usize);
    let made = generate("m2m100-pad0", &said, &opened, &settings);
    for (ours, theirs) in made.iter().zip(said["greedy"].as_array().unwrap()) {
        assert_eq!([&settings.start[..], &ours[0].tokens].concat(), ids(&theirs["ids"]));
        for (a, b) in ours[0].log_probs.iter().zip(theirs["token_log_probs"].as_array().unwrap()) {
            assert!((a - b.as_f64().unwrap()).abs() < 1e-4, "{a} and {b}");
        }
    }
}
