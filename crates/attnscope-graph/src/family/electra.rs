//! ELECTRA: BERT with an embedding table that may be narrower than the stream; a small one proposes words, the other one tells
//! which words were replaced.

use crate::architecture::{ENCODER_ONLY, Head};
use crate::block::Block;
use crate::family::{
    Evidence, Family, KnownHead, SPAN, STREAM_MAP, Sets, Setting, Start, TOKENS, Task, bert, naming,
};
use crate::names::NameScheme;
use crate::wiring::Activation;

const NAMES: NameScheme = NameScheme {
    id: "Hugging Face ELECTRA",
    tables: &[
        naming::BERT_ENCODER,
        &[
            ("src.embed_proj", "embeddings_project"),
            ("head.dense", "generator_predictions.dense"),
            ("head.norm", "generator_predictions.LayerNorm"),
            ("logits", "generator_lm_head"),
            ("logits", "discriminator_predictions.dense_prediction"),
            ("classifier.0.linear", "discriminator_predictions.dense"),
            ("logits", "classifier.out_proj"),
            ("classifier.1.linear", "classifier.dense"),
            ("logits", "classifier"),
            ("logits", "qa_outputs"),
        ],
    ],
    buffers: &[],
    pairs: None,
};

const GELU: Block = Block::Activation { function: Activation::Gelu };

/// electra-small, -base and -large, generators and discriminators.
pub(super) const FAMILY: Family = Family {
    id: "electra",
    title: "ELECTRA",
    model_types: &["electra", "ElectraForMaskedLM", "ElectraForPreTraining", "ElectraModel"],
    schemes: &[&NAMES],
    evidence: &[Evidence::HasName("electra.embeddings.word_embeddings.weight")],
    stacks: ENCODER_ONLY,
    head: Head::Transform,
    wiring: bert::WIRING,
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
    task_heads: &[
        KnownHead {
            task: Task::Replaced,
            blocks: &[STREAM_MAP, GELU],
            output: "discriminator_predictions.dense_prediction.weight",
            only_with: None,
        },
        KnownHead {
            task: Task::Text,
            blocks: &[Block::FirstToken {}, STREAM_MAP, GELU],
            output: "classifier.out_proj.weight",
            only_with: None,
        },
        TOKENS,
        SPAN,
    ],
};
