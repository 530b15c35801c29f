//! What memory a pass needs, before it starts: the plan is walked with sizes in place of values.

use std::collections::HashSet;

use attnscope_checkpoint::check_memory;
use attnscope_graph::{NodeId, Op};

use super::ops::mask_key;
use super::pass::Pass;
use crate::error::RunError;
use crate::sink::Sink;

impl Pass<'_> {
    /// Refuses a pass that there is no memory for.
    pub(super) fn check_demand(&self, sink: &dyn Sink) -> Result<(), RunError> {
        check_memory(self.demand(sink)?).map_err(RunError::Memory)
    }

    /// The most bytes that the pass and its sink hold at once, beside weights.
    fn demand(&self, sink: &dyn Sink) -> Result<u64, RunError> {
        let mut made = vec![0u64; self.values.len()];
        let (mut live, mut most) = (0u64, 0u64);
        let mut tables = HashSet::new();
        for (id, node) in self.model.graph.iter().filter(|&(id, _)| self.is_computed(id)) {
            let bytes = self.bytes(id)?;
            // What is there for a moment only, and what stays until it was read for the last time.
            let (moment, stays) = match node.op {
                Op::Same | Op::Scores { .. } | Op::AddMask { .. } | Op::Squash(_) | Op::Context => (0, 0),
                Op::SplitHeads(_) => (if sink.wants(id) { bytes } else { 0 }, 0),
                Op::Rotate { .. } => (if sink.wants(id) { bytes } else { 0 }, bytes),
                Op::MergeHeads(_) => (self.stages(id, sink)?, bytes),
                Op::Mask(kind) => (0, if tables.insert(Some(mask_key(kind))) { bytes } else { 0 }),
                Op::RelativeBias { .. } => (0, if tables.insert(None) { bytes } else { 0 }),
                Op::Ids(_)
                | Op::TypeIds(_)
                | Op::Features
                | Op::Embed { .. }
                | Op::Positions { .. }
                | Op::AddPositions
                | Op::Conv1d { .. }
                | Op::Transpose
                | Op::Norm { .. }
                | Op::Linear
                | Op::Residual { .. }
                | Op::Activate(_)
                | Op::Gate
                | Op::Logits { .. } => (0, bytes),
            };
            live = live.saturating_add(stays);
            made[id.index()] = stays;
            let held = (bytes / 4).saturating_mul(sink.held(id));
            most = most.max(live.saturating_add(moment).saturating_add(held));
            live = live.saturating_add(held);
            for &dead in &self.plan.dead[id.index()] {
                live = live.saturating_sub(std::mem::take(&mut made[dead]));
            }
        }
        Ok(most)
    }

    /// Bytes of a node's tensor in f32.
    fn bytes(&self, id: NodeId) -> Result<u64, RunError> {
        let shape = self.shape(id)?;
        Ok(shape.iter().fold(4, |bytes: u64, &n| bytes.saturating_mul(n as u64)))
    }

    /// What an attention holds besides its result: the context, and the stages that somebody wants.
    fn stages(&self, merge: NodeId, sink: &dyn Sink) -> Result<u64, RunError> {
        let Some(parts) = &self.plan.attention[merge.index()] else { return Ok(0) };
        let mut bytes = self.bytes(parts.context)?;
        for stage in [parts.scores, parts.masked, parts.weights] {
            if sink.wants(stage) {
                bytes = bytes.saturating_add(self.bytes(stage)?);
            }
        }
        Ok(bytes)
    }
}
