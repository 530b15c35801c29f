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
    Ein     ▓▓▓▓▓ ▓33▓▓ ····· ····· ····· ····· ····· ····· ····· ····· ░░░░░ ▒▒▒▒▒
    Mann    ░░░░░ █70██ ░░░░░ ····· ▒▒▒▒▒ ····· ····· ····· ····· ····· ····· ·····
    in      ····· ░░░░░ ▓46▓▓ ░░░░░ ▒▒▒▒▒ ▒▒▒▒▒ ····· ░░░░░ ····· ····· ····· ·····
    einem   ····· ····· ····· ▒▒▒▒▒ ▓50▓▓ ▒▒▒▒▒ ····· ····· ····· ····· ····· ·····
    roten   ····· ····· ····· ····· █79██ ▒▒▒▒▒ ····· ····· ····· ····· ····· ·····
    Hemd    ····· ····· ····· ····· ░░░░░ █83██ ░░░░░ ····· ····· ····· ░░░░░ ·····
    fährt   ░░░░░ ····· ····· ····· ····· ····· ▒▒▒▒▒ █63██ ····· ░░░░░ ░░░░░ ░░░░░
    Fahrrad ····· ····· ····· ····· ····· ····· ····· ▒▒▒▒▒ ▒▒▒▒▒ █62██ ░░░░░ ░░░░░
    .       ····· ····· ····· ····· ····· ····· ····· ░░░░░ ░░░░░ ░░░░░ ▓▓▓▓▓ █51██
    </s>    ░░░░░ ····· ····· ····· ····· ····· ····· ····· ····· ····· ░░░░░ █78██
    source across, target down: █ ≥ 50 %, ▓ ≥ 25 %, ▒ ≥ 10 %, ░ ≥ 2 %; the strongest
    of each row in per cent

    links   Ein ← A 33 % · Mann ← man 70 % · in ← in 46 % · einem ← red 50 %
            roten ← red 79 % · Hemd ← shirt 83 % · fährt ← riding 63 %
            Fahrrad ← bicycle 62 % · . ← . 25 %

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

/// A model of windows of 0.6 s, and a sound of 1.5 s.
#[test]
fn long_audio_is_heard_window_by_window() {
    let (model, sound) = (fixture("whisper"), fixture("audio/tone.wav"));
    let args = ["generate", &model, "--audio", &sound, "--max-length", "4", "--format", "json"];
    let output = command(&args).output().unwrap();
    assert!(
        stderr(&output).contains("1.50 s are heard in windows of 0.6 s, each transcribed by itself"),
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
        (vec![&bart, "--audio", &sound], "--audio is for models that hear"),
        (vec![&whisper, "--src-ids", "5"], "the model reads audio"),
        (vec![&whisper, "--audio", &make], "not audio that is read here"),
        (vec![&whisper, "--audio", "no/such.wav"], "no/such.wav"),
        (vec![&whisper, "--audio", &sound, "--src-lang", "de"], "no tokenizer"),
        (vec![&whisper, "--audio", &sound, "--timestamps"], "none are known"),
        (vec![&openai, "--audio", &sound], "its vocabulary is none of OpenAI's"),
        (vec!["toy"], "give the decoder's first tokens with --tgt-ids"),
        (vec!["demo", "--pairs", "no/such.tsv"], "no/such.tsv"),
        (vec!["demo", "--tgt-lang", "de"], "de"),
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
