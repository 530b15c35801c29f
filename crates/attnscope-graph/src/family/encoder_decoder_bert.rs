//! EncoderDecoder of two BERTs: the second is causal and reads the first.

use crate::architecture::{ENCODER_DECODER, Head};
use crate::family::{Evidence, Family, Sets, Setting, Start, bert, names_of_two_berts};
use crate::wiring::{EmbeddingNorm, Positions, Wiring};

/// EncoderDecoder of two BERTs.
pub(super) const FAMILY: Family = Family {
    id: "encoder-decoder-bert",
    title: "EncoderDecoder of two BERTs",
    model_types: &["encoder-decoder", "EncoderDecoderModel"],
    schemes: &[&names_of_two_berts::TWO_BERTS],
    evidence: &[Evidence::HasName("decoder.bert.embeddings.word_embeddings.weight")],
    stacks: ENCODER_DECODER,
    head: Head::Transform,
    wiring: Wiring {
        target_positions: Positions::Table,
        target_embedding_norm: EmbeddingNorm::AfterPositions,
        ..bert::WIRING
    },
    settings: &[
        Setting { keys: &["decoder.hidden_act"], sets: Sets::Activation, absent: Some("gelu") },
        Setting { keys: &["decoder.layer_norm_eps"], sets: Sets::NormEps, absent: Some("1e-12") },
    ],
    start: Start::Token { key: "bos_token_id", usual: None },
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
