//! Facts about a model, their sources, and where two sources disagree.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::architecture::Architecture;
use crate::dim::{Dim, Side, Stack};

/// A document of facts beside the tensors: config.json, a header's metadata.
#[derive(Debug, Clone, Copy)]
pub struct Config<'a> {
    /// What it is called, as shown.
    pub source: &'a str,
    /// Its contents.
    pub facts: &'a Map<String, Value>,
}

/// One fact that the program uses.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Which part of the report it belongs to.
    pub topic: Topic,
    /// What it is about.
    pub name: String,
    /// What holds.
    pub value: Value,
    /// Its source: a config key, the tensors, the family, the user.
    pub source: String,
    /// Sources that say something else, and what they say.
    pub disagree: Vec<(String, Value)>,
}

/// The parts of a report of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Family and sizes.
    Shape,
    /// How the parts are joined.
    Wiring,
    /// Token ids with a meaning.
    Tokens,
}

impl Topic {
    /// Its heading, also its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shape => "shape",
            Self::Wiring => "wiring",
            Self::Tokens => "tokens",
        }
    }
}

impl Fact {
    /// A size, with the sources that say another.
    pub(crate) fn size(name: &str, size: usize, source: String, said: &[Said<usize>]) -> Self {
        let others = said.iter().filter(|s| s.value != size);
        let disagree = others.map(|s| (s.source.clone(), Value::from(s.value))).collect();
        Self { topic: Topic::Shape, name: name.to_owned(), value: Value::from(size), source, disagree }
    }
}

/// A config whose values cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {key}: expected {expected}, found {found}")]
pub struct FactError {
    /// The document.
    pub source_name: String,
    /// The key in it.
    pub key: String,
    /// What the key should hold.
    pub expected: &'static str,
    /// What it holds.
    pub found: String,
}

/// Every document, the most trusted first.
pub(crate) struct Configs<'a>(pub(crate) &'a [Config<'a>]);

/// It says how a model generates, not how its parts are joined.
const GENERATION: &str = "generation_config.json";

/// A value with its source in words.
pub(crate) struct Said<T> {
    pub(crate) value: T,
    pub(crate) source: String,
    place: (String, String),
}

impl<T> Said<T> {
    /// The error for a value that its key cannot hold.
    pub(crate) fn wrong(&self, expected: &'static str, found: impl Into<String>) -> FactError {
        let (source_name, key) = self.place.clone();
        FactError { source_name, key, expected, found: found.into() }
    }

    fn with<U>(self, value: U) -> Said<U> {
        Said { value, source: self.source, place: self.place }
    }
}

/// The value of a key, or of a key within another: `rope_parameters.rope_theta`. GGUF's keys contain dots themselves.
fn value_at<'v>(map: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    map.get(key).or_else(|| {
        let (outer, inner) = key.split_once('.')?;
        value_at(map.get(outer)?.as_object()?, inner)
    })
}

/// A key with the name that GGUF's metadata has for the architecture: `{arch}.block_count` is `llama.block_count`.
fn key_of<'k>(map: &Map<String, Value>, key: &'k str) -> Option<Cow<'k, str>> {
    let Some(rest) = key.strip_prefix("{arch}.") else { return Some(Cow::Borrowed(key)) };
    let architecture = map.get("general.architecture")?.as_str()?;
    Some(Cow::Owned(format!("{architecture}.{rest}")))
}

/// What documents hold the model's facts in, other than at their top: fairseq's and those of models of several kinds of input.
const NESTED: [&str; 3] = ["model", "text_config", "language_config"];

impl<'a> Configs<'a> {
    /// What each document says under one of the keys: at its top, or where it holds the model's facts.
    pub(crate) fn all(&self, keys: &[&str]) -> Vec<Said<&'a Value>> {
        let mut all = self.all_with_null(keys);
        all.retain(|said| !said.value.is_null());
        all
    }

    /// The same with documents that say `null`.
    fn all_with_null(&self, keys: &[&str]) -> Vec<Said<&'a Value>> {
        let find = |config: &Config<'a>| {
            let facts: &'a Map<String, Value> = config.facts;
            let nested = NESTED.into_iter().filter_map(|outer| facts.get(outer)?.as_object());
            let said = |map: &'a Map<String, Value>, key: &&str| {
                let key = key_of(map, key)?.into_owned();
                let value = value_at(map, &key)?;
                let source = format!("{}: {key}", config.source);
                Some(Said { value, source, place: (config.source.to_owned(), key) })
            };
            let mut all = std::iter::once(facts)
                .chain(nested)
                .flat_map(|map| keys.iter().filter_map(move |key| said(map, key)));
            let first = all.next()?;
            // A key that is null does not hide another name of it.
            match first.value.is_null() {
                true => Some(all.find(|said| !said.value.is_null()).unwrap_or(first)),
                false => Some(first),
            }
        };
        self.0.iter().filter_map(find).collect()
    }

    /// What the first document about the model says, `null` included.
    pub(crate) fn of_model_with_null(&self, keys: &[&str]) -> Option<Said<&'a Value>> {
        self.all_with_null(keys).into_iter().find(|said| said.place.0 != GENERATION)
    }

    /// The error for a family's default that its key cannot hold.
    pub(crate) fn wrong_default(&self, key: &str, expected: &'static str, found: String) -> FactError {
        FactError { source_name: "the family's default".into(), key: key.into(), expected, found }
    }

    pub(crate) fn first(&self, keys: &[&str]) -> Option<Said<&'a Value>> {
        self.all(keys).into_iter().next()
    }

    /// The same without what is said about generation.
    pub(crate) fn of_model(&self, keys: &[&str]) -> Option<Said<&'a Value>> {
        self.all(keys).into_iter().find(|said| said.place.0 != GENERATION)
    }

    pub(crate) fn sizes(&self, keys: &[&str]) -> Result<Vec<Said<usize>>, FactError> {
        let size = |said: Said<&Value>| {
            let n = said.value.as_u64().or_else(|| {
                // GGUF and some exporters write integers as floats.
                said.value.as_f64().filter(|f| f.fract() == 0.0 && (0.0..9e15).contains(f)).map(|f| f as u64)
            });
            match n.and_then(|n| usize::try_from(n).ok()) {
                Some(n) => Ok(said.with(n)),
                None => Err(said.wrong("a whole number", said.value.to_string())),
            }
        };
        self.all(keys).into_iter().map(size).collect()
    }

    pub(crate) fn flag(&self, keys: &[&str]) -> Result<Option<Said<bool>>, FactError> {
        self.first(keys)
            .map(|said| match said.value.as_bool() {
                Some(b) => Ok(said.with(b)),
                None => Err(said.wrong("true or false", said.value.to_string())),
            })
            .transpose()
    }
}

/// A size, what it is called in the report, and what configs call it: Hugging Face, OpenAI, fairseq, GGUF, .apr.
pub(crate) struct SizeKeys {
    pub(crate) dim: Dim,
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static str],
}

/// The sizes that configs give.
pub(crate) const SIZE_KEYS: &[SizeKeys] = &[
    SizeKeys {
        dim: Dim::Model,
        name: "d_model",
        keys: &[
            "d_model",
            "hidden_size",
            "n_embd",
            "n_text_state",
            "encoder_embed_dim",
            "{arch}.embedding_length",
            "dim",
        ],
    },
    SizeKeys {
        dim: Dim::Heads(Stack::Encoder),
        name: "encoder heads",
        keys: &[
            "encoder_attention_heads",
            "encoder.num_attention_heads",
            "num_heads",
            "n_audio_head",
            "num_attention_heads",
            "n_head",
            "nhead",
            "{arch}.attention.head_count",
            "n_heads",
        ],
    },
    SizeKeys {
        dim: Dim::Heads(Stack::Decoder),
        name: "decoder heads",
        keys: &[
            "decoder_attention_heads",
            "decoder.num_attention_heads",
            "num_heads",
            "n_text_head",
            "num_attention_heads",
            "n_head",
            "nhead",
            "{arch}.attention.head_count",
            "n_heads",
        ],
    },
    SizeKeys {
        dim: Dim::Head(Stack::Decoder),
        name: "d_head",
        keys: &["d_kv", "head_dim", "{arch}.attention.key_length"],
    },
    SizeKeys {
        dim: Dim::FeedForward(Stack::Encoder),
        name: "encoder d_ff",
        keys: &[
            "encoder_ffn_dim",
            "encoder.intermediate_size",
            "d_ff",
            "encoder_ffn_embed_dim",
            "ffn_dim",
            "intermediate_size",
            "hidden_dim",
            "dim_feedforward",
            "{arch}.feed_forward_length",
        ],
    },
    SizeKeys {
        dim: Dim::FeedForward(Stack::Decoder),
        name: "decoder d_ff",
        keys: &[
            "decoder_ffn_dim",
            "decoder.intermediate_size",
            "d_ff",
            "decoder_ffn_embed_dim",
            "ffn_dim",
            "intermediate_size",
            "dim_feedforward",
            "n_inner",
            "{arch}.feed_forward_length",
        ],
    },
    SizeKeys {
        dim: Dim::Vocab(Side::Source),
        name: "source vocabulary",
        keys: &["src_vocab_size", "vocab_size", "{arch}.vocab_size"],
    },
    SizeKeys {
        dim: Dim::Vocab(Side::Target),
        name: "target vocabulary",
        keys: &["decoder_vocab_size", "tgt_vocab_size", "vocab_size", "n_vocab", "{arch}.vocab_size"],
    },
    SizeKeys {
        dim: Dim::Positions(Side::Source),
        name: "source positions",
        keys: &[
            "max_source_positions",
            "max_encoder_position_embeddings",
            "max_position_embeddings",
            "n_audio_ctx",
        ],
    },
    SizeKeys {
        dim: Dim::Positions(Side::Target),
        name: "target positions",
        keys: &[
            "max_target_positions",
            "max_decoder_position_embeddings",
            "max_position_embeddings",
            "n_text_ctx",
            "n_ctx",
            "n_positions",
        ],
    },
    SizeKeys { dim: Dim::Mels, name: "mel bands", keys: &["num_mel_bins", "n_mels"] },
    SizeKeys {
        dim: Dim::Buckets(Stack::Encoder),
        name: "relative buckets",
        keys: &["relative_attention_num_buckets", "{arch}.attention.relative_buckets_count"],
    },
    SizeKeys {
        dim: Dim::KvHeads(Stack::Decoder),
        name: "decoder key/value heads",
        keys: &["num_key_value_heads", "{arch}.attention.head_count_kv", "n_kv_heads"],
    },
    SizeKeys { dim: Dim::Types, name: "token types", keys: &["type_vocab_size"] },
    SizeKeys { dim: Dim::Embedding, name: "embedding width", keys: &["embedding_size"] },
];

/// What configs call the number of layers of a stack.
pub(crate) fn layer_keys(architecture: &Architecture, stack: Stack) -> &'static [&'static str] {
    match stack {
        Stack::Decoder if !architecture.has(Stack::Encoder) => {
            &["num_hidden_layers", "n_layer", "{arch}.block_count", "n_layers"]
        }
        Stack::Encoder => &[
            "encoder_layers",
            "encoder.num_hidden_layers",
            "num_encoder_layers",
            "n_audio_layer",
            "num_layers",
            "num_hidden_layers",
            "n_layer",
            "{arch}.block_count",
        ],
        Stack::Decoder => &[
            "decoder_layers",
            "decoder.num_hidden_layers",
            "num_decoder_layers",
            "n_text_layer",
            "{arch}.decoder_block_count",
        ],
    }
}

/// The token ids that a decoder needs, each with what configs and GGUF's metadata call it.
pub(crate) const TOKEN_KEYS: &[(&str, &[&str])] = &[
    ("pad_token_id", &["pad_token_id", "tokenizer.ggml.padding_token_id"]),
    ("bos_token_id", &["bos_token_id", "tokenizer.ggml.bos_token_id"]),
    ("eos_token_id", &["eos_token_id", "tokenizer.ggml.eos_token_id"]),
    ("decoder_start_token_id", &["decoder_start_token_id", "t5.decoder_start_token_id"]),
    ("forced_bos_token_id", &["forced_bos_token_id"]),
    ("forced_eos_token_id", &["forced_eos_token_id"]),
];

/// Every key under which a document may name a token that Hugging Face calls `name`.
pub fn token_keys(name: &'static str) -> Vec<&'static str> {
    let known = TOKEN_KEYS.iter().find(|(known, _)| *known == name);
    known.map_or_else(|| vec![name], |(_, keys)| keys.to_vec())
}
