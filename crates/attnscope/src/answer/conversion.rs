//! A checkpoint that was written in another format.

use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;

/// What was written, and what that cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Conversion {
    /// 1
    pub schema: u32,
    /// The checkpoint that was read, as it was named.
    pub input: String,
    /// The file that was written.
    pub output: String,
    /// Its format.
    pub format: String,
    /// How many tensors it has.
    pub tensors: usize,
    /// What was lost and accepted; nothing where the tensors are the same bit for bit.
    pub losses: Vec<AcceptedLoss>,
}

/// A loss that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AcceptedLoss {
    /// `untie`, `dequantize`, `widen` or `metadata`.
    pub loss: &'static str,
    /// What it is about.
    pub what: String,
}

impl Answer for Conversion {
    const NAME: &'static str = "convert";
}
