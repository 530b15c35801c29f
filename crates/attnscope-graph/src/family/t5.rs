//! T5: no scale in the scores, a relative bias instead of positions, root-mean-square norms.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Meant, Sets, Setting, Start, gguf_names, naming};
use crate::wiring::{
    Activation, Biases, EmbeddingScale, LogitScale, NormKind, NormPlace, Positions, ScoreScale, Wiring,
};

/// t5-small to t5-11b.
pub(super) const FAMILY: Family = Family {
    id: "t5",
    title: "T5",
    model_types: &["t5", "T5ForConditionalGeneration", "T5Model"],
    schemes: &[&naming::T5, &gguf_names::T5],
    evidence: &[Evidence::Has("encoder.0.self_attn.bias.weight"), Evidence::NotGated],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: WIRING,
    settings: &settings("relu"),
    start: Start::Id(0),
    end: None,
    absent_sizes: ABSENT_SIZES,
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};

/// The wiring of T5; the later versions differ in the feed-forward layer and the output.
pub(super) const WIRING: Wiring = Wiring {
    score_scale: ScoreScale::None,
    activation: Activation::Relu,
    norm: NormKind::Rms,
    norm_place: NormPlace::Pre,
    norm_eps: 1e-6,
    encoder_final_norm: true,
    decoder_final_norm: true,
    source_positions: Positions::None,
    target_positions: Positions::None,
    embedding_scale: EmbeddingScale::None,
    relative_bias: true,
    relative_max_distance: 128,
    logit_scale: LogitScale::RsqrtDModel,
    biases: Biases::NONE,
    ..Wiring::VASWANI
};

/// The activation: Hugging Face derives the first from the second, and then lets a config overwrite it.
pub(super) const ACTIVATION: &[&str] = &["dense_act_fn", "feed_forward_proj"];

/// The number added to a norm's variance.
pub(super) const NORM_EPS: &[&str] = &["layer_norm_epsilon", "{arch}.attention.layer_norm_rms_epsilon"];

/// The defaults of Hugging Face's T5 and mT5 for sizes that a config leaves out.
pub(super) const ABSENT_SIZES: &[(&str, &str, Meant)] = &[
    ("d_kv", "d_head", Meant::Size(64)),
    ("relative_attention_num_buckets", "relative buckets", Meant::Size(32)),
    ("num_decoder_layers", "decoder layers", Meant::As("num_layers")),
];

/// The keys that T5 and its descendants share, each with its default; the second names are GGUF's.
pub(super) const fn settings(feed_forward: &'static str) -> [Setting; 4] {
    [
        Setting { keys: ACTIVATION, sets: Sets::Activation, absent: Some(feed_forward) },
        Setting { keys: NORM_EPS, sets: Sets::NormEps, absent: Some("1e-6") },
        Setting {
            keys: &["relative_attention_max_distance"],
            sets: Sets::RelativeMaxDistance,
            absent: Some("128"),
        },
        // Logits are scaled when the output is tied; newer configs say so in a separate key, because their key for the tie is
        // no longer reliable.
        Setting {
            keys: &["scale_decoder_outputs", "tie_word_embeddings"],
            sets: Sets::LogitScale,
            absent: Some("true"),
        },
    ]
}
