//! Llama: a decoder alone, rotary positions, root-mean-square norms, a gated feed-forward, keys and values shared by
//! groups of heads.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::{Family, Sets, Setting, Start, gguf_names, naming};
use crate::rotary::RotaryPairs;
use crate::wiring::{Activation, Biases, EmbeddingScale, NormGain, NormKind, NormPlace, Positions, Wiring};

/// How Llama and its descendants are joined.
pub(super) const WIRING: Wiring = Wiring {
    activation: Activation::Swish,
    gated: true,
    norm: NormKind::Rms,
    norm_gain: Some(NormGain::Weight),
    norm_place: NormPlace::Pre,
    norm_eps: 1e-6,
    decoder_final_norm: true,
    source_positions: Positions::None,
    target_positions: Positions::Rotary,
    rotary_base: Some(Wiring::ROTARY_BASE),
    rotary_pairs: Some(RotaryPairs::Halves),
    embedding_scale: EmbeddingScale::None,
    shared_embeddings: false,
    // How many, the tensors show.
    kv_heads: Some(0),
    biases: Biases::NONE,
    ..Wiring::VASWANI
};

/// The keys that its descendants share.
pub(super) const ACTIVATION: Setting =
    Setting { keys: &["hidden_act"], sets: Sets::Activation, absent: Some("silu") };
pub(super) const NORM_EPS: Setting = Setting {
    keys: &["rms_norm_eps", "{arch}.attention.layer_norm_rms_epsilon", "norm_eps"],
    sets: Sets::NormEps,
    absent: Some("1e-6"),
};
pub(super) const ROTARY_BASE: Setting = Setting {
    keys: &["rope_parameters.rope_theta", "rope_theta", "{arch}.rope.freq_base"],
    sets: Sets::RotaryBase,
    absent: Some("10000"),
};
pub(super) const ROTARY_SCALING: Setting = Setting {
    keys: &["rope_scaling", "rope_parameters", "{arch}.rope.scaling.type", "use_scaled_rope"],
    sets: Sets::RotaryScaling,
    absent: None,
};

/// Llama 1 to 3, and models with the same names and config: TinyLlama, SmolLM.
pub(super) const FAMILY: Family = Family {
    id: "llama",
    title: "Llama",
    model_types: &["llama", "LlamaForCausalLM", "LlamaModel"],
    schemes: &[&naming::LLAMA, &gguf_names::LLAMA, &naming::LLAMA_META],
    evidence: &[],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: WIRING,
    settings: &[
        ACTIVATION,
        NORM_EPS,
        ROTARY_BASE,
        ROTARY_SCALING,
        // llama.cpp's converter permutes q and k of this architecture, and of no other here.
        Setting { keys: &["general.architecture"], sets: Sets::NeighbouringPairs, absent: None },
        Setting { keys: &["attention_bias"], sets: Sets::AttentionBiases, absent: Some("false") },
        Setting { keys: &["mlp_bias"], sets: Sets::FeedForwardBiases, absent: Some("false") },
    ],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
