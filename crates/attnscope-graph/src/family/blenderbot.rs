//! Blenderbot: learned positions without offset, norms before the sublayers and at the ends.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Start, hugging_face, naming};
use crate::wiring::{Activation, EmbeddingScale, NormPlace, Positions, Wiring};

/// blenderbot-400M-distill and larger.
pub(super) const FAMILY: Family = Family {
    id: "blenderbot",
    title: "Blenderbot",
    model_types: &["blenderbot", "BlenderbotForConditionalGeneration"],
    schemes: &[&naming::HUGGING_FACE],
    // Its tensors look like those of Pegasus with stored positions.
    evidence: &[Evidence::NamedByConfig],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::Gelu,
        norm_place: NormPlace::Pre,
        encoder_final_norm: true,
        decoder_final_norm: true,
        source_positions: Positions::Table,
        target_positions: Positions::Table,
        embedding_scale: EmbeddingScale::None,
        ..Wiring::VASWANI
    },
    settings: &hugging_face("gelu", "false"),
    start: Start::Token { key: "bos_token_id", usual: Some(1) },
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
