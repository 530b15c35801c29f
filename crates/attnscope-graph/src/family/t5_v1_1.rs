//! T5 v1.1 and Flan-T5: a gated feed-forward layer and, mostly, an untied output projection.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Start, gguf_names, naming, t5};
use crate::wiring::{Activation, LogitScale, Wiring};

/// t5-v1_1-*, flan-t5-*, and checkpoints derived from them.
pub(super) const FAMILY: Family = Family {
    id: "t5-v1_1",
    title: "T5 v1.1 / Flan-T5",
    model_types: &["t5", "T5ForConditionalGeneration", "T5Model"],
    schemes: &[&naming::T5, &gguf_names::T5],
    evidence: &[
        Evidence::Has("encoder.0.self_attn.bias.weight"),
        Evidence::Gated,
        Evidence::VocabBelow(200_000),
    ],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::GeluTanh,
        gated: true,
        logit_scale: LogitScale::None,
        ..t5::WIRING
    },
    settings: &t5::settings("relu"),
    start: Start::Id(0),
    end: None,
    absent_sizes: t5::ABSENT_SIZES,
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
