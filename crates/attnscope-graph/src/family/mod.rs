//! The families: each is a file of data and a line in [`FAMILIES`].

mod albert;
mod bart;
mod bert;
mod blenderbot;
mod blenderbot_small;
mod classifier;
mod distilbert;
mod electra;
mod encoder_decoder_bert;
mod encoder_decoder_roberta;
mod fairseq;
mod falcon;
mod fsmt;
mod gemma;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_neox;
mod led;
mod llama;
mod longt5;
mod m2m100;
mod marian;
mod mbart;
mod mistral;
mod modernbert;
mod mt5;
mod opt;
mod pegasus;
mod phi3;
mod plbart;
mod qwen2;
mod qwen3;
mod roberta;
mod t5;
mod t5_v1_1;
mod tiny_transformer;
mod torch_nn;
mod umt5;
mod whisper;
mod whisper_openai;

mod gguf_names;
mod names_of_two_berts;
mod naming;

use crate::architecture::{Head, StackShape};
use crate::block::Block;
use crate::names::NameScheme;
use crate::wiring::{Activation, Wiring};

/// Every family, in the order in which they are tried when no config names one.
pub const FAMILIES: &[&Family] = &[
    &whisper::FAMILY,
    &whisper_openai::FAMILY,
    &fairseq::FAMILY,
    &fsmt::FAMILY,
    &led::FAMILY,
    &longt5::FAMILY,
    &mbart::FAMILY,
    &bart::FAMILY,
    &plbart::FAMILY,
    &blenderbot_small::FAMILY,
    &pegasus::FAMILY,
    &m2m100::FAMILY,
    &blenderbot::FAMILY,
    &marian::FAMILY,
    &umt5::FAMILY,
    &t5_v1_1::FAMILY,
    &mt5::FAMILY,
    &t5::FAMILY,
    &encoder_decoder_bert::FAMILY,
    &encoder_decoder_roberta::FAMILY,
    &torch_nn::FAMILY,
    &tiny_transformer::FAMILY,
    &opt::FAMILY,
    &gpt2::FAMILY,
    &gpt_neox::FAMILY,
    &falcon::FAMILY,
    &gemma3::FAMILY,
    &gemma2::FAMILY,
    &gemma::FAMILY,
    &phi3::FAMILY,
    &qwen3::FAMILY,
    &mistral::FAMILY,
    &qwen2::FAMILY,
    &llama::FAMILY,
    &roberta::FAMILY,
    &electra::FAMILY,
    &albert::FAMILY,
    &modernbert::FAMILY,
    &distilbert::FAMILY,
    &bert::FAMILY,
];

/// What this program's own classifiers are: only a config names them, so that it is tried for nothing else.
pub const CLASSIFIER: &Family = &classifier::FAMILY;

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
    /// What distinguishes it from families with the same names, when no config does. All must hold.
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
    /// Fields of the wiring that its files do not record: where no config gives them, they are assumed.
    pub unsaid: &'static [&'static str],
    /// The family has no fixed shape: it has those biases, norms and position tables that the file has, and a missing one is no
    /// error.
    pub flexible: bool,
    /// Its heads for other tasks than predicting tokens, where files of the family hold some: the first that a file has.
    pub task_heads: &'static [KnownHead],
}

/// A head for another task than predicting tokens.
#[derive(Debug)]
pub struct KnownHead {
    /// The task.
    pub task: Task,
    /// What stands between the last stack and the outputs; maps are as wide as the file has them.
    pub blocks: &'static [Block],
    /// How the name of the tensor ends that gives the outputs.
    pub output: &'static str,
    /// A config key and its value, where the head is this one only with it.
    pub only_with: Option<(&'static str, &'static str)>,
}

/// What a head is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// A class for the whole text.
    Text,
    /// A class for each token.
    Tokens,
    /// A score for each token that somebody else put it there.
    Replaced,
    /// A score for each token as the start, and one as the end, of an answer.
    Span,
}

impl Task {
    /// What it is, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Text => "classes of a text",
            Self::Tokens => "classes of each token",
            Self::Replaced => "whether each token was replaced",
            Self::Span => "start and end of an answer",
        }
    }

    /// The task that the name of a class of Hugging Face's is for: `BertForTokenClassification`.
    pub(crate) fn of_class(name: &str) -> Option<Self> {
        let ends = |end: &str| name.ends_with(end);
        match () {
            () if ends("ForSequenceClassification") || ends("ForMultipleChoice") => Some(Self::Text),
            () if ends("ForTokenClassification") => Some(Self::Tokens),
            () if ends("ForQuestionAnswering") => Some(Self::Span),
            () if name == "ElectraForPreTraining" => Some(Self::Replaced),
            () => None,
        }
    }
}

/// The end token's state, a map and tanh: the classifiers of BART and its descendants.
const DECODER_HEADS: &[KnownHead] = &[
    KnownHead {
        task: Task::Text,
        blocks: &[Block::LastToken {}, STREAM_MAP, TANH],
        output: "classification_head.out_proj.weight",
        only_with: None,
    },
    SPAN,
];
/// The first token's state, a map and tanh: BERT's pooler.
const POOLED: &[Block] = &[Block::FirstToken {}, STREAM_MAP, TANH];
/// BERT's heads: on its pooler, or on the state of each token.
const BERT_HEADS: &[KnownHead] = &[
    KnownHead { task: Task::Text, blocks: POOLED, output: "classifier.weight", only_with: None },
    TOKENS,
    SPAN,
];
/// A map of each token's state to classes.
const TOKENS: KnownHead =
    KnownHead { task: Task::Tokens, blocks: &[], output: "classifier.weight", only_with: None };
/// A map of each token's state to a start and an end.
const SPAN: KnownHead =
    KnownHead { task: Task::Span, blocks: &[], output: "qa_outputs.weight", only_with: None };
/// A map whose width the file tells.
const STREAM_MAP: Block = Block::Linear { features: 0 };
const TANH: Block = Block::Activation { function: Activation::Tanh };

/// A fact about a listing of tensors.
#[derive(Debug, Clone, Copy)]
pub enum Evidence {
    /// The file has this weight, in the graph's name for it.
    Has(&'static str),
    /// It does not.
    Lacks(&'static str),
    /// Some tensor's name ends in this.
    HasName(&'static str),
    /// The number of rows of the source's position table, less this many, is a multiple of 8.
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
/// family's own code uses another token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The token that a document gives under this key, or the default.
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
    /// A prompt that gives the task.
    Prompt,
    /// Nothing: texts already contain their start.
    Sentence,
}

/// A config key, or several names of one, and what it changes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The key's names, the usual one first.
    pub keys: &'static [&'static str],
    /// What its value sets.
    pub sets: Sets,
    /// The value, as JSON, where a config names the family but lacks the key.
    pub absent: Option<&'static str>,
}

/// The default of a size that a config leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// This number.
    Size(usize),
    /// The value of another key.
    As(&'static str),
    /// So many times what another key says.
    Times(u64, &'static str),
}

/// What the value of a config key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sets {
    /// A word for the activation; T5's `gated-gelu` too.
    Activation,
    /// The same, where `gelu` means its tanh form.
    TanhActivation,
    /// true: embeddings are multiplied by √d_model.
    EmbeddingScale,
    /// true: they are not.
    NoEmbeddingScale,
    /// The number added to a norm's variance.
    NormEps,
    /// true: norms come before their sublayers.
    NormBefore,
    /// true: positions are sines, as the paper has them.
    SinusoidalPositions,
    /// true: positions are a learned table.
    LearnedPositions,
    /// The pad id, which is also the position before the first.
    PadPosition,
    /// Distances from this one on share a bucket.
    RelativeMaxDistance,
    /// true: the output projection is the target's table, even where a file stores it again.
    TiedOutput,
    /// true: logits are multiplied by 1/√d_model.
    LogitScale,
    /// true: scores are divided by √d_head.
    ScoreScale,
    /// The base of rotary positions.
    RotaryBase,
    /// The share of a head's features that is rotated.
    RotaryShare,
    /// How many of a head's features are rotated.
    RotaryFeatures,
    /// How rotary frequencies are changed for longer texts: an object of config.json, a type of GGUF, or true for Llama 3.1's.
    RotaryScaling,
    /// The divisors of longrope are tensors: llama.cpp's key for what cosines and sines are multiplied by.
    StoredLongrope,
    /// A converter that is named by this key has put the features of rotary pairs side by side.
    NeighbouringPairs,
    /// A converter that is named by this key has added the 1 to the gains of norms.
    PlainGain,
    /// What stands for d_head in the scale of the scores.
    ScoreWidth,
    /// In GGUF, which has no key for it, a model of this many layers has d_model / heads for d_head in the scale of the scores.
    WholeScoreWidthAt(u64),
    /// The cap of the scores; null for none.
    ScoreCap,
    /// The cap of the logits; null for none.
    LogitCap,
    /// true: attention and feed-forward read the same stream.
    ParallelResidual,
    /// true: the maps of attention add biases.
    AttentionBiases,
    /// true: the maps of the feed-forward add biases.
    FeedForwardBiases,
    /// true: norms add biases.
    NormBiases,
    /// true: the projection between the last stack and the logits adds a bias.
    HeadBias,
    /// How many positions self-attention sees; null for all.
    Window,
    /// How many positions self-attention sees on each side.
    Reach,
    /// false: whatever the window is, it is not used.
    UsesWindow,
    /// The first layer that has the window.
    FirstWindowLayer,
    /// The base of rotary positions in layers with the window.
    WindowRotaryBase,
    /// Of so many layers each, the first sees everything; the others have the window.
    FirstOfEvery,
    /// Of so many layers each, the last sees everything; the others have the window.
    LastOfEvery,
    /// A word for each layer: those that are called `sliding_attention` have the window.
    LayerTypes,
    /// A setting of which only one value, given as JSON, can be run.
    Unsupported(&'static str),
}

/// The keys that Hugging Face's BART and its descendants share, with the default of each.
const fn hugging_face(activation: &'static str, scale_embedding: &'static str) -> [Setting; 2] {
    [
        Setting { keys: &["activation_function"], sets: Sets::Activation, absent: Some(activation) },
        Setting { keys: &["scale_embedding"], sets: Sets::EmbeddingScale, absent: Some(scale_embedding) },
    ]
}
