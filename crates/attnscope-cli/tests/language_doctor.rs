//! The doctor on language models: every hypothesis about a wiring, repairs of weights, and no accusation on texts that do not fit.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use std::io::Read;

use common::faults::FaultyModel;
use common::{attnscope, fixture, shared, stderr, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

const RULES: &str = "misconverted-weight,wiring-mismatch,ill-fitting-pairs";

/// Captions of a language: as many as tell most mistakes.
fn captions(language: &str) -> Option<Vec<String>> {
    Some(all_captions(language)?.into_iter().take(60).collect())
}

fn all_captions(language: &str) -> Option<Vec<String>> {
    let file = std::fs::File::open(shared(&format!("data/multi30k/test_2016_flickr.{language}.gz"))?).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    Some(text.lines().take(200).map(str::to_owned).collect())
}

/// What is found in a model on some texts.
fn report(model: &str, texts: &[String], args: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("texts.txt");
    std::fs::write(&file, texts.join("\n")).unwrap();
    let always = ["--text", &file.display().to_string(), "--format", "json", "--quiet", "--fail-on", "never"]
        .map(str::to_owned);
    let always: Vec<&str> = always.iter().map(String::as_str).collect();
    let output = attnscope(&[&["doctor", model][..], &always, args].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)))
}

fn rules_of(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|f| f["rule"].as_str().unwrap()).collect()
}

/// A config that is wrong about one field: the field is named with the value of the training, and nothing else is.
fn is_named(model: &str, texts: &[String], (field, wrong, right): &(&str, &str, Value)) {
    let edit = format!("{field}={wrong}");
    let report = report(model, texts, &["--rules", RULES, "--repair-time", "0", "--wiring", &edit]);
    assert_eq!(rules_of(&report), ["wiring-mismatch"], "{edit}: {report:#}");
    let finding = &report["findings"][0];
    let possible = finding["possible"][*field].as_array().unwrap_or_else(|| panic!("{edit}: {finding:#}"));
    assert!(possible.contains(right), "{edit}: {finding:#}");
    assert_eq!(finding["best"].as_object().unwrap().len(), 1, "{edit}: {finding:#}");
    let basis = format!("over {} texts)", texts.len());
    assert!(finding["evidence"].as_str().unwrap().ends_with(&basis), "{finding:#}");
}

#[test]
fn every_wrong_field_of_a_llama_is_named() {
    let (Some(model), Some(texts)) = (shared("models/llama-tiny-en"), captions("en")) else { return };
    let cases = [
        ("rotary_layout", "interleaved", json!("halves")),
        ("rotary_share", "0.5", json!(1)),
        ("kv_sharing", "tile", json!("repeat")),
        ("norm_gain", "one_plus_weight", json!("weight")),
        ("window", "4", Value::Null),
        ("score_cap", "1.0", Value::Null),
        ("logit_cap", "5.0", Value::Null),
        ("score_width", "2.0", Value::Null),
        ("parallel_residual", "true", json!(false)),
        ("activation", "relu", json!("swish")),
        ("score_scale", "none", json!("d_head")),
    ];
    cases.iter().for_each(|case| is_named(&model, &texts, case));
    // Short texts tell a base by little.
    let Some(more) = all_captions("en") else { return };
    is_named(&model, &more, &("rotary_theta", "500000", json!(10_000)));
}

/// A config that says that positions were stretched.
#[test]
fn a_scaling_of_rotary_positions_that_was_not_trained_is_named() {
    let (Some(model), Some(texts)) = (shared("models/llama-tiny-en"), captions("en")) else { return };
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of(&model);
    let rope = json!({ "rope_type": "linear", "factor": 8.0, "rope_theta": 10_000.0 });
    faulty.config.insert("rope_parameters".into(), rope);
    let broken = faulty.save(&folder.path().join("broken"));
    let report = report(&broken, &texts, &["--rules", RULES, "--repair-time", "0"]);
    assert_eq!(rules_of(&report), ["wiring-mismatch"], "{report:#}");
    let finding = &report["findings"][0];
    assert_eq!(finding["best"], json!({ "rotary_scaling": null }), "{finding:#}");
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(
        evidence.contains("rotary_scaling linear × 8; these weights were trained with rotary_scaling none"),
        "{evidence}"
    );
}

#[test]
fn wrong_fields_of_a_gpt_2_are_named() {
    let (Some(model), Some(texts)) = (shared("models/gpt2-tiny-en"), captions("en")) else { return };
    let cases = [
        ("position_offset", "1", json!(0)),
        ("parallel_residual", "true", json!(false)),
        ("activation", "relu", json!("gelu_tanh")),
    ];
    cases.iter().for_each(|case| is_named(&model, &texts, case));
}

/// A head that was never trained, in a file of a model that used its embeddings.
#[test]
fn an_output_projection_that_is_not_the_embedding_table_is_named() {
    let (Some(model), Some(texts)) = (shared("models/llama-tiny-en"), captions("en")) else { return };
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of(&model);
    let mut head = faulty.tensor("tgt.embed.weight").clone();
    head.name = "lm_head.weight".to_owned();
    head.values.rotate_right(7 * 128);
    faulty.tensors.push(head);
    faulty.config.insert("tie_word_embeddings".into(), json!(false));
    let broken = faulty.save(&folder.path().join("broken"));
    let report = report(&broken, &texts, &["--rules", RULES, "--repair-time", "0"]);
    assert_eq!(rules_of(&report), ["wiring-mismatch"], "{report:#}");
    assert_eq!(report["findings"][0]["best"], json!({ "tied_output": true }), "{report:#}");
}

/// The rows of q and k of some layers in another order, each head by itself.
fn reordered(faulty: &mut FaultyModel, layers: &[usize], from: fn(usize, usize) -> usize) {
    for (layer, x) in layers.iter().flat_map(|layer| [(layer, "q"), (layer, "k")]) {
        faulty.edit(&format!("decoder.{layer}.self_attn.{x}.weight"), |w| {
            let (old, row) = (w.to_vec(), 128);
            for (at, values) in w.chunks_mut(row).enumerate() {
                let from = at / 32 * 32 + from(at % 32, 32);
                values.copy_from_slice(&old[from * row..(from + 1) * row]);
            }
        });
    }
}

/// Where a row of halves stood in pairs, and the other way round.
fn from_pairs(row: usize, size: usize) -> usize {
    if row < size / 2 { 2 * row } else { 2 * (row - size / 2) + 1 }
}

fn from_halves(row: usize, size: usize) -> usize {
    if row.is_multiple_of(2) { row / 2 } else { size / 2 + row / 2 }
}

/// The finding about a broken copy of the small Llama.
fn finding(fault: impl FnOnce(&mut FaultyModel)) -> Option<Value> {
    let (model, texts) = (shared("models/llama-tiny-en")?, captions("en")?);
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of(&model);
    fault(&mut faulty);
    let broken = faulty.save(&folder.path().join("broken"));
    // Time enough on the slowest machine: what is found must not depend on it.
    let report = report(&broken, &texts, &["--rules", RULES, "--repair-time", "1200"]);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    Some(findings[0].clone())
}

/// Rows of q and k that were left in pairs are another layout, and told as that one thing; moved once too often they are a mistake
/// of the weights.
#[test]
fn q_and_k_that_are_permuted_once_too_often_or_not_at_all_are_named() {
    let Some(left) = finding(|p| reordered(p, &[0, 1], from_halves)) else { return };
    assert_eq!(left["rule"], "wiring-mismatch", "{left:#}");
    assert_eq!(left["best"], json!({ "rotary_layout": "interleaved" }), "{left:#}");
    let evidence = left["evidence"].as_str().unwrap();
    assert!(
        evidence.contains("rotary_layout interleaved (the rows of q and k stand in pairs)"),
        "{evidence}"
    );
    assert!(left["try_next"].as_str().unwrap().contains("Both are the same"), "{left:#}");
    let Some(twice) = finding(|p| reordered(p, &[0, 1], from_pairs)) else { return };
    assert_eq!(twice["rule"], "misconverted-weight", "{twice:#}");
    let repair = &twice["repair"];
    assert_eq!(
        (&repair["kind"], &repair["rows"]),
        (&json!("interleave"), &json!("halves_to_pairs")),
        "{twice:#}"
    );
    assert_eq!(repair["weights"].as_array().unwrap().len(), 4, "{twice:#}");
    assert!(twice["evidence"].as_str().unwrap().contains("from pairs to halves once too often"), "{twice:#}");
}

#[test]
fn weights_of_a_llama_in_the_wrong_place_are_named() {
    let swapped = finding(|p| {
        for weight in p.weights_under("decoder.0") {
            p.swap(&weight, &weight.replacen("decoder.0", "decoder.1", 1));
        }
    });
    let Some(swapped) = swapped else { return };
    assert_eq!(swapped["repair"]["kind"], "swap_layers", "{swapped:#}");
    let Some(gate) = finding(|p| p.swap("decoder.1.ffn.hidden.weight", "decoder.1.ffn.gate.weight")) else {
        return;
    };
    assert_eq!(
        (&gate["repair"]["kind"], &gate["node"]),
        (&json!("exchange"), &json!("decoder.1.ffn.hidden.weight")),
        "{gate:#}"
    );
    let Some(heads) = finding(|p| {
        p.edit("decoder.0.self_attn.v.weight", |w| {
            let head = w.len() / 2;
            w.rotate_left(head);
        });
    }) else {
        return;
    };
    assert_eq!(
        (&heads["repair"]["kind"], &heads["repair"]["order"]),
        (&json!("permute_heads"), &json!([1, 0])),
        "{heads:#}"
    );
}

/// Texts that the model was not trained on say nothing about it; nor does a healthy model get a finding.
#[test]
fn nobody_is_accused_on_texts_that_do_not_fit() {
    for model in ["models/llama-tiny-en", "models/gpt2-tiny-en"] {
        let (Some(model), Some(english), Some(german)) = (shared(model), captions("en"), captions("de"))
        else {
            return;
        };
        let healthy = report(&model, &english, &["--rules", RULES, "--repair-time", "600"]);
        assert_eq!(rules_of(&healthy), Vec::<&str>::new(), "{healthy:#}");
        assert_eq!(healthy["not_checked"], json!([]), "{healthy:#}");
        assert_eq!(healthy["basis"], "judged on 60 texts");
        let backwards: Vec<String> =
            english.iter().map(|text| text.split(' ').rev().collect::<Vec<_>>().join(" ")).collect();
        let reversed = report(&model, &backwards, &["--rules", RULES, "--repair-time", "600"]);
        assert_eq!(rules_of(&reversed), ["ill-fitting-pairs"], "{reversed:#}");
        let edit = json!({ "kind": "reverse_words", "sides": "text" });
        assert_eq!(reversed["findings"][0]["edit"], edit, "{reversed:#}");
        let foreign = report(&model, &german, &["--rules", RULES, "--repair-time", "600"]);
        assert_eq!(rules_of(&foreign), ["ill-fitting-pairs"], "{foreign:#}");
        let advice = foreign["findings"][0]["try_next"].as_str().unwrap();
        assert!(advice.starts_with("Check the texts: language"), "{advice}");
        let undecided: Vec<&Value> =
            foreign["not_checked"].as_array().unwrap().iter().map(|n| &n["rule"]).collect();
        assert!(undecided.contains(&&json!("wiring-mismatch")), "{foreign:#}");
    }
}

#[test]
fn few_texts_and_texts_that_are_too_long_are_told_of() {
    let Some(model) = shared("models/gpt2-tiny-en") else { return };
    let few =
        report(&model, &["A man in a red shirt.".to_owned()], &["--rules", "first-nan,wiring-mismatch"]);
    let why = few["not_checked"][0]["why"].as_str().unwrap();
    assert_eq!(why, "one text is too few: at least 20 are needed");
    let long = format!("{}.", "A man in a red shirt and ".repeat(40));
    let texts = [vec![long, String::new()], vec!["Two dogs play in the snow.".to_owned(); 3]].concat();
    let report = report(&model, &texts, &["--rules", "past-positions"]);
    let evidence = report["findings"][0]["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("1 text is longer than the table of 128 positions"), "{evidence}");
    assert_eq!(
        report["basis"],
        "run on 3 texts, 1 of them distinct; at least 20 are needed to judge wiring and weights; 1 empty text left out"
    );
}

/// What a model without a decoder, or a classifier, cannot be judged by is said.
#[test]
fn an_encoder_alone_is_not_judged_by_texts() {
    let output = attnscope(&["doctor", &fixture("bert"), "--src-ids", "5,6,7", "--rules", "wiring-mismatch"]);
    let said = stderr(&output);
    assert!(said.contains("a model that is encoder-only has none"), "{said}");
}
