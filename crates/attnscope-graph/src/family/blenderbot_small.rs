//! Blenderbot-small: BART without the offset, its decoder norming embeddings before positions.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Start, hugging_face, naming};
use crate::wiring::{Activation, EmbeddingNorm, EmbeddingScale, Positions, Wiring};

/// blenderbot_small-90M.
pub(super) const FAMILY: Family = Family {
    id: "blenderbot-small",
    title: "Blenderbot-small",
    model_types: &["blenderbot-small", "BlenderbotSmallForConditionalGeneration"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[
        Evidence::Has("src.embed_pos.weight"),
        Evidence::Lacks("encoder.out.weight"),
        Evidence::PositionRows(0),
    ],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::Gelu,
        source_embedding_norm: EmbeddingNorm::AfterPositions,
        target_embedding_norm: EmbeddingNorm::BeforePositions,
        source_positions: Positions::Table,
        target_positions: Positions::Table,
        embedding_scale: EmbeddingScale::None,
        scales_target: false,
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
