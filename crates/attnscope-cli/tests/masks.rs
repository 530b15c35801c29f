//! Masks: drawn as they should be, proved on every family, and caught where they are wrong.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod common;

use attnscope::diagnose::masks::{Claim, Padding, PerturbationRig, Proof, Verdict, masks};
use attnscope::graph::{CrossMask, Model, PositionCount, Recognised, Side, Switch, Wiring, build};
use attnscope::run::{Input, Native, PadSide, Rows, Sequence, Weights};
use common::faults::FaultyModel;
use common::run::{Keep, prepare, run};
use common::trace::Trace;
use common::{MODELS, attnscope, fixture, open, stderr, stdout};
use serde_json::Value;

/// A fixture's model, wired otherwise, and the input that its maker ran.
fn fixture_model(path: &str, heads: Option<usize>, edit: impl Fn(&mut Wiring)) -> (Model, Weights, Input) {
    let opened = open(&fixture(path), heads);
    let Recognised::Model(model) = opened.recognised else { panic!("{path}") };
    let mut model = *model;
    let weights = Weights::load(&model, &opened.checkpoint).unwrap();
    edit(&mut model.wiring);
    model.graph = build(&model.architecture, &model.wiring);
    (model, weights, Trace::open(path).input())
}

fn prove((model, weights, input): &(Model, Weights, Input), side: PadSide) -> Vec<Proof> {
    let prepared = prepare(&Native::new(), model, weights);
    PerturbationRig::new(&*prepared, input, Padding { id: 1, side }).unwrap().prove_all().unwrap()
}

/// The claims that do not hold, with the tensor that is named.
fn failing(proofs: &[Proof]) -> Vec<(Claim, &str)> {
    proofs
        .iter()
        .filter_map(|proof| match &proof.verdict {
            Verdict::Fails(leak) => Some((proof.claim, leak.node.as_str())),
            _ => None,
        })
        .collect()
}

#[test]
fn every_family_passes_its_proofs() {
    for &(path, _, heads) in MODELS {
        let model = fixture_model(path, heads, |_| {});
        let proofs = prove(&model, PadSide::Right);
        // Of encoder-decoders, few have a window.
        let without = usize::from(model.0.wiring.window.is_none());
        assert_eq!(proofs.len(), Claim::ALL.len() - without, "{path}");
        assert_eq!(failing(&proofs), [], "{path}");
        let audio = model.2.features().is_some();
        for proof in &proofs {
            let about_padding = [Claim::PaddingStates, Claim::AllPadding].contains(&proof.claim);
            let not_run = matches!(proof.verdict, Verdict::NotRun(_));
            assert_eq!(not_run, audio && about_padding, "{path}: {:?}", proof.claim);
            // A perturbation that nobody feels proves nothing.
            assert!(not_run || proof.felt.is_none_or(|felt| felt > 1e-3), "{path}: {proof:?}");
            assert!(not_run || (proof.cells > 0 && proof.cells == proof.cells_in_all), "{path}: {proof:?}");
            assert!(!proof.claim.must_move() || proof.movement > 0.0);
        }
    }
}

/// Each fault by itself, in families that differ in norms, positions and biases.
#[test]
fn a_broken_mask_fails_and_the_first_tensor_is_named() {
    for path in ["bart", "marian", "t5", "m2m100"] {
        let of = |edit: fn(&mut Wiring)| prove(&fixture_model(path, None, edit), PadSide::Right);
        assert_eq!(
            failing(&of(|w| w.causal_mask = Switch::Off)),
            [(Claim::Causal, "decoder.0.self_attn.masked_scores")],
            "{path}"
        );
        assert_eq!(
            failing(&of(|w| w.cross_mask = CrossMask::Causal)),
            // The encoder carries every token to the positions that can still be seen.
            [(Claim::CrossReach, "decoder.0.cross_attn.masked_scores")],
            "{path}"
        );
        assert_eq!(
            failing(&of(|w| w.padding_mask = Switch::Off)),
            [
                (Claim::PaddingAlone, "encoder.0.self_attn.weights"),
                (Claim::PaddingEmbeddings, "encoder.0.self_attn.masked_scores"),
                (Claim::PaddingStates, "decoder.0.cross_attn.masked_scores"),
                (Claim::AllPadding, "encoder.0.self_attn.weights"),
            ],
            "{path}"
        );
    }
}

#[test]
fn a_leak_says_how_far_and_where() {
    let model = fixture_model("bart", None, |w| w.causal_mask = Switch::Off);
    let prepared = prepare(&Native::new(), &model.0, &model.1);
    let proof = PerturbationRig::new(&*prepared, &model.2, Padding { id: 1, side: PadSide::Right })
        .unwrap()
        .prove(Claim::Causal)
        .unwrap();
    let Verdict::Fails(leak) = &proof.verdict else { panic!("{proof:?}") };
    // [batch, head, query, key]: the first trial replaces position 1, and only query 0 comes before it.
    assert_eq!((leak.at.len(), leak.at[2], leak.at[3]), (4, 0, 1));
    assert!(leak.movement > 1e-3 && proof.movement > 1e-3, "{proof:?}");
    assert_eq!(leak.cause, "target position 1 replaced");
}

/// Left padding: nothing leaks, and only families that number places see their tokens renumbered.
#[test]
fn left_padding_is_proved_too() {
    for path in ["m2m100", "t5", "fairseq/checkpoint.pt", "bart"] {
        let (model, weights, input) = fixture_model(path, None, |_| {});
        let left = |rows: &Rows| Rows::padded(&rows.tokens(), 1, PadSide::Left, 0);
        let source = left(input.rows(Side::Source).unwrap());
        let input = Input::pair(Sequence::Tokens(source), left(input.rows(Side::Target).unwrap()));
        let renumbers = model.wiring.position_count == PositionCount::Places && !model.wiring.relative_bias;
        let proofs = prove(&(model, weights, input), PadSide::Left);
        let expected: &[(Claim, &str)] =
            if renumbers { &[(Claim::PaddingAlone, "src.positions")] } else { &[] };
        assert_eq!(failing(&proofs), expected, "{path}");
    }
}

/// The mask as a value is the mask that the model adds, cell by cell.
#[test]
fn masks_are_what_the_model_adds() {
    for &(path, _, heads) in MODELS {
        let (model, weights, input) = fixture_model(path, heads, |_| {});
        let mut kept = Keep::new(|_| true);
        run(&model, &weights, &input, &mut kept).unwrap();
        for mask in masks(&model, &input).unwrap() {
            let Some(id) = model.graph.find(&mask.attention.path("0", "mask")) else {
                assert!(mask.kind.is_none() && mask.cells.iter().all(Option::is_none), "{path}");
                continue;
            };
            let added = &kept.tensors[&id];
            assert_eq!(added.shape, mask.shape);
            for (cell, value) in mask.cells.iter().zip(&added.values) {
                assert_eq!(*value, if cell.is_some() { f64::NEG_INFINITY } else { 0.0 }, "{path}");
            }
        }
    }
}

const BATCH: [&str; 9] = [
    "masks",
    "toy",
    "--src",
    "a b c d e f",
    "--src",
    "a b c d e",
    "--tgt",
    "p q r s t u v w",
    "--tgt=p q r s t u",
];

/// Six source positions with one pad, eight target positions with two.
#[test]
fn the_three_masks_of_a_padded_batch() {
    let text = stdout(&attnscope(&[&BATCH[..], &["--row", "1", "--width", "80"]].concat()));
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "golden" }, {
        insta::assert_snapshot!("masks-padded", text.split("Proofs").next().unwrap());
    });
}

fn json(args: &[&str]) -> Value {
    let output = attnscope(&[args, &["--format", "json"]].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)))
}

#[test]
fn json_has_every_cell_and_every_proof() {
    let value = json(&BATCH);
    let rows = |mask: usize, row: usize| value["masks"][mask]["rows"][row].clone();
    assert_eq!(rows(0, 0), serde_json::json!(vec!["oooooo"; 6]));
    assert_eq!(rows(0, 1), serde_json::json!(vec!["ooooop"; 6]));
    assert_eq!(rows(2, 1), serde_json::json!(vec!["ooooop"; 8]));
    assert_eq!(
        rows(1, 1),
        serde_json::json!([
            "offfffbb", "ooffffbb", "ooofffbb", "ooooffbb", "ooooofbb", "oooooobb", "oooooopb", "oooooopp"
        ])
    );
    let proofs = value["proofs"].as_array().unwrap();
    assert!(proofs.len() == 8 && proofs.iter().all(|p| p["verdict"] == "holds"), "{proofs:?}");
    // Two rows of eight: 28 later positions each.
    assert_eq!((&proofs[0]["cells"], &proofs[0]["movement"]), (&56.into(), &0.0.into()));
}

/// A causal model whose decoder is padded on the left: the padding itself has nothing to see.
#[test]
fn a_query_with_nothing_to_see_is_shown() {
    let value = json(&[&BATCH[..], &["--pad", "left"]].concat());
    assert_eq!(value["masks"][1]["blind"], serde_json::json!([[], [0, 1]]));
    let output = attnscope(&[&BATCH[..], &["--pad", "left", "--width", "100"]].concat());
    let text = stdout(&output);
    assert!(text.contains("queries with no visible key: 0, 1; by definition their weights are 0"), "{text}");
    // The toy numbers places, so its tokens get other positions: said, and no success.
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("src.positions is the first tensor that moves"), "{text}");
}

/// The numbers of each mistake follow from the right weights, whatever the scores are.
#[test]
fn mistakes_are_shown_on_the_models_own_scores() {
    let wrong = "multiply-after,multiply-before,no-causal,causal-cross,no-padding";
    let value =
        json(&[&BATCH[..], &["--row", "1", "--wrong", wrong, "--layer-index", "1", "--head", "2"]].concat());
    let all = value["wrong"].as_array().unwrap();
    let matrix = |value: &Value| -> Vec<Vec<f64>> { serde_json::from_value(value.clone()).unwrap() };
    let sum = |row: &[f64]| row.iter().sum::<f64>();
    let [after, before, future, cross, padding] = &all[..] else { panic!("{all:?}") };
    for one in all {
        assert!(matrix(&one["right"]).iter().all(|row| (sum(row) - 1.0).abs() < 1e-6), "{one}");
    }
    // The right weights are the ones that the model computes.
    let trace = attnscope(
        &[
            &["trace"],
            &BATCH[1..],
            &["--layer", "decoder.1.self_attn.weights", "--payload", "--format", "json"],
        ]
        .concat(),
    );
    let trace: Value = serde_json::from_str(&stdout(&trace)).unwrap();
    let weights: Vec<f64> = serde_json::from_value(trace["nodes"][0]["values"].clone()).unwrap();
    // [batch 2, head 4, query 8, key 8]: row 1, head 2.
    let own = weights[(4 + 2) * 64..][..64].chunks(8);
    for (right, own) in matrix(&after["right"]).iter().zip(own) {
        assert!(right.iter().zip(own).all(|(a, b)| (a - b).abs() < 1e-6));
    }
    let (after_rows, open) = (matrix(&after["wrong"]), matrix(&after["right"]));
    for (q, (wrong, right)) in after_rows.iter().zip(&open).enumerate() {
        // Multiplied after, the open weights keep their proportions and lose the rest.
        let share = sum(wrong);
        assert!(wrong.iter().zip(right).all(|(w, r)| (w - share * r).abs() < 1e-6));
        assert!(share < 1.0 - 1e-6, "query {q}: padding took some of it");
    }
    let leaked = |one: &Value, q: usize| one["rows"][q]["leaked"].as_f64().unwrap();
    // Query 0 has one visible key with score x and seven masked ones with score 0: 7 / (7 + exp(x)).
    let masked = &matrix(&before["wrong"])[0];
    assert!(
        masked[1..].iter().all(|w| (w - masked[1]).abs() < 1e-9)
            && (leaked(before, 0) - 7.0 * masked[1]).abs() < 1e-9
    );
    assert!((leaked(future, 0) - (1.0 - matrix(&future["wrong"])[0][0])).abs() < 1e-9);
    assert_eq!(leaked(future, 5), 0.0, "the last token has no future, and padding stays masked");
    let hidden = matrix(&cross["wrong"]);
    assert!((0..6).all(|q| (q + 1..6).all(|k| hidden[q].get(k) == Some(&0.0))));
    assert!(
        cross["difference"].as_str().unwrap().starts_with("4 of 6 queries cannot see the end of the source")
    );
    assert!(matrix(&padding["wrong"]).iter().all(|row| row[5] > 0.0));
}

#[test]
fn audio_has_no_padding_and_says_so() {
    let mel = fixture("whisper/trace.safetensors");
    let output = attnscope(&[
        "masks",
        &fixture("whisper"),
        "--features",
        &mel,
        "--tgt-ids",
        "5,6,7;5,6",
        "--wrong",
        "no-padding",
        "--width",
        "100",
    ]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for words in [
        "no mask: a recording always fills its window",
        "a recording fills its window: the source has no padding",
        "M_d  decoder self-attention",
        "nothing in this input falls under that rule, so nothing differs",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn a_large_batch_says_what_is_left_out() {
    let (source, target) = (vec!["3,2,0"; 18].join(";"), vec!["4,0"; 18].join(";"));
    let args = ["masks", "toy", "--src-ids", &source, "--tgt-ids", &target];
    let text = stdout(&attnscope(&[&args[..], &["--width", "100"]].concat()));
    for words in ["rows 4 to 17 are not drawn: --row N draws one", "on the first 16 of 18 rows"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let value = json(&args);
    assert_eq!(value["proved_rows"], 16);
    assert_eq!(value["masks"][1]["rows"].as_array().unwrap().len(), 18);
}

#[test]
fn what_cannot_be_shown_is_refused() {
    for (args, words) in [
        (&["--row", "7"][..], "--row 7: the batch has 1 row"),
        (&["--wrong", "no-causal", "--head", "9"], "head 9 of row 0, but there are 4 heads and 1 row"),
        (&["--wrong", "no-causal", "--layer-index", "9"], "layer 9, but there are 2"),
        (&["--wrong", "no-mask"], "invalid value 'no-mask'"),
        (&["--head", "1"], "--wrong <MISTAKE>"),
        (&["--layer-index", "1"], "--wrong <MISTAKE>"),
    ] {
        let output = attnscope(&[&["masks", "toy"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

/// One weight is NaN: nothing holds, nothing fails, and the first tensor that is not finite is named.
#[test]
fn nothing_is_proved_of_what_is_not_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut faulty = FaultyModel::of(&fixture("marian"));
    faulty.edit("encoder.0.ffn.hidden.weight", |w| w[0] = f32::NAN);
    let model = faulty.save(folder.path());
    let args = ["masks", &model, "--src-ids", "5,6,7", "--tgt-ids", "98,4,5"];
    let value = json(&args);
    assert_eq!(value["not_finite"]["node"], "encoder.0.ffn.hidden");
    assert_eq!(value["not_finite"]["value"], "NaN");
    let proofs = value["proofs"].as_array().unwrap();
    assert!(
        proofs.len() == Claim::ALL.len() - 1 && proofs.iter().all(|p| p["verdict"] == "not_run"),
        "{value}"
    );
    let output = attnscope(&args);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert_eq!(text.matches("NaN in encoder.0.ffn.hidden at [0, 0, 0]").count(), 1, "{text}");
    assert!(text.contains("attnscope doctor ") && !text.contains("holds"), "{text}");
    let output = attnscope(&[&args[..], &["--wrong", "causal-cross"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cross_attn.scores: NaN at [0, 0, 0, 0]"), "{}", stderr(&output));
    // Of a whole model there is nothing to say.
    let whole = json(&["masks", &fixture("marian"), "--src-ids", "5,6,7", "--tgt-ids", "98,4,5"]);
    assert_eq!(whole["not_finite"], Value::Null);
}

/// A model with other weights, and the input that its maker ran.
fn with_weights(path: &str, edit: impl Fn(&str, &mut [f32])) -> (Model, Weights, Input) {
    let (model, mut weights, input) = fixture_model(path, None, |_| {});
    for weight in model.graph.weights() {
        let id = model.graph.find_weight(&weight.path).unwrap();
        let mut values = weights.get(id).unwrap().into_owned();
        edit(&weight.path, &mut values);
        weights = weights.with(id, values);
    }
    (model, weights, input)
}

/// The claims that decide nothing, with the reason.
fn inconclusive(proofs: &[Proof]) -> Vec<(Claim, &str)> {
    let mut found = Vec::new();
    for proof in proofs {
        if let Verdict::Inconclusive(why) = &proof.verdict {
            found.push((proof.claim, why.as_str()));
        }
    }
    found
}

/// Cross-attention that adds nothing keeps every token of the source from the logits, and its mask has no part in it.
#[test]
fn a_projection_of_zeros_is_not_called_a_mask() {
    for path in ["marian", "t5", "bart"] {
        let model = with_weights(path, |weight, values| {
            if weight.ends_with("cross_attn.out.weight") {
                values.fill(0.0);
            }
        });
        let proofs = prove(&model, PadSide::Right);
        assert_eq!(failing(&proofs), [], "{path}");
        let undecided = inconclusive(&proofs);
        let claims: Vec<Claim> = undecided.iter().map(|(claim, _)| *claim).collect();
        assert_eq!(claims, [Claim::CrossReach, Claim::SourceReach], "{path}");
        for (_, why) in undecided {
            let end = "the movement ends at decoder.0.cross_attn.out";
            assert!(why.contains(end) && why.contains("decoder.0.cross_attn.out.weight is all 0"), "{why}");
        }
    }
    // With a mask at fault as well, the mask is named.
    let (mut model, weights, input) = with_weights("marian", |weight, values| {
        if weight == "decoder.0.cross_attn.out.weight" {
            values.fill(0.0);
        }
    });
    model.wiring.cross_mask = CrossMask::Causal;
    model.graph = build(&model.architecture, &model.wiring);
    let proofs = prove(&(model, weights, input), PadSide::Right);
    assert_eq!(failing(&proofs), [(Claim::CrossReach, "decoder.0.cross_attn.masked_scores")]);
}

/// Weights near the end of f32: norms overflow to 0, and nothing that follows is about masks.
#[test]
fn overflow_is_called_overflow() {
    for path in ["t5", "mt5"] {
        let proofs = prove(&with_weights(path, |_, values| values.fill(3e38)), PadSide::Right);
        assert_eq!(failing(&proofs), [], "{path}");
        let undecided = inconclusive(&proofs);
        assert!(undecided.iter().any(|(claim, _)| *claim == Claim::Causal), "{path}: {undecided:?}");
        assert!(undecided.iter().all(|(_, why)| why.contains("overflow")), "{path}: {undecided:?}");
    }
}

/// Scores so far apart that a softmax gives one key everything: a key without weight is not a masked one.
#[test]
fn a_saturated_softmax_is_not_called_a_mask() {
    let model = with_weights("marian", |weight, values| {
        if weight.contains("cross_attn.q") {
            values.iter_mut().for_each(|x| *x *= 1e7);
        }
    });
    let proofs = prove(&model, PadSide::Right);
    assert_eq!(failing(&proofs), []);
}

#[test]
fn what_decides_nothing_is_said_and_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let mut faulty = FaultyModel::of(&fixture("marian"));
    for weight in faulty.weights_under("decoder") {
        if weight.ends_with("cross_attn.out.weight") {
            faulty.edit(&weight, |w| w.fill(0.0));
        }
    }
    let model = faulty.save(folder.path());
    let args = ["masks", &model, "--src-ids", "5,6,7", "--tgt-ids", "98,4,5", "--width", "200"];
    let output = attnscope(&args);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("inconclusive: cross-reach, source-reach"), "{}", stderr(&output));
    assert!(stdout(&output).contains("decoder.0.cross_attn.out.weight is all 0"), "{}", stdout(&output));
    let value = json(&args);
    let verdicts: Vec<&Value> = value["proofs"].as_array().unwrap().iter().map(|p| &p["verdict"]).collect();
    assert_eq!(verdicts.iter().filter(|v| **v == "inconclusive").count(), 2, "{value}");
}

/// The fixture's pad id is 98, with which its decoder also begins.
#[test]
fn pad_ids_that_are_given_are_tokens_and_said_to_be() {
    let marian = fixture("marian");
    let run = |source: &str, target: &str| {
        attnscope(&["masks", &marian, "--src-ids", source, "--tgt-ids", target, "--width", "200"])
    };
    let output = run("5,6,98,98;7;98,8,9,10", "98,4;98,5,98;98");
    let notes = stderr(&output);
    for words in [
        "3 pad ids (98) at the start and end of source rows 0, 2 are attended to as tokens",
        "1 pad id (98) at the end of target row 1 is attended to as a token",
        "write `;` between rows",
    ] {
        assert!(notes.contains(words), "{words}\n{notes}");
    }
    let text = stdout(&output);
    let legend =
        "(pad) was added to fill its row: masked. 98, the pad id as a token, is visible like any other.";
    assert!(text.contains(legend), "{text}");
    let output = run("5,6,98,7", "98,4");
    assert_eq!(stderr(&output), "");
    assert!(!stdout(&output).contains("(pad) was added"));
}

#[test]
fn padding_that_is_made_up_is_said_to_be() {
    let marian = fixture("marian");
    let args = ["masks", &marian, "--src-ids", "5,6,7", "--tgt-ids", "98,4", "--wrong", "no-padding"];
    let text = stdout(&attnscope(&[&args[..], &["--width", "200"]].concat()));
    for words in [
        "this source has no padding: 2 positions of it, (pad), added to show the mistake",
        "so they add positions: 2 to each source row, 2 to each target row.",
        "Whether the weights were trained with that wiring is another question, and `attnscope doctor`'s.",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let value = json(&args);
    assert_eq!(value["added_padding"], serde_json::json!({ "source": 2, "target": 2 }));
    assert_eq!(value["wrong"][0]["added_padding"], 2);
    // A batch that has padding needs none.
    let value = json(&[&BATCH[..], &["--row", "1", "--wrong", "no-padding"]].concat());
    assert_eq!(value["added_padding"], serde_json::json!({ "source": 0, "target": 0 }));
    assert_eq!(value["wrong"][0]["added_padding"], 0);
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + part.split_once('m').unwrap().1)
}

#[test]
fn text_keeps_to_its_width_and_its_characters() {
    for width in ["60", "80", "120"] {
        let args = ["--wrong", "no-causal", "--width", width];
        let text = stdout(&attnscope(&[&["masks", "demo"], &args[..]].concat()));
        let limit: usize = width.parse().unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= limit), "{text}");
        let ascii = stdout(&attnscope(&[&["masks", "toy", "--ascii"], &args[..]].concat()));
        assert!(ascii.is_ascii(), "{ascii}");
        let coloured =
            stdout(&attnscope(&[&["masks", "toy", "--ascii", "--color=always"], &args[..]].concat()));
        assert_eq!(without_colours(&coloured), ascii);
        assert_ne!(coloured, ascii);
    }
}
