//! Qwen3: Llama with a norm of each head's queries and keys, and with a window in some of its layers where a config asks
//! for it.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::llama::{ACTIVATION, NORM_EPS, ROTARY_BASE, ROTARY_SCALING, WIRING};
use crate::family::qwen2::WINDOW;
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming};
use crate::wiring::Wiring;

/// Qwen3, without mixtures of experts.
pub(super) const FAMILY: Family = Family {
    id: "qwen3",
    title: "Qwen3",
    model_types: &["qwen3", "Qwen3ForCausalLM", "Qwen3Model"],
    schemes: &[&naming::LLAMA, &gguf_names::LLAMA],
    evidence: &[
        Evidence::Has("decoder.0.self_attn.q_norm.weight"),
        Evidence::Has("decoder.0.self_attn.norm.weight"),
        Evidence::Lacks("decoder.0.ffn.out_norm.weight"),
    ],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring { query_key_norm: true, ..WIRING },
    settings: &[
        ACTIVATION,
        NORM_EPS,
        ROTARY_BASE,
        ROTARY_SCALING,
        Setting { keys: &["attention_bias"], sets: Sets::AttentionBiases, absent: Some("false") },
        WINDOW[0],
        WINDOW[1],
        WINDOW[2],
        WINDOW[3],
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
