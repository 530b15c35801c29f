//! A corpus that was measured, and two of them side by side.

use attnscope_corpus::{Comparison, CorpusSummary, Shard, Task};
use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;

/// What a model does on a corpus: the sums over the parts that were written.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Audit {
    /// 1
    pub schema: u32,
    /// The model, as it was named.
    pub model: String,
    /// The corpus.
    pub corpus: String,
    /// The folder of the parts.
    pub folder: String,
    /// What a row is: `pairs`, `audio` or `text`.
    pub rows: Task,
    /// Which of the parts are in the folder.
    pub shard: Shard,
    /// How many parts all shards have together.
    pub parts: usize,
    /// What was measured now; absent where an audit was only read.
    pub run: Option<AuditRun>,
    /// The sums.
    pub summary: CorpusSummary,
}

/// The run that wrote the parts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AuditRun {
    /// Rows that were measured now.
    pub measured: usize,
    /// Rows that were committed before.
    pub skipped: usize,
    /// Seconds that measuring took, without reading the model and the corpus.
    pub seconds: f64,
}

impl Answer for Audit {
    const NAME: &'static str = "audit";
}

/// Two audits side by side.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AuditComparison {
    /// 1
    pub schema: u32,
    /// The folders.
    pub folders: [String; 2],
    /// What differs.
    #[serde(flatten)]
    pub comparison: Comparison,
}

impl Answer for AuditComparison {
    const NAME: &'static str = "audit-compare";
}
