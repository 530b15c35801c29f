//! The description of a saved trace: `trace.json`.

use attnscope_graph::NodeId;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Answer;
use super::tokens::InputTokens;
use super::trace::{FullyMasked, TargetLoss};

/// What a saved trace describes.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TraceFile {
    /// 1, of this file.
    pub schema: u32,
    /// The model as it was named.
    pub model: String,
    /// Its files.
    pub files: Vec<TracedFile>,
    /// The family's id.
    pub family: &'static str,
    /// `f32` or `f64`.
    pub precision: &'static str,
    /// Every degree of freedom by its name.
    pub wiring: Map<String, Value>,
    /// Heads of encoder and decoder.
    pub heads: [Option<usize>; 2],
    /// What it read.
    pub tokens: InputTokens,
    /// Every node of the graph.
    pub nodes: Vec<SavedNode>,
    /// Attentions with fully masked queries; their weights are 0.
    #[serde(rename = "blind")]
    pub fully_masked: Vec<FullyMasked>,
    /// What gradients are the slope of, where they were saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<TargetLoss>,
}

/// A file of the model that was traced.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TracedFile {
    /// Its path.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its checksum.
    pub sha256: String,
}

/// A node of the model that was traced.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SavedNode {
    /// Its place in the graph.
    #[serde(skip)]
    pub id: NodeId,
    /// Its name everywhere.
    pub path: String,
    /// Its operation.
    pub op: &'static str,
    /// The paths of what it reads.
    pub inputs: Vec<String>,
    /// Its dimensions by their letters.
    pub dims: Vec<String>,
    /// Their sizes.
    pub shape: Option<Vec<usize>>,
    /// Its numbers in the walk.
    pub snapshots: Vec<usize>,
    /// Whether its tensor was saved.
    pub saved: bool,
    /// Whether its tensor's gradient was saved, under `grad:` and the path; absent where it was not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gradient_saved: bool,
}

impl Answer for TraceFile {
    const NAME: &'static str = "trace-file";
}
