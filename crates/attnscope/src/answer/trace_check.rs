//! A saved trace, recomputed.

use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;

/// A trace of which every tensor was computed again in f64 from its inputs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TraceCheck {
    /// 1
    pub schema: u32,
    /// The trace's folder.
    pub trace: String,
    /// The model that was traced.
    pub model: String,
    /// `f32` or `f64`.
    pub precision: &'static str,
    /// Whether rounding explains every difference; the exit code is 1 where it does not.
    pub right: bool,
    /// The first node, in the order of computation, with an error that rounding does not explain.
    pub first_mistake: Option<String>,
    /// In the order of computation.
    pub checked: Vec<CheckedTensor>,
    /// Places in `checked`, the largest share of its bound first.
    pub ranked: Vec<usize>,
    /// In the order of computation.
    pub unchecked: Vec<UncheckedTensor>,
}

/// A tensor and its distance from the value computed from its inputs. Bounds are those of
/// [diff.md](diff.md#the-bound-of-rounding);
/// copies and masks have none.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CheckedTensor {
    /// The node's path.
    pub node: String,
    /// Its operation.
    pub op: &'static str,
    /// The largest difference between the tensor and the f64 value from its captured inputs; `null` where it is infinite.
    #[schemars(with = "Option<f64>")]
    pub error: f64,
    /// The tensor's largest magnitude.
    #[schemars(with = "Option<f64>")]
    pub largest: f64,
    /// The difference in terms of the largest magnitude; 0 where there is none.
    #[schemars(with = "Option<f64>")]
    pub relative: f64,
    /// The largest share that an error has of its bound; `null` where it is infinite.
    #[schemars(with = "Option<f64>")]
    pub share: f64,
    /// Whether that is more than 1.
    pub beyond: bool,
    /// The cell with that ratio.
    pub worst: Option<CheckedCell>,
}

/// One cell of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CheckedCell {
    /// One index per dimension.
    pub at: Vec<usize>,
    /// What was captured.
    #[schemars(with = "Option<f64>")]
    pub captured: f64,
    /// The value computed from its inputs.
    #[schemars(with = "Option<f64>")]
    pub derived: f64,
}

/// A tensor that was not checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UncheckedTensor {
    /// The node's path.
    pub node: String,
    /// Why.
    pub why: UncheckedReason,
    /// The input that is not in the trace, where that is why.
    pub input: Option<String>,
}

/// Why a tensor was not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UncheckedReason {
    /// It is not in the trace.
    NotSaved,
    /// A tensor that it is computed from is not in the trace.
    InputNotSaved,
    /// It is the input of the run.
    Given,
}

impl Answer for TraceCheck {
    const NAME: &'static str = "check-trace";
}
