//! `report`: what is in it is what the other commands say, for every architecture.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{attnscope, fixture, stderr};
use flate2::read::ZlibDecoder;
use serde_json::Value;
use tempfile::tempdir;

const SOURCE: [&str; 2] = ["--src", "Two dogs play in the snow."];

fn json(args: &[&str]) -> Value {
    let output = attnscope(&[args, &["--format", "json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", stderr(&output)))
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

fn floats(value: &Value) -> Vec<f32> {
    bytes(value).chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
}

/// The demo's report, without a search for repairs.
fn demo() -> Value {
    json(&[&["report", "demo", "--repair-time", "0"], &SOURCE[..]].concat())
}

#[test]
fn values_and_pictures_are_those_of_the_run() {
    let report = demo();
    let trace = json(&[&["trace", "demo", "--layer", "*", "--payload", "--full"], &SOURCE[..]].concat());
    let nodes = trace["nodes"].as_array().unwrap();
    let values = |path: &str| -> Vec<Option<f64>> {
        let node = nodes.iter().find(|node| node["path"] == path).unwrap();
        node["values"].as_array().unwrap().iter().map(Value::as_f64).collect()
    };
    let held = report["run"]["values"].as_object().unwrap();
    assert!(held.len() > 50 && held.contains_key("decoder.1.cross_attn.weights"), "{}", held.len());
    for (path, exact) in held {
        let expected = values(path);
        let found = floats(&exact["values"]);
        assert_eq!(found.len(), expected.len(), "{path}");
        for (x, y) in found.iter().zip(&expected) {
            assert!(y.map_or(!x.is_finite(), |y| *x == y as f32), "{path}: {x} {y:?}");
        }
    }
    for attention in report["run"]["attentions"].as_array().unwrap() {
        let path = attention["path"].as_str().unwrap();
        let picture =
            |of: &str| attention["pictures"].as_array().unwrap().iter().find(|p| p["of"] == of).unwrap();
        for of in ["weights", "scores"] {
            let (picture, expected) = (picture(of), values(&format!("{path}.{of}")));
            let (low, high) = (&picture["low"], &picture["high"]);
            let codes = bytes(&picture["codes"]);
            let cells = codes.len() / picture["heads"].as_u64().unwrap() as usize;
            assert_eq!(codes.len(), expected.len(), "{path}.{of}");
            for (i, (&code, y)) in codes.iter().zip(&expected).enumerate() {
                let (low, high) = (low[i / cells].as_f64().unwrap(), high[i / cells].as_f64().unwrap());
                let x = low + f64::from(code) / 254.0 * (high - low);
                assert!((x - y.unwrap()).abs() <= (high - low) / 254.0, "{path}.{of}: {x} {y:?}");
            }
        }
        // In self-attention contributions are shares of everything; in cross-attention the stream has the rest.
        let shares = picture("contribution");
        let columns = shares["columns"].as_u64().unwrap() as usize;
        let high = shares["high"][0].as_f64().unwrap();
        let stream = attention["stream_share"].is_string().then(|| floats(&attention["stream_share"]));
        for (row, codes) in bytes(&shares["codes"]).chunks(columns).enumerate() {
            let sum: f64 = codes.iter().map(|&code| f64::from(code) / 254.0 * high).sum();
            let rest = stream.as_ref().map_or(0.0, |stream| f64::from(stream[row]));
            assert!((sum + rest - 1.0).abs() < 0.02, "{path} row {row}: {sum} + {rest}");
        }
    }
}

/// A page of the report's cells, put together as the page does it.
fn cell_page(report: &Value, node: &str, [head, query, key]: [usize; 3]) -> Value {
    let cells = &report["run"]["cells"][node];
    let mut json = String::new();
    ZlibDecoder::new(&bytes(&cells["pages"])[..]).read_to_string(&mut json).unwrap();
    let packed: Value = serde_json::from_str(&json).unwrap();
    let size = |i: usize| cells["shape"][i].as_u64().unwrap() as usize;
    let place = &packed["places"][(head * size(1) + query) * size(2) + key];
    let group = &packed["groups"][place[0].as_u64().unwrap() as usize];
    let mut text = group["between"][0].as_str().unwrap().to_owned();
    for (column, signs) in
        group["columns"].as_array().unwrap().iter().zip(group["between"].as_array().unwrap().iter().skip(1))
    {
        let words: Vec<&str> = column.as_str().unwrap().split('\n').collect();
        text += if words.len() == 1 { words[0] } else { words[place[1].as_u64().unwrap() as usize] };
        text += signs.as_str().unwrap();
    }
    serde_json::from_str(&text).unwrap()
}

#[test]
fn cells_have_the_lines_of_explain() {
    let report = demo();
    for (node, at) in [
        ("decoder.0.cross_attn.weights", [1, 2, 3]),
        ("decoder.1.self_attn.weights", [3, 0, 4]),
        ("encoder.1.self_attn.weights", [0, 7, 7]),
    ] {
        let index = format!("0,{},{},{}", at[0], at[1], at[2]);
        let told = json(&[&["explain", node, "demo", "--at", &index], &SOURCE[..]].concat());
        let (mut expected, found) = (told["pages"][0].clone(), cell_page(&report, node, at));
        // The last part names model and input, which a report tells once.
        expected["parts"].as_array_mut().unwrap().pop();
        assert_eq!(found, expected, "{node} {at:?}");
    }
}

#[test]
fn a_page_is_one_file_that_asks_for_nothing() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("report.html").display().to_string();
    let source = "It's <img src=x onerror=alert(1)> </script>";
    let output = attnscope(&["report", "demo", "--src", source, "--repair-time", "0", "--output", &file]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(&file).unwrap();
    assert_eq!(page.matches("</script>").count(), 3, "nothing in the data ends its element");
    assert!(!page.contains("<img"), "a text became markup");
    assert!(!page.contains("https://"));
    // The names of XML, and nothing else.
    assert_eq!(page.matches("http://").count(), page.matches("http://www.w3.org/").count());
    let command = r"attnscope explain {node} demo --src 'It'\\''s \u003cimg src=x onerror=alert(1)> \u003c/script>' --at {at}";
    assert!(page.contains(command));
}

#[test]
fn the_report_of_demo_can_be_mailed() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("report.html");
    let output = attnscope(&["report", "demo", "--output", &file.display().to_string()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
}

#[test]
fn cells_of_cross_attention_come_first_and_a_head_at_a_time() {
    let source =
        "A man in a red shirt and a woman in a blue dress are riding their bicycles down a busy street.";
    let report = json(&["report", "demo", "--src", source, "--repair-time", "0"]);
    let cells = report["run"]["cells"].as_object().unwrap();
    let heads = |path: &str| cells[path]["shape"][0].as_u64().unwrap();
    assert_eq!(heads("decoder.0.cross_attn.weights"), 4);
    assert!(heads("decoder.1.cross_attn.weights") > 0);
    let held: u64 = cells
        .values()
        .map(|held| held["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product::<u64>())
        .sum();
    assert!(held <= 3200, "{held} cells");
    let left_out = report["run"]["left_out"].as_array().unwrap();
    let told = left_out.iter().find(|part| part["part"] == "cells").unwrap();
    assert!(told["why"].as_str().unwrap().contains("encoder.0.self_attn"), "{told}");
    assert_eq!(report["run"]["source_text"], source);
}

#[test]
fn every_architecture_has_a_report() {
    for (model, input) in [
        ("t5", &["--src-ids", "5,6,7,1", "--tgt-ids", "0,5,6"][..]),
        ("bart", &["--src-ids", "5,6,7,2;5,2", "--tgt-ids", "2,5,6;2,5"]),
        ("gpt2", &["--tgt-ids", "5,6,7,8"]),
        ("llama", &["--tgt-ids", "5,6,7,8"]),
        ("bert", &["--src-ids", "5,6,7,8"]),
        ("whisper", &["--audio", &fixture("audio/tone.wav"), "--tgt-ids", "2,5,6"]),
    ] {
        let report = json(&[&["report", &fixture(model), "--repair-time", "0"], input].concat());
        let run = &report["run"];
        let attentions = run["attentions"].as_array().unwrap();
        assert!(!attentions.is_empty(), "{model}");
        for attention in attentions {
            let pictures = attention["pictures"].as_array().unwrap();
            assert!(
                ["scores", "weights", "weighted_values"]
                    .iter()
                    .all(|of| pictures.iter().any(|p| p["of"] == *of)),
                "{model}: {attention}"
            );
        }
        assert!(run["trace"]["snapshots"].as_array().unwrap().len() > 10, "{model}");
        assert!(report["doctor"]["checked"].as_array().unwrap().len() > 5, "{model}");
        assert_eq!(run["spectrogram"].is_object(), model == "whisper");
    }
}

#[test]
fn a_training_run_must_be_one() {
    let folder = tempdir().unwrap();
    let path = folder.path().display().to_string();
    let output = attnscope(&["report", "toy", "--train", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("metrics.jsonl") && stderr(&output).contains("help: "),
        "{}",
        stderr(&output)
    );
    std::fs::write(folder.path().join("metrics.jsonl"), "{}\n{}\n").unwrap();
    let output = attnscope(&["report", "toy", "--train", &path]);
    assert!(stderr(&output).contains("line 1"), "{}", stderr(&output));
}

#[test]
fn a_training_run_of_another_model_is_told() {
    let folder = tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    let trained = attnscope(&["train", "toy", "--steps", "20", "--out", &run]);
    assert!(trained.status.success(), "{}", stderr(&trained));
    let best = format!("{run}/best");
    for (model, own) in [(run.as_str(), true), (&best, true), ("toy", false)] {
        let report = json(&["report", model, "--src", "hello", "--repair-time", "0", "--train", &run]);
        assert_eq!(report["training"]["is_of_model"], own, "{model}");
    }
}

#[test]
fn the_folder_of_a_training_run_brings_its_own_training() {
    let folder = tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    let trained = attnscope(&["train", "toy", "--steps", "20", "--out", &run]);
    assert!(trained.status.success(), "{}", stderr(&trained));
    let report = |model: &str| json(&["report", model, "--src", "hello", "--repair-time", "0"]);
    let own = report(&run);
    assert_eq!(
        (&own["training"]["is_of_model"], &own["left_out"]),
        (&Value::Bool(true), &Value::Array(vec![]))
    );
    assert!(!own["training"]["metrics"].as_array().unwrap().is_empty());
    assert_eq!(report("toy")["training"], Value::Null);
    // What cannot be read is left out of a report that nobody asked to have it.
    std::fs::write(folder.path().join("run/metrics.jsonl"), "{}\n{}\n").unwrap();
    let broken = report(&run);
    assert_eq!(
        (&broken["training"], &broken["left_out"][0]["part"]),
        (&Value::Null, &Value::from("training"))
    );
}

#[test]
fn a_note_is_told_once() {
    let ids = vec!["5"; 70].join(",");
    let model = fixture("marian");
    let output = attnscope(&["report", &model, "--src-ids", &ids, "--repair-time", "0", "--format", "json"]);
    let told = stderr(&output);
    let notes: Vec<&str> = told.lines().filter(|line| line.starts_with("note: ")).collect();
    assert!(notes.iter().any(|note| note.contains("the source has 70 positions")), "{told}");
    for note in &notes {
        assert_eq!(notes.iter().filter(|other| other == &note).count(), 1, "{told}");
    }
}

#[test]
fn padding_is_left_out_of_pictures() {
    // The classifier reads 30 positions, whatever it is given.
    let model = fixture("classifiers/attention");
    let report = json(&["report", &model, "--src-ids", "5,6,7,8", "--repair-time", "0"]);
    let attention = &report["run"]["attentions"][0];
    assert_eq!((&attention["queries"], &attention["on_padding"]), (&Value::from(30), &Value::from(0.0)));
    let path = attention["path"].as_str().unwrap();
    let weights = floats(&report["run"]["values"][format!("{path}.weights")]["values"]);
    for picture in attention["pictures"].as_array().unwrap() {
        assert_eq!((&picture["rows"], &picture["columns"]), (&Value::from(4), &Value::from(4)), "{picture}");
    }
    let picture = attention["pictures"].as_array().unwrap().iter().find(|p| p["of"] == "weights").unwrap();
    let codes = bytes(&picture["codes"]);
    for (i, code) in codes.iter().enumerate() {
        let (head, row, column) = (i / 16, i / 4 % 4, i % 4);
        let value = weights[head * 900 + row * 30 + column];
        let most = picture["high"][head].as_f64().unwrap() as f32;
        assert!((f32::from(*code) / 254.0 * most - value).abs() <= most / 254.0, "{i}");
    }
}

/// A number of `bits` bits in a list of them without gaps, the lowest bit first.
fn number_at(packed: &[u8], bits: usize, at: usize) -> usize {
    let bit = |place: usize| usize::from(packed[place / 8] >> (place % 8) & 1);
    (0..bits).map(|b| bit(at * bits + b) << b).sum()
}

#[test]
fn a_cell_of_a_reduced_picture_knows_the_cell_that_it_shows() {
    let text = "a dog ".repeat(210);
    let input = ["--src", &text, "--tgt", "Ein Hund."];
    let report = json(&[&["report", "demo", "--repair-time", "0"], &input[..]].concat());
    let node = "encoder.1.self_attn.weights";
    let trace = json(&[&["trace", "demo", "--layer", node, "--payload", "--full"], &input[..]].concat());
    let weights: Vec<f64> =
        trace["nodes"][0]["values"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let attentions = report["run"]["attentions"].as_array().unwrap();
    let attention = attentions.iter().find(|one| one["path"] == "encoder.1.self_attn").unwrap();
    let picture =
        attention["pictures"].as_array().unwrap().iter().find(|one| one["of"] == "weights").unwrap();
    let size = |of: &Value, key: &str| of[key].as_u64().unwrap() as usize;
    let (queries, keys) = (size(attention, "queries"), size(attention, "keys"));
    let (rows, columns) = (size(picture, "rows"), size(picture, "columns"));
    let (down, across) = (size(picture, "queries_a_row"), size(picture, "keys_a_column"));
    assert!(down * across > 1, "it is not reduced");
    let (codes, places) = (bytes(&picture["codes"]), bytes(&picture["places"]));
    assert!(codes.len() + places.len() <= 550_000);
    let bits = (down * across).next_power_of_two().trailing_zeros() as usize;
    for i in 0..codes.len() {
        let (head, row, column) = (i / (rows * columns), i / columns % rows, i % columns);
        let place = number_at(&places, bits, i);
        let (query, key) = (row * down + place / across, column * across + place % across);
        let group = (row * down..((row + 1) * down).min(queries)).flat_map(|query| {
            let from = (head * queries + query) * keys;
            &weights[from + column * across..from + ((column + 1) * across).min(keys)]
        });
        let largest = group.copied().fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(weights[(head * queries + query) * keys + key], largest, "head {head}, {row}, {column}");
    }
}

#[test]
fn a_mask_in_runs_is_the_mask_of_the_run() {
    let (source, target) = ("a dog ".repeat(20), "ein Hund ".repeat(320));
    let input = ["--src", &source, "--tgt", &target];
    let report = json(&[&["report", "demo", "--repair-time", "0"], &input[..]].concat());
    assert!(report["run"]["masks"].is_null());
    let masks = report["run"]["mask_runs"].as_array().unwrap();
    assert_eq!(
        masks.iter().map(|mask| mask["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["M_e", "M_d", "M_x"]
    );
    let trace = json(
        &[&["trace", "demo", "--layer", "decoder.0.self_attn.mask", "--payload", "--full"], &input[..]]
            .concat(),
    );
    // An infinity is null in JSON: a masked cell.
    let cells = trace["nodes"][0]["values"].as_array().unwrap().iter().map(Value::is_null);
    let mut drawn = Vec::new();
    for row in masks[1]["rows"].as_array().unwrap() {
        let keys = row["keys"].as_array().unwrap().iter();
        let keys: Vec<bool> =
            keys.flat_map(|run| vec![run[0] != "o"; run[1].as_u64().unwrap() as usize]).collect();
        (0..row["queries"].as_u64().unwrap()).for_each(|_| drawn.extend_from_slice(&keys));
    }
    assert!(drawn.len() > 600 * 600 && drawn.iter().any(|masked| *masked));
    assert!(cells.eq(drawn), "a cell differs");
    let left_out = report["run"]["left_out"].as_array().unwrap();
    assert!(left_out.iter().any(|part| part["part"] == "proofs"), "{left_out:?}");
}

#[test]
fn a_classifier_answers_as_hugging_face_does() {
    let scores = std::fs::read_to_string(fixture("bert-classifier/scores.json")).unwrap();
    let scores: Value = serde_json::from_str(&scores).unwrap();
    for (text, expected) in
        scores["texts"].as_array().unwrap().iter().zip(scores["scores"].as_array().unwrap())
    {
        let ids: Vec<String> = text.as_array().unwrap().iter().map(Value::to_string).collect();
        let input = ["--src-ids", &ids.join(",")];
        let report =
            json(&[&["report", &fixture("bert-classifier"), "--repair-time", "0"], &input[..]].concat());
        let classes = report["run"]["classes"].as_array().unwrap();
        assert_eq!(classes.len(), 3);
        let best = classes[0]["score"].as_f64().unwrap();
        let sum: f64 = classes.iter().map(|class| class["probability"].as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        for class in classes {
            let number = class["class"].as_u64().unwrap() as usize;
            assert_eq!(class["name"], format!("LABEL_{number}"));
            let score = class["score"].as_f64().unwrap();
            assert!((score - expected[number].as_f64().unwrap()).abs() < 1e-5, "{class}");
            assert!(score <= best);
        }
    }
    assert!(demo()["run"]["classes"].is_null());
}

#[test]
fn nodes_say_where_they_are() {
    let flow = json(&["flow", "demo"]);
    let node = |path: &str| {
        let node = flow["nodes"].as_array().unwrap().iter().find(|node| node["path"] == path);
        let node = node.unwrap_or_else(|| panic!("{path}"));
        [&node["stack"], &node["layer"], &node["part"], &node["step"]].map(Value::to_string).join(" ")
    };
    assert_eq!(node("decoder.1.cross_attn.scores"), r#""decoder" 1 "cross_attn" "scores""#);
    assert_eq!(node("encoder.0.out"), r#""encoder" 0 "stream" "out""#);
    assert_eq!(node("src.embed_pos"), r#""encoder" null "entry" "embed_pos""#);
    assert_eq!(node("decoder.out"), r#""decoder" null "out" "out""#);
    assert_eq!(node("logits"), r#"null null "logits" "logits""#);
}
