//! Dumps of layers alone: what lies between is computed, and its rounding must neither hide a bug nor look like one.

use attnscope::graph::ScoreScale;

use super::*;

/// The outputs of layers, as `output_hidden_states` gives them.
fn is_layer(path: &str) -> bool {
    let parts: Vec<&str> = path.split('.').collect();
    matches!(parts[..], [_, layer, "out"] if layer.parse::<usize>().is_ok()) || path == "logits"
}

#[test]
fn a_bug_shows_where_only_layers_were_dumped() {
    for case in [DEMO, T5, BART, WHISPER] {
        let (code, report) = wired(&case, &|_| {}, &is_layer);
        assert_eq!(code, 0, "{}: {}", case.model, first(&report));
        let other = if case.model == "t5" { Activation::Gelu } else { Activation::Relu };
        let (code, report) = wired(&case, &|w| w.activation = other, &is_layer);
        assert_eq!((code, &*first(&report)), (1, "encoder.0.out bug other_activation"), "{}", case.model);
        assert_eq!(report["first_divergence"]["cause"], "encoder.0.ffn.act", "{}", case.model);
        let (code, report) = wired(&case, &|w| w.causal_mask = Switch::Off, &is_layer);
        assert_eq!(code, 1, "{}", case.model);
        assert_eq!(report["first_divergence"]["node"], "decoder.0.out", "{}", case.model);
    }
    let (_, report) = wired(&DEMO, &|w| w.score_scale = ScoreScale::DModel, &is_layer);
    assert_eq!(first(&report), "encoder.0.out bug scale");
}

#[test]
fn a_dump_of_logits_alone_is_answered() {
    // Every way back through the residual sums would be 3^layers of them.
    let (code, report) = wired(&DEMO, &|w| w.score_scale = ScoreScale::DModel, &|path| path == "logits");
    assert_eq!(code, 1);
    assert_eq!(report["first_divergence"]["reads"], serde_json::json!([]));
    assert_eq!(wired(&DEMO, &|_| {}, &|path| path == "logits").0, 0);
}

#[test]
fn names_of_very_many_parts_take_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let values: Vec<u8> = (0..16).flat_map(|i| (i as f32 + 0.5).to_le_bytes()).collect();
    let file = |name: &str, tensor: &str| {
        let file = dir.path().join(name);
        save(&file, vec![(tensor.repeat(4000), vec![16], values.clone())]);
        file.display().to_string()
    };
    let start = std::time::Instant::now();
    attnscope(&["diff", &file("a.safetensors", "a."), &file("b.safetensors", "a.")]);
    attnscope(&["diff", &file("c.safetensors", "1."), &file("d.safetensors", "2.")]);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
