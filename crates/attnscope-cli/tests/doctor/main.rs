//! The doctor: every rule fires on its fault and stays silent without it, and healthy models are not accused.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

#[path = "../common/mod.rs"]
mod common;
mod masks;
mod wirings;

use std::io::Read;
use std::path::Path;

use std::sync::Arc;

use attnscope::diagnose::{Corpus, Diagnosis, RuleInput, Sample, Thresholds, examine, rules};
use attnscope::graph::{
    Activation, CrossMask, EmbeddingScale, LogitScale, NormPlace, Normaliser, Positions, ScoreScale, Switch,
    Wiring,
};
use attnscope::run::{Input, Pair, Rows, parse_pairs};
use attnscope::{Cancel, Opened, Ready};
use common::faults::{FAULTS, FaultyModel, copy_layer};
use common::{MODELS, attnscope, fixture, open, root, shared, stderr, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

const SENTENCE: &str = "A man in a red shirt is riding a bicycle down the street.";

/// The report of the program, its exit code, and what it said besides.
fn doctor(model: &str, args: &[&str]) -> (Value, i32, String) {
    let output = attnscope(&[&["doctor", model, "--format", "json", "--quiet"], args].concat());
    let value = serde_json::from_str(&stdout(&output)).unwrap_or(Value::Null);
    (value, output.status.code().unwrap(), stderr(&output))
}

/// Ids of the findings, errors and warnings first.
fn found(report: &Value, worse_than_info: bool) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap_or_else(|| panic!("{report}"));
    let worse = findings.iter().filter(|f| !worse_than_info || f["severity"] != "info");
    worse.map(|f| f["rule"].as_str().unwrap()).collect()
}

/// The first lines of the pairs that the program carries, in a file.
fn pairs(folder: &Path, lines: usize) -> String {
    let all = std::fs::read_to_string(root().join("crates/attnscope/data/demo-pairs.tsv")).unwrap();
    let path = folder.join("pairs.tsv");
    std::fs::write(&path, all.lines().take(lines).collect::<Vec<_>>().join("\n")).unwrap();
    path.display().to_string()
}

/// A model whose declared wiring is another than the one that it was trained with.
fn miswired(
    opened: &Opened,
    edit: impl Fn(&mut Wiring),
    heads: Option<usize>,
    pairs: usize,
    only: &[&str],
) -> Diagnosis {
    let ready = Ready::new(opened).unwrap();
    let mut wiring = ready.model.wiring;
    edit(&mut wiring);
    let model = ready.model.rewired(&wiring, heads);
    let weights = ready.weights().reordered(&ready.model.graph, &model.graph).unwrap();
    let prepared = ready.prepared.again(Arc::new(model.clone()), weights).unwrap();
    let file = root().join("crates/attnscope/data/demo-pairs.tsv");
    let lines = parse_pairs(&file, &std::fs::read(&file).unwrap()).unwrap();
    let tokenizer = ready.tokenizer().unwrap();
    let lines = &lines[..pairs];
    let corpus = Corpus {
        sources: lines.iter().map(|p| tokenizer.encode_source(&p.source).unwrap().into()).collect(),
        targets: lines.iter().map(|p| tokenizer.encode_target(&p.target).unwrap()).collect(),
        texts: Vec::new(),
        shift: ready.shift().unwrap(),
        pad: ready.pad,
    };
    let targets: Vec<Vec<u32>> = corpus.targets.iter().take(2).map(|t| corpus.shift.apply(t)).collect();
    let input = Input::pair(corpus.source(&[0, 1], 0), Rows::new(&targets, ready.pad));
    let input = RuleInput {
        model: &model,
        checkpoint: &opened.checkpoint,
        prepared: Some(&*prepared),
        tokenizer: ready.tokenizer.as_ref(),
        pad: ready.pad,
        shift: Some(&corpus.shift),
        sample: Some(&Sample { input, real: true }),
        corpus: Some(&corpus),
        too_long: &[],
        thresholds: &Thresholds::default(),
        repair_time: std::time::Duration::ZERO,
        cancel: &Cancel::default(),
        progress: &|_, _| (),
    };
    let picked: Vec<_> = rules().iter().copied().filter(|rule| only.contains(&rule.id)).collect();
    examine(&input, &picked).unwrap()
}

/// What breaks a model so that a rule of weights or of a run must say so.
struct Case {
    rule: &'static str,
    fault: fn(&mut FaultyModel),
    /// What the model reads: a sentence, or some of the pairs.
    pairs: usize,
}

const fn case(rule: &'static str, fault: fn(&mut FaultyModel)) -> Case {
    Case { rule, fault, pairs: 0 }
}

const CASES: &[Case] = &[
    case("missing-weight", |p| p.remove("decoder.0.cross_attn.k.weight")),
    case("mismatched-weight", |p| resize(p, "encoder.1.ffn.hidden.weight", 250)),
    case("nonfinite-weight", |p| p.edit("decoder.1.ffn.out.weight", |w| w[5] = f32::NAN)),
    case("zero-weight", |p| p.edit("decoder.0.cross_attn.v.weight", |w| w.fill(0.0))),
    case("constant-weight", |p| p.edit("encoder.0.ffn.hidden.weight", |w| w.fill(0.25))),
    case("repeated-weight", |p| copy_layer(p, "encoder.0", "encoder.1")),
    case("unused-weight", |p| add(p, "encoder.layers.0.adapter.weight", vec![4, 128], 0.5)),
    case("vocabulary-mismatch", |p| {
        resize(p, "src.embed.weight", 3000);
        resize(p, "logits.bias", 3000);
    }),
    case("special-token-mismatch", |p| drop(p.config.insert("eos_token_id".into(), json!(9999)))),
    case("first-nan", |p| p.edit("encoder.1.ffn.hidden.bias", |w| w[7] = f32::INFINITY)),
    case("position-ignored", |p| {
        add(p, "encoder.embed_positions.weight", vec![64, 128], 0.0);
        add(p, "decoder.embed_positions.weight", vec![64, 128], 0.0);
    }),
    case("duplicate-heads", |p| twin_heads(p, "encoder.1.self_attn")),
    case("entropy-collapse", |p| {
        p.edit("encoder.0.self_attn.q.weight", |w| w.iter_mut().for_each(|x| *x *= 1e4))
    }),
    case("drowned-branch", |p| scale(p, "encoder.0.ffn.out", 1e-6)),
    case("drowning-branch", |p| scale(p, "encoder.0.ffn.out", 1e5)),
    case("uniform-attention", |p| scale(p, "decoder.0.cross_attn.q", 1e-6)),
    Case {
        rule: "past-positions",
        fault: |p| add(p, "encoder.embed_positions.weight", vec![9, 128], 0.1),
        pairs: 12,
    },
    Case {
        rule: "misconverted-weight",
        fault: |p| p.swap("decoder.1.cross_attn.k.weight", "decoder.1.cross_attn.v.weight"),
        pairs: 20,
    },
    Case {
        rule: "wiring-mismatch",
        fault: |p| drop(p.config.insert("scale_embedding".into(), json!(false))),
        pairs: 20,
    },
    Case {
        rule: "ill-fitting-pairs",
        fault: |p| p.edit("src.embed.weight", |w| w.rotate_right(7 * 128)),
        pairs: 20,
    },
    Case {
        rule: "source-ignored",
        fault: |p| (0..2).for_each(|n| scale(p, &format!("decoder.{n}.cross_attn.out"), 0.0)),
        pairs: 20,
    },
    Case { rule: "dead-head", fault: |p| without_head(p, "encoder.1.self_attn"), pairs: 20 },
];

/// Rules whose fault is no matter of a file, with cases further down, or of a config, with cases in contradictions.rs.
const ELSEWHERE: &[&str] =
    &["config-contradicts-tensors", "causal-leak", "padding-leak", "cross-mask-fault", "attention-sink"];

fn add(faulty: &mut FaultyModel, name: &str, shape: Vec<usize>, value: f32) {
    let prefix = faulty.model().prefix.clone();
    let values = vec![value; shape.iter().product()];
    faulty.tensors.push(common::faults::Tensor { name: format!("{prefix}{name}"), shape, values });
}

/// Cuts rows off a tensor, or columns off one of a single row.
fn resize(faulty: &mut FaultyModel, weight: &str, rows: usize) {
    let tensor = faulty.tensor(weight);
    let axis = usize::from(tensor.shape[0] == 1 && tensor.shape.len() > 1);
    tensor.shape[axis] = rows;
    tensor.values.truncate(tensor.shape.iter().product());
}

fn scale(faulty: &mut FaultyModel, module: &str, factor: f32) {
    for leaf in ["weight", "bias"] {
        faulty.edit(&format!("{module}.{leaf}"), |w| w.iter_mut().for_each(|x| *x *= factor));
    }
}

/// The second head becomes the first.
fn twin_heads(faulty: &mut FaultyModel, attention: &str) {
    for (name, leaf) in ["q", "k", "v"].into_iter().flat_map(|n| [(n, "weight"), (n, "bias")]) {
        faulty.edit(&format!("{attention}.{name}.{leaf}"), |w| w.copy_within(..w.len() / 4, w.len() / 4));
    }
    faulty.edit(&format!("{attention}.out.weight"), |w| {
        w.chunks_mut(128).for_each(|row| row.copy_within(..32, 32));
    });
}

fn without_head(faulty: &mut FaultyModel, attention: &str) {
    faulty
        .edit(&format!("{attention}.out.weight"), |w| w.chunks_mut(128).for_each(|row| row[..32].fill(0.0)));
}

#[test]
fn every_rule_has_a_case() {
    let mut known: Vec<&str> = CASES.iter().map(|c| c.rule).chain(ELSEWHERE.iter().copied()).collect();
    let mut all: Vec<&str> = rules().iter().map(|rule| rule.id).collect();
    known.sort_unstable();
    all.sort_unstable();
    assert_eq!(known, all);
}

/// The rule fires on the broken model and not on the whole one.
fn fires(case: &Case) {
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of("demo");
    let whole = faulty.save(&folder.path().join("whole"));
    (case.fault)(&mut faulty);
    let broken = faulty.save(&folder.path().join("broken"));
    let file = pairs(folder.path(), case.pairs);
    let input = if case.pairs > 0 { ["--pairs", &file] } else { ["--src", SENTENCE] };
    // Repairs of weights are tried for the rule that reports them.
    let seconds = if case.rule == "misconverted-weight" { "1200" } else { "0" };
    let args = ["--rules", case.rule, input[0], input[1], "--repair-time", seconds];
    let (report, _, said) = doctor(&broken, &args);
    assert!(found(&report, false).contains(&case.rule), "{}: silent\n{report:#}\n{said}", case.rule);
    let (report, code, said) = doctor(&whole, &args);
    assert!(found(&report, false).is_empty() && code == 0, "{}: false alarm\n{report:#}\n{said}", case.rule);
}

#[test]
fn rules_of_weights_fire_and_stay_silent() {
    CASES.iter().take(10).for_each(fires);
}

#[test]
fn rules_of_runs_fire_and_stay_silent() {
    CASES.iter().skip(10).for_each(fires);
}

/// Every head is weak by such a limit, and none is dead: each is missed, in the encoder as in the decoder.
#[test]
fn a_head_is_dead_only_when_it_is_not_missed() {
    let folder = TempDir::new().unwrap();
    let (file, limits) = (pairs(folder.path(), 20), folder.path().join("limits.toml"));
    let limits_path = limits.display().to_string();
    let args = ["--pairs", &file, "--rules", "dead-head", "--thresholds", &limits_path];
    // With a cost that no head reaches, all are told of with their own.
    std::fs::write(&limits, "dead_norm = 100.0\ndead_cost = 1000.0\n").unwrap();
    let (report, ..) = doctor("demo", &args);
    let findings = report["findings"].as_array().unwrap();
    for part in ["encoder.0.self_attn", "encoder.1.self_attn", "decoder.1.cross_attn"] {
        let costs: Vec<f64> =
            findings.iter().filter(|f| f["node"] == part).map(|f| f["cost"].as_f64().unwrap()).collect();
        assert!(costs.len() == 4 && costs.iter().all(|cost| cost.abs() > 1e-5), "{part}: {costs:?}");
    }
    std::fs::write(&limits, "dead_norm = 100.0\n").unwrap();
    let (report, ..) = doctor("demo", &args);
    let dead = report["findings"].as_array().unwrap();
    assert!(dead.iter().all(|f| f["cost"].as_f64().unwrap() != 0.0) && dead.len() < 4, "{report:#}");
}

/// Whatever a few pairs show, nothing is said of them.
#[test]
fn few_pairs_are_not_judged_by() {
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of("demo");
    faulty.config.insert("scale_embedding".into(), json!(false));
    let broken = faulty.save(&folder.path().join("broken"));
    let judges = "wiring-mismatch,source-ignored";
    for (model, lines) in [("demo", 1), ("demo", 5), (&broken, 1), (&broken, 5), (&broken, 19)] {
        let file = pairs(folder.path(), lines);
        let (report, code, said) = doctor(model, &["--pairs", &file, "--rules", judges]);
        assert!(code == 2 && found(&report, false).is_empty(), "{lines}: {report:#}\n{said}");
        assert!(said.contains("error: --rules wiring-mismatch: not checked: "), "{said}");
        assert!(said.contains("help: give --pairs FILE"), "{said}");
        assert_eq!(report["not_checked"].as_array().unwrap().len(), 2, "{lines}: {report:#}");
    }
}

/// What cannot be swapped is not swapped with itself.
#[test]
fn one_source_for_all_says_nothing_of_sources() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("same.tsv");
    let lines = (0..20).map(|n| format!("{SENTENCE}\tEin Mann fährt {n} Fahrräder.\n"));
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let (report, code, said) =
        doctor("demo", &["--pairs", &file.display().to_string(), "--rules", "source-ignored"]);
    assert!(code == 2 && found(&report, false).is_empty(), "{report:#}\n{said}");
    assert!(report["not_checked"][0]["why"].as_str().unwrap().contains("same source"), "{report:#}");
}

/// What was asked for by name and cannot be checked is no success; of the rules at large it is only told.
#[test]
fn a_rule_that_was_asked_for_and_not_checked_ends_with_2() {
    let asked = attnscope(&["doctor", "demo", "--src", SENTENCE, "--rules", "zero-weight,source-ignored"]);
    assert_eq!(asked.status.code(), Some(2), "{}", stdout(&asked));
    let said = stderr(&asked);
    assert!(said.contains("--rules source-ignored: not checked: there are no sentence pairs"), "{said}");
    assert!(said.contains("help: give --pairs FILE"), "{said}");
    assert!(stdout(&asked).contains("nothing found; 1 rule checked, 1 not"), "{}", stdout(&asked));
    let at_large = attnscope(&["doctor", "demo", "--src", SENTENCE]);
    assert_eq!(at_large.status.code(), Some(0));
    assert!(
        stdout(&at_large).contains("wiring-mismatch, ill-fitting-pairs, source-ignored"),
        "{}",
        stdout(&at_large)
    );
}

/// A healthy model gets its numbers: a line a rule, all of them in JSON, and head by head on demand.
#[test]
fn a_healthy_model_gets_its_numbers() {
    let folder = TempDir::new().unwrap();
    let file = pairs(folder.path(), 20);
    let rules = "source-ignored,dead-head,entropy-collapse,causal-leak,drowned-branch";
    let args = ["doctor", "demo", "--pairs", &file, "--rules", rules, "--quiet", "--width", "200"];
    let plain = stdout(&attnscope(&args));
    let line = |rule: &str| {
        plain.lines().find(|l| l.trim_start().starts_with(rule)).unwrap_or_else(|| panic!("{plain}"))
    };
    assert!(
        line("source-ignored: uses its source: swapping it costs ").contains("nats per token"),
        "{plain}"
    );
    assert!(line("dead-head: the weakest head adds ").contains("(threshold 10 %)"), "{plain}");
    assert!(line("causal-leak: the proof holds over ").ends_with("cells"), "{plain}");
    assert!(!plain.contains("output share"), "{plain}");
    let every = stdout(&attnscope(&[&args[..], &["--measures"]].concat()));
    for at in ["encoder.1.self_attn head 3", "decoder.0.cross_attn head 0", "decoder.1.ffn.residual"] {
        assert!(every.contains(at), "{at}\n{every}");
    }
    let (report, code, said) = doctor("demo", &["--pairs", &file, "--rules", rules]);
    assert_eq!(code, 0, "{said}");
    let measures = report["measures"].as_array().unwrap();
    let of = |name: &str| measures.iter().filter(|m| m["name"] == name).collect::<Vec<_>>();
    // Six attentions of four heads.
    assert_eq!((of("output_share").len(), of("branch_ratio").len()), (24, 10), "{report:#}");
    let cost = &of("source_cost")[0];
    assert!(cost["number"].as_f64() > cost["threshold"].as_f64(), "{cost}");
    assert!(of("entropy").iter().all(|m| (0.0..=1.0).contains(&m["number"].as_f64().unwrap())), "{report:#}");
    let means = of("output_share").iter().map(|m| m["number"].as_f64().unwrap()).sum::<f64>() / 24.0;
    assert!((means - 1.0).abs() < 1e-9, "shares are of the mean: {means}");
}

/// Pairs that take the last position of a table are judged by like any others.
#[test]
fn a_full_table_of_positions_is_room_enough() {
    let folder = TempDir::new().unwrap();
    let mut faulty = FaultyModel::of("demo");
    let file = pairs(folder.path(), 20);
    let opened = open("demo", None);
    let ready = Ready::new(&opened).unwrap();
    let tokenizer = ready.tokenizer().unwrap();
    let lines = parse_pairs(Path::new(&file), &std::fs::read(&file).unwrap()).unwrap();
    let longest = |ids: &dyn Fn(&Pair) -> Vec<u32>| lines.iter().map(|p| ids(p).len()).max().unwrap();
    let source = longest(&|p| tokenizer.encode_source(&p.source).unwrap());
    let target = longest(&|p| tokenizer.encode_target(&p.target).unwrap());
    add(&mut faulty, "encoder.embed_positions.weight", vec![source, 128], 0.1);
    add(&mut faulty, "decoder.embed_positions.weight", vec![target, 128], 0.1);
    let full = faulty.save(&folder.path().join("full"));
    let (report, _, said) = doctor(&full, &["--pairs", &file, "--rules", "past-positions,wiring-mismatch"]);
    // Whatever a table of one number does to the model, it has room for the pairs.
    assert!(!report["not_checked"].to_string().contains("its positions"), "{report:#}\n{said}");
    assert!(!found(&report, false).contains(&"past-positions"), "{report:#}");
}

#[test]
fn every_family_is_run_without_leaks_and_without_nan() {
    for (model, _, heads) in MODELS {
        let path = fixture(model);
        let heads = heads.map(|n| n.to_string()).unwrap_or_default();
        let mut args = vec!["--rules", "first-nan,causal-leak,padding-leak,cross-mask-fault"];
        if !heads.is_empty() {
            args.extend(["--heads", &heads]);
        }
        let (report, code, said) = doctor(&path, &args);
        assert!(code == 0 && found(&report, false).is_empty(), "{model}: {report:#}\n{said}");
        let checked: Vec<&str> =
            report["checked"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(checked.contains(&"first-nan") && checked.contains(&"causal-leak"), "{model}: {report:#}");
    }
}

/// What needs no reference to be seen is named first, whatever the family.
#[test]
fn faults_of_weights_are_the_first_error_of_every_family() {
    let expected = [
        ("nan", "nonfinite-weight"),
        ("another layer's weights", "repeated-weight"),
        ("zeros", "zero-weight"),
        ("constant", "constant-weight"),
        ("missing", "missing-weight"),
    ];
    for model in ["demo", &fixture("t5"), &fixture("bart"), &fixture("whisper")] {
        for (what, rule) in expected {
            let folder = TempDir::new().unwrap();
            let mut faulty = FaultyModel::of(model);
            let fault = FAULTS.iter().find(|fault| fault.what == what).unwrap();
            (fault.apply)(&mut faulty);
            let broken = faulty.save(folder.path());
            let weights = "missing-weight,nonfinite-weight,zero-weight,constant-weight,repeated-weight";
            let (report, code, said) = doctor(&broken, &["--rules", weights]);
            assert_eq!(code, 1, "{model}, {what}: {report:#}\n{said}");
            assert_eq!(found(&report, true)[0], rule, "{model}, {what}: {report:#}");
        }
    }
}

/// The cause of the first NaN, from what is around it.
#[test]
fn the_first_nan_has_a_cause() {
    let cause = |fault: fn(&mut FaultyModel)| {
        let folder = TempDir::new().unwrap();
        let mut faulty = FaultyModel::of("demo");
        fault(&mut faulty);
        let broken = faulty.save(folder.path());
        let (report, ..) = doctor(&broken, &["--rules", "first-nan", "--src", SENTENCE]);
        let finding = report["findings"][0].clone();
        (
            finding["cause"].as_str().unwrap_or_default().to_owned(),
            finding["node"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let weight = cause(|p| p.edit("encoder.0.self_attn.k.weight", |w| w[0] = f32::NAN));
    assert_eq!(weight, ("bad weight".into(), "encoder.0.self_attn.k".into()));
    let scores = cause(|p| {
        for name in ["q", "k"] {
            p.edit(&format!("decoder.0.self_attn.{name}.weight"), |w| w.iter_mut().for_each(|x| *x *= 1e20));
        }
    });
    assert_eq!(scores, ("overflow in scores".into(), "decoder.0.self_attn.scores".into()));
    let norm = cause(|p| p.edit("encoder.1.ffn.out.bias", |w| w.fill(3e38)));
    assert_eq!(norm, ("division in a norm".into(), "encoder.1.ffn.norm".into()));
}

#[test]
fn a_healthy_model_is_not_accused() {
    let (report, code, _) = doctor("demo", &["--src", SENTENCE]);
    assert_eq!((found(&report, true), code), (vec![], 0), "{report:#}");
    let whys: Vec<&str> =
        report["not_checked"].as_array().unwrap().iter().filter_map(|n| n["rule"].as_str()).collect();
    assert_eq!(whys, ["misconverted-weight", "wiring-mismatch", "ill-fitting-pairs", "source-ignored"]);
    for model in ["models/t5-tiny-en-de", "models/bart-tiny-en-de", "models/marian-base-en-de"] {
        let Some(path) = shared(model) else { continue };
        let folder = TempDir::new().unwrap();
        let (report, code, said) = doctor(&path, &["--pairs", &pairs(folder.path(), 20)]);
        assert_eq!((found(&report, true), code), (vec![], 0), "{model}: {report:#}\n{said}");
    }
    let (Some(whisper), Some(audio)) =
        (shared("models/whisper-tiny.en/tiny.en.pt"), shared("data/audio/jfk.wav"))
    else {
        return;
    };
    let rules = "nonfinite-weight,zero-weight,repeated-weight,unused-weight,first-nan,entropy-collapse,drowned-branch,drowning-branch";
    let target = ["--tgt-ids", "50257,50362,843,523,616,5891,3399,1265,407"];
    let (report, code, said) =
        doctor(&whisper, &[&["--audio", &audio, "--rules", rules], &target[..]].concat());
    assert_eq!((found(&report, true), code), (vec![], 0), "{report:#}\n{said}");
}

/// Captions of the kind that those checkpoints were trained on, in a file of a folder that goes with it.
fn captions() -> Option<(TempDir, String)> {
    let lines = |language: &str| {
        let file =
            std::fs::File::open(shared(&format!("data/multi30k/test_2016_flickr.{language}.gz"))?).ok()?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).ok()?;
        Some(text.lines().take(200).map(str::to_owned).collect::<Vec<_>>())
    };
    let (english, german) = (lines("en")?, lines("de")?);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("captions.tsv");
    let pairs: Vec<String> = english.iter().zip(german).map(|(a, b)| format!("{a}\t{b}")).collect();
    std::fs::write(&path, pairs.join("\n")).unwrap();
    let path = path.display().to_string();
    Some((folder, path))
}

#[test]
fn what_the_user_asks_for_is_what_is_done() {
    let folder = TempDir::new().unwrap();
    let toml = folder.path().join("limits.toml");
    let toml_path = toml.display().to_string();
    let args = ["doctor", "demo", "--src", SENTENCE, "--rules", "attention-sink", "--fail-on", "info"];
    // The healthy model has heads that park their attention; no head passes a limit of 1.
    assert_eq!(attnscope(&args).status.code(), Some(1));
    std::fs::write(&toml, "sink = 1.0\n").unwrap();
    assert_eq!(attnscope(&[&args[..], &["--thresholds", &toml_path]].concat()).status.code(), Some(0));
    std::fs::write(&toml, "sinc = 1.0\n").unwrap();
    let output = attnscope(&[&args[..], &["--thresholds", &toml_path]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("sinc") && stderr(&output).contains("limits.toml"),
        "{}",
        stderr(&output)
    );
    for (key, value) in [("wiring_p", "nan"), ("sink", "-0.1"), ("dead_cost", "inf")] {
        std::fs::write(&toml, format!("{key} = {value}\n")).unwrap();
        let output = attnscope(&[&args[..], &["--thresholds", &toml_path]].concat());
        assert_eq!(output.status.code(), Some(2), "{key} = {value}");
        assert!(stderr(&output).contains(key), "{}", stderr(&output));
    }
    let output = attnscope(&["doctor", "--rules", "zero-wait"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("zero-weight"), "{}", stderr(&output));
    let output = attnscope(&[&args[..], &["--format", "sarif"]].concat());
    let sarif: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&sarif["version"], &sarif["runs"][0]["results"][0]["level"]),
        (&json!("2.1.0"), &json!("note"))
    );
    assert_eq!(sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap().len(), rules().len());
}

/// The pages of rules and of mistakes are made from the code: `INSTA_UPDATE=always cargo test --test doctor` writes them.
#[test]
fn the_pages_of_rules_and_mistakes_are_true() {
    use attnscope_render::findings::{mistakes_page, rules_page};
    for (name, page) in [("docs/rules.md", rules_page()), ("docs/mistakes.md", mistakes_page())] {
        let path = root().join(name);
        if std::env::var("INSTA_UPDATE").is_ok_and(|when| when == "always") {
            std::fs::write(&path, &page).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "{name} is out of date");
    }
}
