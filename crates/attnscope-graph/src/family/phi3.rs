//! Phi-3: Llama whose file packs q, k and v in one tensor, and both wide maps of the feed-forward in another.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::llama::{ACTIVATION, NORM_EPS, ROTARY_BASE, ROTARY_SCALING, WIRING};
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming};
use crate::wiring::Wiring;

/// Phi-3, Phi-3.5 and Phi-4, without pictures and mixtures of experts.
pub(super) const FAMILY: Family = Family {
    id: "phi3",
    title: "Phi-3",
    model_types: &["phi3", "Phi3ForCausalLM", "Phi3Model"],
    schemes: &[&naming::LLAMA, &gguf_names::PHI3],
    evidence: &[Evidence::HasName("qkv_proj.weight")],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring { norm_eps: 1e-5, tied_output: false, ..WIRING },
    settings: &[
        ACTIVATION,
        Setting { keys: NORM_EPS.keys, sets: Sets::NormEps, absent: Some("1e-5") },
        ROTARY_BASE,
        ROTARY_SCALING,
        Setting { keys: &["{arch}.rope.scaling.attn_factor"], sets: Sets::StoredLongrope, absent: None },
        Setting {
            keys: &["rope_parameters.partial_rotary_factor", "partial_rotary_factor"],
            sets: Sets::RotaryShare,
            absent: Some("1.0"),
        },
        Setting { keys: &["{arch}.rope.dimension_count"], sets: Sets::RotaryFeatures, absent: None },
        Setting {
            keys: &["sliding_window", "{arch}.attention.sliding_window"],
            sets: Sets::Window,
            absent: None,
        },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
