//! `train`, `evaluate` and `predict`, and other commands on what they leave behind.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use common::{attnscope, command, root, stderr, stdout};
use serde_json::Value;

fn fine(args: &[&str]) -> Output {
    let output = attnscope(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    output
}

/// What a command prints for programs, held against its schema.
fn json(schema: &str, args: &[&str]) -> Value {
    let output = fine(&[args, &["--format", "json"]].concat());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = root().join("schema").join(format!("{schema}.json"));
    let schema: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{args:?}: {errors:#?}");
    value
}

#[test]
fn the_toy_is_trained_judged_and_opened_by_every_other_command() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run").display().to_string();
    let training = json("train", &["train", "toy", "--out", &out]);
    assert_eq!((&training["ended"], &training["steps"]), (&"finished".into(), &60.into()));
    assert_eq!(training["best"]["accuracy"], 1.0);
    assert!(fs::read_to_string(format!("{out}/curves.svg")).unwrap().starts_with("<svg "));
    let judged = json("evaluate", &["evaluate", &out]);
    assert_eq!((&judged["accuracy"], &judged["examples"]), (&1.0.into(), &1.into()));
    assert!(judged["bleu"]["score"].as_f64().unwrap() > 99.9);
    // It has no other pair than the one that it learned.
    assert_eq!(judged["learned_from"], 1);
    assert!(stdout(&fine(&["evaluate", &out])).contains("1 of these examples was learned from"));
    let source = "hello from cairo egypt team project";
    let made = json("predict", &["predict", &out, "--text", source]);
    assert_eq!(made["rows"][0]["generated"], "we are debugging transformer today");
    let text = stdout(&fine(&["predict", &out, "--text", source]));
    assert_eq!(text, "we are debugging transformer today\n");
    let best = format!("{out}/best");
    assert!(
        stdout(&fine(&["generate", &best, "--src", source])).contains("we are debugging transformer today")
    );
    assert!(stdout(&fine(&["inspect", &best])).contains("Marian"));
    fine(&["trace", &best, "--src", source]);
    fine(&["masks", &best, "--src", source]);
    // A second run does not go over the first.
    let again = attnscope(&["train", "toy", "--out", &out]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("--resume"), "{}", stderr(&again));
    // What was trained is something to begin with.
    let more = dir.path().join("more").display().to_string();
    let further = json("train", &["train", "toy", "--init", &best, "--steps", "3", "--out", &more]);
    assert!(further["best"]["nll"].as_f64().unwrap() < 0.1, "{}", further["best"]);
    // The run's folder stands for its best weights.
    assert_eq!(json("summary", &["summary", &out]), {
        let mut of_best = json("summary", &["summary", &best]);
        of_best["model"] = out.clone().into();
        of_best
    });
}

/// Any model that is opened can be begun with, the one that the program carries included, if it is for the recipe's task.
#[test]
fn learning_begins_with_a_model_for_the_same_task() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name).display().to_string();
    let training = json("train", &["train", "toy", "--init", "demo", "--steps", "2", "--out", &out("demo")]);
    assert_eq!(training["parameters"], 1_174_528);
    let rows = dir.path().join("rows.jsonl");
    fs::write(&rows, "{\"text\":\"a\",\"label\":0}\n{\"text\":\"b\",\"label\":1}\n").unwrap();
    let rows = rows.display().to_string();
    refused(
        &["train", "imdb-conv", "--data", &rows, "--init", "demo", "--out", &out("a")],
        "demo: learning cannot begin with it: the recipe is for a classifier",
    );
    let classifier = out("classifier");
    fine(&["train", "imdb-conv-maxpool", "--data", &rows, "--steps", "1", "--out", &classifier]);
    refused(
        &["train", "toy", "--init", &classifier, "--out", &out("b")],
        "the recipe is for an encoder-decoder",
    );
    refused(&["train", "toy", "--init", "imdb-conv", "--out", &out("c")], "this is a recipe");
}

#[test]
fn a_dry_run_trains_nothing() {
    let plan = json("train-plan", &["train", "toy", "--dry-run"]);
    assert_eq!((&plan["steps"], &plan["model"]), (&60.into(), &"encoder-decoder".into()));
    let text = stdout(&fine(&["train", "toy", "--dry-run"]));
    // What is kept for backward comes on top of 4 values a parameter.
    assert_eq!(plan["bytes"].as_u64().unwrap(), 16 * plan["parameters"].as_u64().unwrap());
    assert!(plan["step_bytes"].as_u64().unwrap() > 100_000, "{plan}");
    assert!(text.contains("kB of tensors of the largest batch"), "{text}");
    let layers = plan["layers"].as_array().unwrap();
    let scores = layers.iter().find(|layer| layer["path"] == "decoder.1.cross_attn.scores").unwrap();
    assert_eq!(scores["shape"], serde_json::json!([1, 4, 6, 7]));
    let leaves = layers.iter().filter(|layer| !layer["shape"].is_null());
    let parameters: u64 = leaves.map(|layer| layer["parameters"].as_u64().unwrap()).sum();
    assert_eq!(plan["parameters"].as_u64().unwrap(), parameters);
    assert!(text.contains("60 steps at ") && text.contains("the largest is [1, 7] and [1, 6]"), "{text}");
}

fn refused(args: &[&str], what: &str) {
    let output = attnscope(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(said.contains(what), "{args:?}: {said}");
    assert!(said.contains("\nhelp: "), "{said}");
}

#[test]
fn what_cannot_be_trained_says_why_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let out = dir.path().join("run").display().to_string();
    refused(&["train", "imdb", "--out", &out], "imdb: No such file");
    refused(&["train", "multi30k-en-de", "--out", &out], "no data is given");
    let bad = file("bad.toml", "seed = 1\nsead = 2\n");
    refused(
        &["train", &bad, "--out", &out],
        "bad.toml:2:1: sead: unknown key; allowed here: seed, data, tokens",
    );
    let rows = file("rows.tsv", "a dog\tein Hund\nno tab\na cat\teine Katze\n");
    let recipe = file("words.toml", &fs::read_to_string(root().join("recipes/toy.toml")).unwrap());
    refused(
        &["train", &recipe, "--data", &rows, "--out", &out],
        "rows.tsv:2: expected a source, a tab and a target",
    );
    refused(&["evaluate", &out], "expected the folder of a training run, found no recipe.toml in it");
    assert!(!Path::new(&out).exists(), "what failed leaves no folder");
    let empty = file("empty.csv", "\n");
    refused(&["train", "imdb-conv", "--data", &empty, "--out", &out], "found an empty file");
    let folder = dir.path().display().to_string();
    refused(
        &["train", "imdb-conv", "--data", &folder, "--out", &out],
        "expected the folders train and test, each with a folder for each class, found bad.toml, empty.csv",
    );
    let training =
        json("train", &["train", &recipe, "--data", &rows, "--out", &out, "--skip-bad", "--steps", "2"]);
    assert_eq!(training["data"]["bad_rows"], 1);
    assert!(training["data"]["first_bad_row"].as_str().unwrap().contains("rows.tsv:2: "));
    let resumed =
        ["train", &recipe, "--data", &rows, "--out", &out, "--resume", "--skip-bad", "--steps", "3"];
    refused(&resumed, "train.steps is 2 there, and 3 is given");
    assert!(stderr(&attnscope(&resumed)).contains("--init"), "what to do is said");
}

/// A rate at which weights overflow: the run says where and why, and what was saved before is kept.
#[test]
fn a_run_that_diverges_says_so_and_keeps_what_was_good() {
    let dir = tempfile::tempdir().unwrap();
    let toy = fs::read_to_string(root().join("recipes/toy.toml")).unwrap();
    let recipe = dir.path().join("steep.toml");
    let run = |rate: &str, more: &str, out: &str| {
        fs::write(&recipe, toy.replace("learning_rate = 1e-3", rate).replace("validate_every = 20", more))
            .unwrap();
        let out = dir.path().join(out).display().to_string();
        let output = attnscope(&["train", &recipe.display().to_string(), "--out", &out, "--format", "json"]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let training: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(training["ended"], "diverged");
        (training["divergence"].clone(), out)
    };
    let (divergence, out) = run("learning_rate = 1e38", "validate_every = 20", "at-once");
    assert!(divergence["found"].as_str().unwrap().contains("is"), "{divergence}");
    assert_eq!(divergence["saved"], Value::Null);
    assert!(divergence["causes"][0].as_str().unwrap().contains("learning_rate"), "{divergence}");
    assert!(!Path::new(&out).join("checkpoint").exists());
    // There is nothing to go on with, and a run can begin there anew.
    fs::write(&recipe, &toy).unwrap();
    fine(&["train", &recipe.display().to_string(), "--out", &out, "--steps", "2"]);
    // A rate at which the loss is far above a guess, and never infinite.
    let (divergence, _) = run("learning_rate = 30.0", "validate_every = 20", "far");
    assert!(divergence["found"].as_str().unwrap().contains("a guess among"), "{divergence}");
    assert_eq!(divergence["saved"], 60);
    // The rate rises until it is too large: the steps before that are saved.
    let rising = "validate_every = 1\n\n[schedule]\nkind = \"linear-warm-up\"\nwarm_up = 60";
    let (divergence, out) = run("learning_rate = 1e9", rising, "later");
    let (saved, step) = (divergence["saved"].as_u64().unwrap(), divergence["step"].as_u64().unwrap());
    assert_eq!(saved + 1, step, "{divergence}");
    let weights = fs::read(Path::new(&out).join("checkpoint/model.safetensors")).unwrap();
    let weights = safetensors::SafeTensors::deserialize(&weights).unwrap();
    let is_finite = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap()).is_finite();
    assert!(weights.iter().all(|(_, tensor)| tensor.data().chunks(4).all(is_finite)));
}

/// The first signal ends the step under way and saves; the run can be resumed.
#[cfg(unix)]
#[test]
#[allow(unsafe_code)]
fn a_signal_saves_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let steps = "1000000";
    let path = out.display().to_string();
    let args = ["train", "toy", "--steps", steps, "--out", &path, "--format", "json"];
    let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It learns as soon as something was validated.
    wait_for(&out.join("best/model.safetensors"));
    // SAFETY: a signal to a process that this test has started and not yet waited for.
    unsafe { libc::kill(i32::try_from(child.id()).unwrap(), libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let training: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(training["ended"], "interrupted");
    assert!(out.join("state.safetensors").is_file() && out.join("checkpoint/model.safetensors").is_file());
}

fn wait_for(file: &Path) {
    for _ in 0..6000 {
        if file.is_file() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} was not written within a minute", file.display());
}

/// A classifier reads so many tokens of a text and no more: every command says where a text was cut.
#[test]
fn a_text_that_is_cut_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let shipped = fs::read_to_string(root().join("recipes/imdb-attention.toml")).unwrap();
    let recipe = shipped.replace("length = 500", "length = 4").replace("min_frequency = 3\n", "");
    assert!(recipe.contains("length = 4"));
    fs::write(at("short.toml"), recipe).unwrap();
    let rows = |texts: [&str; 4]| {
        let split = ["train", "train", "test", "test"];
        let row = |(i, text): (usize, &str)| {
            format!("{{\"split\":\"{}\",\"label\":{},\"text\":\"{text}\"}}\n", split[i], i % 2)
        };
        texts.into_iter().enumerate().map(row).collect::<String>()
    };
    fs::write(at("rows.jsonl"), rows(["a fine film", "dull", "a b c d e f", "a b c d"])).unwrap();
    let (recipe, data, out) = (at("short.toml"), at("rows.jsonl"), at("run"));
    let made = json("train", &["train", &recipe, "--data", &data, "--out", &out, "--steps", "1"]);
    assert_eq!((&made["data"]["cut_texts"], &made["data"]["held_out"]), (&0.into(), &"same".into()));
    let judged = json("evaluate", &["evaluate", &out, "--data", &data]);
    assert_eq!(judged["cut_texts"], 1);
    assert!(stdout(&fine(&["evaluate", &out, "--data", &data])).contains("1 text was longer"));
    let said = "note: row 1 has more tokens than the 4 that the classifier reads: the rest is left out";
    let texts = ["--text", "a b c", "--text", "a b c d e"];
    let made = json("predict", &[&["predict", &out][..], &texts].concat());
    assert_eq!(made["notes"][0]["about"]["rows"], serde_json::json!([1]));
    assert!(stderr(&fine(&[&["predict", &out][..], &texts].concat())).contains(said));
    let traced = fine(&["trace", &out, "--src", "a b c", "--src", "a b c d e"]);
    assert!(stderr(&traced).contains(said), "{}", stderr(&traced));
    // A class without a text, and one class alone.
    fs::write(at("one.jsonl"), rows(["a fine film", "dull", "a", "b"]).replace("\"label\":1", "\"label\":0"))
        .unwrap();
    refused(&["train", &recipe, "--data", &at("one.jsonl"), "--dry-run"], "found 2 of \"negative\" alone");
    let judged = json("evaluate", &["evaluate", &out, "--data", &at("one.jsonl")]);
    assert_eq!(judged["absent_classes"], serde_json::json!(["positive"]));
}
