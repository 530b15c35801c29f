//! Which tensors a report holds as they are.

use std::collections::BTreeMap;

use attnscope_graph::{AttentionStep, NodeId, Role};

use crate::answer::{ExactValues, F32Array, LeftOut, ReportAttention, Trace};
use crate::figures::counted;

/// Values of scores, masks and weights, in bytes.
const ATTENTION_BYTES: usize = 256 << 10;
/// Values of all other tensors.
const OTHER_BYTES: usize = 152 << 10;

/// The values of as many tensors as there is room for: those of attentions, then those of the walk, then all others.
pub(super) fn values(
    trace: &Trace,
    attentions: &[ReportAttention],
    left_out: &mut Vec<LeftOut>,
) -> BTreeMap<String, ExactValues> {
    let Ok(model) = trace.model().opened().model() else { return BTreeMap::new() };
    let rank = |id: NodeId, is_stop: bool| match model.graph.node(id).role.attention() {
        Some((_, AttentionStep::Weights)) if !attentions.is_empty() => 0,
        Some((_, AttentionStep::Scores | AttentionStep::Mask)) => 1,
        _ if is_stop && model.graph.node(id).role != Role::Logits => 2,
        _ => 3,
    };
    let mut kept: Vec<_> = trace
        .nodes
        .iter()
        .filter_map(|node| Some((rank(node.id, !node.snapshots.is_empty()), node, trace.kept.get(&node.id)?)))
        .collect();
    // Small ones first, so that there are many.
    kept.sort_by_key(|(rank, node, tensor)| (*rank, tensor.len(), node.id));
    let (mut of_attention, mut other) = (ATTENTION_BYTES, OTHER_BYTES);
    let mut values = BTreeMap::new();
    for (rank, node, tensor) in kept {
        let room = if rank < 2 { &mut of_attention } else { &mut other };
        let bytes = tensor.len() * size_of::<f32>();
        if bytes > *room {
            continue;
        }
        *room -= bytes;
        let held = ExactValues { shape: tensor.shape().to_vec(), values: F32Array(tensor.values().to_f32()) };
        values.insert(node.path.clone(), held);
    }
    let without = trace.nodes.len() - values.len();
    if without > 0 {
        let why = format!(
            "{} of {} {} not in it, because there is no room for all values",
            without,
            counted(trace.nodes.len(), "tensor"),
            if without == 1 { "is" } else { "are" }
        );
        left_out.push(LeftOut { part: "values", why });
    }
    values
}
