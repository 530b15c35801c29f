//! Which stacks a model has, which sequences they work on, and which stack reads which: data, not code paths.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::dim::{Side, Stack};
use crate::graph::NodePath;
use crate::role::{AttentionKind, HeadStep, Role};

/// A stack of layers of a family, before the number of its layers is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackShape {
    /// Which stack. It names the nodes and says which sequence the stack works on.
    pub stack: Stack,
    /// No position sees a later one.
    pub causal: bool,
    /// The stack whose output its cross-attention reads, if it has a cross-attention.
    pub reads: Option<Stack>,
}

/// The encoder of an encoder-decoder, and the whole of an encoder-only model.
const ENCODER: StackShape = StackShape { stack: Stack::Encoder, causal: false, reads: None };

/// An encoder, and a decoder that reads it.
pub const ENCODER_DECODER: &[StackShape] =
    &[ENCODER, StackShape { stack: Stack::Decoder, causal: true, reads: Some(Stack::Encoder) }];

/// A decoder alone: a language model.
pub const DECODER_ONLY: &[StackShape] = &[StackShape { stack: Stack::Decoder, causal: true, reads: None }];

/// An encoder alone.
pub const ENCODER_ONLY: &[StackShape] = &[ENCODER];

/// No stack at all: a classifier whose blocks read the embeddings.
pub const NO_STACK: &[StackShape] = &[];

/// What turns the last stack's output into logits.
#[derive(Debug, Clone, PartialEq)]
pub enum Head {
    /// Nothing: the last stack's output is the model's.
    None,
    /// The output projection.
    Projection,
    /// A projection of the same width, the activation and a norm, then the output projection, as BERT has.
    Transform,
    /// Blocks, then a score for each class. Where there is no stack, the blocks read the embeddings.
    Classifier(Classifier),
}

/// From positions to classes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classifier {
    /// What stands before the scores.
    pub blocks: Vec<Block>,
    /// How many classes there are.
    pub classes: usize,
    /// Every text is padded or cut to so many tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
}

/// The stacks of one model, in the order in which data flows, with their layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Architecture {
    /// Each stack with its number of layers.
    pub stacks: Vec<(StackShape, usize)>,
    /// What follows the last stack.
    pub head: Head,
}

impl Classifier {
    /// Whether every token has scores of its own: no block leaves positions behind.
    pub fn scores_tokens(&self) -> bool {
        self.blocks.iter().all(Block::keeps_positions)
    }
}

impl Architecture {
    /// These stacks, with `layers` layers each.
    pub fn new(shape: &[StackShape], head: Head, layers: impl Fn(Stack) -> usize) -> Self {
        Self { stacks: shape.iter().map(|stack| (*stack, layers(stack.stack))).collect(), head }
    }

    /// An encoder and a decoder that reads it, with an output projection.
    pub fn encoder_decoder(encoder: usize, decoder: usize) -> Self {
        let layers = |stack| match stack {
            Stack::Encoder => encoder,
            Stack::Decoder => decoder,
        };
        Self::new(ENCODER_DECODER, Head::Projection, layers)
    }

    /// A decoder alone, with an output projection.
    pub fn decoder_only(layers: usize) -> Self {
        Self::new(DECODER_ONLY, Head::Projection, |_| layers)
    }

    /// An encoder alone.
    pub fn encoder_only(layers: usize, head: Head) -> Self {
        Self::new(ENCODER_ONLY, head, |_| layers)
    }

    /// The architecture whose graph has nodes of these names, as a saved trace lists them.
    pub fn of_paths<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        let mut layers: BTreeMap<Stack, usize> = BTreeMap::new();
        let (mut has_cross, mut head) = (false, Head::None);
        for path in paths {
            let node = NodePath::from(path.to_owned());
            if let Some((stack, n)) = node.layer() {
                let count = layers.entry(stack).or_default();
                *count = (n + 1).max(*count);
                has_cross |= node.part() == AttentionKind::CrossAttention.name();
            } else if path == Role::Head(HeadStep::Dense).to_string() {
                head = Head::Transform;
            } else if path == Role::Logits.to_string() && head == Head::None {
                head = Head::Projection;
            }
        }
        let shape = match (layers.contains_key(&Stack::Encoder), layers.contains_key(&Stack::Decoder)) {
            (true, false) => ENCODER_ONLY,
            (false, true) if !has_cross => DECODER_ONLY,
            _ => ENCODER_DECODER,
        };
        Self::new(shape, head, |stack| layers.get(&stack).copied().unwrap_or(0))
    }

    /// Its stacks, in the order in which data flows.
    pub fn stacks(&self) -> impl DoubleEndedIterator<Item = Stack> + Clone {
        self.stacks.iter().map(|(shape, _)| shape.stack)
    }

    /// Its sequences, in the order in which they are read. Blocks without a stack read the source.
    pub fn sides(&self) -> impl DoubleEndedIterator<Item = Side> + Clone {
        let alone = self.stacks.is_empty().then_some(Side::Source);
        self.stacks().map(Stack::side).chain(alone)
    }

    /// Whether it reads a sequence.
    pub fn reads(&self, side: Side) -> bool {
        self.sides().any(|own| own == side)
    }

    /// The classifier at its end, where it has one.
    pub fn classifier(&self) -> Option<&Classifier> {
        match &self.head {
            Head::Classifier(classifier) => Some(classifier),
            Head::None | Head::Projection | Head::Transform => None,
        }
    }

    /// The classifier, where it scores whole texts: one that keeps positions scores each token.
    pub fn text_classifier(&self) -> Option<&Classifier> {
        self.classifier().filter(|classifier| !classifier.scores_tokens())
    }

    /// Whether it has a stack.
    pub fn has(&self, stack: Stack) -> bool {
        self.stacks().any(|own| own == stack)
    }

    /// The layers of a stack; 0 where it has no such stack.
    pub fn layers(&self, stack: Stack) -> usize {
        self.stacks.iter().find(|(shape, _)| shape.stack == stack).map_or(0, |(_, layers)| *layers)
    }

    /// Whether a stack reads another one through cross-attention.
    pub fn has_cross_attention(&self) -> bool {
        self.stacks.iter().any(|(shape, _)| shape.reads.is_some())
    }

    /// Its kind in a word: `encoder-decoder`.
    pub fn kind(&self) -> &'static str {
        match (self.has(Stack::Encoder), self.has(Stack::Decoder)) {
            (true, true) => "encoder-decoder",
            (false, true) => "decoder-only",
            (true, false) => "encoder-only",
            (false, false) => "classifier",
        }
    }
}
