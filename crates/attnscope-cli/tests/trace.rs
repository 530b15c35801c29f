//! `trace`: the toy's walk, selections, values in print, traces on disk, and everything that can go wrong.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::{attnscope, fixture, json, refused, stderr, stdout};
use serde_json::Value;

const SENTENCES: [&str; 4] =
    ["--src", "hello from cairo egypt team project", "--tgt", "we are debugging transformer today"];

/// The shapes of the walk, as they were published with it.
const SHAPES: [&[u64]; 43] = {
    const E: &[u64] = &[1, 6, 128];
    const D: &[u64] = &[1, 5, 128];
    const EE: &[u64] = &[1, 4, 6, 6];
    const DD: &[u64] = &[1, 4, 5, 5];
    const DE: &[u64] = &[1, 4, 5, 6];
    [
        &[6],
        &[5],
        &[5, 5],
        E,
        E,
        E,
        E,
        E,
        E,
        EE,
        EE,
        &[1, 4, 6, 32],
        E,
        E,
        E,
        E,
        &[1, 6, 256],
        E,
        E,
        D,
        D,
        D,
        D,
        DD,
        &[1, 1, 5, 5],
        DD,
        &[1, 4, 5, 32],
        D,
        D,
        D,
        E,
        E,
        DE,
        DE,
        D,
        D,
        D,
        &[1, 5, 256],
        D,
        D,
        D,
        &[1, 5, 5],
        &[5],
    ]
};

#[test]
fn the_toy_reproduces_the_walk() {
    let trace = json(&[&["trace", "toy", "--format", "json"], &SENTENCES[..]].concat());
    let ids = |side: &str| -> Vec<u64> {
        trace["tokens"][side][0].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect()
    };
    assert_eq!((ids("source"), ids("target")), (vec![3, 2, 0, 1, 5, 4], vec![4, 0, 1, 3, 2]));
    let walk = trace["snapshots"].as_array().unwrap();
    assert_eq!(walk.len(), 43);
    for (i, (snapshot, shape)) in walk.iter().zip(SHAPES).enumerate() {
        assert_eq!(snapshot["number"], i + 1);
        assert_eq!(snapshot["shape"], serde_json::json!(shape), "{snapshot}");
        assert_eq!(snapshot["stats"]["nan"], 0);
    }
    // Without sentences the toy reads the same ones.
    assert_eq!(json(&["trace", "toy", "--format", "json"]), trace);
}

#[test]
fn other_words_make_another_toy() {
    let trace = json(&["trace", "toy", "--src", "b a b", "--tgt", "x y", "--format", "json"]);
    assert_eq!(trace["tokens"]["source"][0][1]["id"], 0);
    assert_eq!(trace["snapshots"][41]["shape"], serde_json::json!([1, 2, 2]));
}

#[test]
fn the_text_has_tokens_walk_and_attention() {
    let text = stdout(&attnscope(&["trace", "--src", "A man is riding a bicycle.", "--width", "120"]));
    assert!(text.contains("target (generated)"), "{text}");
    for word in ["decoder.0.cross_attn.weights", "entropy / ln S", "peak × S", "▁man"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    for width in ["60", "80", "120"] {
        let text = stdout(&attnscope(&["trace", "toy", "--width", width]));
        let most: usize = width.parse().unwrap();
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > most).collect();
        assert!(wide.is_empty(), "{width}: {wide:#?}");
    }
}

#[test]
fn a_selection_prints_its_values() {
    let args = ["trace", "toy", "--layer", "cross_attn", "--payload"];
    let text = stdout(&attnscope(&args));
    for leaf in
        ["q", "k", "v", "scores", "mask", "masked_scores", "weights", "context", "out", "residual", "norm"]
    {
        assert!(text.contains(&format!("decoder.1.cross_attn.{leaf} (")), "{leaf}");
    }
    assert!(text.contains("..."));
    assert!(!stdout(&attnscope(&[&args[..], &["--full"]].concat())).contains("..."));
    let picked = stdout(&attnscope(&["trace", "toy", "--snapshots", "10-12", "--layer-index", "1"]));
    assert!(picked.contains("encoder.1.self_attn.scores") && !picked.contains("encoder.0"), "{picked}");
    assert_eq!(picked.lines().filter(|l| l.contains("encoder.1") && !l.contains("mean of")).count(), 3);
    assert_eq!(picked.matches("encoder.1.self_attn.weights, mean of 4 heads").count(), 1, "{picked}");
}

#[test]
fn values_of_a_row_of_weights_add_up_to_one() {
    let trace =
        json(&["trace", "toy", "--layer", "decoder.0.cross_attn.weights", "--payload", "--format", "json"]);
    let values = trace["nodes"][0]["values"].as_array().unwrap();
    for row in values.chunks(6) {
        let sum: f64 = row.iter().map(|v| v.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    }
}

#[test]
fn both_executors_see_the_same_model() {
    let (fast, slow) = (
        json(&["trace", "toy", "--format", "json", "--snapshots", "42", "--payload"]),
        json(&["trace", "toy", "--format", "json", "--snapshots", "42", "--payload", "--reference"]),
    );
    let values = |t: &Value| t["snapshots"][0]["values"].as_array().unwrap().clone();
    let (fast, slow) = (values(&fast), values(&slow));
    // [1, target, vocabulary]
    assert_eq!((fast.len(), slow.len()), (25, 25));
    for (a, b) in fast.iter().zip(&slow) {
        assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-5);
        assert_ne!(a, b, "one is f32, the other f64");
    }
}

#[test]
fn a_saved_trace_can_be_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    let folder_name = folder.to_str().unwrap();
    let output = attnscope(&["trace", "toy", "--save", folder_name]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    let trace = attnscope::run::trace::Trace::open(&folder).unwrap();
    assert!(trace.nodes.iter().all(|n| n.saved));
    let bytes: u64 = trace.tensors().tensors().iter().map(|t| t.bytes()).sum();
    assert!(said.contains(&attnscope::figures::thousands(bytes)), "{said}");
    let logits = trace.read("logits").unwrap().unwrap();
    let shown = json(&["trace", "toy", "--snapshots", "42", "--payload", "--format", "json"]);
    // As f32: a JSON reader may miss an f64 by its last bit.
    let values: Vec<f32> = shown["snapshots"][0]["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap() as f32)
        .collect();
    assert_eq!(logits.values.iter().map(|&x| x as f32).collect::<Vec<_>>(), values);
    assert_eq!(trace.read("src.ids").unwrap().unwrap().values, [3.0, 2.0, 0.0, 1.0, 5.0, 4.0]);
    let weights = trace.nodes.iter().find(|n| n.path == "decoder.1.cross_attn.weights").unwrap();
    assert_eq!(
        (&weights.snapshots[..], &weights.dims[..]),
        (&[34][..], &["B", "H", "T", "S"].map(str::to_owned)[..])
    );
    assert_eq!(trace.about["files"][0]["sha256"].as_str().unwrap().len(), 64);

    // The same name a second time: nothing is touched.
    assert!(refused(&["trace", "toy", "--save", folder_name]).contains("found a folder"));
    assert!(attnscope::run::trace::Trace::open(&folder).is_ok());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_narrowed_trace_holds_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    let output = attnscope(&[
        "trace",
        "toy",
        "--reference",
        "--layer",
        "encoder.0.ffn",
        "--save",
        folder.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let trace = attnscope::run::trace::Trace::open(&folder).unwrap();
    let saved: Vec<&str> = trace.nodes.iter().filter(|n| n.saved).map(|n| n.path.as_str()).collect();
    assert!(
        saved.iter().all(|p| p.starts_with("encoder.0.ffn.")) && saved.contains(&"encoder.0.ffn.act"),
        "{saved:?}"
    );
    assert_eq!(trace.tensors().tensors().len(), saved.len());
    assert!(trace.read("logits").unwrap().is_none());
    assert_eq!(trace.about["precision"], "f64");
}

#[test]
#[cfg(target_os = "linux")]
fn a_trace_that_cannot_be_written_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    // As on a full disk: no file may grow past 64 blocks of 512 bytes.
    let script = format!(
        "trap '' XFSZ; ulimit -f 64; exec {} trace toy --save {}",
        env!("CARGO_BIN_EXE_attnscope"),
        folder.display()
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("error: ") && stderr(&output).contains("help: "));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let gone = refused(&["trace", "toy", "--save", "/nowhere/at/all/t"]);
    assert!(gone.contains("/nowhere/at/all"), "{gone}");
}

#[test]
fn what_cannot_be_run_is_refused_with_a_way_out() {
    let marian = fixture("marian");
    for (args, said) in [
        (vec!["trace", "toy", "--tgt-ids", "0,99"], "id 99 is outside the vocabulary of 5"),
        (vec!["trace", "toy", "--src-ids", "6"], "id 6 is outside the vocabulary of 6"),
        (vec!["trace", "toy", "--src-ids", "0,x"], "--src-ids: row 0: expected a token id"),
        (vec!["trace", "toy", "--src-ids", "0;1", "--tgt-ids", "0"], "the source has 2"),
        (vec!["trace", "toy", "--layer", "cros_attn.weight"], "decoder.0.cross_attn.weights"),
        (vec!["trace", "toy", "--snapshots", "0-3"], "expected numbers from 1 to 43"),
        (vec!["trace", "toy", "--snapshots", "44"], "expected numbers from 1 to 43"),
        (vec!["trace", "toy", "--layer-index", "2"], "2 encoder and 2 decoder layers"),
        (vec!["trace", "toy", "--row", "1"], "the batch has 1 row"),
        (vec!["trace", "toy", "--src", ""], "nothing"),
        (vec!["trace", "demo", "--audio", "x.wav"], "--audio is for audio models"),
        (vec!["trace", "demo", "--pairs", "/nowhere.tsv"], "/nowhere.tsv"),
        (vec!["trace", &marian], "nothing to read"),
        (vec!["trace", &marian, "--src", "a"], "tokenizer"),
    ] {
        let text = refused(&args);
        assert!(text.contains(said), "{args:?}: {text}");
    }
}

#[test]
fn an_empty_text_is_its_end_token() {
    let trace = json(&["trace", "demo", "--src", "", "--tgt", "", "--format", "json"]);
    assert_eq!(trace["tokens"]["source"][0].as_array().unwrap().len(), 1);
    assert_eq!(trace["snapshots"][41]["stats"]["nan"], 0);
}

#[test]
fn batches_are_padded_and_masked() {
    let trace = json(&[
        "trace",
        "demo",
        "--src",
        "A man.",
        "--src",
        "Two dogs run over the grass.",
        "--format",
        "json",
    ]);
    let rows = trace["tokens"]["source"].as_array().unwrap();
    assert_eq!(rows[0].as_array().unwrap().len(), rows[1].as_array().unwrap().len());
    assert_eq!(rows[0].as_array().unwrap().last().unwrap()["padding"], true);
    assert_eq!(rows[1].as_array().unwrap().last().unwrap()["padding"], false);
}

/// Ends a run with a signal as soon as it has begun to write, and says what is left beside the trace's name.
#[cfg(unix)]
fn interrupted(signal: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    let words = vec!["man"; 300].join(" ");
    let args = ["trace", "--reference", "--src", &words, "--tgt", &words, "--save", folder.to_str().unwrap()];
    let quiet = || std::process::Stdio::null();
    let mut run = common::command(&args).stdout(quiet()).stderr(quiet()).spawn().unwrap();
    while std::fs::read_dir(dir.path()).unwrap().count() == 0 && run.try_wait().unwrap().is_none() {}
    // The handler is there a moment after the folder is.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let id = run.id().to_string();
    assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    assert!(!run.wait().unwrap().success());
    let name =
        |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().into_owned();
    std::fs::read_dir(dir.path()).unwrap().map(name).collect()
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_leaves_nothing_under_the_final_name() {
    assert_eq!(interrupted("-INT"), [""; 0]);
    assert_eq!(interrupted("-TERM"), [""; 0]);
    // Nobody can clean up after this one; what is left is hidden, and is not the trace's name.
    assert!(interrupted("-KILL").iter().all(|name| name.starts_with(".attnscope-trace-")));
}

#[test]
fn the_tour_translates_draws_and_names_commands_that_exist() {
    let output = attnscope(&[]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in ["Ein Mann in einem roten Hemd fährt Fahrrad.", "cross_attn", "█", "Next:"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let next = text.split("Next:").nth(1).unwrap();
    let commands: Vec<&str> =
        next.lines().filter_map(|l| l.trim().strip_prefix("attnscope ")?.split(' ').next()).collect();
    assert!(commands.len() > 5);
    for command in commands.iter().filter(|c| !c.starts_with('-')) {
        assert!(attnscope(&[command, "--help"]).status.success(), "{command}");
    }
}
