//! Gemma: Llama with embeddings times √d_model, norms whose gain is one more than their weight, and the tanh form of GELU.

use crate::architecture::{DECODER_ONLY, Head};
use crate::family::llama::{self, NORM_EPS, ROTARY_BASE, ROTARY_SCALING};
use crate::family::{Evidence, Family, Sets, Setting, Start, gguf_names, naming};
use crate::wiring::{Activation, EmbeddingScale, NormGain, Wiring};

/// How all Gemmas are joined.
pub(super) const WIRING: Wiring = Wiring {
    activation: Activation::GeluTanh,
    norm_gain: Some(NormGain::OnePlusWeight),
    embedding_scale: EmbeddingScale::SqrtDModel,
    ..llama::WIRING
};

/// The first configs say "gelu" and mean its tanh form.
pub(super) const ACTIVATION: Setting = Setting {
    keys: &["hidden_activation", "hidden_act"],
    sets: Sets::TanhActivation,
    absent: Some("gelu_pytorch_tanh"),
};
/// llama.cpp's converter adds the 1 to the weights of norms.
pub(super) const STORED_GAIN: Setting =
    Setting { keys: &["general.architecture"], sets: Sets::PlainGain, absent: None };
pub(super) const ATTENTION_BIAS: Setting =
    Setting { keys: &["attention_bias"], sets: Sets::AttentionBiases, absent: Some("false") };

/// The first Gemma. Without a config its tensors cannot be told from Llama's.
pub(super) const FAMILY: Family = Family {
    id: "gemma",
    title: "Gemma",
    model_types: &["gemma", "GemmaForCausalLM", "GemmaModel"],
    schemes: &[&naming::LLAMA, &gguf_names::LLAMA],
    evidence: &[Evidence::NamedByConfig],
    stacks: DECODER_ONLY,
    head: Head::Projection,
    wiring: WIRING,
    settings: &[ACTIVATION, NORM_EPS, ROTARY_BASE, ROTARY_SCALING, STORED_GAIN, ATTENTION_BIAS],
    start: Start::Sentence,
    end: None,
    absent_sizes: &[],
    unsaid: &[],
    flexible: false,
    task_heads: &[],
};
