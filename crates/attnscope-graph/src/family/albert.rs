//! ALBERT: BERT whose layers share their weights, with an embedding table narrower than the stream.

use crate::architecture::{ENCODER_ONLY, Head};
use crate::family::{BERT_HEADS, Evidence, Family, Sets, Setting, Start, bert};
use crate::names::NameScheme;
use crate::wiring::{Activation, Wiring};

/// Hugging Face's names. A group's number stands where others have a layer's.
const NAMES: NameScheme = NameScheme {
    id: "Hugging Face ALBERT",
    tables: &[&[
        ("encoder.{n}.self_attn.q", "encoder.albert_layer_groups.{n}.albert_layers.0.attention.query"),
        ("encoder.{n}.self_attn.k", "encoder.albert_layer_groups.{n}.albert_layers.0.attention.key"),
        ("encoder.{n}.self_attn.v", "encoder.albert_layer_groups.{n}.albert_layers.0.attention.value"),
        ("encoder.{n}.self_attn.out", "encoder.albert_layer_groups.{n}.albert_layers.0.attention.dense"),
        ("encoder.{n}.self_attn.norm", "encoder.albert_layer_groups.{n}.albert_layers.0.attention.LayerNorm"),
        ("encoder.{n}.ffn.hidden", "encoder.albert_layer_groups.{n}.albert_layers.0.ffn"),
        ("encoder.{n}.ffn.out", "encoder.albert_layer_groups.{n}.albert_layers.0.ffn_output"),
        ("encoder.{n}.ffn.norm", "encoder.albert_layer_groups.{n}.albert_layers.0.full_layer_layer_norm"),
        ("src.embed", "embeddings.word_embeddings"),
        ("src.positions", "embeddings.position_embeddings"),
        ("src.types", "embeddings.token_type_embeddings"),
        ("src.embed_pos", "embeddings.LayerNorm"),
        ("src.embed_proj", "encoder.embedding_hidden_mapping_in"),
        ("head.dense", "predictions.dense"),
        ("head.norm", "predictions.LayerNorm"),
        ("logits", "predictions.decoder"),
        ("logits.bias", "predictions.bias"),
        ("logits", "classifier"),
        ("logits", "qa_outputs"),
        ("classifier.1.linear", "pooler"),
    ]],
    buffers: &[],
    pairs: None,
};

/// albert-base to albert-xxlarge, both versions.
pub(super) const FAMILY: Family = Family {
    id: "albert",
    title: "ALBERT",
    model_types: &["albert", "AlbertForMaskedLM", "AlbertForPreTraining", "AlbertModel"],
    schemes: &[&NAMES],
    evidence: &[Evidence::Has("src.embed_proj.weight")],
    stacks: ENCODER_ONLY,
    head: Head::Transform,
    wiring: Wiring {
        activation: Activation::GeluTanh,
        embedding_projection: true,
        layer_groups: Some(1),
        ..bert::WIRING
    },
    settings: &[
        Setting { keys: &["hidden_act"], sets: Sets::Activation, absent: Some("gelu_new") },
        Setting { keys: &["layer_norm_eps"], sets: Sets::NormEps, absent: Some("1e-12") },
        Setting { keys: &["inner_group_num"], sets: Sets::Unsupported("1"), absent: None },
        Setting { keys: &["position_embedding_type"], sets: Sets::Unsupported("\"absolute\""), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: BERT_HEADS,
};
