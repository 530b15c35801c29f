//! The model of a recipe: a classifier as a list of blocks, or an encoder-decoder in Marian's layout.

use attnscope_graph::{Activation, Block};
use serde::{Deserialize, Serialize};

/// What learns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelTable {
    /// From a text to a class.
    Classifier(Classifier),
    /// From a source to a target.
    EncoderDecoder(EncoderDecoder),
}

/// An embedding of every token of a text, layers of attention where it has some, blocks one after the other, and a score for each
/// class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classifier {
    /// The width of the embedding.
    pub embedding: usize,
    /// Tokens of a text: longer ones are cut, shorter ones padded.
    pub length: usize,
    /// How many classes there are.
    pub classes: usize,
    /// Layers of a Transformer's encoder before the blocks, with positions added to the embeddings.
    #[serde(default)]
    pub layers: usize,
    /// Heads of their attention.
    #[serde(default = "one")]
    pub heads: usize,
    /// The width of their feed-forward's inner layer; four times the embedding's where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_forward: Option<usize>,
    /// The share of values that are 0 while learning, in those layers. A block of its own drops elsewhere.
    #[serde(default)]
    pub dropout: f64,
    /// What stands before the scores.
    pub block: Vec<Block>,
}

impl Classifier {
    /// The width of the feed-forward's inner layer.
    pub(crate) fn feed_forward(&self) -> usize {
        self.feed_forward.unwrap_or(4 * self.embedding)
    }
}

/// A Transformer in Marian's layout. The embedding is shared by both sides and by the output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderDecoder {
    /// Layers of the encoder and of the decoder.
    pub layers: Size,
    /// The width of the stream.
    pub d_model: usize,
    /// Heads of every attention.
    pub heads: usize,
    /// The width of the feed-forward's inner layer.
    pub d_ff: usize,
    /// Its activation.
    #[serde(default = "swish")]
    pub activation: Activation,
    /// The share of values that are 0 while learning: of embeddings, and of what a sublayer adds.
    #[serde(default)]
    pub dropout: f64,
    /// Positions that Hugging Face makes a table for. The program itself computes as many as it needs.
    #[serde(default = "positions")]
    pub positions: usize,
}

/// The layers of both stacks, or of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a whole number of layers, or two of them: the encoder's and the decoder's"
)]
pub enum Size {
    /// As many in both.
    Both(usize),
    /// The encoder's and the decoder's.
    Each([usize; 2]),
}

impl Size {
    /// Of the encoder.
    pub fn encoder(self) -> usize {
        match self {
            Self::Both(n) | Self::Each([n, _]) => n,
        }
    }

    /// Of the decoder.
    pub fn decoder(self) -> usize {
        match self {
            Self::Both(n) | Self::Each([_, n]) => n,
        }
    }
}

fn one() -> usize {
    1
}

fn positions() -> usize {
    512
}

fn swish() -> Activation {
    Activation::Swish
}
