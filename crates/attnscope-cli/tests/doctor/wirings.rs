//! Declarations that the weights contradict: found in every field, and in checkpoints whose config lies.

use super::*;

/// A wrong declaration of demo's wiring, and what the doctor must say that it was trained with.
struct Declared {
    edit: fn(&mut Wiring),
    heads: Option<usize>,
    best: fn() -> Value,
}

const fn declared(edit: fn(&mut Wiring), best: fn() -> Value) -> Declared {
    Declared { edit, heads: None, best }
}

const DECLARED: &[Declared] = &[
    declared(|w| w.score_scale = ScoreScale::DModel, || json!({ "score_scale": "d_head" })),
    declared(|w| w.score_scale = ScoreScale::None, || json!({ "score_scale": "d_head" })),
    declared(|w| w.normaliser = Normaliser::Sigmoid, || json!({ "squash": "softmax" })),
    declared(|w| w.residual_gain = 2.0, || json!({ "residual_gain": 1 })),
    declared(|w| w.activation = Activation::Relu, || json!({ "activation": "swish" })),
    declared(|w| w.activation = Activation::Gelu, || json!({ "activation": "swish" })),
    declared(|w| w.activation = Activation::QuickGelu, || json!({ "activation": "swish" })),
    declared(|w| w.norm_place = NormPlace::Pre, || json!({ "norm_place": "post" })),
    declared(|w| w.norm_eps = 0.1, || json!({ "norm_eps": 1e-5 })),
    declared(|w| w.position_offset = 40, || json!({ "position_offset": 0 })),
    declared(
        |w| {
            (w.source_positions, w.target_positions) =
                (Positions::SinusoidInterleaved, Positions::SinusoidInterleaved)
        },
        || json!({ "source_positions": "sinusoid_halves", "target_positions": "sinusoid_halves" }),
    ),
    declared(|w| w.embedding_scale = EmbeddingScale::None, || json!({ "embedding_scale": "sqrt_d_model" })),
    declared(|w| w.causal_mask = Switch::Off, || json!({ "causal_mask": "on" })),
    declared(|w| w.padding_mask = Switch::Off, || json!({ "padding_mask": "on" })),
    declared(|w| w.cross_mask = CrossMask::Causal, || json!({ "cross_mask": "padding" })),
    declared(|w| w.decoder_shift = Switch::Off, || json!({ "decoder_shift": "on" })),
    declared(|w| w.logit_scale = LogitScale::RsqrtDModel, || json!({ "logit_scale": "none" })),
    Declared { edit: |_| (), heads: Some(8), best: || json!({ "heads": 4 }) },
    Declared { edit: |_| (), heads: Some(2), best: || json!({ "heads": 4 }) },
    declared(
        |w| (w.activation, w.score_scale) = (Activation::Relu, ScoreScale::DModel),
        || json!({ "score_scale": "d_head", "activation": "swish" }),
    ),
    declared(
        |w| (w.normaliser, w.activation) = (Normaliser::Sigmoid, Activation::Gelu),
        || json!({ "squash": "softmax", "activation": "swish" }),
    ),
];

/// The wiring that the doctor finds, or null.
fn explained(opened: &Opened, fault: &Declared, pairs: usize) -> (Value, Diagnosis) {
    let diagnosis = miswired(opened, fault.edit, fault.heads, pairs, &["wiring-mismatch"]);
    let best = diagnosis.findings.first().map_or(Value::Null, |f| f.extra["best"].clone());
    (best, diagnosis)
}

/// Some in the everyday tests; all of them where there is optimisation.
#[test]
fn wrong_declarations_are_found() {
    let demo = open("demo", None);
    let (every, pairs) = if cfg!(debug_assertions) { (10, 40) } else { (1, 200) };
    for fault in DECLARED.iter().skip(usize::from(every > 1)).step_by(every) {
        let (best, diagnosis) = explained(&demo, fault, pairs);
        assert_eq!(best, (fault.best)(), "{:#?}", diagnosis.findings);
    }
}

#[test]
fn checkpoints_that_lie_about_their_training_are_found_out() {
    let Some(file) = captions() else { return };
    let cases = [
        ("relu", json!({ "activation": "swish" }), json!({ "activation": "relu" })),
        ("scale_model", json!({ "score_scale": "d_head" }), json!({ "score_scale": "d_model" })),
        ("no_causal", json!({ "causal_mask": "on" }), json!({ "causal_mask": "off" })),
    ];
    for (name, declared, best) in cases {
        let Some(path) = shared(&format!("models/zoo/{name}")) else { return };
        // A wrong score scale looks like a factor of a projection: there the two explanations compete.
        let seconds = if name == "scale_model" { "1200" } else { "0" };
        let rules = "wiring-mismatch,source-ignored";
        let args = ["--pairs", &file.1, "--rules", rules, "--repair-time", seconds];
        let (report, code, said) = doctor(&path, &args);
        // Whoever sees the token that is to be predicted needs no source: that is no second fault.
        assert_eq!(found(&report, true), ["wiring-mismatch"], "{name}: {report:#}");
        let finding = &report["findings"][0];
        assert_eq!(
            (code, &finding["declared"], &finding["best"]),
            (1, &declared, &best),
            "{name}: {report:#}\n{said}"
        );
        assert!(finding["nll_best"].as_f64() < finding["nll_declared"].as_f64());
        assert!(finding["p"].as_f64().unwrap() < 0.01);
    }
    let Some(path) = shared("models/zoo/ignores_source") else { return };
    let (report, code, _) = doctor(&path, &["--pairs", &file.1, "--rules", "wiring-mismatch,source-ignored"]);
    assert_eq!((found(&report, true), code), (vec!["source-ignored"], 1), "{report:#}");
    let finding = &report["findings"][0];
    assert!(finding["number"].as_f64().unwrap().abs() < 0.05, "{report:#}");
    assert!(finding["cross_output_ratio"][0].as_f64().unwrap() < 0.4, "{report:#}");
    assert!(finding["source_contribution"].as_f64().unwrap() < 0.3, "{report:#}");
}
