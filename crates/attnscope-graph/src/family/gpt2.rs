//! GPT-2: a decoder alone, norms before the sublayers, learned positions, the tanh form of GELU.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::{Family, Meant, Sets, Setting, Start, gguf_names, naming};
use crate::wiring::{Activation, EmbeddingScale, NormPlace, Positions, Wiring};

/// The number added to a norm's variance; the second name is GGUF's.
const EPS: &[&str] = &["layer_norm_epsilon", "{arch}.attention.layer_norm_epsilon"];

/// gpt2 to gpt2-xl, distilgpt2.
pub(super) const FAMILY: Family = Family {
    id: "gpt2",
    title: "GPT-2",
    model_types: &["gpt2", "GPT2LMHeadModel", "GPT2Model"],
    schemes: &[&naming::GPT2, &gguf_names::GPT_NEOX],
    evidence: &[],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: Wiring {
        activation: Activation::GeluTanh,
        norm_place: NormPlace::Pre,
        decoder_final_norm: true,
        source_positions: Positions::None,
        target_positions: Positions::Table,
        embedding_scale: EmbeddingScale::None,
        shared_embeddings: false,
        ..Wiring::VASWANI
    },
    settings: &[
        Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some("gelu_new") },
        Setting { keys: EPS, sets: Sets::NormEps, absent: Some("1e-5") },
        Setting { keys: &["scale_attn_weights"], sets: Sets::ScoreScale, absent: Some("true") },
        Setting {
            keys: &["scale_attn_by_inverse_layer_idx"],
            sets: Sets::Unsupported("false"),
            absent: None,
        },
        Setting { keys: &["add_cross_attention"], sets: Sets::Unsupported("false"), absent: None },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[("n_inner", "decoder d_ff", Meant::Times(4, "n_embd"))],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
