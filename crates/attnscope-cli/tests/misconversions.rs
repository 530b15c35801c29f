//! Mistakes of converters, planted into the built-in model: each is named with its place, and nothing else is accused.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::faults::{Patient, copy_layer, transpose};
use common::{attnscope, root, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

const RULES: &str = "misconverted-weight,wiring-mismatch,ill-fitting-pairs,source-ignored";

/// What is found in a broken copy of `demo` with some arguments.
fn report(fault: impl FnOnce(&mut Patient), args: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let mut patient = Patient::of("demo");
    fault(&mut patient);
    let broken = patient.save(&folder.path().join("broken"));
    let always = ["--format", "json", "--quiet", "--fail-on", "never"];
    let output = attnscope(&[&["doctor", &broken][..], args, &always].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// The same on some of the pairs that the program carries, `turned` the wrong way round or not.
fn judged(fault: impl FnOnce(&mut Patient), pairs: usize, turned: bool) -> Value {
    // Time enough on the slowest machine: what is found must not depend on it.
    on_pairs(fault, pairs, turned, &["--rules", RULES, "--repair-time", "1200"])
}

fn on_pairs(fault: impl FnOnce(&mut Patient), pairs: usize, turned: bool, args: &[&str]) -> Value {
    let all = std::fs::read_to_string(root().join("crates/attnscope/data/demo-pairs.tsv")).unwrap();
    let line = |line: &str| match line.split_once('\t') {
        Some((source, target)) if turned => format!("{target}\t{source}\n"),
        _ => format!("{line}\n"),
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("pairs.tsv");
    std::fs::write(&file, all.lines().take(pairs).map(line).collect::<String>()).unwrap();
    report(fault, &[&["--pairs", &file.display().to_string()][..], args].concat())
}

/// The one finding, with a working model after the repair; wiring, pairs and the use of the source are not accused beside it.
fn finding(fault: impl FnOnce(&mut Patient)) -> Value {
    let report = judged(fault, 30, false);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    let finding = findings[0].clone();
    assert_eq!(finding["rule"], "misconverted-weight", "{report:#}");
    let number = |key: &str| finding[key].as_f64().unwrap();
    assert!(number("nll_best") < 0.7 && number("nll_declared") > number("nll_best") + 0.02, "{finding:#}");
    assert!(number("p") > 0.0 && number("p") <= 0.01, "{finding:#}");
    assert_eq!((&finding["pairs"], &finding["unseen_pairs"]), (&json!(30), &json!(18)), "{finding:#}");
    finding
}

fn repair(fault: impl FnOnce(&mut Patient)) -> Value {
    finding(fault)["repair"].clone()
}

fn of_module(patient: &mut Patient, module: &str, edit: impl Fn(&mut [f32])) {
    ["weight", "bias"].iter().for_each(|leaf| patient.edit(&format!("{module}.{leaf}"), &edit));
}

#[test]
fn exchanged_keys_and_values_are_named() {
    let at = "decoder.1.cross_attn";
    let repair = repair(|p| {
        ["weight", "bias"]
            .iter()
            .for_each(|leaf| p.swap(&format!("{at}.k.{leaf}"), &format!("{at}.v.{leaf}")));
    });
    let weights = ["k.weight", "v.weight", "k.bias", "v.bias"].map(|leaf| format!("{at}.{leaf}"));
    assert_eq!(repair, json!({ "kind": "exchange", "weights": weights }));
}

#[test]
fn a_transposed_matrix_is_named() {
    let repair = repair(|p| transpose(p, "decoder.1.cross_attn.v.weight"));
    assert_eq!(repair, json!({ "kind": "transpose", "weights": ["decoder.1.cross_attn.v.weight"] }));
}

#[test]
fn swapped_layers_are_named() {
    let repair = repair(|p| {
        for weight in p.weights_under("decoder.0") {
            p.swap(&weight, &weight.replacen("decoder.0", "decoder.1", 1));
        }
    });
    assert_eq!((&repair["kind"], &repair["layers"]), (&json!("swap_layers"), &json!([0, 1])), "{repair:#}");
}

/// Heads in an order that no single exchange of two undoes: it is found two heads at a time.
#[test]
fn the_order_of_heads_is_found() {
    let repair = repair(|p| of_module(p, "decoder.1.cross_attn.q", |w| w.rotate_left(w.len() / 4)));
    assert_eq!(
        (&repair["kind"], &repair["order"]),
        (&json!("permute_heads"), &json!([3, 0, 1, 2])),
        "{repair:#}"
    );
}

/// v times a number cannot be told from the output projection times it: both are given.
#[test]
fn a_factor_is_measured_and_what_does_the_same_is_given() {
    let finding = finding(|p| {
        of_module(p, "decoder.1.cross_attn.v", |w| w.iter_mut().for_each(|x| *x *= 8.0));
    });
    let repair = &finding["repair"];
    assert_eq!((&repair["kind"], &repair["factor"]), (&json!("scale"), &json!(0.125)), "{finding:#}");
    assert_eq!(repair["weights"][0], "decoder.1.cross_attn.v.weight", "{finding:#}");
    let out = json!({ "kind": "scale", "weights": ["decoder.1.cross_attn.out.weight"], "factor": 0.125 });
    assert!(finding["as_good"].as_array().unwrap().contains(&out), "{finding:#}");
}

#[test]
fn signs_rows_and_tables_are_named() {
    let negated = repair(|p| {
        of_module(p, "decoder.0.ffn.hidden", |w| w.iter_mut().for_each(|x| *x = -*x));
    });
    assert_eq!(
        (&negated["kind"], &negated["weights"][0]),
        (&json!("negate"), &json!("decoder.0.ffn.hidden.weight"))
    );
    // Rows 0, 2, 4, … of each head before 1, 3, 5, …: as between the two layouts of rotary positions.
    let halved = repair(|p| {
        of_module(p, "decoder.1.cross_attn.k", |w| {
            let (old, row) = (w.to_vec(), w.len() / 128);
            for (at, values) in w.chunks_mut(row).enumerate() {
                let (head, place) = (at / 32 * 32, at % 32);
                let from = head + if place < 16 { 2 * place } else { 2 * (place - 16) + 1 };
                values.copy_from_slice(&old[from * row..(from + 1) * row]);
            }
        });
    });
    assert_eq!((&halved["kind"], &halved["rows"]), (&json!("interleave"), &json!("halves_to_pairs")));
    assert_eq!(halved["weights"][0], "decoder.1.cross_attn.k.weight");
    let rolled = repair(|p| p.edit("src.embed.weight", |w| w.rotate_right(128)));
    assert_eq!(rolled, json!({ "kind": "roll", "weights": ["src.embed.weight"], "rows": -1 }));
}

/// What is lost is told without pairs.
#[test]
fn losses_are_told_from_the_file() {
    let kinds = |fault: &dyn Fn(&mut Patient)| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let report = report(fault, &["--rules", "misconverted-weight", "--repair-time", "0"]);
        let findings = report["findings"].as_array().unwrap();
        findings.iter().map(|f| (text(&f["repair"]["kind"]), text(&f["repair"]["weights"][0]))).collect()
    };
    let one = |kind: &str, weight: &str| vec![(kind.to_owned(), weight.to_owned())];
    assert_eq!(
        kinds(&|p| copy_layer(p, "decoder.0", "decoder.1")),
        one("copied_layer", "decoder.1.self_attn.q.weight")
    );
    let bias = "encoder.1.ffn.hidden.bias";
    assert_eq!(kinds(&|p| p.edit(bias, |w| w.fill(0.0))), one("dropped_bias", bias));
    assert_eq!(
        kinds(&|p| p.tensors.retain(|t| !t.name.contains("decoder.layers.1."))),
        one("missing_layer", "decoder.1.self_attn.q.weight")
    );
}

/// A k bias has no effect, and is no more than information.
#[test]
fn a_dropped_k_bias_is_no_accusation() {
    let report = report(
        |p| p.edit("encoder.0.self_attn.k.bias", |w| w.fill(0.0)),
        &["--src", "A man.", "--rules", RULES],
    );
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    assert_eq!(
        (&findings[0]["severity"], &findings[0]["repair"]["kind"]),
        (&json!("info"), &json!("dropped_bias"))
    );
}

/// The weights that findings accuse.
fn accused(report: &Value) -> Vec<&Value> {
    report["findings"].as_array().unwrap().iter().filter(|f| f["rule"] == "misconverted-weight").collect()
}

/// A whole model, pairs in the wrong direction, and noise are no mistakes of a converter; what was tried is said.
#[test]
fn nothing_else_is_accused() {
    for turned in [false, true] {
        let report = judged(|_| (), 24, turned);
        assert_eq!(accused(&report), Vec::<&Value>::new(), "{report:#}");
        let said = report["measures"].to_string();
        assert!(said.contains(" repairs of the weights were tried: "), "{said}");
        let is_healthy = said.contains("none restores more than the model has");
        assert!(is_healthy || turned, "{said}");
    }
    let noise = |p: &mut Patient| {
        for name in ["q", "v"] {
            let mut random = attnscope::run::SplitMix::new(3);
            p.edit(&format!("decoder.1.cross_attn.{name}.weight"), |w| {
                w.iter_mut().for_each(|x| *x += 0.3 * random.unit());
            });
        }
    };
    let report = judged(noise, 30, false);
    assert_eq!(accused(&report), Vec::<&Value>::new(), "{report:#}");
}

/// A search that has no time says so, and how many repairs it left out.
#[test]
fn a_search_that_is_cut_says_so() {
    let cut = |seconds: &str| {
        on_pairs(|_| (), 20, false, &["--rules", "misconverted-weight", "--repair-time", seconds])
    };
    let none = cut("0");
    let why = none["not_checked"][0]["why"].as_str().unwrap();
    assert!(
        why.starts_with("of 4 layers none is missing or a copy, and no bias was dropped;")
            && why.contains("--repair-time is 0"),
        "{none:#}"
    );
    let said = cut("0.01")["measures"].to_string();
    assert!(said.contains("the search was cut after 0.01 s: ") && said.contains(" of 476 repairs"), "{said}");
}
