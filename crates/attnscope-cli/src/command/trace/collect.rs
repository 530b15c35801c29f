//! What becomes of each tensor: measured, kept, written.

use std::collections::{BTreeMap, HashMap};

use attnscope_checkpoint::Stats;
use attnscope_graph::NodeId;
use attnscope_run::trace::TraceWriter;
use attnscope_run::{Kept, RunError, Sink, Values};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Statistics are enough.
    Measure,
    /// The values themselves are shown.
    Keep,
}

/// Measures, keeps and writes tensors as they are made.
pub(super) struct Collect {
    pub(super) uses: HashMap<NodeId, Use>,
    pub(super) stats: BTreeMap<NodeId, Stats>,
    pub(super) kept: BTreeMap<NodeId, Kept>,
    pub(super) writer: Option<TraceWriter>,
}

impl Sink for Collect {
    fn wants(&self, node: NodeId) -> bool {
        self.uses.contains_key(&node) || self.writer.as_ref().is_some_and(|w| w.wants(node))
    }

    fn held(&self, node: NodeId) -> u64 {
        if self.uses.get(&node) == Some(&Use::Keep) { 8 } else { 0 }
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        let stats = match values {
            Values::F32(values) => Stats::of_f32(values),
            Values::F64(values) => Stats::of_f64(values),
        };
        self.stats.insert(node, stats);
        if self.uses.get(&node) == Some(&Use::Keep) {
            self.kept.insert(node, Kept { shape: shape.to_vec(), values: values.to_f64() });
        }
        self.writer.as_mut().map_or(Ok(()), |writer| writer.put(node, shape, values))
    }
}
