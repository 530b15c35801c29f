//! BART: learned positions behind an offset of two, embeddings normed, norms after the sums.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{DECODER_HEADS, Evidence, Family, Start, hugging_face, naming};
use crate::wiring::{Activation, EmbeddingNorm, EmbeddingScale, Positions, Wiring};

/// bart-base, bart-large and their fine-tunes.
pub(super) const FAMILY: Family = Family {
    id: "bart",
    title: "BART",
    model_types: &["bart", "BartForConditionalGeneration", "BartModel"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[
        Evidence::Has("src.embed_pos.weight"),
        Evidence::Lacks("encoder.out.weight"),
        Evidence::PositionRows(2),
    ],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: WIRING,
    settings: &hugging_face("gelu", "false"),
    start: Start::End,
    end: Some(2),
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: DECODER_HEADS,
};

/// The wiring of BART; PLBart differs only in the scale.
pub(super) const WIRING: Wiring = Wiring {
    activation: Activation::Gelu,
    source_embedding_norm: EmbeddingNorm::AfterPositions,
    target_embedding_norm: EmbeddingNorm::AfterPositions,
    source_positions: Positions::Table,
    target_positions: Positions::Table,
    position_offset: 2,
    embedding_scale: EmbeddingScale::None,
    ..Wiring::VASWANI
};
