//! Gemma 2: Gemma with norms before and after each sublayer, capped scores and logits, and a window in every other layer.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::gemma::{self, ACTIVATION, ATTENTION_BIAS, STORED_GAIN};
use crate::family::llama::{NORM_EPS, ROTARY_BASE, ROTARY_SCALING};
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming};
use crate::layer_set::LayerSet;
use crate::wiring::{NormPlace, Wiring};

/// Gemma 2.
pub(super) const FAMILY: Family = Family {
    id: "gemma2",
    title: "Gemma 2",
    model_types: &["gemma2", "Gemma2ForCausalLM", "Gemma2Model"],
    schemes: &[&naming::GEMMA2, &gguf_names::LLAMA],
    evidence: &[
        Evidence::Has("decoder.0.ffn.out_norm.weight"),
        Evidence::Lacks("decoder.0.self_attn.q_norm.weight"),
    ],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring {
        norm_place: NormPlace::Both,
        score_cap: Some(50.0),
        logit_cap: Some(30.0),
        window: Some(4096),
        window_layers: Some(LayerSet::EVEN),
        ..gemma::WIRING
    },
    settings: &[
        ACTIVATION,
        NORM_EPS,
        ROTARY_BASE,
        ROTARY_SCALING,
        STORED_GAIN,
        ATTENTION_BIAS,
        Setting { keys: &["query_pre_attn_scalar"], sets: Sets::ScoreWidth, absent: Some("256") },
        // The 27B, whose scale differs.
        Setting { keys: &["{arch}.block_count"], sets: Sets::WholeScoreWidthAt(46), absent: None },
        Setting {
            keys: &["attn_logit_softcapping", "{arch}.attn_logit_softcapping"],
            sets: Sets::ScoreCap,
            absent: Some("50.0"),
        },
        Setting {
            keys: &["final_logit_softcapping", "{arch}.final_logit_softcapping"],
            sets: Sets::LogitCap,
            absent: Some("30.0"),
        },
        Setting {
            keys: &["sliding_window", "{arch}.attention.sliding_window"],
            sets: Sets::Window,
            absent: Some("4096"),
        },
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
