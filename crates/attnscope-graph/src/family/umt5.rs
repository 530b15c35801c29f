//! UMT5: mT5 with a relative bias table of its own in each layer.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::naming;
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, t5};
use crate::wiring::{Activation, LogitScale, Wiring};

/// umt5-small to umt5-xxl.
pub(super) const FAMILY: Family = Family {
    id: "umt5",
    title: "UMT5",
    // llama.cpp calls it T5.
    model_types: &["umt5", "UMT5ForConditionalGeneration", "UMT5Model", "t5"],
    schemes: &[&naming::T5, &gguf_names::T5],
    evidence: &[
        Evidence::Has("encoder.0.self_attn.bias.weight"),
        Evidence::Has("encoder.1.self_attn.bias.weight"),
    ],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::GeluTanh,
        gated: true,
        relative_bias_per_layer: true,
        logit_scale: LogitScale::None,
        ..t5::WIRING
    },
    settings: &[
        Setting { keys: t5::ACTIVATION, sets: Sets::Activation, absent: Some("gated-gelu") },
        Setting { keys: t5::NORM_EPS, sets: Sets::NormEps, absent: Some("1e-6") },
        Setting {
            keys: &["relative_attention_max_distance"],
            sets: Sets::RelativeMaxDistance,
            absent: Some("128"),
        },
        Setting {
            keys: &["scale_decoder_outputs", "tie_word_embeddings"],
            sets: Sets::LogitScale,
            absent: Some("false"),
        },
    ],
    start: Start::Id(0),
    end: None,
    absent_sizes: t5::ABSENT_SIZES,
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
