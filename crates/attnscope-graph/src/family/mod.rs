//! The families: each is a file with data in it and a line in [`FAMILIES`].

mod bart;
mod bert;
mod blenderbot;
mod blenderbot_small;
mod fairseq;
mod gpt2;
mod llama;
mod m2m100;
mod marian;
mod mbart;
mod mt5;
mod pegasus;
mod plbart;
mod t5;
mod t5_v1_1;
mod tiny_transformer;
mod torch_nn;
mod whisper;
mod whisper_openai;

mod naming;

use crate::architecture::{Head, StackShape};
use crate::names::NameScheme;
use crate::wiring::Wiring;

/// Every family, in the order in which they are tried when no config names one.
pub const FAMILIES: &[&Family] = &[
    &whisper::FAMILY,
    &whisper_openai::FAMILY,
    &fairseq::FAMILY,
    &mbart::FAMILY,
    &bart::FAMILY,
    &plbart::FAMILY,
    &blenderbot_small::FAMILY,
    &pegasus::FAMILY,
    &m2m100::FAMILY,
    &blenderbot::FAMILY,
    &marian::FAMILY,
    &t5_v1_1::FAMILY,
    &mt5::FAMILY,
    &t5::FAMILY,
    &torch_nn::FAMILY,
    &tiny_transformer::FAMILY,
    &gpt2::FAMILY,
    &llama::FAMILY,
    &bert::FAMILY,
];

/// What is known of a family before a file is seen.
#[derive(Debug)]
pub struct Family {
    /// Its name in JSON and on the command line.
    pub id: &'static str,
    /// Its name to a reader.
    pub title: &'static str,
    /// The words by which configs and metadata name it.
    pub model_types: &'static [&'static str],
    /// How its weights are called in files.
    pub schemes: &'static [&'static NameScheme],
    /// What tells it from families with the same names, when no config does. All must hold.
    pub evidence: &'static [Evidence],
    /// Its stacks.
    pub stacks: &'static [StackShape],
    /// What follows the last of them.
    pub head: Head,
    /// How its parts are joined, unless a config or the tensors say otherwise.
    pub wiring: Wiring,
    /// The config keys that change the wiring.
    pub settings: &'static [Setting],
    /// What the decoder begins with.
    pub start: Start,
    /// The token that ends a sentence where no document names it, if all models of the family have the same.
    pub end: Option<u32>,
    /// Sizes that a config may leave out: the key, the fact that it is about, and what its absence means.
    pub absent_sizes: &'static [(&'static str, &'static str, Meant)],
    /// Fields of the wiring that its makers choose and its files do not hold: what no config says is assumed.
    pub unsaid: &'static [&'static str],
    /// The family has no fixed shape: biases, norms and position tables are what the file has, and their absence
    /// is no fault.
    pub flexible: bool,
}

/// A fact about a listing of tensors.
#[derive(Debug, Clone, Copy)]
pub enum Evidence {
    /// The file has this weight, in the graph's name for it.
    Has(&'static str),
    /// It does not.
    Lacks(&'static str),
    /// Some tensor's name ends in this.
    HasName(&'static str),
    /// The source's position table has a multiple of 8 rows once this many are taken off.
    PositionRows(usize),
    /// Never true: only a config can name the family.
    NamedByConfig,
    /// The feed-forward layers have two wide maps.
    Gated,
    /// They have one.
    NotGated,
    /// The embedding table has at least this many rows.
    VocabAtLeast(usize),
    /// The embedding table has fewer rows than this.
    VocabBelow(usize),
}

/// What a decoder begins with. Where it is a token, a document's `decoder_start_token_id` says which; where none does, the
/// family's own code takes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The token that a document names under this key, or where it does not, the usual one.
    Token {
        /// The other key.
        key: &'static str,
        /// What its absence means.
        usual: Option<u32>,
    },
    /// A token that is the same in all models of the family.
    Id(u32),
    /// The end of the sentence before.
    End,
    /// The sentence's own last token, which names its language.
    LastOfSentence,
    /// A prompt that says what is to be done.
    Prompt,
    /// Nothing: sentences are written with their start.
    Sentence,
}

/// A config key, or several names of one, and what it changes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The key's names, the usual one first.
    pub keys: &'static [&'static str],
    /// What its value sets.
    pub sets: Sets,
    /// What it means that a config which names the family does not have the key, as JSON.
    pub absent: Option<&'static str>,
}

/// What a size is that a config leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// This number.
    Size(usize),
    /// What another key says.
    As(&'static str),
}

/// What the value of a config key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sets {
    /// A word for the activation; T5's `gated-gelu` too.
    Activation,
    /// true: embeddings are multiplied by √d_model.
    EmbeddingScale,
    /// true: they are not.
    NoEmbeddingScale,
    /// The number added to a norm's variance.
    NormEps,
    /// true: norms stand before their sublayers.
    NormBefore,
    /// true: positions are a learned table.
    LearnedPositions,
    /// The pad id, which is also the position before the first.
    PadPosition,
    /// Distances from here on share a bucket.
    RelativeMaxDistance,
    /// true: the output projection is the target's table, even where a file stores it again.
    TiedOutput,
    /// true: logits are multiplied by 1/√d_model.
    LogitScale,
    /// true: scores are divided by √d_head.
    ScoreScale,
    /// The base of rotary positions.
    RotaryBase,
    /// true: the maps of attention add biases.
    AttentionBiases,
    /// true: the maps of the feed-forward add biases.
    FeedForwardBiases,
    /// A setting that only runs with one value, given as JSON.
    Unsupported(&'static str),
}

/// The keys that Hugging Face's BART and its descendants share, with what their absence means to each.
const fn hugging_face(activation: &'static str, scale_embedding: &'static str) -> [Setting; 2] {
    [
        Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some(activation) },
        Setting { keys: &["scale_embedding"], sets: Sets::EmbeddingScale, absent: Some(scale_embedding) },
    ]
}
