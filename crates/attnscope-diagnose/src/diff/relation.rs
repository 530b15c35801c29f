//! The simple relations between two tensors: a closed set, each with its name in JSON and its sentence.

use attnscope_graph::{Activation, KvSharing, NormGain, NormKind, Normaliser, Positions};
use serde_json::{Value, json};

use super::variant::{CachedMask, CachedPositions, OtherBucket, OtherRotary};

/// What turns the expected tensor into the one that was found.
#[derive(Debug, Clone, PartialEq)]
pub enum Relation {
    /// The same values, rounded to a shorter type.
    Cast {
        /// `f16` or `bf16`.
        to: &'static str,
    },
    /// Every value multiplied by one number.
    Scale {
        /// The number.
        factor: f64,
        /// The factor in terms of the model's sizes, where it is one: `√d_head`.
        known: Option<String>,
    },
    /// Rows and columns exchanged.
    Transpose {
        /// The weight that is transposed, where it is not the tensor itself.
        weight: Option<String>,
    },
    /// Heads in another order.
    PermutedHeads {
        /// `order[h]` is the head found in the place of head `h`.
        order: Vec<usize>,
        /// The weight whose columns are permuted, where the tensor itself is not.
        weight: Option<String>,
    },
    /// The two halves of the features exchanged.
    SwappedHalves,
    /// Features that should be in two halves are interleaved, or the other way round.
    Interleaved,
    /// Positions moved along the sequence.
    OffByOnePosition {
        /// By how many.
        by: i64,
        /// The row of the position table that position 0 takes, where that is what moved.
        offset: Option<usize>,
    },
    /// A bias that is not added.
    MissingBias {
        /// The weight.
        weight: String,
    },
    /// The same vector added at every position, which is not a weight of the node.
    AddedVector,
    /// A norm with another epsilon.
    OtherEps {
        /// The first common epsilon that explains the values.
        eps: f64,
        /// The one that the wiring gives.
        expected: f64,
        /// All of them.
        fits: Vec<f64>,
    },
    /// A norm that divides the variance by n − 1, as `torch.std` does, not by n.
    UnbiasedStd {
        /// eps is added to the root, not under it.
        eps_outside: bool,
    },
    /// A norm that adds eps to the root, not under it.
    EpsOutsideRoot,
    /// A norm of the other kind.
    OtherNorm {
        /// The one that explains the values.
        kind: NormKind,
    },
    /// A norm with another gain.
    OtherNormGain {
        /// The one that explains the values.
        gain: NormGain,
    },
    /// Queries or keys rotated in another way.
    OtherRotary {
        /// In which.
        how: OtherRotary,
    },
    /// Heads of queries read other heads of keys and values.
    OtherKvSharing {
        /// The way that explains the values.
        sharing: KvSharing,
    },
    /// Positions are wrong from one on.
    CachedPositions {
        /// From which.
        from: usize,
        /// In which way.
        how: CachedPositions,
    },
    /// A causal mask is wrong from one query on.
    CachedMask {
        /// From which.
        from: usize,
        /// In which way.
        how: CachedMask,
    },
    /// A step that returns its input unchanged.
    NotApplied,
    /// Another activation.
    OtherActivation {
        /// The one that explains the values.
        activation: Activation,
        /// The one that the wiring gives.
        expected: Activation,
    },
    /// Another function from scores to weights.
    OtherNormaliser {
        /// The one that explains the values.
        normaliser: Normaliser,
    },
    /// The softmax runs along another axis than the keys.
    SoftmaxAxis {
        /// `queries` or `heads`.
        axis: &'static str,
    },
    /// Masked weights are set to 0 after the softmax, so that rows do not sum to 1.
    MaskAfterSoftmax,
    /// Masked scores are multiplied by 0 before the softmax, where −∞ is to be added.
    MaskMultiplied,
    /// A causal mask from another diagonal.
    CausalOffset {
        /// 1 where a query sees the next position, −1 where it does not see its own.
        by: i64,
    },
    /// A mask that is not added, or only in part.
    MaskNotApplied {
        /// What is not hidden: `causal`, `source padding`.
        which: String,
    },
    /// A mask that hides more than it should.
    MaskTooWide {
        /// What the mask is: `causal + source padding`.
        mask: String,
    },
    /// The relative bias is not added.
    BiasNotAdded,
    /// Distances are given other rows of the relative bias table.
    OtherBucket {
        /// Which.
        how: OtherBucket,
    },
    /// Two tensors of an attention are exchanged after the projection.
    SwappedInputs {
        /// Which: `k` and `v`.
        tensors: [&'static str; 2],
    },
    /// Neighbouring features belong to different heads, where a head should have neighbouring ones.
    InterleavedHeads {
        /// `split`, `merge` or `both`.
        at: &'static str,
    },
    /// Heads and positions are not transposed where heads are split or merged.
    HeadsNotTransposed {
        /// `split`, `merge` or `both`.
        at: &'static str,
    },
    /// A part of the model is computed in a shorter type.
    LowerPrecision {
        /// `f16` or `bf16`.
        to: &'static str,
        /// The part: `encoder.0.self_attn`.
        part: String,
    },
    /// A weight rounded to 8-bit integers with a scale.
    Quantised {
        /// The weight.
        weight: String,
        /// What shares a scale.
        scales: &'static str,
        /// Whether its input is rounded to 8 bits, too.
        activations: bool,
    },
    /// A weight rounded to a shorter type.
    RoundedWeight {
        /// The weight.
        weight: String,
        /// `f16` or `bf16`.
        to: &'static str,
    },
    /// The rows of a table are shifted: every token has another token's row.
    RolledRows {
        /// The table.
        weight: String,
        /// By how many.
        by: i64,
    },
    /// Dropout that is left on: some cells are 0, the others larger by 1/(1 − p).
    Dropout {
        /// The probability.
        p: f64,
    },
    /// Positions computed in another way.
    OtherPositions {
        /// The way that explains the values.
        kind: Positions,
    },
    /// A sublayer's output has another residual scale.
    OtherResidualGain {
        /// How often.
        gain: f32,
    },
    /// The stream is multiplied by another number before a sublayer's output is added.
    ResidualScale {
        /// How often.
        scale: f64,
    },
    /// The stream that is added is another one.
    OtherResidual {
        /// The node that is added instead.
        node: String,
    },
    /// Computed from another tensor than the wiring says.
    OtherInput {
        /// The node that was read.
        node: String,
    },
    /// Computed with the weights of another node of the same layer.
    OtherWeights {
        /// Whose weights.
        node: String,
    },
    /// Computed with the weights of another layer.
    OtherLayer {
        /// Whose weights.
        node: String,
    },
    /// Two layers of a weight file are exchanged.
    SwappedLayers {
        /// `encoder` or `decoder`.
        stack: &'static str,
        /// Which.
        layers: [usize; 2],
    },
    /// Only a few features differ, at every position: rows of a weight.
    CorruptedRow {
        /// The features.
        rows: Vec<usize>,
        /// The weight whose rows they are.
        weight: Option<String>,
    },
    /// Only some heads differ.
    SomeHeads {
        /// Which.
        heads: Vec<usize>,
    },
    /// Only some rows of the batch differ.
    SomeRows {
        /// Which.
        rows: Vec<usize>,
    },
    /// Only some positions differ.
    SomePositions {
        /// Which.
        positions: Vec<usize>,
    },
    /// Only a part of a weight differs: some of its rows, columns or elements.
    WeightSlice {
        /// The weight.
        weight: String,
        /// The axes along which only a part differs, each with the indices that do.
        axes: Vec<(WeightAxis, Vec<usize>)>,
    },
    /// A few single cells, not a whole row, column or feature.
    SomeCells {
        /// Where they are.
        cells: Vec<Vec<usize>>,
    },
    /// A weight of another shape.
    OtherShape {
        /// The expected one, and the one that was found.
        shapes: [Vec<usize>; 2],
    },
    /// A weight that one file does not have.
    MissingWeight,
    /// NaN on one side only.
    NotANumber {
        /// How many cells.
        cells: usize,
    },
    /// Nothing but zeros on one side.
    AllZero {
        /// The weight that is all zero, where the tensor itself is not.
        weight: Option<String>,
    },
}

/// Lists every relation once: `name` is exhaustive, and the table in docs/diff.md is made from the same rows.
macro_rules! named {
    ($($variant:ident $name:literal: $meaning:literal;)*) => {
        impl Relation {
            /// Every relation: its name in JSON and what it means.
            pub const KINDS: &'static [(&'static str, &'static str)] = &[$(($name, $meaning)),*];

            /// Its name in JSON.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)*
                }
            }
        }
    };
}

named! {
    Cast "cast": "the same values, rounded to a shorter type";
    Scale "scale": "every value times one number, which is named where the model's sizes explain it";
    Transpose "transpose": "rows and columns exchanged, of the tensor or of a square weight";
    PermutedHeads "permuted_heads": "heads in another order";
    SwappedHalves "swapped_halves": "the two halves of the features exchanged";
    Interleaved "interleaved": "features are interleaved where they should be in two halves, or the other way round";
    OffByOnePosition "off_by_one_position": "positions moved along the sequence, or another row of the position table for position 0";
    MissingBias "missing_bias": "a bias that is not added";
    AddedVector "added_vector": "the same vector added at every position, which is not a weight of the node";
    OtherEps "other_eps": "a norm with another epsilon";
    UnbiasedStd "unbiased_std": "a norm that divides the variance by n − 1";
    EpsOutsideRoot "eps_outside_root": "a norm that adds eps after the root, not under it";
    OtherNorm "other_norm": "LayerNorm in place of RMSNorm, or the other way round";
    OtherNormGain "other_norm_gain": "a norm whose gain is its weight, not 1 + weight, or the other way round";
    OtherRotary "other_rotary": "rotary positions of another layout, theta, scaling or share, or off by one position";
    OtherKvSharing "other_kv_sharing": "heads of queries read other heads of keys and values: every so many share one, where neighbours should, or the other way round";
    CachedPositions "cached_positions": "positions that are wrong from one on, as in decoding with a cache: off by one, counted from 0 again, or always 0";
    CachedMask "cached_mask": "a causal mask that is wrong from one query on, as in decoding with a cache: past keys, or the newest, are hidden";
    NotApplied "not_applied": "a step that returns its input";
    OtherActivation "other_activation": "another activation";
    OtherNormaliser "other_squash": "a sigmoid in place of the softmax, or the other way round";
    SoftmaxAxis "softmax_axis": "the softmax runs over the queries or the heads, not over the keys";
    MaskAfterSoftmax "mask_after_softmax": "masked weights are set to 0 after the softmax, and rows do not sum to 1";
    MaskMultiplied "mask_multiplied": "masked scores are set to 0 before the softmax, not to −∞, and masked keys keep weight";
    CausalOffset "causal_offset": "a causal mask that is off by one position";
    MaskNotApplied "mask_not_applied": "a mask that is not added, or only in part";
    MaskTooWide "mask_too_wide": "a mask that hides more than it should";
    BiasNotAdded "bias_not_added": "the relative bias is not added";
    OtherBucket "other_bucket": "relative distances take other rows of the bias table: off by one, the other direction, another largest distance";
    SwappedInputs "swapped_inputs": "keys and values, or queries and keys, exchanged after the projection";
    InterleavedHeads "interleaved_heads": "neighbouring features belong to different heads";
    HeadsNotTransposed "heads_not_transposed": "heads split or merged without transposing heads and positions";
    LowerPrecision "lower_precision": "one part alone, as an attention, is computed in f16 or bf16";
    RoundedWeight "rounded_weight": "a weight rounded to f16 or bf16";
    RolledRows "rolled_rows": "the rows of an embedding table moved by one or two";
    Quantised "quantised": "a weight rounded to 8-bit integers, with or without what it is multiplied by";
    Dropout "dropout": "dropout left on: random zeros, and the rest times 1/(1 − p)";
    OtherPositions "other_positions": "positions computed in another way";
    OtherResidualGain "other_residual_gain": "a sublayer's output with another residual scale";
    ResidualScale "residual_scale": "the stream added twice, or not at all, to a sublayer's output";
    OtherResidual "other_residual": "another stream is added";
    OtherInput "other_input": "computed from another tensor than the wiring says";
    OtherWeights "other_weights": "computed with the weights of another node of the same layer";
    OtherLayer "other_layer": "computed with the weights of another layer";
    SwappedLayers "swapped_layers": "two whole layers exchanged (`--checkpoint`)";
    CorruptedRow "corrupted_row": "a few features differ, at every position: rows of a weight";
    SomeHeads "some_heads": "only some heads differ";
    SomeRows "some_rows": "only some rows of the batch differ";
    SomePositions "some_positions": "only some positions differ";
    WeightSlice "weight_slice": "only some rows, columns or elements of a weight differ (`--checkpoint`)";
    SomeCells "some_cells": "only a few cells differ";
    OtherShape "other_shape": "a weight of another shape (`--checkpoint`)";
    MissingWeight "missing_weight": "a weight that one file does not have";
    NotANumber "not_a_number": "NaN on one side alone";
    AllZero "all_zero": "nothing but zeros on one side";
}

/// An axis of a weight, as the weight's own shape has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightAxis {
    /// The first: output features, or the entries of a table.
    Rows,
    /// The second: input features.
    Columns,
    /// The third: the taps of a convolution.
    Taps,
    /// The only one of a vector.
    Elements,
}

impl WeightAxis {
    /// Its name in JSON, and in words for several places.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Columns => "columns",
            Self::Taps => "taps",
            Self::Elements => "elements",
        }
    }
}

impl Relation {
    /// Its details, for programs.
    pub fn detail(&self) -> Value {
        match self {
            Self::Cast { to } => json!({ "to": to }),
            Self::Scale { factor, known } => json!({ "factor": factor, "known": known }),
            Self::Transpose { weight } => json!({ "weight": weight }),
            Self::PermutedHeads { order, weight } => json!({ "order": order, "weight": weight }),
            Self::OffByOnePosition { by, offset } => json!({ "by": by, "offset": offset }),
            Self::MissingBias { weight } => json!({ "weight": weight }),
            Self::OtherEps { eps, expected, fits } => {
                json!({ "eps": eps, "expected": expected, "fits": fits })
            }
            Self::UnbiasedStd { eps_outside } => json!({ "eps_outside": eps_outside }),
            Self::SwappedInputs { tensors } => json!({ "tensors": tensors }),
            Self::RoundedWeight { weight, to } => json!({ "weight": weight, "to": to }),
            Self::RolledRows { weight, by } => json!({ "weight": weight, "by": by }),
            Self::ResidualScale { scale } => json!({ "scale": scale }),
            Self::SoftmaxAxis { axis } => json!({ "axis": axis }),
            Self::CausalOffset { by } => json!({ "by": by }),
            Self::OtherBucket { how } => how.detail(),
            Self::InterleavedHeads { at } | Self::HeadsNotTransposed { at } => json!({ "at": at }),
            Self::LowerPrecision { to, part } => json!({ "to": to, "part": part }),
            Self::Quantised { weight, scales, activations } => {
                json!({ "weight": weight, "scales": scales, "activations": activations })
            }
            Self::Dropout { p } => json!({ "p": p }),
            Self::OtherNorm { kind } => json!({ "norm": kind }),
            Self::OtherNormGain { gain } => json!({ "gain": gain }),
            Self::OtherRotary { how } => how.detail(),
            Self::OtherKvSharing { sharing } => json!({ "kv_sharing": sharing }),
            Self::CachedPositions { from, how } => json!({ "from": from, "how": how.name() }),
            Self::CachedMask { from, how } => json!({ "from": from, "how": how.name() }),
            Self::OtherActivation { activation, expected } => {
                json!({ "activation": activation, "expected": expected })
            }
            Self::OtherNormaliser { normaliser } => json!({ "squash": normaliser }),
            Self::MaskNotApplied { which } => json!({ "mask": which }),
            Self::MaskTooWide { mask } => json!({ "mask": mask }),
            Self::OtherPositions { kind } => json!({ "positions": kind }),
            Self::OtherResidualGain { gain } => json!({ "gain": gain }),
            Self::OtherResidual { node }
            | Self::OtherInput { node }
            | Self::OtherWeights { node }
            | Self::OtherLayer { node } => json!({ "node": node }),
            Self::SwappedLayers { stack, layers } => json!({ "stack": stack, "layers": layers }),
            Self::CorruptedRow { rows, weight } => json!({ "rows": rows, "weight": weight }),
            Self::SomeHeads { heads } => json!({ "heads": heads }),
            Self::SomeRows { rows } => json!({ "rows": rows }),
            Self::SomePositions { positions } => json!({ "positions": positions }),
            Self::WeightSlice { weight, axes } => {
                let axes: Vec<Value> =
                    axes.iter().map(|(axis, at)| json!({ "axis": axis.name(), "at": at })).collect();
                json!({ "weight": weight, "axes": axes })
            }
            Self::SomeCells { cells } => json!({ "cells": cells }),
            Self::OtherShape { shapes } => json!({ "shapes": shapes }),
            Self::NotANumber { cells } => json!({ "cells": cells }),
            Self::AllZero { weight } => json!({ "weight": weight }),
            Self::SwappedHalves
            | Self::Interleaved
            | Self::AddedVector
            | Self::NotApplied
            | Self::BiasNotAdded
            | Self::MaskAfterSoftmax
            | Self::MaskMultiplied
            | Self::EpsOutsideRoot
            | Self::MissingWeight => json!({}),
        }
    }

    /// Whether the relation is harmless: the same values, rounded to a shorter type.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Cast { .. })
    }
}
