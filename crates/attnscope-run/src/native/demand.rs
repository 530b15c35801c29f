//! The memory that a pass needs, computed before it starts from the plan and the sizes.

use std::collections::HashSet;

use attnscope_graph::{Layout, NodeId, Op};

use super::pass::{Pass, cached_extent};
use crate::error::RunError;
use crate::sink::Sink;

impl Pass<'_> {
    /// Refuses a pass that needs more memory than there is. `weights` is what weights take that it reads on the way, in bytes.
    pub(super) fn check_demand(&self, sink: &dyn Sink, weights: u64) -> Result<(), RunError> {
        self.limits.check_memory(self.demand(sink)?.saturating_add(weights))
    }

    /// The peak of the bytes of the pass and its sink, without the weights.
    pub(super) fn demand(&self, sink: &dyn Sink) -> Result<u64, RunError> {
        let mut made = vec![0u64; self.values.len()];
        let (mut live, mut most) = (0u64, 0u64);
        let (mut tables, mut biases) = (HashSet::new(), HashSet::new());
        for (id, node) in self.model.graph.iter().filter(|&(id, _)| self.is_computed(id)) {
            let (bytes, facets) = (self.bytes(id)?, node.op.facets());
            // Temporary memory, and tensors that stay until their last use.
            let (moment, stays) = match node.op {
                _ if facets.within_attention => (0, 0),
                _ if facets.layout == Layout::Name && self.plan.root[id.index()] != id.index() => (0, 0),
                Op::SplitHeads(_) => (if sink.wants(id) { bytes } else { 0 }, 0),
                Op::Rotate { .. } => (if sink.wants(id) { bytes } else { 0 }, bytes),
                Op::MergeHeads(_) => (self.stages(id, sink)?, bytes),
                Op::Mask(kind) => (0, if tables.insert(kind) { bytes } else { 0 }),
                Op::RelativeBias { .. } => (0, if biases.insert(node.weights.first()) { bytes } else { 0 }),
                _ => (0, bytes.saturating_add((self.kept_len(node)? as u64).saturating_mul(4))),
            };
            let (cached, moved) = self.cached(id)?;
            let moment = moment.max(moved);
            live = live.saturating_add(stays).saturating_add(cached);
            made[id.index()] = stays;
            let held = (bytes / 4).saturating_mul(sink.held(id, 4));
            most = most.max(live.saturating_add(moment).saturating_add(held));
            live = live.saturating_add(held);
            for &dead in &self.plan.dead[id.index()] {
                live = live.saturating_sub(std::mem::take(&mut made[dead]));
            }
        }
        Ok(most)
    }

    /// Bytes that the cache of a node grows by in this pass, and those that are there for a moment.
    fn cached(&self, id: NodeId) -> Result<(u64, u64), RunError> {
        let cache = self.caches.as_ref().filter(|_| self.plan.cached[id.index()]);
        let Some(cache) = cache.map(|caches| &caches[id.index()]) else { return Ok((0, 0)) };
        let positions = self.window.past + self.window.length;
        let extent = cached_extent(self.model.graph.node(id), &self.shape(id)?);
        Ok(extent.map_or((0, 0), |(rows, width)| cache.demand(positions, rows, width)))
    }

    /// Bytes of a node's tensor in f32.
    pub(super) fn bytes(&self, id: NodeId) -> Result<u64, RunError> {
        let shape = self.shape(id)?;
        Ok(shape.iter().fold(4, |bytes: u64, &n| bytes.saturating_mul(n as u64)))
    }

    /// The memory of an attention in addition to its result: the context, and the stages that are wanted.
    fn stages(&self, merge: NodeId, sink: &dyn Sink) -> Result<u64, RunError> {
        let Some(parts) = &self.plan.attention[merge.index()] else { return Ok(0) };
        let mut bytes = self.bytes(parts.context)?;
        let capped = parts.capped.map(|(id, _)| id);
        for stage in [parts.scores, parts.masked, parts.weights].into_iter().chain(capped) {
            if sink.wants(stage) {
                bytes = bytes.saturating_add(self.bytes(stage)?);
            }
        }
        Ok(bytes)
    }
}
