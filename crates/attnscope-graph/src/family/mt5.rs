//! mT5: T5 v1.1 with a vocabulary of a hundred languages; its logits are never scaled.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming, t5};
use crate::wiring::{Activation, LogitScale, Wiring};

/// mt5-small to mt5-xxl.
pub(super) const FAMILY: Family = Family {
    id: "mt5",
    title: "mT5",
    model_types: &["mt5", "MT5ForConditionalGeneration"],
    schemes: &[&naming::T5, &gguf_names::T5],
    evidence: &[
        Evidence::Has("encoder.0.self_attn.bias.weight"),
        Evidence::Gated,
        Evidence::VocabAtLeast(200_000),
    ],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::GeluTanh,
        gated: true,
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
    ],
    start: Start::Id(0),
    end: None,
    absent_sizes: t5::ABSENT_SIZES,
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
