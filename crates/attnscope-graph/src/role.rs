//! What a node is in its model. A node's path follows from its role, so paths need not be parsed.

mod block;
mod step;

use std::fmt;

pub use block::{BlockStep, Direction, RecurrentStep};
pub use step::{AttentionKind, AttentionStep, AudioStep, EntryStep, FeedForwardStep, HeadStep, LayerStep};

use crate::dim::{Side, Stack};

/// What a node is in its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A step from the ids of a sequence to what the first layer reads: `src.embed`.
    Entry(Side, EntryStep),
    /// A step of the audio front end: `audio.conv1`.
    Audio(AudioStep),
    /// A step of a layer: `decoder.1.cross_attn.q`.
    Layer(Stack, usize, LayerStep),
    /// The output of a stack: `encoder.out`.
    StackOut(Stack),
    /// A step after the last stack, before the logits: `head.norm`.
    Head(HeadStep),
    /// A step of a classifier's block, counted from 0: `classifier.0.conv`.
    Block(usize, BlockStep),
    /// A score for every token, or for every class.
    Logits,
}

/// A sublayer of a layer, with its norm and its residual sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerPart {
    /// An attention.
    Attention(AttentionKind),
    /// The feed-forward.
    FeedForward,
}

/// What a weight is in its model. A weight's path follows from it, as a node's follows from its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightRole {
    /// The node that owns it; others may use it, too.
    pub owner: Role,
    /// Which of the owner's weights.
    pub kind: WeightKind,
}

/// Which of a node's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightKind {
    /// A matrix, a table, a kernel, or the gain of a norm.
    Weight,
    /// What is added.
    Bias,
}

impl Role {
    /// The layer it is in.
    pub fn layer(self) -> Option<(Stack, usize)> {
        match self {
            Self::Layer(stack, n, _) => Some((stack, n)),
            Self::Entry(..)
            | Self::Audio(_)
            | Self::StackOut(_)
            | Self::Head(_)
            | Self::Block(..)
            | Self::Logits => None,
        }
    }

    /// The attention that it is a step of, and which step.
    pub fn attention(self) -> Option<(AttentionPlace, AttentionStep)> {
        match self {
            Self::Layer(stack, layer, LayerStep::Attention(kind, step)) => {
                Some((AttentionPlace { stack, layer, kind }, step))
            }
            _ => None,
        }
    }

    /// The step of the feed-forward that it is.
    pub fn feed_forward(self) -> Option<FeedForwardStep> {
        match self {
            Self::Layer(_, _, LayerStep::FeedForward(step)) => Some(step),
            _ => None,
        }
    }

    /// What it is within its layer.
    pub fn layer_step(self) -> Option<LayerStep> {
        match self {
            Self::Layer(_, _, step) => Some(step),
            _ => None,
        }
    }

    /// The sublayer that it is in.
    pub fn part(self) -> Option<LayerPart> {
        match self {
            Self::Layer(_, _, LayerStep::Attention(kind, _)) => Some(LayerPart::Attention(kind)),
            Self::Layer(_, _, LayerStep::FeedForward(_)) => Some(LayerPart::FeedForward),
            _ => None,
        }
    }

    /// The part of the model that it is in, in a word: of a layer its sublayer, or `stream` for what the layer reads and gives;
    /// outside of layers `entry`, `audio`, `out`, `head`, `classifier` or `logits`.
    pub fn part_name(self) -> &'static str {
        match self {
            Self::Layer(_, _, LayerStep::Attention(kind, _)) => LayerPart::Attention(kind).name(),
            Self::Layer(_, _, LayerStep::FeedForward(_)) => LayerPart::FeedForward.name(),
            Self::Layer(_, _, LayerStep::In | LayerStep::Out) => "stream",
            Self::Entry(..) => "entry",
            Self::Audio(_) => "audio",
            Self::StackOut(_) => "out",
            Self::Head(_) => "head",
            Self::Block(..) => "classifier",
            Self::Logits => "logits",
        }
    }

    /// The same step in another layer of its stack; itself outside of layers.
    pub fn in_layer(self, n: usize) -> Self {
        match self {
            Self::Layer(stack, _, step) => Self::Layer(stack, n, step),
            _ => self,
        }
    }

    /// The stack that it is a step of, or leads to. What follows the last stack belongs to none.
    pub fn stack(self) -> Option<Stack> {
        match self {
            Self::Entry(side, _) => Stack::ALL.into_iter().find(|stack| stack.side() == side),
            Self::Audio(_) => Some(Stack::Encoder),
            Self::Layer(stack, ..) | Self::StackOut(stack) => Some(stack),
            Self::Head(_) | Self::Block(..) | Self::Logits => None,
        }
    }

    /// Whether it is a norm and nothing else. The output of a stack, and embeddings with their positions, can be normed, too.
    pub fn is_norm(self) -> bool {
        match self {
            Self::Entry(_, step) => step == EntryStep::EmbedNorm,
            Self::Layer(_, _, LayerStep::Attention(_, step)) => matches!(
                step,
                AttentionStep::Norm | AttentionStep::QNorm | AttentionStep::KNorm | AttentionStep::OutNorm
            ),
            Self::Layer(_, _, LayerStep::FeedForward(step)) => {
                matches!(step, FeedForwardStep::Norm | FeedForwardStep::OutNorm)
            }
            Self::Head(step) => step == HeadStep::Norm,
            Self::Layer(_, _, LayerStep::In | LayerStep::Out)
            | Self::Audio(_)
            | Self::StackOut(_)
            | Self::Block(..)
            | Self::Logits => false,
        }
    }

    /// Its matrix, table, kernel or gain, where it owns one.
    pub fn weight(self) -> WeightRole {
        WeightRole { owner: self, kind: WeightKind::Weight }
    }

    /// Its bias, where it owns one.
    pub fn bias(self) -> WeightRole {
        WeightRole { owner: self, kind: WeightKind::Bias }
    }

    /// Whether it is this step of an attention of this kind, in any layer.
    pub fn is(self, kind: AttentionKind, step: AttentionStep) -> bool {
        self.attention().is_some_and(|(place, own)| place.kind == kind && own == step)
    }
}

/// One attention of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttentionPlace {
    /// Its stack.
    pub stack: Stack,
    /// Its layer, from 0.
    pub layer: usize,
    /// Which of the layer's.
    pub kind: AttentionKind,
}

impl AttentionPlace {
    /// The role of one of its steps.
    pub fn step(self, step: AttentionStep) -> Role {
        Role::Layer(self.stack, self.layer, LayerStep::Attention(self.kind, step))
    }
}

impl LayerPart {
    /// The parts of a layer, in the order in which data meets them.
    pub const ALL: [Self; 3] = [
        Self::Attention(AttentionKind::SelfAttention),
        Self::Attention(AttentionKind::CrossAttention),
        Self::FeedForward,
    ];

    /// The segment of paths that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attention(kind) => kind.name(),
            Self::FeedForward => "ffn",
        }
    }

    /// The role of its norm.
    pub fn norm(self, stack: Stack, layer: usize) -> Role {
        let step = match self {
            Self::Attention(kind) => LayerStep::Attention(kind, AttentionStep::Norm),
            Self::FeedForward => LayerStep::FeedForward(FeedForwardStep::Norm),
        };
        Role::Layer(stack, layer, step)
    }
}

impl WeightRole {
    /// The same weight of another layer; itself outside of layers.
    pub fn in_layer(self, n: usize) -> Self {
        Self { owner: self.owner.in_layer(n), ..self }
    }
}

impl WeightKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Weight, Self::Bias];

    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Bias => "bias",
        }
    }
}

impl fmt::Display for AttentionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.stack.name(), self.layer, self.kind.name())
    }
}

impl fmt::Display for WeightRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.owner, self.kind.name())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Entry(side, step) => write!(f, "{}.{}", side.name(), step.name()),
            Self::Audio(AudioStep::Mel) => write!(f, "audio.mel"),
            Self::Audio(AudioStep::Conv(n)) => write!(f, "audio.conv{n}"),
            Self::Audio(AudioStep::ConvAct(n)) => write!(f, "audio.conv{n}_act"),
            Self::Layer(stack, n, step) => write!(f, "{}.{n}.{step}", stack.name()),
            Self::StackOut(stack) => write!(f, "{}.out", stack.name()),
            Self::Head(step) => write!(f, "head.{}", step.name()),
            Self::Block(n, step) => write!(f, "classifier.{n}.{step}"),
            Self::Logits => write!(f, "logits"),
        }
    }
}

#[cfg(test)]
mod tests;
