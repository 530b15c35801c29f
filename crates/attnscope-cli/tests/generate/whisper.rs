//! OpenAI's tiny.en on a speech of eleven seconds, against what OpenAI's package says of both.

use std::path::Path;
use std::sync::LazyLock;

use attnscope::checkpoint::Checkpoint;
use attnscope::run::align::{Head, Heads, spoken_words, word_times};
use attnscope::run::audio::{Recording, Window};
use attnscope::run::generate::{Settings, TokenRules};
use attnscope::run::{Input, Kept, Rows, Sequence};
use attnscope::{GeneratedRow, Opened, Ready};
use serde_json::Value;

use crate::common::run::{Keep, run};
use crate::common::{fixture, open, shared};

/// What is said, as the whole world knows it.
const SAID: &str = "And so my fellow Americans ask not what your country can do for you ask what you can do for your country";

/// The model, opened once for all tests, the recording, and what is generated of it.
static READY: LazyLock<Option<(Ready<'static>, Window, GeneratedRow)>> = LazyLock::new(|| {
    let (model, speech) = (shared("models/whisper-tiny.en/tiny.en.pt")?, shared("data/audio/jfk.wav")?);
    let opened: &'static Opened = Box::leak(Box::new(open(&model, None)));
    let ready = Ready::new(opened).unwrap();
    let window = window(&ready, &speech);
    let generated = generate(&ready, &window, &ready.settings());
    Some((ready, window, generated))
});

fn window(ready: &Ready<'_>, file: &str) -> Window {
    let (mels, frames) = ready.window(attnscope::Argument::Audio).unwrap();
    Recording::read(Path::new(file)).unwrap().window(0.0, mels, frames).unwrap()
}

fn said() -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture("real/whisper.json")).unwrap()).unwrap()
}

fn generate(ready: &Ready<'_>, window: &Window, settings: &Settings) -> GeneratedRow {
    ready
        .generate_rows(&mut *ready.session(), &Sequence::Features(window.features.clone()), settings)
        .unwrap()
        .remove(0)
}

/// Words alone.
fn plain(text: &str) -> String {
    text.replace([',', '.'], "")
}

#[test]
fn the_transcript_is_openai_s() {
    let Some((ready, window, generated)) = &*READY else { return };
    let said = said();
    assert_eq!(said["text"].as_str().unwrap().trim(), SAID);
    let free = Settings { rules: TokenRules::default(), ..ready.settings() };
    let free = generate(ready, window, &free);
    for (generated, key) in [(generated, "without_timestamps"), (&free, "without_timestamps_or_suppression")]
    {
        let theirs = &said[key];
        let best = generated.best().unwrap();
        let mut expected: Vec<u32> =
            theirs["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        expected.push(50256);
        assert_eq!(best.tokens, expected, "{key}");
        assert!(best.ended);
        let text = ready.tokenizer().unwrap().decode(&best.tokens, true);
        assert_eq!(text.trim(), theirs["text"].as_str().unwrap());
        assert_eq!(plain(text.trim()), SAID);
        assert!(!generated.is_silence());
        let no_speech = generated.detection.unwrap().no_speech.unwrap();
        assert!((no_speech - theirs["no_speech_prob"].as_f64().unwrap()).abs() < 1e-3, "{no_speech}");
        // The end counts in their mean too. What is ruled out changes it in the third place.
        let theirs = theirs["avg_logprob"].as_f64().unwrap();
        assert!((best.score - theirs).abs() < 1e-3, "{key}: {} and {theirs}", best.score);
    }
}

/// A tensor of the fixture.
fn theirs(file: &Checkpoint, name: &str) -> Vec<f64> {
    file.read_f64(file.tensor(name).unwrap()).unwrap()
}

fn places(file: &Checkpoint, name: &str) -> Vec<usize> {
    theirs(file, name).into_iter().map(|x| x as usize).collect()
}

#[test]
fn encoder_and_cross_attention_are_openai_s() {
    let Some((ready, window, _)) = &*READY else { return };
    let file = Checkpoint::open(Path::new(&fixture("real/whisper.safetensors"))).unwrap();
    let tokens: Vec<u32> = places(&file, "tgt.ids").into_iter().map(|id| id as u32).collect();
    let input = Input::pair(Sequence::Features(window.features.clone()), Rows::new(&[tokens], 0));
    let graph = &ready.model.graph;
    let find = |path: &str| graph.find(path).unwrap();
    let cross: Vec<_> = (0..4).map(|n| find(&format!("decoder.{n}.cross_attn.weights"))).collect();
    let (out, logits) = (find("encoder.out"), find("logits"));
    let mut sink = Keep::new(|id| id == out || id == logits || cross.contains(&id));
    run(ready.model, ready.weights(), &input, &mut sink).unwrap();
    let within = |what: &str, ours: f64, theirs: f64| {
        assert!((ours - theirs).abs() <= 1e-3, "{what}: {ours} and {theirs}")
    };

    let kept = &sink.tensors[&out];
    let width = kept.shape[2];
    let expected = theirs(&file, "encoder.out");
    for (position, expected) in places(&file, "encoder.out.at").into_iter().zip(expected.chunks(width)) {
        let ours = &kept.values[position * width..][..width];
        ours.iter().zip(expected).for_each(|(a, b)| within("encoder.out", *a, *b));
    }

    let (queries, frames) =
        (places(&file, "cross_attn.weights.queries"), places(&file, "cross_attn.weights.frames"));
    for (n, id) in cross.iter().enumerate() {
        let Kept { shape, values } = &sink.tensors[id];
        let name = format!("decoder.{n}.cross_attn.weights");
        let mut expected = theirs(&file, &name).into_iter();
        for head in 0..shape[1] {
            for &query in &queries {
                for &frame in &frames {
                    let ours = values[(head * shape[2] + query) * shape[3] + frame];
                    within(&name, ours, expected.next().unwrap());
                }
            }
        }
        assert_eq!(expected.next(), None, "{name}");
    }

    let kept = &sink.tensors[&logits];
    let most = theirs(&file, "logits.max");
    for ((row, most), place) in
        kept.values.chunks(kept.shape[2]).zip(most).zip(places(&file, "logits.argmax"))
    {
        let ours = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(row.iter().position(|x| *x == ours), Some(place));
        assert!((ours - most).abs() <= 1e-3 * most.abs(), "{ours} and {most}");
    }
}

#[test]
fn words_are_said_when_openai_says() {
    let Some((ready, window, _)) = &*READY else { return };
    assert_eq!(window.positions(), 550);
    let said = said();
    let tokenizer = ready.tokenizer().unwrap();
    let text: Vec<u32> = tokenizer.encode_source(&format!(" {SAID}")).unwrap();
    let words = spoken_words(tokenizer, &text, true);
    let start = ready.settings().start;
    let target = ready.target_ids(&[[start.clone(), text, vec![50256]].concat()]).unwrap();
    let input = Input::pair(Sequence::Features(window.features.clone()), target);
    for key in ["released_heads", "default_heads"] {
        let theirs = &said["word_times"][key];
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let pairs = theirs["alignment_heads"].as_array().unwrap();
        let heads: Vec<Head> =
            pairs.iter().map(|p| Head { layer: number(&p[0]), head: number(&p[1]) }).collect();
        if key == "released_heads" {
            assert_eq!(ready.alignment_heads().unwrap().heads, heads);
        }
        let heads = Heads { heads, because: key.into() };
        let sizes = [start.len(), window.positions()];
        let ours = word_times(&mut *ready.session(), input.clone(), &heads, &words, sizes).unwrap();
        let theirs = theirs["words"].as_array().unwrap();
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert_eq!(ours.text, theirs["word"].as_str().unwrap());
            for (ours, theirs) in [(ours.start, &theirs["start"]), (ours.end, &theirs["end"])] {
                assert!((ours - theirs.as_f64().unwrap()).abs() <= 0.1 + 1e-9, "{key}: {ours} and {theirs}");
            }
        }
    }
}

/// What the model itself writes has signs, which move the words beside them.
#[test]
fn words_of_the_transcript_are_near() {
    let Some((ready, window, generated)) = &*READY else { return };
    let ours =
        ready.times(&mut *ready.session(), &ready.alignment_heads().unwrap(), window, generated).unwrap();
    let said = said();
    let theirs = said["word_times"]["released_heads"]["words"].as_array().unwrap();
    assert_eq!(ours.len(), theirs.len());
    for ((ours, probability), theirs) in ours.iter().zip(theirs) {
        assert_eq!(plain(&ours.text), theirs["word"].as_str().unwrap());
        assert!((0.0..=1.0).contains(probability));
        let beside_comma = ["you,", "ask"].contains(&ours.text.trim());
        let most = if beside_comma { 0.3 } else { 0.1 + 1e-9 };
        for (ours, theirs) in [(ours.start, &theirs["start"]), (ours.end, &theirs["end"])] {
            assert!((ours - theirs.as_f64().unwrap()).abs() <= most, "{ours} and {theirs}");
        }
    }
}

/// As OpenAI's tool does when nothing is asked for.
#[test]
fn with_times_the_transcript_is_what_is_said() {
    let Some((known, window, _)) = &*READY else { return };
    let mut ready = Ready::new(known.opened).unwrap();
    ready.write_times().unwrap();
    let mut window = window.clone();
    window.cut_features();
    let generated = generate(&ready, &window, &ready.settings());
    let (best, said) = (generated.best().unwrap(), said());
    let theirs = said["segments"].as_array().unwrap();
    let tokens = |segment: &Value| -> Vec<u32> {
        segment["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    };
    let expected: Vec<u32> = theirs.iter().flat_map(tokens).chain([50256]).collect();
    assert_eq!(best.tokens, expected);
    let text: Vec<u32> = best.tokens.iter().copied().filter(|id| *id < 50256).collect();
    assert_eq!(ready.tokenizer().unwrap().decode(&text, true).trim(), SAID);
    let near = |ours: f64, theirs: &Value| {
        assert!((ours - theirs.as_f64().unwrap()).abs() < 1e-3, "{ours}, {theirs}")
    };
    near(best.score, &theirs[0]["avg_logprob"]);
    near(generated.detection.unwrap().no_speech.unwrap(), &theirs[0]["no_speech_prob"]);

    let (segments, next) = ready.segments(&window, &generated);
    assert_eq!((segments.len(), next), (2, 11.0));
    assert_eq!(segments[0].end, segments[1].start);
    // Nothing differs from theirs now but the last digits.
    let words =
        ready.times(&mut *ready.session(), &ready.alignment_heads().unwrap(), &window, &generated).unwrap();
    let theirs = said["word_times"]["released_heads"]["words"].as_array().unwrap();
    assert_eq!(words.len(), theirs.len());
    for ((ours, _), theirs) in words.iter().zip(theirs) {
        assert_eq!(ours.text, theirs["word"].as_str().unwrap());
        for (ours, theirs) in [(ours.start, &theirs["start"]), (ours.end, &theirs["end"])] {
            assert!((ours - theirs.as_f64().unwrap()).abs() <= 0.02 + 1e-9, "{ours} and {theirs}");
        }
    }
}

#[test]
fn two_channels_at_44_khz_and_silence() {
    let Some((ready, ..)) = &*READY else { return };
    let settings = ready.settings();
    if let Some(flac) = shared("data/audio/jfk.flac") {
        let window = window(ready, &flac);
        let generated = generate(ready, &window, &settings);
        let text = ready.tokenizer().unwrap().decode(&generated.best().unwrap().tokens, true);
        assert_eq!(plain(text.trim()), SAID);
        assert!(!generated.is_silence());
    }
    let (mels, frames) = ready.window(attnscope::Argument::Audio).unwrap();
    let features = attnscope::run::Features {
        values: attnscope::run::audio::log_mel(&[0.0; 32_000], mels, frames),
        batch: 1,
        mels,
        frames,
    };
    let silence = Window { start: 0.0, end: 2.0, zeros: false, features };
    let generated = generate(ready, &silence, &settings);
    // OpenAI's thresholds take it for speech all the same: the model is rather sure of what it makes up.
    let (said, best) = (said(), generated.best().unwrap());
    let theirs = &said["silence"];
    let text = ready.tokenizer().unwrap().decode(&best.tokens, true);
    assert_eq!(text.trim(), theirs["text"].as_str().unwrap());
    assert!((best.score - theirs["avg_logprob"].as_f64().unwrap()).abs() < 1e-3);
    let no_speech = generated.detection.unwrap().no_speech.unwrap();
    assert!((no_speech - theirs["no_speech_prob"].as_f64().unwrap()).abs() < 1e-3, "{no_speech}");
    assert!(no_speech > 0.9 && !generated.is_silence());
    // Whatever is made up stays within the recording.
    let words =
        ready.times(&mut *ready.session(), &ready.alignment_heads().unwrap(), &silence, &generated).unwrap();
    assert!(words.iter().all(|(word, _)| word.start >= 0.0 && word.end <= 2.0), "{words:?}");
}
