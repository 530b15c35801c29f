//! What a checkpoint is when it is not a model that can be drawn.

use crate::facts::Configs;
use crate::names::TensorSpec;

/// A checkpoint that is not one of the known models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// What it is.
    pub kind: OtherKind,
    /// The reason.
    pub because: String,
}

/// The kinds of checkpoint that are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherKind {
    /// A language model: GPT, Llama.
    DecoderOnly,
    /// A model without a decoder: BERT, T5's encoder alone.
    EncoderOnly,
    /// Not a whole model: an adapter such as LoRA, which is added to the weights of another.
    Adapter,
    /// It has cross-attention, under names that are not known here.
    EncoderDecoder,
    /// Nothing is known about it.
    Unknown,
}

impl OtherKind {
    /// Its name in JSON and in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::DecoderOnly => "decoder-only",
            Self::EncoderOnly => "encoder-only",
            Self::Adapter => "adapter",
            Self::EncoderDecoder => "encoder-decoder",
            Self::Unknown => "unknown",
        }
    }
}

/// Ends of the class names in `architectures`.
const ARCHITECTURES: &[(&str, OtherKind)] = &[
    ("ForCausalLM", OtherKind::DecoderOnly),
    ("LMHeadModel", OtherKind::DecoderOnly),
    ("EncoderModel", OtherKind::EncoderOnly),
    ("ForMaskedLM", OtherKind::EncoderOnly),
    ("ForAudioClassification", OtherKind::EncoderOnly),
];

/// Whole words in `model_type`.
const MODEL_TYPES: &[(&str, OtherKind)] = &[
    ("gpt2", OtherKind::DecoderOnly),
    ("gpt_neox", OtherKind::DecoderOnly),
    ("gpt_neo", OtherKind::DecoderOnly),
    ("llama", OtherKind::DecoderOnly),
    ("mistral", OtherKind::DecoderOnly),
    ("qwen2", OtherKind::DecoderOnly),
    ("qwen3", OtherKind::DecoderOnly),
    ("gemma", OtherKind::DecoderOnly),
    ("gemma2", OtherKind::DecoderOnly),
    ("phi", OtherKind::DecoderOnly),
    ("phi3", OtherKind::DecoderOnly),
    ("opt", OtherKind::DecoderOnly),
    ("bloom", OtherKind::DecoderOnly),
    ("falcon", OtherKind::DecoderOnly),
    ("bert", OtherKind::EncoderOnly),
    ("roberta", OtherKind::EncoderOnly),
    ("distilbert", OtherKind::EncoderOnly),
    ("xlm-roberta", OtherKind::EncoderOnly),
    ("electra", OtherKind::EncoderOnly),
    ("wav2vec2", OtherKind::EncoderOnly),
    ("hubert", OtherKind::EncoderOnly),
    ("vit", OtherKind::EncoderOnly),
];

/// Parts of the names of cross-attention, in any naming scheme.
const CROSS_ATTENTION: &[&str] =
    &["crossattention", "cross_attn", "cross_attention", "encoder_attn", "EncDecAttention", "multihead_attn"];

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

/// Parts of the names of LoRA's matrices.
const LORA: [&str; 3] = ["lora_A", "lora_B", "lora_embedding_"];

/// An adapter, by what the PEFT library writes beside it or by its tensors: most of them are LoRA's.
pub(crate) fn adapter(tensors: &[TensorSpec], configs: &Configs<'_>) -> Option<Other> {
    let lora = tensors.iter().filter(|t| LORA.iter().any(|part| t.name.contains(part)));
    let (first, count) = (lora.clone().next(), lora.count());
    let mut because = match (configs.first(&["peft_type"]), first) {
        (Some(said), _) => format!("{} is {}", said.source, said.value),
        (None, Some(first)) if 2 * count > tensors.len() => format!("it has {:?}", first.name),
        _ => return None,
    };
    if let Some(base) = configs.first(&["base_model_name_or_path"]) {
        because.push_str(&format!("; its base model is {}", base.value));
    }
    Some(Other { kind: OtherKind::Adapter, because })
}

/// Models with cross-attention that look like a known family but differ, and how they differ.
const NOT_SUPPORTED: &[(&str, &str)] = &[(
    "speech_to_text",
    "Speech2Text reads audio through other convolutions; of audio models only Whisper can be run",
)];

/// A model that is known by name but cannot be run.
pub(crate) fn not_supported(configs: &Configs<'_>) -> Option<Other> {
    let said = configs.first(&["model_type"])?;
    let (_, why) = NOT_SUPPORTED.iter().find(|(word, _)| said.value.as_str() == Some(word))?;
    let because = format!("{} is {}: {why}", said.source, said.value);
    Some(Other { kind: OtherKind::EncoderDecoder, because })
}

pub(crate) fn classify(tensors: &[TensorSpec], configs: &Configs<'_>) -> Other {
    let has = |part: &str| tensors.iter().find(|t| t.name.contains(part));
    if let Some(t) = CROSS_ATTENTION.iter().find_map(|part| has(part)) {
        let because = format!("it has {:?}, and no naming scheme fits the rest", t.name);
        return Other { kind: OtherKind::EncoderDecoder, because };
    }
    let words = configs.all(&["architectures"]).into_iter().flat_map(|said| {
        let names = said.value.as_array().into_iter().flatten().filter_map(|v| v.as_str());
        names.map(move |name| (name, said.source.clone())).collect::<Vec<_>>()
    });
    for (name, source) in words {
        if let Some((_, kind)) = ARCHITECTURES.iter().find(|(end, _)| name.ends_with(end)) {
            return Other { kind: *kind, because: format!("{source} is {name:?}") };
        }
    }
    for said in configs.all(&["model_type", "general.architecture"]) {
        if let Some((_, kind)) = MODEL_TYPES.iter().find(|(word, _)| said.value.as_str() == Some(word)) {
            return Other { kind: *kind, because: format!("{} is {}", said.source, said.value) };
        }
    }
    for (part, kind) in NAME_PARTS {
        if let Some(t) = has(part) {
            return Other { kind: *kind, because: format!("it has {:?} and no cross-attention", t.name) };
        }
    }
    let because = match tensors.first() {
        Some(t) => format!("no naming scheme fits; its first tensor is {:?}", t.name),
        None => "it holds no tensors".to_owned(),
    };
    Other { kind: OtherKind::Unknown, because }
}
