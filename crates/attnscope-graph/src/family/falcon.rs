//! Falcon 7B: a decoder alone, attention and feed-forward side by side behind one norm, all heads of queries on one of keys.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::{Family, Sets, Setting, Start, gguf_names};
use crate::names::NameScheme;
use crate::rotary::RotaryPairs;
use crate::wiring::{Activation, Biases, EmbeddingScale, NormPlace, Positions, Wiring};

/// Hugging Face's names. Where both sublayers have one norm, it has one name.
const NAMES: NameScheme = NameScheme {
    id: "Hugging Face Falcon",
    tables: &[&[
        ("decoder.{n}.self_attn.norm", "h.{n}.input_layernorm"),
        ("decoder.{n}.self_attn.norm", "h.{n}.ln_attn"),
        (
            "decoder.{n}.self_attn.q.weight",
            "h.{n}.self_attention.query_key_value.weight[q|h.{n}.self_attention.dense.weight]",
        ),
        (
            "decoder.{n}.self_attn.k.weight",
            "h.{n}.self_attention.query_key_value.weight[k|h.{n}.self_attention.dense.weight]",
        ),
        (
            "decoder.{n}.self_attn.v.weight",
            "h.{n}.self_attention.query_key_value.weight[v|h.{n}.self_attention.dense.weight]",
        ),
        (
            "decoder.{n}.self_attn.q.bias",
            "h.{n}.self_attention.query_key_value.bias[q|h.{n}.self_attention.dense.weight]",
        ),
        (
            "decoder.{n}.self_attn.k.bias",
            "h.{n}.self_attention.query_key_value.bias[k|h.{n}.self_attention.dense.weight]",
        ),
        (
            "decoder.{n}.self_attn.v.bias",
            "h.{n}.self_attention.query_key_value.bias[v|h.{n}.self_attention.dense.weight]",
        ),
        ("decoder.{n}.self_attn.out", "h.{n}.self_attention.dense"),
        ("decoder.{n}.ffn.norm", "h.{n}.post_attention_layernorm"),
        ("decoder.{n}.ffn.norm", "h.{n}.input_layernorm"),
        ("decoder.{n}.ffn.norm", "h.{n}.ln_mlp"),
        ("decoder.{n}.ffn.hidden", "h.{n}.mlp.dense_h_to_4h"),
        ("decoder.{n}.ffn.out", "h.{n}.mlp.dense_4h_to_h"),
        ("tgt.embed", "word_embeddings"),
        ("decoder.out", "ln_f"),
        ("logits", "lm_head"),
    ]],
    buffers: &[],
    pairs: None,
};

/// falcon-7b and models like it. Larger ones pack q, k and v group by group, falcon-rw has no positions but a bias by distance
/// (ALiBi): both are drawn, and say what is missing.
pub(super) const FAMILY: Family = Family {
    id: "falcon",
    title: "Falcon",
    model_types: &["falcon", "RefinedWebModel", "RefinedWeb", "FalconForCausalLM", "FalconModel"],
    schemes: &[&NAMES, &gguf_names::FALCON],
    evidence: &[],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::Gelu,
        norm_place: NormPlace::Pre,
        decoder_final_norm: true,
        source_positions: Positions::None,
        target_positions: Positions::Rotary,
        rotary_base: Some(Wiring::ROTARY_BASE),
        rotary_pairs: Some(RotaryPairs::Halves),
        kv_heads: Some(0),
        parallel_residual: true,
        embedding_scale: EmbeddingScale::None,
        shared_embeddings: false,
        biases: Biases { norm: true, ..Biases::NONE },
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["activation"], sets: Sets::Activation, absent: Some("gelu") },
        Setting {
            keys: &["layer_norm_epsilon", "{arch}.attention.layer_norm_epsilon"],
            sets: Sets::NormEps,
            absent: Some("1e-5"),
        },
        Setting {
            keys: &["rope_parameters.rope_theta", "rope_theta", "{arch}.rope.freq_base"],
            sets: Sets::RotaryBase,
            absent: Some("10000"),
        },
        Setting { keys: &["rope_scaling", "rope_parameters"], sets: Sets::RotaryScaling, absent: None },
        Setting { keys: &["parallel_attn"], sets: Sets::ParallelResidual, absent: Some("true") },
        Setting { keys: &["bias"], sets: Sets::AttentionBiases, absent: Some("false") },
        Setting { keys: &["bias"], sets: Sets::FeedForwardBiases, absent: Some("false") },
        Setting { keys: &["alibi"], sets: Sets::Unsupported("false"), absent: None },
        Setting { keys: &["new_decoder_architecture"], sets: Sets::Unsupported("false"), absent: None },
        Setting { keys: &["multi_query"], sets: Sets::Unsupported("true"), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
