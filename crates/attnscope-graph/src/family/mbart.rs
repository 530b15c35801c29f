//! mBART: BART with norms before the sublayers and one at the end of each stack.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{DECODER_HEADS, Evidence, Family, Start, hugging_face, naming};
use crate::wiring::{Activation, EmbeddingNorm, NormPlace, Positions, Wiring};

/// mbart-large-cc25, mBART-50.
pub(super) const FAMILY: Family = Family {
    id: "mbart",
    title: "mBART",
    model_types: &["mbart", "MBartForConditionalGeneration"],
    schemes: &[&naming::HUGGING_FACE],
    evidence: &[Evidence::Has("src.embed_pos.weight"), Evidence::Has("encoder.out.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::Gelu,
        norm_place: NormPlace::Pre,
        source_embedding_norm: EmbeddingNorm::AfterPositions,
        target_embedding_norm: EmbeddingNorm::AfterPositions,
        encoder_final_norm: true,
        decoder_final_norm: true,
        source_positions: Positions::Table,
        target_positions: Positions::Table,
        position_offset: 2,
        ..Wiring::VASWANI
    },
    settings: &hugging_face("gelu", "false"),
    start: Start::LastOfSentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: DECODER_HEADS,
};
