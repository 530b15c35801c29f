//! BERT: an encoder alone, norms after the sublayers, learned positions, token types, and a head that predicts masked words.

use crate::architecture::{ENCODER_ONLY, Head};
use crate::family::{BERT_HEADS, Family, Sets, Setting, Start, gguf_names, naming};
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

/// The number added to a norm's variance; the second name is GGUF's.
pub(super) const NORM_EPS: &[&str] = &["layer_norm_eps", "{arch}.attention.layer_norm_epsilon"];

/// bert-base-uncased and similar models. A RoBERTa that llama.cpp keeps is one, too: it cuts the rows off the position table that no
/// token takes.
pub(super) const FAMILY: Family = Family {
    id: "bert",
    title: "BERT",
    model_types: &["bert", "BertForMaskedLM", "BertForPreTraining", "BertModel"],
    schemes: &[&naming::BERT, &gguf_names::BERT],
    evidence: &[],
    stacks: ENCODER_ONLY,
    head: Head::Transform,
    wiring: WIRING,
    settings: &[
        Setting { keys: &["hidden_act"], sets: Sets::Activation, absent: Some("gelu") },
        Setting { keys: NORM_EPS, sets: Sets::NormEps, absent: Some("1e-12") },
        Setting { keys: &["position_embedding_type"], sets: Sets::Unsupported("\"absolute\""), absent: None },
        Setting { keys: &["is_decoder"], sets: Sets::Unsupported("false"), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: BERT_HEADS,
};
