//! Mistakes of converters, planted into the built-in model: each is named with its place, and nothing else is accused.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use common::faults::{FaultyModel, copy_layer, transpose};
use common::{attnscope, root, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

const RULES: &str = "misconverted-weight,wiring-mismatch,ill-fitting-pairs,source-ignored";

/// What is found in a broken copy of `demo` with some arguments.
fn report(fault: impl FnOnce(&mut FaultyModel), args: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of("demo");
    fault(&mut faulty);
    let broken = faulty.save(&folder.path().join("broken"));
    let always = ["--format", "json", "--quiet", "--fail-on", "never"];
    let output = attnscope(&[&["doctor", &broken][..], args, &always].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// What is done with pairs before the model is judged on them.
#[derive(Debug, Clone, Copy)]
enum Made {
    Right,
    Exchanged,
    SourceReversed,
}

/// The same on some of the pairs that the program carries.
fn judged(fault: impl FnOnce(&mut FaultyModel), pairs: usize, made: Made) -> Value {
    // Time enough on the slowest machine: what is found must not depend on it.
    on_pairs(fault, pairs, made, &["--rules", RULES, "--repair-time", "1200"])
}

fn on_pairs(fault: impl FnOnce(&mut FaultyModel), pairs: usize, made: Made, args: &[&str]) -> Value {
    let all = std::fs::read_to_string(root().join("crates/attnscope/data/demo-pairs.tsv")).unwrap();
    let line = |line: &str| {
        let (source, target) = line.split_once('\t').unwrap();
        match made {
            Made::Right => format!("{line}\n"),
            Made::Exchanged => format!("{target}\t{source}\n"),
            Made::SourceReversed => {
                format!("{}\t{target}\n", source.split(' ').rev().collect::<Vec<_>>().join(" "))
            }
        }
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("pairs.tsv");
    std::fs::write(&file, all.lines().take(pairs).map(line).collect::<String>()).unwrap();
    report(fault, &[&["--pairs", &file.display().to_string()][..], args].concat())
}

/// The one finding, with a working model after the repair; wiring, pairs and the use of the source are not accused beside it.
fn finding(fault: impl FnOnce(&mut FaultyModel)) -> Value {
    let report = judged(fault, 30, Made::Right);
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

fn repair(fault: impl FnOnce(&mut FaultyModel)) -> Value {
    finding(fault)["repair"].clone()
}

fn of_module(faulty: &mut FaultyModel, module: &str, edit: impl Fn(&mut [f32])) {
    ["weight", "bias"].iter().for_each(|leaf| faulty.edit(&format!("{module}.{leaf}"), &edit));
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
    let finding = finding(|p| {
        for weight in p.weights_under("decoder.0") {
            p.swap(&weight, &weight.replacen("decoder.0", "decoder.1", 1));
        }
    });
    let repair = &finding["repair"];
    assert_eq!((&repair["kind"], &repair["layers"]), (&json!("swap_layers"), &json!([0, 1])), "{repair:#}");
    // It is about layers, and not about the first of their weights.
    assert_eq!(finding["node"], "decoder.0", "{finding:#}");
}

/// One sublayer alone, with its norm: the others of both layers are where they belong.
#[test]
fn a_sublayer_in_another_layer_is_named() {
    let finding = finding(|p| {
        for weight in p.weights_under("decoder.0.cross_attn") {
            p.swap(&weight, &weight.replacen("decoder.0", "decoder.1", 1));
        }
    });
    let evidence = finding["evidence"].as_str().unwrap();
    assert!(
        evidence.starts_with("decoder.0.cross_attn and decoder.1.cross_attn are exchanged: undone, "),
        "{evidence}"
    );
    assert_eq!(
        (&finding["repair"]["kind"], &finding["node"]),
        (&json!("exchange"), &json!("decoder.0.cross_attn"))
    );
    assert!(finding["repair"].to_string().contains("decoder.1.cross_attn.norm.weight"), "{finding:#}");
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

/// The norms of this layer's rows and columns are less alike than in other layers, so that they do not tell a factor from
/// noise;
/// how few directions the matrix has does.
#[test]
fn a_factor_of_a_feed_forward_matrix_is_measured() {
    let finding = finding(|p| p.edit("encoder.1.ffn.out.weight", |w| w.iter_mut().for_each(|x| *x *= 8.0)));
    let repair = &finding["repair"];
    let weight = &repair["weights"][0];
    assert_eq!(
        (&repair["kind"], weight),
        (&json!("scale"), &json!("encoder.1.ffn.out.weight")),
        "{finding:#}"
    );
    // So few pairs do not tell the factor.
    let factor = repair["factor"].as_f64().unwrap();
    assert!((0.06..0.35).contains(&factor), "{finding:#}");
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
    let kinds = |fault: &dyn Fn(&mut FaultyModel)| -> Vec<(String, String)> {
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

/// Sets every value of some weights of layers.
fn fill(p: &mut FaultyModel, which: &dyn Fn(&str) -> bool, value: f32) {
    for stack in ["encoder", "decoder"] {
        let paths = p.weights_under(stack).into_iter().filter(|path| which(path));
        paths.for_each(|path| p.edit(&path, |w| w.fill(value)));
    }
}

/// A converter that drops a kind of bias drops it in all layers. Some models are trained without: a warning, where the model
/// was
/// trained at all.
#[test]
fn biases_that_are_zero_in_all_layers_are_told_of() {
    let zeroed = |kinds: &'static [&'static str], fault: &dyn Fn(&mut FaultyModel)| {
        let zero = |p: &mut FaultyModel| {
            fill(p, &|path| kinds.iter().any(|kind| path.ends_with(kind)), 0.0);
            fault(p);
        };
        report(zero, &["--rules", "misconverted-weight", "--repair-time", "0"])
    };
    let said = zeroed(&["_attn.q.bias", "ffn.hidden.bias"], &|_| ());
    let findings = said["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{said:#}");
    assert_eq!(
        (&findings[0]["severity"], &findings[0]["repair"]["kind"]),
        (&json!("warning"), &json!("zero_biases"))
    );
    // q of 4 self-attentions and 2 cross-attentions, and 4 feed-forward layers.
    assert_eq!(findings[0]["repair"]["weights"].as_array().unwrap().len(), 10, "{said:#}");
    let evidence = findings[0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("self_attn.q, ") && evidence.contains("(10 tensors)"), "{evidence}");
    assert!(!said.to_string().contains("no bias was dropped"), "{said:#}");
    // All biases, those of norms too.
    assert_eq!(zeroed(&[".bias"], &|_| ())["findings"][0]["repair"]["kind"], "zero_biases");
    // k's have no effect.
    let keys = zeroed(&["_attn.k.bias"], &|_| ());
    assert_eq!(keys["findings"][0]["severity"], "info", "{keys:#}");
    // A model that was not trained has the norms that it began with.
    let untrained = zeroed(&[".bias"], &|p| fill(p, &|path| path.ends_with("norm.weight"), 1.0));
    assert_eq!(untrained["findings"], json!([]), "{untrained:#}");
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

/// A whole model and noise are no mistakes of a converter; what was tried is said.
#[test]
fn nothing_else_is_accused() {
    let report = judged(|_| (), 24, Made::Right);
    assert_eq!(accused(&report), Vec::<&Value>::new(), "{report:#}");
    let said = report["measures"].to_string();
    assert!(said.contains(" repairs of the weights were tried: none surely improves"), "{said}");
    let noise = |p: &mut FaultyModel| {
        for name in ["q", "v"] {
            let mut random = attnscope::run::SplitMix::new(3);
            p.edit(&format!("decoder.1.cross_attn.{name}.weight"), |w| {
                w.iter_mut().for_each(|x| *x += 0.3 * random.unit());
            });
        }
    };
    let report = judged(noise, 30, Made::Right);
    assert_eq!(accused(&report), Vec::<&Value>::new(), "{report:#}");
}

/// v of a decoder's self-attention is noise. Other orders of q's, k's and v's rows keep it from doing harm, and won half of
/// what is lost back: no better than any order of v alone, so no order is named.
#[test]
fn what_only_mutes_noise_is_no_repair() {
    let noise = |p: &mut FaultyModel| {
        p.edit("decoder.1.self_attn.v.weight", |values| {
            let mut random = attnscope::run::SplitMix::new(1);
            (1..values.len()).rev().for_each(|last| values.swap(last, random.below(last + 1)));
        });
    };
    let report = judged(noise, 30, Made::Right);
    assert!(accused(&report).is_empty(), "{report:#}");
}

/// Where pairs are wrong, it is not the weights. A model with q and k of its encoder exchanged reads a reversed source
/// nearly as well as the right one reads a straight one: the repair gains half of what is lost, and would be believed.
#[test]
fn a_mistake_in_the_pairs_is_none_of_a_converter() {
    for (made, kind) in [(Made::SourceReversed, "reverse_words"), (Made::Exchanged, "exchange_sides")] {
        let report = judged(|_| (), 20, made);
        let findings = report["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 1, "{report:#}");
        assert_eq!(
            (&findings[0]["rule"], &findings[0]["edit"]["kind"]),
            (&json!("ill-fitting-pairs"), &json!(kind)),
            "{report:#}"
        );
        let left: Vec<&Value> =
            report["not_checked"].as_array().unwrap().iter().map(|n| &n["rule"]).collect();
        assert_eq!(left, ["misconverted-weight", "wiring-mismatch"], "{report:#}");
    }
}

/// And where q and k of the encoder are exchanged, it is not the pairs.
#[test]
fn exchanged_queries_and_keys_are_told_from_reversed_sources() {
    let exchange = |p: &mut FaultyModel| {
        for layer in 0..2 {
            for leaf in ["weight", "bias"] {
                let at = format!("encoder.{layer}.self_attn");
                p.swap(&format!("{at}.q.{leaf}"), &format!("{at}.k.{leaf}"));
            }
        }
    };
    // Too few pairs to be sure of the weights are too few to accuse the head count.
    let few = judged(exchange, 30, Made::Right);
    assert_eq!(few["findings"], json!([]), "{few:#}");
    let why = few["not_checked"][0]["why"].as_str().unwrap();
    assert!(why.contains("encoder.0.self_attn.q and encoder.0.self_attn.k"), "{why}");
    let report = judged(exchange, 60, Made::Right);
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() == 1 && accused(&report).len() == 1, "{report:#}");
    let repair = &findings[0]["repair"];
    assert_eq!(repair["kind"], "exchange", "{repair:#}");
    assert_eq!(repair["weights"].as_array().unwrap().len(), 8, "{repair:#}");
}

/// A search that has no time says so, and how many repairs it left out.
#[test]
fn a_search_that_is_cut_says_so() {
    let cut = |seconds: &str| {
        on_pairs(|_| (), 20, Made::Right, &["--rules", "misconverted-weight", "--repair-time", seconds])
    };
    let none = cut("0");
    let why = none["not_checked"][0]["why"].as_str().unwrap();
    assert!(
        why.starts_with("of 4 layers none is missing or a copy, and no bias was dropped;")
            && why.contains("--repair-time is 0"),
        "{none:#}"
    );
    let said = cut("0.01")["measures"].to_string();
    assert!(said.contains("the search was cut after 0.01 s: ") && said.contains(" of 481 repairs"), "{said}");
}

/// A gain above the threshold that is not reported says why. No p is small enough here.
#[test]
fn a_gain_that_is_not_sure_says_so() {
    let folder = TempDir::new().unwrap();
    let limits = folder.path().join("limits.toml");
    std::fs::write(&limits, "wiring_gain = 1e-9\nwiring_p = 1e-300\n").unwrap();
    let args = ["--rules", "wiring-mismatch", "--thresholds", &limits.display().to_string()];
    let relu = |p: &mut FaultyModel| {
        p.config.insert("activation_function".into(), json!("relu"));
    };
    let report = on_pairs(relu, 40, Made::Right, &args);
    assert_eq!(report["findings"], json!([]), "{report:#}");
    let said = report["measures"].to_string();
    assert!(said.contains(", which 40 pairs do not make sure: p = "), "{report:#}");
    assert!(report["measures"][0]["p"].as_f64().is_some_and(|p| p > 0.0 && p <= 1.0), "{report:#}");
}

/// A tokenizer that is there is not called unknown where the model cannot be run.
#[test]
fn a_tokenizer_that_is_there_is_known() {
    let report = report(|p| p.remove("encoder.0.self_attn.q.bias"), &["--rules", "vocabulary-mismatch"]);
    let why = report["not_checked"][0]["why"].as_str().unwrap();
    assert!(!why.contains("no tokenizer"), "{report:#}");
}

/// Advice about a self-attention does not speak of cross-attention.
#[test]
fn advice_about_a_sink_is_about_its_attention() {
    let report = report(|_| (), &["--src", "A man in a red shirt.", "--rules", "attention-sink"]);
    let finding = &report["findings"][0];
    let first = finding["evidence"].as_str().unwrap().split(": ").nth(1).unwrap();
    let attention = first.split(' ').next().unwrap();
    let advice = finding["try_next"].as_str().unwrap();
    assert!(advice.contains(&format!("--layer {attention}.weights")), "{report:#}");
    assert_eq!(advice.contains("end token"), attention.ends_with("cross_attn"), "{report:#}");
}
