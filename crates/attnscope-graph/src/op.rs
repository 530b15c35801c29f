//! The closed set of operations. Every facet of an operation (shape, kernel, drawing, words, counts) is an
//! exhaustive match over [`Op`]: a missing facet does not compile.

use std::fmt;

use crate::dim::{Dim, Side, Sizes, Stack};
use crate::wiring::{Activation, NormKind, PositionCount, Positions, RotaryPairs, Squash};

/// What one node computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// Token ids, given by the user.
    Ids(Side),
    /// The type of each token: 0 for all, which is what a single text has.
    TypeIds(Side),
    /// Log-mel features, computed from audio or given by the user.
    Features,
    /// Rows of a table, multiplied by a factor.
    Embed {
        /// What each row is multiplied by.
        scale: Factor,
    },
    /// A vector for each position, from a table or from sines.
    Positions {
        /// Where they come from.
        kind: Positions,
        /// The row that position 0 takes.
        offset: usize,
        /// What their numbers count.
        count: PositionCount,
        /// Whose positions.
        side: Side,
    },
    /// The sum of embeddings and positions, and of token types where a model has them.
    AddPositions,
    /// A convolution along time, kernel 3, zero-padded by 1.
    Conv1d {
        /// 1, or 2 to halve the frames.
        stride: usize,
    },
    /// Channels first to channels last.
    Transpose,
    /// Another name for a value: the start or the end of a layer.
    Same,
    /// Normalisation over the features of each position.
    Norm {
        /// Mean-centred or not.
        kind: NormKind,
        /// Added to the variance.
        eps: f64,
    },
    /// x·Wᵀ + b.
    Linear,
    /// [batch, length, heads × d_head] to [batch, heads, length, d_head].
    SplitHeads(Stack),
    /// Rotary positions: pairs of a head's features are rotated by an angle that grows with the position.
    Rotate {
        /// Whose positions.
        side: Side,
        /// The angle of pair i at position p is p · base^(−2i/d_head).
        base: f64,
        /// Which features are a pair.
        pairs: RotaryPairs,
    },
    /// q·kᵀ, multiplied by a factor. Where k has fewer heads than q, neighbouring heads of q share one of k.
    Scores {
        /// What the products are multiplied by.
        scale: Factor,
    },
    /// A learned bias by distance between query and key.
    RelativeBias {
        /// Whose self-attention: the encoder's looks both ways.
        stack: Stack,
        /// Rows of the table that distances are shared out to; 0 for all that it has.
        buckets: usize,
        /// Distances from here on share the last bucket.
        max_distance: usize,
    },
    /// 0 where a query may see a key, −∞ where it may not.
    Mask(MaskKind),
    /// Scores plus bias plus mask, as far as they exist.
    AddMask {
        /// A relative bias is added.
        bias: bool,
        /// A mask is added.
        mask: bool,
    },
    /// Scores to weights, row by row.
    Squash(Squash),
    /// weights·v. Where v has fewer heads, neighbouring heads of weights share one of v.
    Context,
    /// [batch, heads, length, d_head] to [batch, length, heads × d_head].
    MergeHeads(Stack),
    /// The stream plus a sublayer's output.
    Residual {
        /// How often the output is added; 1 but for a known mistake.
        gain: f32,
    },
    /// The activation, element by element.
    Activate(Activation),
    /// The product of the activated projection and a second one.
    Gate,
    /// The output projection, multiplied by a factor.
    Logits {
        /// What the decoder's output is multiplied by first.
        scale: Factor,
    },
}

/// Which cells of a score matrix are shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskKind {
    /// The queries.
    pub queries: Side,
    /// The keys.
    pub keys: Side,
    /// Keys after the query are shut.
    pub causal: bool,
    /// Keys that are padding are shut.
    pub padding: bool,
}

impl fmt::Display for MaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.causal, self.padding) {
            (true, true) => write!(f, "causal + {} padding", self.keys.word()),
            (true, false) => write!(f, "causal"),
            (false, true) => write!(f, "{} padding", self.keys.word()),
            (false, false) => write!(f, "none"),
        }
    }
}

/// A constant that follows from a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factor {
    /// 1.
    One,
    /// √n.
    Sqrt(Dim),
    /// 1/√n.
    Rsqrt(Dim),
}

impl Factor {
    /// Its value, once the dimension is known.
    pub fn value(self, sizes: &Sizes) -> Option<f64> {
        match self {
            Self::One => Some(1.0),
            Self::Sqrt(dim) => sizes.get(dim).map(|n| (n as f64).sqrt()),
            Self::Rsqrt(dim) => sizes.get(dim).map(|n| 1.0 / (n as f64).sqrt()),
        }
    }

    /// As it is written: `1/√64`, or `1/√K` with letters.
    pub fn text(self, sizes: &Sizes, symbolic: bool) -> String {
        let name = |dim: Dim| match sizes.get(dim) {
            Some(n) if !symbolic => n.to_string(),
            _ => dim.symbol(sizes),
        };
        match self {
            Self::One => "1".into(),
            Self::Sqrt(dim) => format!("√{}", name(dim)),
            Self::Rsqrt(dim) => format!("1/√{}", name(dim)),
        }
    }
}

/// The head of keys and values that a head of queries reads: `heads` of queries share `kv_heads` in equal groups.
pub fn kv_head(head: usize, heads: usize, kv_heads: usize) -> usize {
    head / (heads / kv_heads.max(1)).max(1)
}

/// How an operation's tensor relates to the one it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A tensor of its own, in the order of its dimensions.
    Own,
    /// Another name of its input.
    Name,
    /// Its input's values, whose heads an executor may leave where they lie: [batch, length, head · feature].
    NameInHeads,
    /// A tensor of its own, whose heads an executor may keep as [batch, length, head · feature].
    OwnInHeads,
}

impl Op {
    /// How its tensor relates to its input's.
    pub fn layout(&self) -> Layout {
        match self {
            Self::Same => Layout::Name,
            Self::SplitHeads(_) => Layout::NameInHeads,
            Self::Rotate { .. } => Layout::OwnInHeads,
            Self::Ids(_)
            | Self::TypeIds(_)
            | Self::Features
            | Self::Embed { .. }
            | Self::Positions { .. }
            | Self::AddPositions
            | Self::Conv1d { .. }
            | Self::Transpose
            | Self::Norm { .. }
            | Self::Linear
            | Self::Scores { .. }
            | Self::RelativeBias { .. }
            | Self::Mask(_)
            | Self::AddMask { .. }
            | Self::Squash(_)
            | Self::Context
            | Self::MergeHeads(_)
            | Self::Residual { .. }
            | Self::Activate(_)
            | Self::Gate
            | Self::Logits { .. } => Layout::Own,
        }
    }

    /// The sequence whose positions it reads by itself, not through its inputs.
    pub fn reads(&self) -> Option<Side> {
        match self {
            Self::Ids(side)
            | Self::TypeIds(side)
            | Self::Positions { side, .. }
            | Self::Rotate { side, .. } => Some(*side),
            Self::Features => Some(Side::Source),
            Self::RelativeBias { stack, .. } => Some(stack.side()),
            Self::Mask(kind) => Some(kind.queries),
            Self::Embed { .. }
            | Self::AddPositions
            | Self::Conv1d { .. }
            | Self::Transpose
            | Self::Same
            | Self::Norm { .. }
            | Self::Linear
            | Self::SplitHeads(_)
            | Self::Scores { .. }
            | Self::AddMask { .. }
            | Self::Squash(_)
            | Self::Context
            | Self::MergeHeads(_)
            | Self::Residual { .. }
            | Self::Activate(_)
            | Self::Gate
            | Self::Logits { .. } => None,
        }
    }

    /// Whether the last dimension counts keys, so that it grows with a cache while queries do not.
    pub fn counts_keys(&self) -> bool {
        match self {
            Self::Scores { .. }
            | Self::AddMask { .. }
            | Self::Squash(_)
            | Self::Mask(_)
            | Self::RelativeBias { .. } => true,
            Self::Ids(_)
            | Self::TypeIds(_)
            | Self::Features
            | Self::Embed { .. }
            | Self::Positions { .. }
            | Self::AddPositions
            | Self::Conv1d { .. }
            | Self::Transpose
            | Self::Same
            | Self::Norm { .. }
            | Self::Linear
            | Self::SplitHeads(_)
            | Self::Rotate { .. }
            | Self::Context
            | Self::MergeHeads(_)
            | Self::Residual { .. }
            | Self::Activate(_)
            | Self::Gate
            | Self::Logits { .. } => false,
        }
    }

    /// The operation's name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ids(_) => "ids",
            Self::TypeIds(_) => "type_ids",
            Self::Features => "features",
            Self::Embed { .. } => "embed",
            Self::Positions { .. } => "positions",
            Self::AddPositions => "add_positions",
            Self::Conv1d { .. } => "conv1d",
            Self::Transpose => "transpose",
            Self::Same => "same",
            Self::Norm { .. } => "norm",
            Self::Linear => "linear",
            Self::SplitHeads(_) => "split_heads",
            Self::Rotate { .. } => "rotate",
            Self::Scores { .. } => "scores",
            Self::RelativeBias { .. } => "relative_bias",
            Self::Mask(_) => "mask",
            Self::AddMask { .. } => "add_mask",
            Self::Squash(_) => "squash",
            Self::Context => "context",
            Self::MergeHeads(_) => "merge_heads",
            Self::Residual { .. } => "residual",
            Self::Activate(_) => "activate",
            Self::Gate => "gate",
            Self::Logits { .. } => "logits",
        }
    }

    /// The shape rule: what leaves the operation, from what enters it.
    pub(crate) fn output(&self, inputs: &[&[Dim]], weights: &[&[Dim]]) -> Vec<Dim> {
        let input = |i: usize| inputs.get(i).copied().unwrap_or_default();
        let weight = |i: usize| weights.get(i).copied().unwrap_or_default();
        let at = |dims: &[Dim], i: usize| dims.get(i).copied().unwrap_or(Dim::Fixed(1));
        match *self {
            Self::Ids(side) | Self::TypeIds(side) => vec![Dim::Batch, side.length()],
            Self::Features => vec![Dim::Batch, Dim::Mels, Dim::Frames],
            Self::Embed { .. } => vec![Dim::Batch, at(input(0), 1), at(weight(0), 1)],
            Self::Positions { side, count, .. } => {
                // The same for every row, unless a row's padding changes its numbers.
                let rows = match count {
                    PositionCount::Places => Dim::Fixed(1),
                    PositionCount::Tokens => Dim::Batch,
                };
                vec![rows, side.length(), Dim::Model]
            }
            Self::Conv1d { stride } => {
                vec![Dim::Batch, at(weight(0), 0), if stride == 1 { Dim::Frames } else { Dim::Source }]
            }
            Self::Transpose => vec![at(input(0), 0), at(input(0), 2), at(input(0), 1)],
            Self::Linear | Self::Logits { .. } => vec![at(input(0), 0), at(input(0), 1), at(weight(0), 0)],
            Self::SplitHeads(s) => {
                let heads = match at(input(0), 2) {
                    Dim::KvInner(_) => Dim::KvHeads(s),
                    _ => Dim::Heads(s),
                };
                vec![at(input(0), 0), heads, at(input(0), 1), Dim::Head(s)]
            }
            // [batch, head, query, head size] · [batch, head, key, head size]ᵀ
            Self::Scores { .. } => vec![at(input(0), 0), at(input(0), 1), at(input(0), 2), at(input(1), 2)],
            Self::RelativeBias { stack, .. } => {
                let length = stack.side().length();
                vec![Dim::Fixed(1), Dim::Heads(stack), length, length]
            }
            Self::Mask(kind) => vec![Dim::Batch, Dim::Fixed(1), kind.queries.length(), kind.keys.length()],
            // [batch, head, query, key] · [batch, head, key, head size]
            Self::Context => vec![at(input(0), 0), at(input(0), 1), at(input(0), 2), at(input(1), 3)],
            Self::MergeHeads(s) => vec![at(input(0), 0), at(input(0), 2), Dim::Inner(s)],
            Self::AddPositions
            | Self::Same
            | Self::Rotate { .. }
            | Self::Norm { .. }
            | Self::AddMask { .. }
            | Self::Squash(_)
            | Self::Residual { .. }
            | Self::Activate(_)
            | Self::Gate => input(0).to_vec(),
        }
    }
}
