//! `audit` as a command: killed and continued, joined, compared, and what it says of bad input.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{attnscope, fixture, root, stderr};
use serde_json::Value;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// So many pairs.
fn pairs(folder: &Path, count: usize) -> String {
    let all = fs::read_to_string(root().join("crates/attnscope/data/demo-pairs.tsv")).unwrap();
    let lines: Vec<&str> = all.lines().take(count).collect();
    let file = folder.join("pairs.tsv");
    fs::write(&file, lines.join("\n")).unwrap();
    text(&file)
}

/// The committed parts: name and bytes.
fn parts(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let parquet = entries.filter(|path| path.extension().is_some_and(|ending| ending == "parquet"));
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut parts: Vec<_> = parquet.map(|path| (name(&path), fs::read(&path).unwrap())).collect();
    parts.sort();
    parts
}

#[test]
fn a_run_that_is_killed_goes_on_and_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path(), 200);
    let [whole, killed] = ["whole", "killed"].map(|name| dir.path().join(name));
    let arguments = |out: &Path| {
        ["audit", "demo", "--pairs", &corpus, "--part-rows", "8", "--quiet", "--out", &text(out)]
            .map(str::to_owned)
    };
    assert!(attnscope(&arguments(&whole).each_ref().map(String::as_str)).status.success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_attnscope"))
        .args(arguments(&killed))
        .args(["--threads", "1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while parts(&killed).len() < 3 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let committed = parts(&killed);
    assert!((3..25).contains(&committed.len()), "{} parts", committed.len());
    // What was committed is whole: it is that of a run that nobody killed.
    let expected = parts(&whole);
    assert!(committed.iter().all(|part| expected.contains(part)));
    let resumed = [&arguments(&killed)[..], &["--resume".into(), "--format".into(), "json".into()]].concat();
    let output = attnscope(&resumed.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["run"]["skipped"], 8 * committed.len());
    assert_eq!(answer["summary"]["sentences"], 200);
    assert!(parts(&killed) == expected);
}

#[test]
fn shards_are_joined_and_audits_compared() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path(), 30);
    let folder = |name: &str| text(&dir.path().join(name));
    for i in 0..2 {
        let (out, shard) = (folder(&format!("s{i}")), format!("{i}/2"));
        let output = attnscope(&[
            "audit",
            "demo",
            "--pairs",
            &corpus,
            "--part-rows",
            "8",
            "--shard",
            &shard,
            "--out",
            &out,
        ]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let one = attnscope(&["audit", "merge", &folder("s0"), "--out", &folder("no")]);
    assert_eq!(one.status.code(), Some(2));
    assert!(
        stderr(&one).contains("2 of 4 parts are missing: 1, 3\nhelp: run each shard to its end"),
        "{}",
        stderr(&one)
    );
    let merged = attnscope(&["audit", "merge", &folder("s0"), &folder("s1"), "--out", &folder("all")]);
    assert!(merged.status.success(), "{}", stderr(&merged));
    assert!(String::from_utf8_lossy(&merged.stdout).contains("30 sentences"));
    let compared = attnscope(&["audit", "compare", &folder("all"), &folder("all")]);
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(said.contains("a sentence costs B +0.000 nats more than A"), "{said}");
}

/// Decoders alone read texts, audio models recordings.
#[test]
fn texts_and_recordings() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| text(&dir.path().join(name));
    let Some(gpt2) = common::shared("models/gpt2-tiny-en") else {
        println!("skipped: models/gpt2-tiny-en not found");
        return;
    };
    let texts = dir.path().join("texts.txt");
    fs::write(&texts, "Two dogs play in the snow.\nA man is sleeping.\n").unwrap();
    let output =
        attnscope(&["audit", &gpt2, "--text", &text(&texts), "--out", &out("a"), "--format", "json"]);
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    // Its own validation NLL is 3.15 nats a token.
    let nll = answer["summary"]["nll"][0]["distribution"]["mean"].as_f64().unwrap();
    assert!((1.0..5.0).contains(&nll), "{nll}");
    assert_eq!(answer["summary"]["heads"].as_array().map(Vec::len), Some(8));
    assert_eq!(answer["summary"]["nll"][1]["distribution"]["count"], 0);
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_with_help() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = pairs(dir.path(), 3);
    let out = text(&dir.path().join("out"));
    let cases: [(&[&str], &str); 5] = [
        (&["audit", "demo", "--out", &out], "there is no corpus to measure\nhelp: give one with --pairs"),
        (&["audit", "demo", "--pairs", &corpus], "there is no folder to write to\nhelp: give one with --out"),
        (
            &["audit", &fixture("gpt2"), "--pairs", &corpus, "--out", &out],
            "help: give texts, a line each: --text FILE",
        ),
        (
            &["audit", "demo", "--pairs", &corpus, "--out", &out, "--by", "domain"],
            "which is not kept\nhelp: keep that column, too",
        ),
        (&["audit", "compare", &out, &out], "expected the folder of an audit, found no audit.json"),
    ];
    for (arguments, said) in cases {
        let output = attnscope(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
    let output = attnscope(&["audit", "demo", "--pairs", &corpus, "--out", &out, "--shard", "4/4"]);
    assert!(
        stderr(&output).contains("expected a number below 4 before the slash, found 4"),
        "{}",
        stderr(&output)
    );
    assert!(!dir.path().join("out").exists());
}

/// The page of an audit: every head can be chosen, its sentences are there, and what a corpus holds stays text.
#[test]
fn an_audit_is_a_page_without_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = text(&dir.path().join("<b>pairs.tsv"));
    let hostile = "<script>alert(1)</script> 'quoted' & more";
    let rows = format!(
        "source\ttarget\tkind\nA dog runs.\tEin Hund läuft.\t<i>a\n{hostile}\t{hostile}\t<i>b\nA cat.\tEine Katze.\t<i>a\n"
    );
    fs::write(&corpus, rows).unwrap();
    let [out, page] = ["out", "page.html"].map(|name| text(&dir.path().join(name)));
    let made = attnscope(&["audit", "demo", "--pairs", &corpus, "--out", &out, "--keep", "kind"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let output = attnscope(&["report", "--audit", &out, "--by", "kind", "--output", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        !html.contains("<script") && !html.contains("<b>pairs") && !html.contains("<i>"),
        "a text of the corpus is markup"
    );
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt; &#39;quoted&#39; &amp; more"));
    assert!(html.contains("script-src 'none'") && html.contains("3 sentences with "));
    assert!(html.contains("<tr><td>&lt;i&gt;a</td><td>2</td>"));
    // 24 heads in each of 8 grids, each leads to what is behind it.
    for head in 0..24 {
        assert_eq!(html.matches(&format!("href=\"#head-{head}\"")).count(), 8);
        assert_eq!(html.matches(&format!("id=\"head-{head}\"")).count(), 1);
    }
    let answer = attnscope(&["report", "--audit", &out, "--format", "json"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let mean = answer["summary"]["heads"][5]["measures"][0]["distribution"]["mean"].as_f64().unwrap();
    let head = format!("encoder.1.self_attn head 1: entropy {mean:.3}");
    assert!(html.contains(&head), "{head}");
    let failed = attnscope(&["report", "--audit", &text(dir.path()), "--output", &page, "--force"]);
    assert!(stderr(&failed).contains("found no audit.json"), "{}", stderr(&failed));
    let both = attnscope(&["report", "toy", "--audit", &out]);
    assert_eq!(both.status.code(), Some(2));
}
