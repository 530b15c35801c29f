//! RoBERTa: BERT whose positions count tokens, from the row after the pad id's, and with another head.

use crate::architecture::{ENCODER_ONLY, Head};
use crate::family::{
    Evidence, Family, KnownHead, POOLED, SPAN, Sets, Setting, Start, TOKENS, Task, bert, naming,
};
use crate::wiring::{PositionCount, Wiring};

/// How RoBERTa is joined.
pub(super) const WIRING: Wiring =
    Wiring { position_offset: 2, position_count: PositionCount::Tokens, ..bert::WIRING };

/// roberta-base and similar models, XLM-RoBERTa and CamemBERT.
pub(super) const FAMILY: Family = Family {
    id: "roberta",
    title: "RoBERTa",
    model_types: &[
        "roberta",
        "xlm-roberta",
        "camembert",
        "RobertaForMaskedLM",
        "RobertaModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaModel",
        "CamembertForMaskedLM",
    ],
    schemes: &[&naming::ROBERTA],
    evidence: &[Evidence::HasName("roberta.embeddings.word_embeddings.weight")],
    stacks: ENCODER_ONLY,
    head: Head::Transform,
    wiring: WIRING,
    settings: &[
        Setting { keys: &["hidden_act"], sets: Sets::Activation, absent: Some("gelu") },
        Setting { keys: &["layer_norm_eps"], sets: Sets::NormEps, absent: Some("1e-12") },
        Setting { keys: &["pad_token_id"], sets: Sets::PadPosition, absent: Some("1") },
        Setting { keys: &["position_embedding_type"], sets: Sets::Unsupported("\"absolute\""), absent: None },
        Setting { keys: &["is_decoder"], sets: Sets::Unsupported("false"), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[
        KnownHead { task: Task::Text, blocks: POOLED, output: "classifier.out_proj.weight", only_with: None },
        TOKENS,
        SPAN,
    ],
};
