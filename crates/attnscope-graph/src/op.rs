//! The closed set of operations. What is known of an operation besides its arithmetic is a row of the table in `facets.rs`; its
//! shape, words, counts and kernels are exhaustive matches over [`Op`]: a missing facet does not compile.

use std::fmt;

use crate::block::RecurrentCell;
use crate::dim::{Dim, Side, Sizes, Stack};
use crate::kv_sharing::KvSharing;
use crate::rotary::Rotary;
use crate::wiring::{Activation, NormGain, NormKind, Normaliser, PositionCount, Positions};

/// What one node computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// Token ids, given by the user.
    Ids(Side),
    /// The type of each token: always 0, as for a single text.
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
    /// A convolution along positions: [batch, channel, position] to the same.
    Conv1d {
        /// Positions that a window covers.
        kernel: usize,
        /// Positions from one window to the next.
        stride: usize,
        /// Zeros before the first position and after the last.
        padding: usize,
        /// Positions that leave it.
        length: Dim,
    },
    /// Channels first to channels last, or back.
    Transpose,
    /// Another name for a value: the start or the end of a layer.
    Same,
    /// Normalisation over the features of each position, in groups of as many as there are gains: one group, or one a head.
    Norm {
        /// Mean-centred or not.
        kind: NormKind,
        /// Added to the variance.
        eps: f64,
        /// What a normed feature is multiplied by.
        gain: NormGain,
    },
    /// x·Wᵀ + b.
    Linear,
    /// [batch, length, heads × d_head] to [batch, heads, length, d_head].
    SplitHeads(Stack),
    /// Rotary positions: pairs of a head's features are rotated by an angle that grows with the position.
    Rotate {
        /// Whose positions.
        side: Side,
        /// Which features are a pair, and by which angles pairs are rotated.
        rotary: Rotary,
    },
    /// q·kᵀ, multiplied by a factor. Where k has fewer heads than q, some heads of q share one of k.
    Scores {
        /// What the products are multiplied by.
        scale: Factor,
        /// Which share one.
        sharing: KvSharing,
    },
    /// cap · tanh(x / cap): no value is larger than the cap.
    SoftCap {
        /// The cap.
        cap: f64,
        /// What is capped.
        of: Capped,
    },
    /// A learned bias by distance between query and key.
    RelativeBias {
        /// Whose self-attention: the encoder's looks both ways.
        stack: Stack,
        /// How many rows of the table are used; 0 for all.
        buckets: usize,
        /// Distances from this one on share the last bucket.
        max_distance: usize,
    },
    /// 0 where a query sees a key, −∞ where the key is masked.
    Mask(MaskKind),
    /// Scores plus bias plus mask, as far as they exist.
    AddMask {
        /// A relative bias is added.
        bias: bool,
        /// A mask is added.
        mask: bool,
    },
    /// Scores to weights, row by row.
    Normalise(Normaliser),
    /// weights·v. Where v has fewer heads, some heads of weights share one of v.
    Context {
        /// Which share one.
        sharing: KvSharing,
    },
    /// [batch, heads, length, d_head] to [batch, length, heads × d_head].
    MergeHeads(Stack),
    /// The stream plus a sublayer's output.
    Residual {
        /// The residual scale; 1, except in a known mistake.
        gain: f32,
    },
    /// The activation, element by element.
    Activate(Activation),
    /// The product of the activated projection and a second one.
    Gate,
    /// A recurrent cell over the positions, from what each position gives to its gates: [batch, position, gate · hidden] to
    /// the states, [batch, position, hidden], for an LSTM h and c side by side. The gates are in torch's order.
    Recur {
        /// Which cell.
        cell: RecurrentCell,
        /// Positions are read from the last to the first.
        reverse: bool,
    },
    /// h of the states of an LSTM, which are h and c side by side.
    Hidden,
    /// Two tensors side by side, along their features.
    Beside,
    /// The state after the last position that was read.
    LastState {
        /// Positions were read from the last to the first.
        reverse: bool,
    },
    /// One value of each feature, over the positions.
    Pool {
        /// Which value.
        pooling: Pooling,
        /// The dimension of the positions: 1, or 2 where channels stand before them.
        axis: usize,
        /// The sequence whose padding is left out.
        padding_of: Option<Side>,
    },
    /// Everything of a row of the batch in one row.
    Flatten {
        /// How many values that makes.
        features: usize,
    },
    /// Values dropped at random while training; the identity outside of it.
    Dropout {
        /// The share that is dropped.
        p: f32,
    },
    /// The output projection, multiplied by a factor.
    Logits {
        /// What the decoder's output is multiplied by first.
        scale: Factor,
    },
}

/// What a soft cap is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capped {
    /// The scores of an attention.
    Scores,
    /// The logits.
    Logits,
}

/// What is made of the positions of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The largest value.
    Max,
    /// The mean.
    Mean,
    /// That of the first position.
    First,
    /// That of the last position that is not padding.
    Last,
}

/// Which cells of a score matrix are masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaskKind {
    /// The queries.
    pub queries: Side,
    /// The keys.
    pub keys: Side,
    /// Keys after the query are masked.
    pub causal: bool,
    /// Keys that are padding are masked.
    pub padding: bool,
    /// Keys further from the query than this are masked: the window of local attention.
    pub reach: Option<usize>,
}

impl MaskKind {
    /// Whether it masks anything at all.
    pub fn masks(self) -> bool {
        self.causal || self.padding || self.reach.is_some()
    }

    /// Whether a query sees a key by their places alone, padding aside.
    pub fn is_in_view(self, query: usize, key: usize) -> bool {
        let is_future = self.causal && key > query;
        !is_future && self.reach.is_none_or(|reach| query.abs_diff(key) <= reach)
    }
}

impl fmt::Display for MaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causal = self.causal.then(|| "causal".to_owned());
        let reach = self.reach.map(|reach| format!("distance ≤ {reach}"));
        let padding = self.padding.then(|| format!("{} padding", self.keys.word()));
        let parts: Vec<String> = [causal, reach, padding].into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(" + "))
    }
}

/// A constant that follows from a dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Factor {
    /// 1.
    One,
    /// √n.
    Sqrt(Dim),
    /// 1/√n.
    Rsqrt(Dim),
    /// 1/√n of a number.
    RsqrtOf(f64),
}

impl Factor {
    /// Its value, once the dimension is known.
    pub fn value(self, sizes: &Sizes) -> Option<f64> {
        match self {
            Self::One => Some(1.0),
            Self::Sqrt(dim) => sizes.get(dim).map(|n| (n as f64).sqrt()),
            Self::Rsqrt(dim) => sizes.get(dim).map(|n| 1.0 / (n as f64).sqrt()),
            Self::RsqrtOf(n) => Some(1.0 / n.sqrt()),
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
            Self::RsqrtOf(n) => format!("1/√{n}"),
        }
    }
}

impl Op {
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
                // As wide as the table that they come from; sines are as wide as the stream.
                vec![rows, side.length(), weights.first().map_or(Dim::Model, |table| at(table, 1))]
            }
            Self::Conv1d { length, .. } => vec![Dim::Batch, at(weight(0), 0), length],
            Self::Transpose => vec![at(input(0), 0), at(input(0), 2), at(input(0), 1)],
            Self::Linear | Self::Logits { .. } => {
                let before = input(0).split_last().map(|(_, before)| before).unwrap_or_default();
                before.iter().copied().chain([at(weight(0), 0)]).collect()
            }
            // Of W_hh, [gate · hidden, hidden].
            Self::Recur { cell, .. } => {
                let states = match (cell, at(weight(0), 1)) {
                    (RecurrentCell::Lstm, Dim::Fixed(hidden)) => Dim::Fixed(2 * hidden),
                    (_, hidden) => hidden,
                };
                vec![at(input(0), 0), at(input(0), 1), states]
            }
            Self::Hidden => {
                let half = match at(input(0), 2) {
                    Dim::Fixed(states) => Dim::Fixed(states / 2),
                    other => other,
                };
                vec![at(input(0), 0), at(input(0), 1), half]
            }
            Self::Beside => {
                let sum = inputs.iter().map(|dims| match dims.last() {
                    Some(Dim::Fixed(n)) => *n,
                    _ => 0,
                });
                let before = input(0).split_last().map(|(_, before)| before).unwrap_or_default();
                before.iter().copied().chain([Dim::Fixed(sum.sum())]).collect()
            }
            Self::LastState { .. } => vec![at(input(0), 0), at(input(0), 2)],
            Self::Pool { axis, .. } => {
                input(0).iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, dim)| *dim).collect()
            }
            Self::Flatten { features } => vec![at(input(0), 0), Dim::Fixed(features)],
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
            Self::Context { .. } => vec![at(input(0), 0), at(input(0), 1), at(input(0), 2), at(input(1), 3)],
            Self::MergeHeads(s) => vec![at(input(0), 0), at(input(0), 2), Dim::Inner(s)],
            Self::AddPositions
            | Self::Same
            | Self::Rotate { .. }
            | Self::Norm { .. }
            | Self::AddMask { .. }
            | Self::Normalise(_)
            | Self::Residual { .. }
            | Self::Activate(_)
            | Self::Dropout { .. }
            | Self::SoftCap { .. }
            | Self::Gate => input(0).to_vec(),
        }
    }
}
