//! `generate` as a user sees it.

use serde_json::Value;

use crate::common::{attnscope, command, fixture, stderr, stdout};

fn text(args: &[&str]) -> String {
    let output = attnscope(&[&["generate"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--format", "json"]].concat())).unwrap()
}

/// The error and the help of a command that must not succeed.
fn refused(args: &[&str]) -> String {
    let output = attnscope(&[&["generate"], args].concat());
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stdout(&output));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(text.contains("error: ") && text.contains("help: "), "{text}");
    text
}

#[test]
fn a_translation_with_its_alignment() {
    let args = ["--align", "--width", "80"];
    insta::assert_snapshot!(text(&args), @r"
    demo: Marian, greedy, at most 256 new tokens

    source  A man in a red shirt is riding a bicycle.
    target  Ein Mann in einem roten Hemd fährt Fahrrad.
    score   -0.195 = -1.95 / 10 tokens; ended by the end token
    tokens  ▁Ein -0.09 · ▁Mann -0.08 · ▁in -0.17 · ▁einem -0.33 · ▁roten -0.06
            ▁Hemd -0.56 · ▁fährt -0.03 · ▁Fahrrad -0.45 · . -0.09 · </s> -0.08

            A     man   in    a     red   shirt is    ridi~ a     bicy~ .     </s>
    Ein     ▓▓▓▓▓ ▓33▓▓ ····· ····· ····· ····· ····· ····· ····· ····· ░░░░░ ▓▓▓▓▓
    Mann    ░░░░░ █70██ ░░░░░ ····· ▒▒▒▒▒ ░░░░░ ····· ····· ····· ░░░░░ ····· ·····
    in      ····· ░░░░░ ▓46▓▓ ░░░░░ ▒▒▒▒▒ ▒▒▒▒▒ ····· ▒▒▒▒▒ ····· ····· ····· ·····
    einem   ····· ····· ····· ▒▒▒▒▒ █50██ ▓▓▓▓▓ ····· ····· ····· ····· ····· ·····
    roten   ····· ░░░░░ ····· ····· █79██ ▒▒▒▒▒ ····· ····· ····· ····· ····· ·····
    Hemd    ····· ····· ····· ░░░░░ ░░░░░ █83██ ░░░░░ ····· ····· ····· ░░░░░ ·····
    fährt   ░░░░░ ····· ····· ····· ····· ░░░░░ ▒▒▒▒▒ █63██ ░░░░░ ░░░░░ ░░░░░ ░░░░░
    Fahrrad ····· ····· ····· ····· ····· ····· ····· ▒▒▒▒▒ ▒▒▒▒▒ █62██ ░░░░░ ░░░░░
    .       ····· ····· ····· ····· ····· ····· ····· ░░░░░ ░░░░░ ░░░░░ ▓▓▓▓▓ █51██
    </s>    ░░░░░ ····· ····· ····· ····· ····· ░░░░░ ····· ····· ····· ░░░░░ █78██
    source across, target down: █ ≥ 50 %, ▓ ≥ 25 %, ▒ ≥ 10 %, ░ ≥ 2 %; the strongest
    of each row in per cent

    links   Ein ← A 33 % · Mann ← man 70 % · in ← in 46 % · einem ← red 50 %
            roten ← red 79 % · Hemd ← shirt 83 % · fährt ← riding 63 %
            Fahrrad ← bicycle 62 % · . ← . 25 %
    a link goes to the source word that a target word attends to more than the other
    target words do; end tokens are left out, so it need not be the largest of its
    row

    aligned by the heads 1.0 1.1 1.2 1.3 (layer.head): all of the later half of the
    decoder's layers
    ");
    let plain = text(&["--align", "--ascii", "--width", "60"]);
    assert!(plain.is_ascii(), "{plain}");
    assert!(plain.lines().all(|line| line.len() <= 60), "{plain}");
}

#[test]
fn beams_come_best_first() {
    let found = json(&["--src", "Two dogs play in the snow.", "--src", "A woman.", "--beams", "3"]);
    assert_eq!(found["search"]["beams"], 3);
    let outputs = found["outputs"].as_array().unwrap();
    assert_eq!(outputs.len(), 2);
    assert_eq!(outputs[1]["source"]["text"], "A woman.");
    for output in outputs {
        let scores: Vec<f64> =
            output["hypotheses"].as_array().unwrap().iter().map(|h| h["score"].as_f64().unwrap()).collect();
        assert_eq!(scores.len(), 3);
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        let best = &output["hypotheses"][0];
        assert_eq!(best["ended_by"], "end");
        let tokens = best["tokens"].as_array().unwrap();
        let sum: f64 = tokens.iter().map(|t| t["log_prob"].as_f64().unwrap()).sum();
        assert!((sum - best["log_prob"].as_f64().unwrap()).abs() < 1e-9);
        assert!((sum / tokens.len() as f64 - scores[0]).abs() < 1e-6);
    }
    let greedy = json(&["--src", "Two dogs play in the snow."]);
    assert!(greedy["outputs"][0]["hypotheses"][0]["text"].as_str().unwrap().contains("Schnee"), "{greedy}");
}

#[test]
fn the_limit_is_said() {
    let found = json(&["--max-length", "3"]);
    assert_eq!(found["search"]["max_new_tokens"], 3);
    assert_eq!(found["outputs"][0]["hypotheses"][0]["ended_by"], "limit");
    // The demo's config forces the end as the last token, which does not hide that it was the limit.
    assert_eq!(found["outputs"][0]["hypotheses"][0]["tokens"][2]["piece"], "</s>");
    assert!(text(&["--max-length", "3"]).contains("stopped by the limit of 3 new tokens"));
    let bare = text(&[&fixture("marian-untied"), "--src-ids", "5,6,7", "--max-length", "4"]);
    assert!(bare.contains("stopped by the limit of 4 new tokens"), "{bare}");
}

#[test]
fn weights_of_an_alignment_are_a_distribution() {
    let found = json(&["--align", "--src", "A man in a red shirt is riding a bicycle."]);
    assert_eq!(found["alignment_heads"]["heads"], serde_json::json!([[1, 0], [1, 1], [1, 2], [1, 3]]));
    let alignment = &found["outputs"][0]["alignment"];
    let words = |side: &str| -> Vec<String> {
        let words = alignment[side].as_array().unwrap().iter();
        words.map(|w| w["text"].as_str().unwrap().to_owned()).collect()
    };
    let (source, target) = (words("source_words"), words("target_words"));
    assert_eq!(source.join(" "), "A man in a red shirt is riding a bicycle . </s>");
    assert_eq!(target.join(" "), "Ein Mann in einem roten Hemd fährt Fahrrad . </s>");
    for row in alignment["weights"].as_array().unwrap() {
        let sum: f64 = row.as_array().unwrap().iter().map(|w| w.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{sum}");
    }
    let links = alignment["links"].as_array().unwrap();
    // The end is linked to nothing.
    assert_eq!(links.len(), target.len() - 1);
    let linked = |to: &str| {
        let link = links.iter().find(|l| target[l["target"].as_u64().unwrap() as usize] == to).unwrap();
        source[link["source"].as_u64().unwrap() as usize].clone()
    };
    for (to, from) in
        [("Mann", "man"), ("roten", "red"), ("Hemd", "shirt"), ("fährt", "riding"), ("Fahrrad", "bicycle")]
    {
        assert_eq!(linked(to), from);
    }
}

#[test]
fn an_empty_sentence_is_a_sentence() {
    let found = json(&["--src", "", "--align"]);
    let output = &found["outputs"][0];
    assert_eq!(output["source"]["tokens"].as_array().unwrap().len(), 1);
    assert_eq!(output["hypotheses"][0]["ended_by"], "end");
    assert_eq!(output["alignment"]["links"], serde_json::json!([]));
    assert!(text(&["--src", ""]).contains("source  (empty)"));
}

#[test]
fn pairs_and_ids() {
    let folder = tempfile::tempdir().unwrap();
    let pairs = folder.path().join("pairs.tsv");
    std::fs::write(&pairs, "A dog.\tEin Hund.\nA cat.\tEine Katze.\n").unwrap();
    let found = json(&["--pairs", pairs.to_str().unwrap()]);
    assert_eq!(found["outputs"].as_array().unwrap().len(), 2);
    assert_eq!(found["outputs"][1]["source"]["text"], "A cat.");
    let bart = fixture("bart");
    let found = json(&[&bart, "--src-ids", "5,6,7;8,9", "--max-length", "3", "--align"]);
    let outputs = found["outputs"].as_array().unwrap();
    assert_eq!(outputs.len(), 2);
    assert_eq!(outputs[0]["hypotheses"][0]["text"], Value::Null);
    assert_eq!(
        outputs[1]["source"]["tokens"],
        serde_json::json!([{"id": 8, "piece": null}, {"id": 9, "piece": null}])
    );
    assert_eq!(outputs[0]["alignment"]["source_words"].as_array().unwrap().len(), 3);
    let begun = json(&[&bart, "--src-ids", "5,6,7", "--tgt-ids", "2,11,12", "--max-length", "2"]);
    assert_eq!(begun["outputs"][0]["start"], serde_json::json!([2, 11, 12]));
}

#[test]
fn the_decoder_begins_in_the_language_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["mbart/config.json", "mbart/model.safetensors", "tokenizers/mbart/tokenizer.json"] {
        let (_, name) = file.rsplit_once('/').unwrap();
        std::fs::copy(fixture(file), folder.path().join(name)).unwrap();
    }
    let model = folder.path().to_str().unwrap();
    let ids: Vec<u64> = ["de_DE", "en_XX"]
        .into_iter()
        .map(|language| {
            let args =
                [model, "--src", "a", "--src-lang", "en_XX", "--tgt-lang", language, "--max-length", "2"];
            let found = json(&args);
            let start = found["outputs"][0]["start"].as_array().unwrap().clone();
            assert_eq!(start.len(), 1);
            start[0].as_u64().unwrap()
        })
        .collect();
    let tokenizer: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("tokenizers/mbart/tokenizer.json")).unwrap())
            .unwrap();
    let id = |token: &str| {
        let added = tokenizer["added_tokens"].as_array().unwrap();
        added.iter().find(|t| t["content"] == token).unwrap()["id"].as_u64().unwrap()
    };
    assert_eq!(ids, [id("de_DE"), id("en_XX")]);
}

#[test]
fn what_is_given_is_part_of_the_sentence() {
    let whole = json(&[]);
    let text_of = |found: &Value| found["outputs"][0]["hypotheses"][0]["text"].as_str().unwrap().to_owned();
    // The decoder begins with <pad>, and "Ein" is what it would have written first.
    let given = json(&["--tgt-ids", "0,129"]);
    assert!(text_of(&given).starts_with("Ein Mann "), "{given}");
    assert_eq!(text_of(&given), text_of(&whole));
    let tokens = |found: &Value| found["outputs"][0]["hypotheses"][0]["tokens"].as_array().unwrap().len();
    assert_eq!(tokens(&given) + 1, tokens(&whole));
    let text = text(&["--tgt-ids", "0,129"]);
    assert!(text.contains("given   <pad> 0 · ▁Ein 129\ntarget  Ein Mann "), "{text}");
}

/// The fixture's config speaks of 24 positions, which Hugging Face's Marian keeps in a table.
#[test]
fn sinusoids_go_on_and_it_is_said() {
    let marian = fixture("marian");
    let notes = |length: usize, most: &str| {
        let ids = vec!["5"; length].join(",");
        let output = attnscope(&["generate", &marian, "--src-ids", &ids, "--max-length", most]);
        assert!(output.status.success());
        stderr(&output)
    };
    assert_eq!(notes(24, "3"), "");
    let found = notes(25, "3");
    assert!(found.contains("the source has 25 positions, and the model's config gives 24"), "{found}");
    assert!(found.contains("Hugging Face has them in a table and raises an error"), "{found}");
    let ids = vec!["5"; 25].join(",");
    let output = attnscope(&["trace", &marian, "--src-ids", "5,6", "--tgt-ids", &ids]);
    assert!(stderr(&output).contains("the target has 25 positions"), "{}", stderr(&output));
}

/// A wav of 16 kHz and 16 bits.
fn wav(file: &std::path::Path, channels: u16, samples: &[i16]) -> String {
    let size = (samples.len() * 2) as u32;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + size).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0");
    bytes.extend(channels.to_le_bytes());
    bytes.extend(16_000u32.to_le_bytes());
    bytes.extend((32_000 * u32::from(channels)).to_le_bytes());
    bytes.extend((2 * channels).to_le_bytes());
    bytes.extend(b"\x10\0data");
    bytes.extend(size.to_le_bytes());
    bytes.extend(samples.iter().flat_map(|x| x.to_le_bytes()));
    std::fs::write(file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn zeros_are_silence_whatever_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let model = fixture("whisper");
    let silent = wav(&folder.path().join("zeros.wav"), 1, &[0; 4000]);
    let tone: Vec<i16> = (0..4000).map(|i| (i % 40) * 300 - 6000).collect();
    let opposed: Vec<i16> = tone.iter().flat_map(|&x| [x, -x]).collect();
    let opposed = wav(&folder.path().join("opposed.wav"), 2, &opposed);
    let tone = wav(&folder.path().join("tone.wav"), 1, &tone);
    for (file, is_silent, cancels) in [(&silent, true, false), (&opposed, true, true), (&tone, false, false)]
    {
        let args = ["generate", &model, "--audio", file, "--max-length", "3"];
        let output = attnscope(&args);
        assert_eq!(stdout(&output).contains("target  (no speech: every sample is 0)"), is_silent, "{file}");
        assert_eq!(
            stderr(&output).contains("they cancel each other"),
            cancels,
            "{file}: {}",
            stderr(&output)
        );
        let found = json(&[&args[1..]].concat());
        assert_eq!(found["outputs"][0]["source"]["zeros"], is_silent, "{file}");
        assert_eq!(found["outputs"][0]["source"]["silent"], is_silent, "{file}");
        assert_eq!(found["text"].as_str().unwrap().is_empty(), is_silent, "{file}");
    }
}

/// A model of windows of 0.6 s, and a sound of 1.5 s.
#[test]
fn long_audio_is_heard_window_by_window() {
    let (model, sound) = (fixture("whisper"), fixture("audio/tone.wav"));
    let args = ["generate", &model, "--audio", &sound, "--max-length", "4", "--format", "json"];
    let output = command(&args).output().unwrap();
    assert!(
        stderr(&output).contains("1.50 s are decoded in windows of 0.6 s, each transcribed by itself"),
        "{}",
        stderr(&output)
    );
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(found["audio"]["window_seconds"], 0.6);
    let ends: Vec<(f64, f64)> = found["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| (o["source"]["start"].as_f64().unwrap(), o["source"]["end"].as_f64().unwrap()))
        .collect();
    assert_eq!(ends.len(), 3);
    for ((start, end), expected) in ends.iter().zip([(0.0, 0.6), (0.6, 1.2), (1.2, 1.5)]) {
        assert!((start - expected.0).abs() < 1e-9 && (end - expected.1).abs() < 1e-9, "{ends:?}");
    }
    assert_eq!(found["outputs"][0]["start"], serde_json::json!([97]));
}

#[test]
fn what_cannot_be_done_is_said() {
    let (bart, whisper) = (fixture("bart"), fixture("whisper"));
    let openai = fixture("whisper-openai/tiny.pt");
    let sound = fixture("audio/tone.wav");
    let make = fixture("bart/make.py");
    for (args, says) in [
        (vec![bart.as_str(), "--src", "a"], "no tokenizer is beside the weights"),
        (vec![&bart, "--src-ids", "5,99999"], "id 99999 is outside the vocabulary"),
        (vec![&bart, "--src-ids", "5,x"], "expected a token id, found \"x\""),
        (vec![&bart, "--src-ids", "5", "--tgt-ids", "99999"], "id 99999 is outside the vocabulary"),
        (vec![&bart, "--src-ids", "5", "--tgt-ids", "2;3"], "expected one row, found 2"),
        (vec![&bart], "nothing to read"),
        (vec![&bart, "--audio", &sound], "--audio is for audio models"),
        (vec![&whisper, "--src-ids", "5"], "the model reads audio"),
        (vec![&whisper, "--audio", &make], "not audio that is read here"),
        (vec![&whisper, "--audio", "no/such.wav"], "no/such.wav"),
        (vec![&whisper, "--audio", &sound, "--src-lang", "de"], "no tokenizer"),
        (vec![&whisper, "--audio", &sound, "--timestamps"], "none are known"),
        (vec![&openai, "--audio", &sound], "its vocabulary is not one of OpenAI's"),
        (vec!["toy"], "give the decoder's first tokens with --tgt-ids"),
        (vec!["demo", "--pairs", "no/such.tsv"], "no/such.tsv"),
        (vec!["demo", "--tgt-lang", "de"], "no token for the language \"de\""),
    ] {
        let found = refused(&args);
        assert!(found.contains(says), "{args:?}: {found}");
    }
    for args in [["--beams", "0"], ["--max-length", "0"], ["--beams", "many"]] {
        assert_eq!(attnscope(&["generate", args[0], args[1]]).status.code(), Some(2));
    }
}

#[test]
fn the_toy_writes_what_it_is_made_to_begin() {
    let found = json(&["toy", "--tgt-ids", "4", "--max-length", "3"]);
    assert_eq!(found["outputs"][0]["hypotheses"][0]["tokens"].as_array().unwrap().len(), 3);
    assert_eq!(found["outputs"][0]["hypotheses"][0]["ended_by"], "limit");
}

/// A copy of a fixture's folder, with a generation_config.json of its own.
fn copy(name: &str, generation: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(&format!("{name}/{file}")), folder.path().join(file)).unwrap();
    }
    std::fs::write(folder.path().join("generation_config.json"), generation).unwrap();
    folder
}

#[test]
fn a_document_that_cannot_be_used_is_named_whoever_asks() {
    let folder = copy("bart", r#"{"eos_token_id": "end"}"#);
    let model = folder.path().to_str().unwrap();
    for command in ["generate", "trace", "masks"] {
        let output = attnscope(&[command, model, "--src-ids", "5,6"]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let said = "generation_config.json: eos_token_id: expected token ids, found \"end\"";
        assert!(stderr(&output).contains(said), "{command}: {}", stderr(&output));
    }
}

#[test]
fn numbers_without_bounds_are_noted() {
    let folder = copy(
        "bart",
        r#"{"num_beams": 5000, "max_length": 70000, "repetition_penalty": -2, "eos_token_id": 2}"#,
    );
    let model = folder.path().to_str().unwrap();
    let found = json(&[model, "--src-ids", "5,6", "--beams", "2", "--max-length", "2"]);
    let notes: Vec<&str> =
        found["search"]["not_done"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    let start = "generation_config.json";
    assert_eq!(
        notes,
        [
            format!("{start}: num_beams: 5000: fewer than 1 or more than 1024 beams are not followed"),
            format!(
                "{start}: max_length: 70000: with 1024 beams, sentences of more than 16 tokens are generated only with --max-length"
            ),
            format!("{start}: repetition_penalty: -2: a penalty that is not positive is not applied"),
        ]
    );
    // Beams shorten the usual length where no other is said.
    let many = copy("bart", r#"{"num_beams": 100}"#);
    let found =
        json(&[many.path().to_str().unwrap(), "--src-ids", "5,6", "--beams", "2", "--max-length", "2"]);
    let note = "with 100 beams, sentences of more than 163 tokens are generated only with --max-length";
    assert_eq!(found["search"]["not_done"], serde_json::json!([format!("{start}: num_beams: 100: {note}")]));
    let plain = copy("bart", r#"{"num_beams": 1, "max_length": 20, "repetition_penalty": 1.2}"#);
    let found = json(&[plain.path().to_str().unwrap(), "--src-ids", "5,6"]);
    assert_eq!(found["search"]["not_done"], serde_json::json!([]));
}

#[test]
fn no_room_for_a_token_is_said_by_every_search() {
    let (bart, full) = (fixture("bart"), ["5"; 24].join(","));
    for beams in ["1", "2"] {
        let args = [bart.as_str(), "--src-ids", "5,6", "--tgt-ids", &full, "--beams", beams, "--align"];
        assert!(text(&args).contains("(the limit allows no token)"), "{beams} beams");
        assert_eq!(json(&args)["outputs"][0]["hypotheses"], serde_json::json!([]));
    }
}

#[test]
#[cfg(unix)]
fn pairs_may_come_through_a_pipe() {
    use std::io::Write;
    for command_args in
        [vec!["generate", "demo", "--format", "json"], vec!["trace", "toy", "--format", "json"]]
    {
        let mut child = command(&[&command_args[..], &["--pairs", "/dev/stdin"]].concat())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"a dog\tein Hund\na cat\teine Katze\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{command_args:?}");
        assert!(stdout(&output).contains("cat"), "{command_args:?}");
    }
}

/// The recording is 1.5 s long, of which the model reads 0.6 s at once.
#[test]
fn what_is_not_heard_is_said() {
    let (model, sound) = (fixture("whisper"), fixture("audio/tone.wav"));
    let args = ["trace", &model, "--audio", &sound, "--tgt-ids", "97,5"];
    let shown = stdout(&attnscope(&args));
    assert!(shown.contains("frames: the first 0.6 s of 1.50 s\n"), "{shown}");
    let found: Value =
        serde_json::from_str(&stdout(&attnscope(&[&args[..], &["--format", "json"]].concat()))).unwrap();
    assert_eq!(found["tokens"]["recording"], serde_json::json!({ "seconds": 1.5, "window_seconds": 0.6 }));
}

#[test]
fn a_value_that_is_no_number_is_placed_in_its_sentence() {
    let folder = copy("marian-untied", "{}");
    let file = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let table = &tensors["model.encoder.embed_tokens.weight"];
    let width = table["shape"][1].as_u64().unwrap() as usize;
    // The first number of token 9.
    let at = 8 + header + table["data_offsets"][0].as_u64().unwrap() as usize + 9 * width * 4;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();
    // Sentences of like length are decoded together: this one is the last of its batch.
    for beams in ["1", "2"] {
        let args = [folder.path().to_str().unwrap(), "--src-ids", "5,6;7,9,8,6;5,7,8", "--beams", beams];
        let error = refused(&args);
        assert!(error.contains("src.embed: NaN at [1, 1, 0]"), "{error}");
    }
}

/// A header that brings the decoder of wav files down where arithmetic is checked, as in these tests.
#[test]
fn a_recording_that_stops_the_decoder_is_an_error_and_no_more() {
    let mut bytes = b"RIFF\x64\0\0\0WAVEfmt \x10\0\0\0".to_vec();
    // PCM, 65535 channels, 16 kHz, bytes a second, bytes a frame, 16 bits.
    bytes.extend([1u16, 65535].into_iter().flat_map(u16::to_le_bytes));
    bytes.extend([16_000u32, 32_000].into_iter().flat_map(u32::to_le_bytes));
    bytes.extend([4u16, 16].into_iter().flat_map(u16::to_le_bytes));
    bytes.extend(b"data\x40\0\0\0".iter().chain(&[0; 64]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.wav");
    std::fs::write(&file, bytes).unwrap();
    let error = refused(&[fixture("whisper").as_str(), "--audio", file.to_str().unwrap()]);
    assert!(error.starts_with("error: "), "{error}");
}

#[test]
fn settings_that_are_not_followed_are_announced() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(&format!("marian/{file}")), folder.path().join(file)).unwrap();
    }
    let asked = r#"{"dola_layers": "high", "token_healing": true, "max_time": 2.5, "max_new_tokens": 2}"#;
    std::fs::write(folder.path().join("generation_config.json"), asked).unwrap();
    let output = attnscope(&["generate", &folder.path().display().to_string(), "--src-ids", "5,6,0"]);
    for key in ["dola_layers: \"high\"", "token_healing: true", "max_time: 2.5"] {
        assert!(stderr(&output).contains(&format!("generation_config.json: {key}: ")), "{}", stderr(&output));
    }
}
