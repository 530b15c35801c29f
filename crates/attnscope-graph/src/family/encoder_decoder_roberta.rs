//! EncoderDecoder of two RoBERTas: the second is causal and reads the first.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, names_of_two_berts, roberta};
use crate::wiring::{EmbeddingNorm, Positions, Wiring};

/// EncoderDecoder of two RoBERTas.
pub(super) const FAMILY: Family = Family {
    id: "encoder-decoder-roberta",
    title: "EncoderDecoder of two RoBERTas",
    model_types: &["encoder-decoder", "EncoderDecoderModel"],
    schemes: &[&names_of_two_berts::TWO_ROBERTAS],
    evidence: &[Evidence::HasName("decoder.roberta.embeddings.word_embeddings.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Transform,
    wiring: Wiring {
        target_positions: Positions::Table,
        target_embedding_norm: EmbeddingNorm::AfterPositions,
        ..roberta::WIRING
    },
    settings: &[
        Setting { keys: &["decoder.hidden_act"], sets: Sets::Activation, absent: Some("gelu") },
        Setting { keys: &["decoder.layer_norm_eps"], sets: Sets::NormEps, absent: Some("1e-12") },
        Setting { keys: &["decoder.pad_token_id"], sets: Sets::PadPosition, absent: Some("1") },
    ],
    start: Start::Token { key: "bos_token_id", usual: None },
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
