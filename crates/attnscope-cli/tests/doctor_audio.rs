//! The doctor on an audio model: clips with transcripts are pairs like any others.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::path::Path;

use attnscope::Ready;
use attnscope::run::{Input, Rows, Sequence, audio};
use common::faults::FaultyModel;
use common::run::{Keep, run};
use common::{attnscope, fixture, open, stderr, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

const WORDS: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
const PAIRS: usize = 20;

/// A tiny Whisper with a tokenizer of ten words, whose window has 0.6 s.
fn model(folder: &Path) -> String {
    with_tokenizer(&FaultyModel::of(&fixture("whisper")).save(&folder.join("model")))
}

fn with_tokenizer(path: &str) -> String {
    let special = |id: u32, name: &str| {
        json!({ "id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    let specials = [(91, "<|translate|>"), (92, "<|transcribe|>"), (93, "<|notimestamps|>")];
    let specials = [&specials[..], &[(96, "<|endoftext|>"), (97, "<|startoftranscript|>")]].concat();
    let words = WORDS.iter().zip(4..).map(|(word, id)| ((*word).to_owned(), json!(id)));
    let named = specials.iter().map(|(id, name)| ((*name).to_owned(), json!(id)));
    let vocabulary: serde_json::Map<String, Value> = words.chain(named).collect();
    let piece = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let template =
        |name: &str, id: u32| (name.to_owned(), json!({ "id": name, "ids": [id], "tokens": [name] }));
    let templates: serde_json::Map<String, Value> = [
        template("<|startoftranscript|>", 97),
        template("<|notimestamps|>", 93),
        template("<|endoftext|>", 96),
    ]
    .into_iter()
    .collect();
    let sentence = [
        piece("<|startoftranscript|>"),
        piece("<|notimestamps|>"),
        json!({ "Sequence": { "id": "A", "type_id": 0 } }),
        piece("<|endoftext|>"),
    ];
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": specials.iter().map(|(id, name)| special(*id, name)).collect::<Vec<_>>(),
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": { "type": "TemplateProcessing", "single": sentence, "pair": sentence,
                            "special_tokens": templates },
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "one" },
    });
    std::fs::write(Path::new(path).join("tokenizer.json"), tokenizer.to_string()).unwrap();
    path.to_owned()
}

/// A tone of 16 kHz, 16 bits.
fn tone(file: &Path, hertz: f64, seconds: f64) {
    let samples = (0..(seconds * 16_000.0) as usize)
        .map(|i| (8000.0 * (hertz * std::f64::consts::TAU * i as f64 / 16_000.0).sin()) as i16);
    let data: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    bytes.extend(16_000u32.to_le_bytes());
    bytes.extend(32_000u32.to_le_bytes());
    bytes.extend(b"\x02\0\x10\0data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    std::fs::write(file, bytes).unwrap();
}

/// Clips in a folder of their own, and the list beside it: names are relative to the list.
fn clips(folder: &Path) -> (String, Vec<(String, String)>) {
    std::fs::create_dir_all(folder.join("clips")).unwrap();
    let pairs: Vec<(String, String)> = (0..PAIRS)
        .map(|i| {
            let name = format!("clips/{i}.wav");
            tone(&folder.join(&name), 200.0 + 60.0 * i as f64, 0.2 + 0.01 * i as f64);
            (name, format!("{} {} {}", WORDS[i % 10], WORDS[(i / 2) % 10], WORDS[(i * 3) % 10]))
        })
        .collect();
    let list = folder.join("clips.tsv");
    let lines: Vec<String> = pairs.iter().map(|(name, text)| format!("{name}\t{text}")).collect();
    std::fs::write(&list, lines.join("\n")).unwrap();
    (list.display().to_string(), pairs)
}

/// Nats a token that the transcripts cost, from the logits of one run a clip.
fn nll(model: &str, folder: &Path, pairs: &[(String, String)]) -> f64 {
    let opened = open(model, None);
    let ready = Ready::new(&opened).unwrap();
    let (mels, frames) = ready.window(attnscope::Argument::Audio).unwrap();
    let (mut sum, mut count) = (0.0, 0);
    for (name, text) in pairs {
        let (features, _) = audio::features_from_file(&folder.join(name), mels, frames).unwrap();
        let words = text.split(' ').map(|word| 4 + WORDS.iter().position(|w| *w == word).unwrap() as u32);
        let labels: Vec<u32> = words.chain([96]).collect();
        let read = [&[97, 93], &labels[..labels.len() - 1]].concat();
        let input = Input::pair(Sequence::Features(features), Rows::new(&[read], 96));
        let logits = ready.model.graph.find("logits");
        let mut kept = Keep::new(|id| Some(id) == logits);
        run(ready.model, ready.weights(), &input, &mut kept).unwrap();
        let logits = kept.tensors.into_values().next().unwrap();
        // The second token of the prompt is the first that predicts a label.
        for (row, label) in logits.values.chunks(logits.shape[2]).skip(1).zip(&labels) {
            let total: f64 = row.iter().map(|x| x.exp()).sum();
            sum += total.ln() - row[*label as usize];
            count += 1;
        }
    }
    sum / f64::from(count)
}

fn doctor(args: &[&str]) -> (Value, i32, String) {
    let output = attnscope(&[&["doctor"], args, &["--format", "json", "--quiet"]].concat());
    let value = serde_json::from_str(&stdout(&output)).unwrap_or(Value::Null);
    (value, output.status.code().unwrap(), stderr(&output))
}

#[test]
fn transcripts_are_scored_behind_the_prompt() {
    let folder = TempDir::new().unwrap();
    let model = model(folder.path());
    let (list, pairs) = clips(folder.path());
    let (report, code, said) = doctor(&[&model, "--pairs", &list, "--fail-on", "never"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(report["basis"], "judged on 20 clips with their transcripts", "{said}");
    assert_eq!(report["wiring"]["pairs"], PAIRS);
    let (found, expected) = (report["wiring"]["nll"].as_f64().unwrap(), nll(&model, folder.path(), &pairs));
    assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    let judged: Vec<&str> = report["checked"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(judged.contains(&"source-ignored") && judged.contains(&"padding-leak"), "{report:#}");
}

/// Other wirings of an audio model are limited as repairs are, and the report says how many there was no time for.
#[test]
fn a_search_without_time_says_what_was_not_tried() {
    let folder = TempDir::new().unwrap();
    let model = model(folder.path());
    let (list, pairs) = clips(folder.path());
    let rules = ["--rules", "wiring-mismatch,source-ignored"];
    let with_time = |seconds| {
        let limit = ["--pairs", &list, "--repair-time", seconds, "--fail-on", "never"];
        doctor(&[&[&model[..]][..], &limit, &rules].concat()).0
    };
    let none = with_time("0");
    // What the declared model costs is measured in any case.
    let (found, expected) = (none["wiring"]["nll"].as_f64().unwrap(), nll(&model, folder.path(), &pairs));
    assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    assert_eq!(none["wiring"]["trials"], json!([]), "{none:#}");
    let why = none["not_checked"][0]["why"].as_str().unwrap();
    assert!(why.contains("there was no time for any of "), "{why}");
    let all = with_time("1200");
    assert!(!all["wiring"]["trials"].as_array().unwrap().is_empty(), "{all:#}");
    assert!(!all.to_string().contains("no time"), "{all:#}");
}

/// A wrong wiring can cut off the source: as long as some were not tried, the weights are not said to ignore it.
#[test]
fn a_source_is_not_called_ignored_before_all_wirings_were_tried() {
    let folder = TempDir::new().unwrap();
    let mut deaf = FaultyModel::of(&fixture("whisper"));
    let of_cross = |weight: &String| weight.contains("cross_attn.out.");
    for weight in deaf.weights_under("decoder").into_iter().filter(of_cross) {
        deaf.edit(&weight, |values| values.fill(0.0));
    }
    let model = with_tokenizer(&deaf.save(&folder.path().join("model")));
    let (list, _) = clips(folder.path());
    let rules = ["--rules", "source-ignored", "--fail-on", "never", "--repair-time"];
    let with_time = |seconds| doctor(&[&[&model[..], "--pairs", &list], &rules[..], &[seconds]].concat()).0;
    let (none, all) = (with_time("0"), with_time("1200"));
    assert_eq!(none["findings"], json!([]), "{none:#}");
    let why = none["not_checked"][0]["why"].as_str().unwrap();
    assert!(why.contains("one of them may be the reason"), "{why}");
    assert_eq!(all["findings"][0]["rule"], "source-ignored", "{all:#}");
}

#[test]
fn clips_that_do_not_fit_are_named() {
    let folder = TempDir::new().unwrap();
    let model = model(folder.path());
    let (list, _) = clips(folder.path());
    let lines = std::fs::read_to_string(&list).unwrap();
    tone(&folder.path().join("long.wav"), 440.0, 0.75);
    std::fs::write(&list, format!("{lines}\nlong.wav\tone two\nclips/3.wav\t\n")).unwrap();
    let (report, code, said) = doctor(&[&model, "--pairs", &list, "--rules", "past-positions"]);
    assert_eq!(code, 1, "{said}");
    let evidence = report["findings"][0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("the longest needs 38") && evidence.ends_with("line 21"), "{evidence}");
    let basis = "judged on 20 clips with their transcripts; 1 pair with an empty side left out";
    assert_eq!(report["basis"], basis);
    std::fs::write(&list, format!("{lines}\nclips/none.wav\tone two\n")).unwrap();
    let (_, code, said) = doctor(&[&model, "--pairs", &list]);
    assert_eq!(code, 2);
    assert!(said.contains("clips.tsv: line 21: ") && said.contains("none.wav"), "{said}");
    assert!(said.contains("a tab and its transcript per line"), "{said}");
}
