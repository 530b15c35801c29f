//! What memory the gradients of tensors need, before a step starts.

use attnscope_graph::{Graph, NodeId};

use super::super::plan::Plan;
use crate::error::RunError;

/// The most bytes that the gradients of tensors take at once. `bytes` says how many a node's tensor has.
pub(in super::super) fn demand(
    graph: &Graph,
    plan: &Plan,
    wanted: &[bool],
    output: NodeId,
    bytes: impl Fn(NodeId) -> Result<u64, RunError>,
) -> Result<u64, RunError> {
    let mut held = vec![0u64; wanted.len()];
    held[output.index()] = bytes(output)?;
    let (mut live, mut most) = (held[output.index()], 0u64);
    for i in (0..wanted.len()).rev().filter(|&i| wanted[i]) {
        let inputs = match &plan.attention[i] {
            Some(attention) => attention.differentiable(),
            None => graph.nodes()[i].inputs.clone(),
        };
        // What is added to a gradient that is there is a tensor of its own for a moment.
        let mut moment = 0;
        let is_reached = held[i] > 0;
        for input in inputs.into_iter().filter(|input| wanted[input.index()] && is_reached) {
            let bytes = bytes(input)?;
            moment = moment.max(bytes);
            if held[input.index()] == 0 {
                held[input.index()] = bytes;
                live = live.saturating_add(bytes);
            }
        }
        most = most.max(live.saturating_add(moment));
        live = live.saturating_sub(std::mem::take(&mut held[i]));
    }
    Ok(most)
}
