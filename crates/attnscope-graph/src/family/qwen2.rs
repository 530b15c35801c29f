//! Qwen2: Llama with biases on queries, keys and values, and with a window in some of its layers where a config asks for it.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::llama::{ACTIVATION, NORM_EPS, ROTARY_BASE, ROTARY_SCALING, WIRING};
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming};
use crate::wiring::{Biases, Wiring};

/// The keys of its windows.
pub(super) const WINDOW: [Setting; 4] = [
    Setting { keys: &["sliding_window"], sets: Sets::Window, absent: Some("4096") },
    Setting { keys: &["use_sliding_window"], sets: Sets::UsesWindow, absent: Some("false") },
    Setting { keys: &["max_window_layers"], sets: Sets::FirstWindowLayer, absent: Some("28") },
    Setting { keys: &["layer_types"], sets: Sets::LayerTypes, absent: None },
];

/// Qwen2 and Qwen2.5.
pub(super) const FAMILY: Family = Family {
    id: "qwen2",
    title: "Qwen2",
    model_types: &["qwen2", "Qwen2ForCausalLM", "Qwen2Model"],
    schemes: &[&naming::LLAMA, &gguf_names::LLAMA],
    evidence: &[
        Evidence::Has("decoder.0.self_attn.q.bias"),
        Evidence::Has("decoder.0.self_attn.v.bias"),
        Evidence::Lacks("decoder.0.self_attn.out.bias"),
    ],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring { biases: Biases { q: true, k: true, v: true, ..Biases::NONE }, ..WIRING },
    settings: &[
        ACTIVATION,
        NORM_EPS,
        ROTARY_BASE,
        ROTARY_SCALING,
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
