//! What a checkpoint is when it is not an encoder-decoder that can be drawn.

use crate::facts::Configs;
use crate::names::TensorSpec;

/// A checkpoint without cross-attention, or one whose names mean nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// What it is.
    pub kind: OtherKind,
    /// What says so.
    pub because: String,
}

/// The kinds of checkpoint that are told from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherKind {
    /// A language model: GPT, Llama.
    DecoderOnly,
    /// A model that only reads: BERT, T5's encoder alone.
    EncoderOnly,
    /// Nothing is known about it.
    Unknown,
}

impl OtherKind {
    /// Its name in JSON and in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::DecoderOnly => "decoder-only",
            Self::EncoderOnly => "encoder-only",
            Self::Unknown => "unknown",
        }
    }
}

/// Words in a config's `model_type` or `architectures`.
const CONFIG_WORDS: &[(&str, OtherKind)] = &[
    ("ForCausalLM", OtherKind::DecoderOnly),
    ("LMHeadModel", OtherKind::DecoderOnly),
    ("gpt", OtherKind::DecoderOnly),
    ("llama", OtherKind::DecoderOnly),
    ("mistral", OtherKind::DecoderOnly),
    ("qwen", OtherKind::DecoderOnly),
    ("gemma", OtherKind::DecoderOnly),
    ("phi", OtherKind::DecoderOnly),
    ("opt", OtherKind::DecoderOnly),
    ("bloom", OtherKind::DecoderOnly),
    ("falcon", OtherKind::DecoderOnly),
    ("EncoderModel", OtherKind::EncoderOnly),
    ("ForMaskedLM", OtherKind::EncoderOnly),
    ("bert", OtherKind::EncoderOnly),
    ("electra", OtherKind::EncoderOnly),
    ("wav2vec2", OtherKind::EncoderOnly),
    ("hubert", OtherKind::EncoderOnly),
    ("vit", OtherKind::EncoderOnly),
];

/// Parts of tensor names that only one kind of model has.
const NAME_PARTS: &[(&str, OtherKind)] = &[
    (".attn.c_attn.", OtherKind::DecoderOnly),
    ("model.layers.0.self_attn.", OtherKind::DecoderOnly),
    ("gpt_neox.layers.", OtherKind::DecoderOnly),
    ("decoder.layers.0.self_attn.", OtherKind::DecoderOnly),
    ("blk.0.attn_", OtherKind::DecoderOnly),
    ("encoder.layer.0.attention.", OtherKind::EncoderOnly),
    ("encoder.layers.0.", OtherKind::EncoderOnly),
    ("encoder.block.0.", OtherKind::EncoderOnly),
    ("encoder.blocks.0.", OtherKind::EncoderOnly),
    ("transformer.layer.0.attention.", OtherKind::EncoderOnly),
];

pub(crate) fn classify(tensors: &[TensorSpec], configs: &Configs<'_>) -> Other {
    let said = configs.all(&["architectures", "model_type", "general.architecture"]);
    for (word, kind) in CONFIG_WORDS {
        if let Some(s) = said.iter().find(|s| s.value.to_string().contains(word)) {
            return Other { kind: *kind, because: format!("{} is {}", s.source, s.value) };
        }
    }
    for (part, kind) in NAME_PARTS {
        if let Some(t) = tensors.iter().find(|t| t.name.contains(part)) {
            return Other { kind: *kind, because: format!("it has {:?} and no cross-attention", t.name) };
        }
    }
    let because = match tensors.first() {
        Some(t) => format!("no naming scheme fits; its first tensor is {:?}", t.name),
        None => "it holds no tensors".to_owned(),
    };
    Other { kind: OtherKind::Unknown, because }
}
