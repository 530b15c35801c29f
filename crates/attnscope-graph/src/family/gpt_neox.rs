//! GPT-NeoX and Pythia: a decoder alone, attention and feed-forward side by side, a part of each head rotated.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::{Family, Sets, Setting, Start, gguf_names, naming};
use crate::rotary::RotaryPairs;
use crate::wiring::{Activation, EmbeddingScale, NormPlace, Positions, Wiring};

/// gpt-neox-20b, Pythia, and models with their names.
pub(super) const FAMILY: Family = Family {
    id: "gpt_neox",
    title: "GPT-NeoX",
    model_types: &["gpt_neox", "gptneox", "GPTNeoXForCausalLM", "GPTNeoXModel"],
    schemes: &[&naming::GPT_NEOX, &gguf_names::GPT_NEOX],
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
        rotary_share: Some(0.25),
        parallel_residual: true,
        embedding_scale: EmbeddingScale::None,
        shared_embeddings: false,
        tied_output: false,
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["hidden_act"], sets: Sets::Activation, absent: Some("gelu") },
        Setting {
            keys: &["layer_norm_eps", "{arch}.attention.layer_norm_epsilon"],
            sets: Sets::NormEps,
            absent: Some("1e-5"),
        },
        Setting {
            keys: &["rope_parameters.rope_theta", "rotary_emb_base", "rope_theta", "{arch}.rope.freq_base"],
            sets: Sets::RotaryBase,
            absent: Some("10000"),
        },
        Setting {
            keys: &["rope_parameters.partial_rotary_factor", "rotary_pct", "partial_rotary_factor"],
            sets: Sets::RotaryShare,
            absent: Some("0.25"),
        },
        Setting { keys: &["{arch}.rope.dimension_count"], sets: Sets::RotaryFeatures, absent: None },
        Setting { keys: &["rope_scaling", "rope_parameters"], sets: Sets::RotaryScaling, absent: None },
        Setting {
            keys: &["use_parallel_residual", "{arch}.use_parallel_residual"],
            sets: Sets::ParallelResidual,
            absent: Some("true"),
        },
        Setting { keys: &["attention_bias"], sets: Sets::AttentionBiases, absent: Some("true") },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
