//! Faults that are put into weights and wirings on purpose: where each is first seen, and as what.

use super::*;

/// Where each fault of the injector is first seen, and as what; nothing for one with which no model runs.
fn expected(what: &str, pre_norm: bool) -> Option<(&'static str, &'static str)> {
    Some(match what {
        "nan" => ("decoder.1.ffn.out", "not_a_number"),
        "swapped q and k" => ("encoder.1.self_attn.q", "other_weights"),
        "permuted heads" => ("decoder.0.self_attn.v", "permuted_heads"),
        "transposed" => ("encoder.0.self_attn.v", "transpose"),
        "another layer's weights" if pre_norm => ("encoder.1.self_attn.norm", "other_layer"),
        "another layer's weights" => ("encoder.1.self_attn.q", "other_layer"),
        "corrupted row" => ("decoder.0.ffn.hidden", "corrupted_row"),
        "zeros" => ("decoder.0.cross_attn.v", "all_zero"),
        _ => return None,
    })
}

#[test]
fn every_fault_of_the_weights_is_named() {
    for case in [DEMO, T5, BART, WHISPER] {
        let pre_norm = ["t5", "whisper"].contains(&case.model);
        let dir = tempfile::tempdir().unwrap();
        let ours = case.trace(dir.path());
        let named = FAULTS.iter().filter_map(|fault| Some((fault, expected(fault.what, pre_norm)?)));
        let mut count = 0;
        for (fault, (node, relation)) in named {
            let broken = tempfile::tempdir().unwrap();
            let said = first(&diff(&[&ours, &broken_run(&case, broken.path(), fault.apply)]).1);
            assert_eq!(said, format!("{node} bug {relation}"), "{}: {}", case.model, fault.what);
            count += 1;
        }
        assert_eq!(count, 7);
    }
}

#[test]
fn every_fault_of_a_weight_file_is_named() {
    for case in [DEMO, T5, BART, WHISPER] {
        let pre_norm = ["t5", "whisper"].contains(&case.model);
        for fault in FAULTS {
            let missing = (fault.what == "missing").then_some(("decoder.0.cross_attn.k", "missing_weight"));
            let Some((node, relation)) = expected(fault.what, pre_norm).or(missing) else { continue };
            let dir = tempfile::tempdir().unwrap();
            let mut faulty = FaultyModel::of(&case.path());
            (fault.apply)(&mut faulty);
            let (code, report) = checkpoints(&case.path(), &faulty.save(dir.path()));
            let said = (code, first(&report));
            assert_eq!(said, (1, format!("{node}.weight bug {relation}")), "{}: {}", case.model, fault.what);
        }
        let dir = tempfile::tempdir().unwrap();
        let (code, report) = checkpoints(&case.path(), &FaultyModel::of(&case.path()).save(dir.path()));
        assert_eq!((code, &report["first_divergence"]), (0, &Value::Null), "{}", case.model);
    }
}

#[test]
fn faults_of_matrix_and_bias_together_are_named() {
    for case in [DEMO, BART] {
        let swap = |p: &mut FaultyModel| {
            for part in ["weight", "bias"] {
                p.swap(&format!("decoder.1.cross_attn.q.{part}"), &format!("decoder.1.cross_attn.k.{part}"));
            }
        };
        assert_eq!(weight_fault(&case, swap), "decoder.1.cross_attn.q bug other_weights", "{}", case.model);
    }
    let turn = |p: &mut FaultyModel| {
        for part in ["weight", "bias"] {
            p.edit(&format!("decoder.0.self_attn.v.{part}"), |values| values.rotate_left(values.len() / 4));
        }
    };
    assert_eq!(weight_fault(&DEMO, turn), "decoder.0.self_attn.v bug permuted_heads");
    // Of the map out of the heads the columns are turned.
    let columns = |p: &mut FaultyModel| {
        p.edit("encoder.1.self_attn.out.weight", |matrix| {
            let width = matrix.len().isqrt();
            matrix.chunks_mut(width).for_each(|row| row.rotate_left(width / 4));
        });
    };
    assert_eq!(weight_fault(&DEMO, columns), "encoder.1.self_attn.out bug permuted_heads");
}

#[test]
fn a_missing_bias_is_named() {
    for case in [DEMO, BART, WHISPER] {
        let fault = |p: &mut FaultyModel| p.edit("encoder.1.ffn.out.bias", |bias| bias.fill(0.0));
        assert_eq!(weight_fault(&case, fault), "encoder.1.ffn.out bug missing_bias", "{}", case.model);
    }
}

#[test]
fn another_activation_is_named() {
    for case in [DEMO, T5, BART, WHISPER] {
        let other = if case.model == "t5" { Activation::Gelu } else { Activation::Relu };
        let said = wiring_fault(&case, |w| w.activation = other);
        assert_eq!(said, "encoder.0.ffn.act bug other_activation", "{}", case.model);
    }
}

#[test]
fn another_eps_is_named() {
    for (case, eps, node) in [
        (T5, 1e-5, "encoder.0.self_attn.norm"),
        (BART, 1e-3, "src.embed_pos"),
        (WHISPER, 1e-3, "encoder.0.self_attn.norm"),
        (DEMO, 1e-3, "encoder.0.self_attn.norm"),
    ] {
        let said = wiring_fault(&case, |w| w.norm_eps = eps);
        assert_eq!(said, format!("{node} bug other_eps"), "{}", case.model);
    }
}

#[test]
fn a_mask_that_is_not_applied_is_named() {
    for case in [DEMO, T5, BART] {
        let said = wiring_fault(&case, |w| w.padding_mask = Switch::Off);
        assert_eq!(said, "encoder.0.self_attn.masked_scores bug mask_not_applied", "{}", case.model);
        let said = wiring_fault(&case, |w| w.causal_mask = Switch::Off);
        assert_eq!(said, "decoder.0.self_attn.mask bug mask_not_applied", "{}", case.model);
    }
}

#[test]
fn positions_off_by_one_are_named() {
    for (case, offset) in [(DEMO, 1), (BART, 1)] {
        let said = wiring_fault(&case, |w| w.position_offset = offset);
        assert_eq!(said, "src.positions bug off_by_one_position", "{}", case.model);
    }
    let said = wiring_fault(&DEMO, |w| {
        (w.source_positions, w.target_positions) =
            (Positions::SinusoidInterleaved, Positions::SinusoidInterleaved);
    });
    assert_eq!(said, "src.positions bug other_positions");
}

#[test]
fn other_scales_are_named() {
    use attnscope::graph::{EmbeddingScale, ScoreScale};
    for case in [DEMO, T5, BART, WHISPER] {
        let said = wiring_fault(&case, |w| w.score_scale = ScoreScale::DModel);
        assert_eq!(said, "encoder.0.self_attn.scores bug scale", "{}", case.model);
        let said = wiring_fault(&case, |w| w.residual_gain = 2.0);
        assert_eq!(said, "encoder.0.self_attn.residual bug other_residual_gain", "{}", case.model);
    }
    let said = wiring_fault(&DEMO, |w| w.embedding_scale = EmbeddingScale::None);
    assert_eq!(said, "src.embed bug scale");
}
