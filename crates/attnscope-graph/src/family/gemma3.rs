//! Gemma 3: Gemma 2 without caps, with a norm of each head's queries and keys, and with five layers of a window and a rotary
//! base of their own for each that sees everything.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::gemma::{self, ACTIVATION, ATTENTION_BIAS, STORED_GAIN};
use crate::family::llama::NORM_EPS;
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming};
use crate::layer_set::LayerSet;
use crate::wiring::{NormPlace, Wiring};

/// Gemma 3's language model, alone or in a model that also reads pictures.
pub(super) const FAMILY: Family = Family {
    id: "gemma3",
    title: "Gemma 3",
    model_types: &[
        "gemma3_text",
        "gemma3",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma3TextModel",
        "Gemma3Model",
    ],
    schemes: &[&naming::GEMMA2, &gguf_names::LLAMA],
    evidence: &[
        Evidence::Has("decoder.0.ffn.out_norm.weight"),
        Evidence::Has("decoder.0.self_attn.q_norm.weight"),
        Evidence::Has("decoder.0.self_attn.norm.weight"),
    ],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring {
        norm_place: NormPlace::Both,
        query_key_norm: true,
        rotary_base: Some(1_000_000.0),
        window: Some(4096),
        window_layers: Some(LayerSet::NOT_SIXTH),
        window_rotary_base: Some(Wiring::ROTARY_BASE),
        ..gemma::WIRING
    },
    settings: &[
        ACTIVATION,
        NORM_EPS,
        Setting {
            keys: &["rope_parameters.full_attention.rope_theta", "rope_theta", "{arch}.rope.freq_base"],
            sets: Sets::RotaryBase,
            absent: Some("1000000"),
        },
        Setting {
            keys: &[
                "rope_parameters.sliding_attention.rope_theta",
                "rope_local_base_freq",
                "{arch}.rope.freq_base_swa",
            ],
            sets: Sets::WindowRotaryBase,
            absent: Some("10000"),
        },
        Setting {
            keys: &["rope_scaling", "rope_parameters.full_attention", "{arch}.rope.scaling.type"],
            sets: Sets::RotaryScaling,
            absent: None,
        },
        Setting {
            keys: &["rope_parameters.sliding_attention.rope_type"],
            sets: Sets::Unsupported("\"default\""),
            absent: None,
        },
        STORED_GAIN,
        ATTENTION_BIAS,
        Setting { keys: &["query_pre_attn_scalar"], sets: Sets::ScoreWidth, absent: Some("256") },
        // The 27B, whose scale differs.
        Setting { keys: &["{arch}.block_count"], sets: Sets::WholeScoreWidthAt(62), absent: None },
        Setting {
            keys: &["final_logit_softcapping", "{arch}.final_logit_softcapping"],
            sets: Sets::LogitCap,
            absent: None,
        },
        Setting {
            keys: &["sliding_window", "{arch}.attention.sliding_window"],
            sets: Sets::Window,
            absent: Some("4096"),
        },
        Setting { keys: &["sliding_window_pattern"], sets: Sets::LastOfEvery, absent: Some("6") },
        Setting { keys: &["layer_types"], sets: Sets::LayerTypes, absent: None },
        Setting { keys: &["use_bidirectional_attention"], sets: Sets::Unsupported("false"), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
