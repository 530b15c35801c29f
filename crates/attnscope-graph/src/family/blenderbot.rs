//! Blenderbot: learned positions without offset, norms before the sublayers and at the ends.

use crate::family::{Evidence, Family, HUGGING_FACE, naming};
use crate::wiring::{Activation, Biases, EmbeddingScale, NormPlace, Positions, Wiring};

/// blenderbot-400M-distill and larger.
pub(super) const FAMILY: Family = Family {
    id: "blenderbot",
    title: "Blenderbot",
    model_types: &["blenderbot", "BlenderbotForConditionalGeneration"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[
        Evidence::Lacks("src.embed_pos.weight"),
        Evidence::Has("encoder.out.weight"),
        Evidence::Has("src.positions.weight"),
        Evidence::Lacks("logits.bias"),
    ],
    wiring: Wiring {
        activation: Activation::Gelu,
        norm_place: NormPlace::Pre,
        encoder_final_norm: true,
        decoder_final_norm: true,
        source_positions: Positions::Table,
        target_positions: Positions::Table,
        embedding_scale: EmbeddingScale::None,
        biases: Biases { logits: true, ..Biases::ALL },
        ..Wiring::VASWANI
    },
    settings: HUGGING_FACE,
    flexible: false,
};
