//! DistilBERT: BERT without token types, under names of its own.

use crate::architecture::{ENCODER_ONLY, Head};
use crate::block::Block;
use crate::family::{
    Evidence, Family, KnownHead, SPAN, STREAM_MAP, Sets, Setting, Start, TOKENS, Task, bert, gguf_names,
};
use crate::names::NameScheme;
use crate::wiring::{Activation, Wiring};

const NAMES: NameScheme = NameScheme {
    id: "Hugging Face DistilBERT",
    tables: &[&[
        ("encoder.{n}.self_attn.q", "transformer.layer.{n}.attention.q_lin"),
        ("encoder.{n}.self_attn.k", "transformer.layer.{n}.attention.k_lin"),
        ("encoder.{n}.self_attn.v", "transformer.layer.{n}.attention.v_lin"),
        ("encoder.{n}.self_attn.out", "transformer.layer.{n}.attention.out_lin"),
        ("encoder.{n}.self_attn.norm", "transformer.layer.{n}.sa_layer_norm"),
        ("encoder.{n}.ffn.hidden", "transformer.layer.{n}.ffn.lin1"),
        ("encoder.{n}.ffn.out", "transformer.layer.{n}.ffn.lin2"),
        ("encoder.{n}.ffn.norm", "transformer.layer.{n}.output_layer_norm"),
        ("src.embed", "embeddings.word_embeddings"),
        ("src.positions", "embeddings.position_embeddings"),
        ("src.embed_pos", "embeddings.LayerNorm"),
        ("head.dense", "vocab_transform"),
        ("head.norm", "vocab_layer_norm"),
        ("logits", "vocab_projector"),
        ("logits", "classifier"),
        ("logits", "qa_outputs"),
        ("classifier.1.linear", "pre_classifier"),
    ]],
    buffers: &[],
    pairs: None,
};

/// distilbert-base and models made of it.
pub(super) const FAMILY: Family = Family {
    id: "distilbert",
    title: "DistilBERT",
    // llama.cpp calls it BERT.
    model_types: &["distilbert", "DistilBertForMaskedLM", "DistilBertModel", "bert"],
    schemes: &[&NAMES, &gguf_names::BERT],
    evidence: &[Evidence::Lacks("src.types.weight")],
    stacks: ENCODER_ONLY,
    head: Head::Transform,
    wiring: Wiring { token_types: false, ..bert::WIRING },
    settings: &[Setting { keys: &["activation"], sets: Sets::Activation, absent: Some("gelu") }],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[
        KnownHead {
            task: Task::Text,
            blocks: &[Block::FirstToken {}, STREAM_MAP, Block::Activation { function: Activation::Relu }],
            output: "classifier.weight",
            only_with: None,
        },
        TOKENS,
        SPAN,
    ],
};
