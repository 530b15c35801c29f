//! BERT: an encoder alone, norms after the sublayers, learned positions, token types, and a head that predicts masked words.

use crate::architecture::{ENCODER_ONLY, Head};
use crate::family::{Family, POOLER_CLASSIFIER, Sets, Setting, Start, naming};
use crate::wiring::{Activation, EmbeddingNorm, EmbeddingScale, Positions, Wiring};

/// How BERT is joined.
pub(super) const WIRING: Wiring = Wiring {
    activation: Activation::Gelu,
    norm_eps: 1e-12,
    source_embedding_norm: EmbeddingNorm::AfterPositions,
    source_positions: Positions::Table,
    target_positions: Positions::None,
    embedding_scale: EmbeddingScale::None,
    shared_embeddings: false,
    token_types: true,
    ..Wiring::VASWANI
};

/// bert-base-uncased and similar models.
pub(super) const FAMILY: Family = Family {
    id: "bert",
    title: "BERT",
    model_types: &["bert", "BertForMaskedLM", "BertForPreTraining", "BertModel"],
    schemes: &[&naming::BERT],
    evidence: &[],
    stacks: ENCODER_ONLY,
    head: Head::Transform,
    wiring: WIRING,
    settings: &[
        Setting { keys: &["hidden_act"], sets: Sets::Activation, absent: Some("gelu") },
        Setting { keys: &["layer_norm_eps"], sets: Sets::NormEps, absent: Some("1e-12") },
        Setting { keys: &["position_embedding_type"], sets: Sets::Unsupported("\"absolute\""), absent: None },
        Setting { keys: &["is_decoder"], sets: Sets::Unsupported("false"), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    classification: POOLER_CLASSIFIER,
};
