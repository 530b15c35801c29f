//! What a checkpoint is when it is not a model that can be drawn.

use crate::facts::Configs;
use crate::names::TensorSpec;

/// A checkpoint that is not one of the known models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// What it is.
    pub kind: OtherKind,
    /// Its family, where that is known by name: what it needs is not there.
    pub family: Option<&'static str>,
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
    Some(Other { kind: OtherKind::Adapter, family: None, because })
}

/// A family that is told by name and needs an operation that is not there.
struct NamedOnly {
    /// How configs call it.
    words: &'static [&'static str],
    /// A part of a tensor's name that only this family has.
    part: &'static str,
    /// Its name to a reader.
    title: &'static str,
    kind: OtherKind,
    /// What is missing.
    missing: &'static str,
}

/// Families that look like one that is run, but differ in an operation.
const NAMED_ONLY: &[NamedOnly] = &[
    NamedOnly {
        words: &["deberta", "deberta-v2"],
        part: "deberta.embeddings.word_embeddings.weight",
        title: "DeBERTa",
        kind: OtherKind::EncoderOnly,
        missing: "disentangled attention, whose scores add products of contents with distances",
    },
    NamedOnly {
        words: &["prophetnet", "xlm-prophetnet"],
        part: "self_attn.relative_pos_embeddings.weight",
        title: "ProphetNet",
        kind: OtherKind::EncoderDecoder,
        missing: "the n-gram self-attention of its decoder, which predicts several tokens at once",
    },
    NamedOnly {
        words: &["bigbird_pegasus"],
        part: "encoder.layers.0.self_attn.self.query.weight",
        title: "BigBird-Pegasus",
        kind: OtherKind::EncoderDecoder,
        missing: "block-sparse attention, whose encoder sees a window, some global blocks and some at random",
    },
    NamedOnly {
        words: &["pegasus_x"],
        part: "encoder.embed_global.weight",
        title: "Pegasus-X",
        kind: OtherKind::EncoderDecoder,
        missing: "attention within blocks and to global tokens, which its encoder carries beside the text",
    },
    NamedOnly {
        words: &[],
        part: "TransientGlobalSelfAttention.q.weight",
        title: "LongT5 with transient global attention",
        kind: OtherKind::EncoderDecoder,
        missing: "attention to sums of blocks beside a window; LongT5 with local attention is run",
    },
    NamedOnly {
        words: &["switch_transformers"],
        part: "mlp.router.classifier.weight",
        title: "SwitchTransformers",
        kind: OtherKind::EncoderDecoder,
        missing: "a feed-forward of experts, of which each token goes through one",
    },
    NamedOnly {
        words: &["nllb-moe"],
        part: "ffn.router.classifier.weight",
        title: "NLLB-MoE",
        kind: OtherKind::EncoderDecoder,
        missing: "a feed-forward of experts, of which each token goes through two",
    },
    NamedOnly {
        words: &["speech_to_text"],
        part: "encoder.conv.conv_layers.0.weight",
        title: "Speech2Text",
        kind: OtherKind::EncoderDecoder,
        missing: "a front end of gated convolutions; of audio models only Whisper can be run",
    },
    NamedOnly {
        words: &["moonshine"],
        part: "encoder.groupnorm.weight",
        title: "Moonshine",
        kind: OtherKind::EncoderDecoder,
        missing: "a front end that reads the samples of a recording; of audio models only Whisper can be run",
    },
    NamedOnly {
        words: &["speecht5"],
        part: "encoder.wrapped_encoder.layers.0.attention.q_proj.weight",
        title: "SpeechT5",
        kind: OtherKind::EncoderDecoder,
        missing: "its front ends, and scores that add products of queries with distances",
    },
    NamedOnly {
        words: &["vision-encoder-decoder", "donut-swin", "trocr"],
        part: "encoder.embeddings.patch_embeddings.projection.weight",
        title: "VisionEncoderDecoder (TrOCR, Donut)",
        kind: OtherKind::EncoderDecoder,
        missing: "a front end that cuts a picture into patches",
    },
];

/// A model that is known by name but cannot be run: by its config, else by the name of a tensor.
pub(crate) fn not_supported(tensors: &[TensorSpec], configs: &Configs<'_>) -> Option<Other> {
    let said = configs.first(&["model_type"]);
    let word = said.as_ref().and_then(|said| said.value.as_str());
    let named = |family: &&NamedOnly| word.is_some_and(|word| family.words.contains(&word));
    let seen = |family: &&NamedOnly| tensors.iter().any(|tensor| tensor.name.ends_with(family.part));
    let (family, why) = match NAMED_ONLY.iter().find(named) {
        Some(family) => (family, said.map(|said| format!("{} is {}", said.source, said.value))?),
        None => {
            let family = NAMED_ONLY.iter().find(seen)?;
            (family, format!("it has a tensor {:?}", family.part))
        }
    };
    let because = format!("{} ({why})", family.missing);
    Some(Other { kind: family.kind, family: Some(family.title), because })
}

pub(crate) fn classify(tensors: &[TensorSpec], configs: &Configs<'_>) -> Other {
    let has = |part: &str| tensors.iter().find(|t| t.name.contains(part));
    if let Some(t) = CROSS_ATTENTION.iter().find_map(|part| has(part)) {
        let because = format!("it has {:?}, and no naming scheme fits the rest", t.name);
        return Other { kind: OtherKind::EncoderDecoder, family: None, because };
    }
    let words = configs.all(&["architectures"]).into_iter().flat_map(|said| {
        let names = said.value.as_array().into_iter().flatten().filter_map(|v| v.as_str());
        names.map(move |name| (name, said.source.clone())).collect::<Vec<_>>()
    });
    for (name, source) in words {
        if let Some((_, kind)) = ARCHITECTURES.iter().find(|(end, _)| name.ends_with(end)) {
            return Other { kind: *kind, family: None, because: format!("{source} is {name:?}") };
        }
    }
    for said in configs.all(&["model_type", "general.architecture"]) {
        if let Some((_, kind)) = MODEL_TYPES.iter().find(|(word, _)| said.value.as_str() == Some(word)) {
            return Other {
                kind: *kind,
                family: None,
                because: format!("{} is {}", said.source, said.value),
            };
        }
    }
    for (part, kind) in NAME_PARTS {
        if let Some(t) = has(part) {
            return Other {
                kind: *kind,
                family: None,
                because: format!("it has {:?} and no cross-attention", t.name),
            };
        }
    }
    let because = match tensors.first() {
        Some(t) => format!("no naming scheme fits; its first tensor is {:?}", t.name),
        None => "it holds no tensors".to_owned(),
    };
    Other { kind: OtherKind::Unknown, family: None, because }
}
