//! The simple things that turn one tensor into another: a closed set, each with its name in JSON and its sentence.

use attnscope_graph::{Activation, NormKind, Positions, Squash};
use serde_json::{Value, json};

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
        /// What it is of the model's sizes, where it is something: `√d_head`.
        known: Option<String>,
    },
    /// Rows and columns exchanged.
    Transpose {
        /// The weight that is transposed, where it is not the tensor itself.
        weight: Option<String>,
    },
    /// Heads in another order.
    PermutedHeads {
        /// `order[h]` is the head that stands in the place of head `h`.
        order: Vec<usize>,
        /// The weight whose columns are permuted, where the tensor itself is not.
        weight: Option<String>,
    },
    /// The two halves of the features exchanged.
    SwappedHalves,
    /// Features that should stand in two halves alternate, or the other way round.
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
    /// The same vector added at every position, which is no weight of the node.
    AddedVector,
    /// A norm with another epsilon.
    OtherEps {
        /// The one that explains the values.
        eps: f64,
        /// The one that the wiring gives.
        expected: f64,
    },
    /// A norm of the other kind.
    OtherNorm {
        /// The one that explains the values.
        kind: NormKind,
    },
    /// A step that lets its input through as it is.
    NotApplied,
    /// Another activation.
    OtherActivation {
        /// The one that explains the values.
        activation: Activation,
        /// The one that the wiring gives.
        expected: Activation,
    },
    /// Another function from scores to weights.
    OtherSquash {
        /// The one that explains the values.
        squash: Squash,
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
    /// Positions computed in another way.
    OtherPositions {
        /// The way that explains the values.
        kind: Positions,
    },
    /// A sublayer's output added another number of times.
    OtherResidualGain {
        /// How often.
        gain: f32,
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
    /// A weight that one file does not have.
    MissingWeight,
    /// Values that are not numbers on one side.
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

impl Relation {
    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cast { .. } => "cast",
            Self::Scale { .. } => "scale",
            Self::Transpose { .. } => "transpose",
            Self::PermutedHeads { .. } => "permuted_heads",
            Self::SwappedHalves => "swapped_halves",
            Self::Interleaved => "interleaved",
            Self::OffByOnePosition { .. } => "off_by_one_position",
            Self::MissingBias { .. } => "missing_bias",
            Self::AddedVector => "added_vector",
            Self::OtherEps { .. } => "other_eps",
            Self::OtherNorm { .. } => "other_norm",
            Self::NotApplied => "not_applied",
            Self::OtherActivation { .. } => "other_activation",
            Self::OtherSquash { .. } => "other_squash",
            Self::MaskNotApplied { .. } => "mask_not_applied",
            Self::MaskTooWide { .. } => "mask_too_wide",
            Self::BiasNotAdded => "bias_not_added",
            Self::OtherPositions { .. } => "other_positions",
            Self::OtherResidualGain { .. } => "other_residual_gain",
            Self::OtherResidual { .. } => "other_residual",
            Self::OtherInput { .. } => "other_input",
            Self::OtherWeights { .. } => "other_weights",
            Self::OtherLayer { .. } => "other_layer",
            Self::CorruptedRow { .. } => "corrupted_row",
            Self::SomeHeads { .. } => "some_heads",
            Self::SomeRows { .. } => "some_rows",
            Self::SomePositions { .. } => "some_positions",
            Self::MissingWeight => "missing_weight",
            Self::NotANumber { .. } => "not_a_number",
            Self::AllZero { .. } => "all_zero",
        }
    }

    /// What is particular about it, for programs.
    pub fn detail(&self) -> Value {
        match self {
            Self::Cast { to } => json!({ "to": to }),
            Self::Scale { factor, known } => json!({ "factor": factor, "known": known }),
            Self::Transpose { weight } => json!({ "weight": weight }),
            Self::PermutedHeads { order, weight } => json!({ "order": order, "weight": weight }),
            Self::OffByOnePosition { by, offset } => json!({ "by": by, "offset": offset }),
            Self::MissingBias { weight } => json!({ "weight": weight }),
            Self::OtherEps { eps, expected } => json!({ "eps": eps, "expected": expected }),
            Self::OtherNorm { kind } => json!({ "norm": kind }),
            Self::OtherActivation { activation, expected } => {
                json!({ "activation": activation, "expected": expected })
            }
            Self::OtherSquash { squash } => json!({ "squash": squash }),
            Self::MaskNotApplied { which } => json!({ "mask": which }),
            Self::MaskTooWide { mask } => json!({ "mask": mask }),
            Self::OtherPositions { kind } => json!({ "positions": kind }),
            Self::OtherResidualGain { gain } => json!({ "gain": gain }),
            Self::OtherResidual { node }
            | Self::OtherInput { node }
            | Self::OtherWeights { node }
            | Self::OtherLayer { node } => json!({ "node": node }),
            Self::CorruptedRow { rows, weight } => json!({ "rows": rows, "weight": weight }),
            Self::SomeHeads { heads } => json!({ "heads": heads }),
            Self::SomeRows { rows } => json!({ "rows": rows }),
            Self::SomePositions { positions } => json!({ "positions": positions }),
            Self::NotANumber { cells } => json!({ "cells": cells }),
            Self::AllZero { weight } => json!({ "weight": weight }),
            Self::SwappedHalves
            | Self::Interleaved
            | Self::AddedVector
            | Self::NotApplied
            | Self::BiasNotAdded
            | Self::MissingWeight => json!({}),
        }
    }

    /// A sentence about the side that is called `it`: "B".
    pub fn sentence(&self, it: &str) -> String {
        match self {
            Self::Cast { to } => format!("{it} holds the same values, rounded to {to}"),
            Self::Scale { factor, known: Some(known) } => {
                format!("{it} is the other times {factor:.6}, which is {known}")
            }
            Self::Scale { factor, known: None } => format!("{it} is the other times {factor:.6}"),
            Self::Transpose { weight: Some(weight) } => format!("{it} is what {weight} gives, transposed"),
            Self::Transpose { weight: None } => format!("{it} has rows and columns exchanged"),
            Self::PermutedHeads { order, weight: None } => {
                format!("{it} has its heads in another order: {}", list(order))
            }
            Self::PermutedHeads { order, weight: Some(weight) } => {
                format!("{it} is what {weight} gives with its heads in another order: {}", list(order))
            }
            Self::SwappedHalves => format!("{it} has the two halves of its features exchanged"),
            Self::Interleaved => {
                format!(
                    "{it} has features that alternate where the other has two halves, or the other way round"
                )
            }
            Self::OffByOnePosition { by, offset: Some(offset) } => {
                format!("{it} takes positions that are off by {by}: position 0 has row {offset} of the table")
            }
            Self::OffByOnePosition { by, offset: None } => {
                let (n, way) = (by.abs(), if *by > 0 { "later" } else { "earlier" });
                format!("{it} has every position {n} {way}")
            }
            Self::MissingBias { weight } => format!("{it} is what comes out when {weight} is not added"),
            Self::AddedVector => format!("{it} differs by the same vector at every position"),
            Self::OtherEps { eps, expected } => {
                format!("{it} is what the norm gives with eps {eps:e} in place of {expected:e}")
            }
            Self::OtherNorm { kind: NormKind::Rms } => {
                format!("{it} is what the norm gives when the mean is not subtracted")
            }
            Self::OtherNorm { kind: NormKind::Layer } => {
                format!("{it} is what the norm gives when the mean is subtracted")
            }
            Self::NotApplied => format!("{it} is the input of this step: the step is not applied"),
            Self::OtherActivation { activation, expected } => {
                format!("{it} is what {} gives in place of {}", activation.name(), expected.name())
            }
            Self::OtherSquash { squash: Squash::Sigmoid } => {
                format!("{it} is what a sigmoid gives in place of a softmax")
            }
            Self::OtherSquash { squash: Squash::Softmax } => {
                format!("{it} is what a softmax gives in place of a sigmoid")
            }
            Self::MaskNotApplied { which } => format!("{it} does not hide {which}"),
            Self::MaskTooWide { mask } => format!("{it} hides too much: its mask is {mask}"),
            Self::BiasNotAdded => format!("{it} is what comes out when the relative bias is not added"),
            Self::OtherPositions { kind } => {
                let word = serde_json::to_value(kind).ok();
                let word = word.as_ref().and_then(Value::as_str).unwrap_or("other").replace('_', " ");
                format!("{it} has other positions: {word}")
            }
            Self::OtherResidualGain { gain: 0.0 } => {
                format!("{it} leaves the sublayer's output out of the sum")
            }
            Self::OtherResidualGain { gain } => format!("{it} adds the sublayer's output {gain} times"),
            Self::OtherResidual { node } => format!("{it} adds {node} in place of the stream"),
            Self::OtherInput { node } => format!("{it} is computed from {node}"),
            Self::OtherWeights { node } => format!("{it} is what the weights of {node} give"),
            Self::OtherLayer { node } => format!("{it} is what the weights of another layer give, of {node}"),
            Self::CorruptedRow { rows, weight: Some(weight) } => {
                format!("in {it} only {}", numbered("row", rows, &format!(" of {weight}")))
            }
            Self::CorruptedRow { rows, weight: None } => {
                format!("in {it} only {}", numbered("feature", rows, ", at every position,"))
            }
            Self::SomeHeads { heads } => format!("only {}", numbered("head", heads, "")),
            Self::SomeRows { rows } => format!("only {}", numbered("row", rows, " of the batch")),
            Self::SomePositions { positions } => format!("only {}", numbered("position", positions, "")),
            Self::MissingWeight => format!("{it} does not have it"),
            Self::NotANumber { cells } => format!("{cells} cells are not numbers on one side alone"),
            Self::AllZero { weight: None } => format!("{it} is all zero"),
            Self::AllZero { weight: Some(weight) } => {
                format!("{it} is what comes out when {weight} is all zero")
            }
        }
    }

    /// Whether the two tensors say the same all the same: a shorter type keeps what it can.
    pub fn is_harmless(&self) -> bool {
        matches!(self, Self::Cast { .. })
    }
}

/// `row 3 of it differs`, `rows 3, 4 of it differ`.
fn numbered(noun: &str, numbers: &[usize], of: &str) -> String {
    match numbers {
        [one] => format!("{noun} {one}{of} differs"),
        several => format!("{noun}s {}{of} differ", list(several)),
    }
}

/// The first few numbers.
fn list(numbers: &[usize]) -> String {
    let shown: Vec<String> = numbers.iter().take(12).map(usize::to_string).collect();
    let more = if numbers.len() > 12 { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}
