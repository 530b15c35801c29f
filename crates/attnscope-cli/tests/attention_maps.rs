//! Attention drawn and chosen: any attention as text and SVG, one head or all, alignments by chosen heads; texts from
//! files and standard input.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::io::Write;
use std::process::{Output, Stdio};

use common::trace::Trace;
use common::{attnscope, command, fixture, rewrite, same, stderr, stdout};
use serde_json::Value;
use tempfile::tempdir;

fn text(args: &[&str]) -> String {
    let output = attnscope(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--format", "json"]].concat())).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = attnscope(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stdout(&output));
    stderr(&output)
}

/// Runs the program with something on standard input.
fn piped(args: &[&str], given: &str) -> Output {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

const TOY: [&str; 6] = ["trace", "toy", "--src", "we are here", "--tgt", "hello you two"];

/// The values of a head's weights as the run has them, and as the picture's cells name them.
#[test]
fn every_attention_is_drawn_with_the_weights_that_it_has() {
    for path in ["encoder.1.self_attn.weights", "decoder.0.self_attn.weights", "decoder.1.cross_attn.weights"]
    {
        let args = [&TOY[..], &["--layer", path]].concat();
        let run = json(&[&args[..], &["--payload"]].concat());
        let node = &run["nodes"][0];
        let shape: Vec<usize> =
            node["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let (heads, cells) = (shape[1], shape[2] * shape[3]);
        let weights: Vec<f64> =
            node["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let hints = |svg: &str| -> Vec<f64> {
            let cells = svg.split("class=\"cell\"").skip(1);
            let hint = |cell: &str| {
                cell.split("</title>").next().unwrap().rsplit(": ").next().unwrap().parse().unwrap()
            };
            cells.map(hint).collect()
        };
        let close = |a: &[f64], b: &[f64]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 5.1e-5)
        };
        let all = text(&[&args[..], &["--format", "svg", "--head", "all"]].concat());
        assert!(close(&hints(&all), &weights), "{path}");
        let one = text(&[&args[..], &["--format", "svg", "--head", "2"]].concat());
        assert!(close(&hints(&one), &weights[2 * cells..3 * cells]), "{path}");
        let mean: Vec<f64> = (0..cells)
            .map(|i| (0..heads).map(|h| weights[h * cells + i]).sum::<f64>() / heads as f64)
            .collect();
        let svg = text(&[&args[..], &["--format", "svg"]].concat());
        assert!(close(&hints(&svg), &mean), "{path}");
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("mean of 4 heads"),
            "{svg}"
        );
        let drawn = text(&args);
        assert!(drawn.contains(&format!("{path}, mean of 4 heads")), "{drawn}");
        let strongest = mean[..shape[3]].iter().copied().fold(0.0, f64::max);
        assert!(drawn.contains(&format!("{:.0}", strongest * 100.0)), "{drawn}");
    }
}

#[test]
fn rows_and_columns_are_named_by_their_side() {
    let own = text(&[&TOY[..], &["--layer", "encoder.0.self_attn.weights"]].concat());
    assert!(own.contains("Attention: keys across; down, queries. ") && !own.contains('⇒'), "{own}");
    let causal = text(&[&TOY[..], &["--layer", "decoder.0.self_attn.weights"]].concat());
    assert!(causal.contains("hello ⇒ you"), "{causal}");
    let walk = text(&TOY);
    assert!(
        walk.contains("Cross-attention: source across; down, the token that is read")
            && !walk.contains("self_attn.weights, mean"),
        "{walk}"
    );
    // Who asks for values gets values.
    let values = text(&[&TOY[..], &["--layer", "encoder.0.self_attn.weights", "--payload"]].concat());
    assert!(!values.contains("mean of 4 heads"), "{values}");
}

#[test]
fn audio_is_drawn_in_seconds_on_both_sides() {
    let (folder, model) = (tempdir().unwrap(), fixture("whisper"));
    let features = folder.path().join("mel.npy");
    let input = Trace::open("whisper").input();
    let mel = input.features().expect("features");
    let shape = format!("({}, {}, {})", mel.batch, mel.mels, mel.frames);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    header += &" ".repeat(63 - (header.len() + 10) % 64);
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(mel.values.iter().flat_map(|v| v.to_le_bytes()));
    std::fs::write(&features, bytes).unwrap();
    let features = features.display().to_string();
    let drawn = text(&[
        "trace",
        &model,
        "--features",
        &features,
        "--layer",
        "encoder.0.self_attn.weights",
        "--tgt-ids",
        "1,2;1,2",
    ]);
    assert!(drawn.contains("the source in seconds"), "{drawn}");
    // Weights of a row add up to one, however many frames share a column.
    let svg = text(&[
        "trace",
        &model,
        "--features",
        &features,
        "--layer",
        "encoder.0.self_attn.weights",
        "--tgt-ids",
        "1,2;1,2",
        "--format",
        "svg",
    ]);
    let cells = svg.split("class=\"cell\"").skip(1);
    let hint = |cell: &str| -> f64 {
        cell.split("</title>").next().unwrap().rsplit(": ").next().unwrap().parse().unwrap()
    };
    let sum: f64 = cells.map(hint).sum();
    let rows = svg.matches("text-anchor=\"end\"").count() as f64;
    assert!((sum - rows).abs() < 0.02 * rows, "{sum} in {rows} rows");
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    for (args, part) in [
        (&["--layer", "encoder.0.ffn.act", "--format", "svg"][..], "nothing to draw"),
        (&["--head", "4"], "has 4 heads"),
        (&["--head", "two"], "expected a number from 0, or all"),
    ] {
        let error = refused(&[&TOY[..], args].concat());
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn an_alignment_is_read_off_the_heads_that_are_chosen() {
    let args = ["generate", "--src", "A man is riding a bicycle.", "--align-heads"];
    let one = json(&[&args[..], &["1.2"]].concat());
    assert_eq!(one["alignment_heads"]["heads"], serde_json::json!([[1, 2]]));
    let two = json(&[&args[..], &["1.2,0.3,1.2"]].concat());
    assert_eq!(two["alignment_heads"]["heads"], serde_json::json!([[1, 2], [0, 3]]));
    let other = json(&[&args[..], &["0.3"]].concat());
    let weight = |run: &Value| run["outputs"][0]["alignment"]["weights"][1][1].as_f64().unwrap();
    assert!((weight(&two) - 0.5 * (weight(&one) + weight(&other))).abs() < 1e-6, "the mean of the two");
    assert!((weight(&one) - weight(&other)).abs() > 1e-6);
    for (heads, part) in
        [("2.0", "2.0: the decoder has 2 layers of 4 heads"), ("0.4", "0.4: "), ("1", "as 2.5")]
    {
        let error = refused(&[&args[..], &[heads]].concat());
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn texts_come_from_files_and_standard_input() {
    let folder = tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let sources = file("sources.txt", "A man.\r\nTwo dogs are playing.\n");
    let targets = file("targets.txt", "Ein Mann.\nZwei Hunde spielen.\n");
    let same_run = |args: &[&str]| json(&[&["trace"], args].concat())["tokens"].clone();
    let by_options = same_run(&[
        "--src",
        "A man.",
        "--src",
        "Two dogs are playing.",
        "--tgt",
        "Ein Mann.",
        "--tgt",
        "Zwei Hunde spielen.",
    ]);
    assert_eq!(same_run(&["--src-file", &sources, "--tgt-file", &targets]), by_options);
    let piped_run = piped(
        &["trace", "--src-file", "-", "--tgt-file", &targets, "--format", "json"],
        "A man.\nTwo dogs are playing.\n",
    );
    let piped_run: Value = serde_json::from_str(&stdout(&piped_run)).unwrap();
    assert_eq!(piped_run["tokens"], by_options);
    let pairs = "A man.\tEin Mann.\nTwo dogs are playing.\tZwei Hunde spielen.\n";
    let by_pairs: Value =
        serde_json::from_str(&stdout(&piped(&["trace", "--pairs", "-", "--format", "json"], pairs))).unwrap();
    assert_eq!(by_pairs["tokens"], by_options);
    // Every command that reads a source.
    for command in [&["generate"][..], &["masks"], &["explain", "heads"], &["trace", "toy"]] {
        let output = piped(&[command, &["--src-file", "-"]].concat(), "A man.\n");
        assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    }
    let empty = file("empty.txt", "");
    for (args, part) in [
        (&["trace", "--src-file", &empty][..], "there is no line in it"),
        (&["trace", "--src-file", "-", "--tgt-file", "-"], "can be read only once"),
        (&["trace", "--src-file", &sources, "--src", "A man."], "cannot be used with"),
        (&["trace", "--src-file", &sources, "--tgt-file", &targets, "--tgt-ids", "1"], "cannot be used with"),
        (&["trace", "--src-file", "nowhere.txt"], "nowhere.txt"),
    ] {
        let error = refused(args);
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

/// What the schema of OASIS requires of the objects that are written, and what code hosts ask for beside it.
#[test]
fn sarif_has_what_its_schema_requires() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a model [1] für #2");
    std::fs::create_dir(&path).unwrap();
    let without = |name: &str| (!name.contains("fc1.bias")).then(|| name.to_owned());
    let config = common::config_of("marian");
    let model = rewrite(&fixture("marian"), &path, without, same, Some(&config));
    let output = attnscope(&["doctor", &model, "--rules", "missing-weight", "--format", "sarif"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let log: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let only = |value: &Value, keys: &[&str]| {
        assert!(value.as_object().unwrap().keys().all(|key| keys.contains(&key.as_str())), "{value}");
    };
    let driver = &log["runs"][0]["tool"]["driver"];
    assert!(driver["name"].is_string());
    let rules = driver["rules"].as_array().unwrap();
    for rule in rules {
        only(rule, &["id", "shortDescription", "fullDescription", "help", "defaultConfiguration"]);
    }
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(!results.is_empty());
    for result in results {
        only(result, &["ruleId", "level", "message", "locations", "properties"]);
        assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]));
        assert!(["note", "warning", "error"].contains(&result["level"].as_str().unwrap()));
        assert!(result["message"]["text"].is_string());
        let place = &result["locations"][0]["physicalLocation"];
        only(place, &["artifactLocation", "region"]);
        assert_eq!(place["region"]["startLine"], 1);
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(
            uri.starts_with("file:///") && uri.ends_with("/a%20model%20%5B1%5D%20f%C3%BCr%20%232"),
            "{uri}"
        );
        let logical = result["locations"][0]["logicalLocations"].as_array().unwrap();
        logical.iter().for_each(|place| only(place, &["fullyQualifiedName"]));
    }
}
