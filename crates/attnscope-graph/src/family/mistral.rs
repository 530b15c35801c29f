//! Mistral: Llama with a window, so that a position sees only those shortly before it.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::llama::{ACTIVATION, NORM_EPS, ROTARY_BASE, ROTARY_SCALING, WIRING};
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming};

/// Mistral 7B and models of its kind. Later ones have no window; without a config they cannot be told from Llama.
pub(super) const FAMILY: Family = Family {
    id: "mistral",
    title: "Mistral",
    model_types: &["mistral", "MistralForCausalLM", "MistralModel"],
    schemes: &[&naming::LLAMA, &gguf_names::LLAMA],
    evidence: &[Evidence::NamedByConfig],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: WIRING,
    settings: &[
        ACTIVATION,
        NORM_EPS,
        ROTARY_BASE,
        ROTARY_SCALING,
        Setting { keys: &["sliding_window"], sets: Sets::Window, absent: Some("4096") },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
