//! What pairs can prove about a model, and what they cannot: nobody is accused on pairs that do not fit, and a wrong value is
//! singled out where they do.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::io::Read;
use std::path::Path;

use common::faults::{Fault, FaultyModel, transpose};
use common::{attnscope, root, shared, stderr, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Rules that judge by pairs.
const JUDGES: &str = "wiring-mismatch,ill-fitting-pairs,source-ignored";

fn demo_pairs(lines: usize) -> Vec<(String, String)> {
    let all = std::fs::read_to_string(root().join("crates/attnscope/data/demo-pairs.tsv")).unwrap();
    let pair = |line: &str| line.split_once('\t').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    all.lines().take(lines).map(pair).collect()
}

fn save(folder: &Path, pairs: &[(String, String)]) -> String {
    let path = folder.join("pairs.tsv");
    let lines: Vec<String> = pairs.iter().map(|(source, target)| format!("{source}\t{target}")).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}

fn judged(model: &str, pairs: &[(String, String)], rules: &str) -> Value {
    let folder = TempDir::new().unwrap();
    let file = save(folder.path(), pairs);
    // Repairs of weights are a matter of tests/misconversions.rs.
    let fast = ["--repair-time", "0", "--format", "json", "--quiet"];
    let output = attnscope(&[&["doctor", model, "--pairs", &file, "--rules", rules][..], &fast].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

fn found(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|f| f["rule"].as_str().unwrap()).collect()
}

/// Why a rule was not checked.
fn why<'a>(report: &'a Value, rule: &str) -> &'a str {
    let reasons = report["not_checked"].as_array().unwrap();
    reasons.iter().find(|r| r["rule"] == rule).map_or("", |r| r["why"].as_str().unwrap())
}

fn reversed(text: &str) -> String {
    text.split(' ').rev().collect::<Vec<_>>().join(" ")
}

/// A healthy model is not accused on pairs that do not fit it, whatever is wrong with them, and that is said.
#[test]
fn pairs_that_do_not_fit_accuse_nobody() {
    let right = demo_pairs(20);
    let map = |change: &dyn Fn(&str, &str) -> (String, String)| -> Vec<(String, String)> {
        right.iter().map(|(a, b)| change(a, b)).collect()
    };
    let shuffled: Vec<(String, String)> =
        right.iter().zip(right.iter().cycle().skip(7)).map(|(a, b)| (a.0.clone(), b.1.clone())).collect();
    let joined: Vec<(String, String)> = right
        .iter()
        .enumerate()
        .map(|(i, (a, b))| {
            let next = |step: usize| &right[(i + step) % right.len()];
            (format!("{a} {} {}", next(1).0, next(2).0), format!("{b} {} {}", next(1).1, next(2).1))
        })
        .collect();
    let cases = [
        ("copied", map(&|a, _| (a.into(), a.into())), true),
        ("shuffled", shuffled, true),
        ("upper case", map(&|a, b| (a.to_uppercase(), b.to_uppercase())), true),
        ("three a line", joined, false),
    ];
    for (what, pairs, is_finding) in cases {
        let report = judged("demo", &pairs, JUDGES);
        let expected: &[&str] = if is_finding { &["ill-fitting-pairs"] } else { &[] };
        assert_eq!(found(&report), expected, "{what}: {report:#}");
        assert!(
            !is_finding || why(&report, "wiring-mismatch").contains("left undecided"),
            "{what}: {report:#}"
        );
        assert!(!is_finding || report["findings"][0]["edit"].is_null(), "{what}: {report:#}");
    }
    let report = judged("demo", &right, JUDGES);
    assert!(found(&report).is_empty() && report["not_checked"] == json!([]), "{report:#}");
    let fit = &report["wiring"]["fit"];
    assert!(fit["nll"].as_f64() < fit["expected"].as_f64().map(|h| 1.2 * h), "{fit:#}");
}

/// A mistake that was made with the pairs is named: undone, they fit.
#[test]
fn what_is_wrong_with_pairs_is_said() {
    let right = demo_pairs(21);
    let map = |change: &dyn Fn(&str, &str) -> (String, String)| -> Vec<(String, String)> {
        right[..20].iter().map(|(a, b)| change(a, b)).collect()
    };
    let slipped = right.iter().zip(&right[1..]).map(|(a, b)| (a.0.clone(), b.1.clone())).collect();
    let cases = [
        (map(&|a, b| (b.into(), a.into())), json!({ "kind": "exchange_sides" })),
        (map(&|a, b| (reversed(a), b.into())), json!({ "kind": "reverse_words", "sides": "source" })),
        (map(&|a, b| (a.into(), reversed(b))), json!({ "kind": "reverse_words", "sides": "target" })),
        (map(&|a, b| (a.to_uppercase(), b.into())), json!({ "kind": "lower_case", "sides": "source" })),
        (slipped, json!({ "kind": "slip_lines", "source_from": "line after" })),
    ];
    for (pairs, edit) in cases {
        let report = judged("demo", &pairs, JUDGES);
        assert_eq!(found(&report), ["ill-fitting-pairs"], "{edit}: {report:#}");
        let finding = &report["findings"][0];
        assert_eq!(finding["edit"], edit, "{report:#}");
        let number = |key: &str| finding[key].as_f64().unwrap();
        assert!(number("nll_best") < 0.7 && number("nll_declared") > 1.0, "{finding:#}");
        assert!(number("p") > 0.0 && number("p") <= 0.01, "{finding:#}");
        assert!(why(&report, "wiring-mismatch").contains("left undecided"), "{report:#}");
    }
}

#[test]
fn a_pair_that_is_repeated_counts_once() {
    let report = judged("demo", &vec![demo_pairs(1).remove(0); 40], "wiring-mismatch,ill-fitting-pairs");
    assert!(found(&report).is_empty(), "{report:#}");
    assert!(
        why(&report, "wiring-mismatch").contains("of 40 sentence pairs only 1 is distinct"),
        "{report:#}"
    );
    let basis =
        "run on 40 sentence pairs, 1 of them distinct; at least 20 are needed to judge wiring and weights";
    assert_eq!(report["basis"], basis);
    let twice = [demo_pairs(20), demo_pairs(20)].concat();
    assert_eq!(judged("demo", &twice, "wiring-mismatch")["wiring"]["pairs"], 20);
}

/// Weights that no wiring explains are not given one.
#[test]
fn damaged_weights_are_given_no_wiring() {
    let faults = [
        Fault { what: "embeddings rolled", apply: |p| p.edit("src.embed.weight", |w| w.rotate_right(128)) },
        Fault { what: "transposed", apply: |p| transpose(p, "decoder.1.cross_attn.v.weight") },
        Fault {
            what: "scaled",
            apply: |p| p.edit("encoder.1.self_attn.q.weight", |w| w.iter_mut().for_each(|x| *x *= 4.0)),
        },
    ];
    for Fault { what, apply } in faults {
        let folder = TempDir::new().unwrap();
        let mut faulty = FaultyModel::of("demo");
        apply(&mut faulty);
        let report = judged(&faulty.save(folder.path()), &demo_pairs(20), "wiring-mismatch");
        assert!(found(&report).is_empty(), "{what}: {report:#}");
    }
}

/// Captions of the kind that the models were trained on.
fn captions(count: usize) -> Option<Vec<(String, String)>> {
    let lines = |language: &str| {
        let path = shared(&format!("data/multi30k/test_2016_flickr.{language}.gz"))?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).ok()?).read_to_string(&mut text).ok()?;
        Some(text.lines().take(count).map(str::to_owned).collect::<Vec<_>>())
    };
    Some(lines("en")?.into_iter().zip(lines("de")?).collect())
}

/// A head count that is wrong in one stack is found in that stack, and values that do as well are given with it.
#[test]
fn a_stack_is_judged_by_itself() {
    let Some(captions) = captions(40) else { return };
    for (key, field, stack) in [
        ("encoder_attention_heads", "encoder_heads", "encoder"),
        ("decoder_attention_heads", "decoder_heads", "decoder"),
    ] {
        let folder = TempDir::new().unwrap();
        let mut faulty = FaultyModel::of("demo");
        faulty.config.insert(key.into(), json!(64));
        let report = judged(&faulty.save(folder.path()), &captions, "wiring-mismatch");
        let finding = &report["findings"][0];
        assert_eq!(finding["declared"], json!({ field: 64 }), "{report:#}");
        let possible = finding["possible"][field].as_array().unwrap();
        let excluded = finding["excluded"][field].as_array().unwrap();
        assert!(possible.contains(&json!(4)) && !excluded.contains(&json!(4)), "{finding:#}");
        assert!(excluded.contains(&json!(128)), "{finding:#}");
        let said = finding["evidence"].as_str().unwrap();
        assert!(said.starts_with(&format!("the config says 64 {stack} heads; these weights were")), "{said}");
        let p = finding["p"].as_f64().unwrap();
        assert!(p > 0.0 && p < 0.01, "{finding:#}");
    }
}
