//! What follows from the graph alone: who makes a tensor, when it is read for the last time, what depends on the target.

use attnscope_graph::{Dim, Factor, Graph, Layout, MaskKind, Node, NodeId, Op, Side, Squash, Stack};

use crate::change::Changes;

/// The order of a run, derived once from a graph.
#[derive(Debug)]
pub(super) struct Plan {
    /// The node that made a node's tensor: another one, where a node only names or reshapes.
    pub(super) root: Vec<usize>,
    /// For each step, the tensors that nobody reads after it.
    pub(super) dead: Vec<Vec<usize>>,
    /// Whether a node's tensor depends on the target. What does not is computed once a source.
    pub(super) on_target: Vec<bool>,
    /// The attention that ends in a node.
    pub(super) attention: Vec<Option<Attention>>,
    /// The nodes that make keys and values of positions before the window.
    pub(super) cached: Vec<bool>,
    /// Whether a position is blind to those after it, so that its tensors stay as they are when the target grows.
    pub(super) is_causal: bool,
}

impl Plan {
    /// What is changed on the way is a tensor of its own, even where the node is only another name.
    pub(super) fn new(graph: &Graph, changes: &Changes<'_>) -> Self {
        let nodes = graph.nodes();
        let changed: Vec<bool> = graph.iter().map(|(id, _)| changes.touch(id)).collect();
        let mut root: Vec<usize> = (0..nodes.len()).collect();
        let mut on_target = vec![false; nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            let is_name = matches!(node.op.layout(), Layout::Name | Layout::NameInHeads) && !changed[i];
            if let (true, Some(input)) = (is_name, node.inputs.first()) {
                root[i] = root[input.index()];
            }
            on_target[i] =
                node.op.reads() == Some(Side::Target) || node.inputs.iter().any(|id| on_target[id.index()]);
        }
        let attention: Vec<_> = nodes.iter().map(|node| Attention::of(graph, node)).collect();
        let mut cached = vec![false; nodes.len()];
        let mut is_causal = true;
        for attention in attention.iter().flatten().filter(|a| on_target[a.k.index()]) {
            cached[root[attention.k.index()]] = true;
            cached[root[attention.v.index()]] = true;
            is_causal &= attention.mask.is_some_and(|(_, mask)| mask.causal);
        }
        let dead = last_uses(nodes, &root);
        Self { root, dead, on_target, attention, cached, is_causal }
    }
}

/// The steps of an attention are taken together, at its end.
fn last_uses(nodes: &[Node], root: &[usize]) -> Vec<Vec<usize>> {
    let mut ends = vec![nodes.len(); nodes.len()];
    let mut end = nodes.len();
    for (i, node) in nodes.iter().enumerate().rev() {
        if matches!(node.op, Op::MergeHeads(_)) {
            end = i;
        }
        ends[i] = end;
    }
    let mut last: Vec<usize> = (0..nodes.len()).collect();
    for (i, node) in nodes.iter().enumerate() {
        let at = if is_within_attention(&node.op) { ends[i] } else { i };
        for made_by in node.inputs.iter().map(|id| root[id.index()]).chain([root[i]]) {
            last[made_by] = last[made_by].max(at);
        }
    }
    let mut dead = vec![Vec::new(); nodes.len()];
    for (made_by, &at) in last.iter().enumerate() {
        if let Some(dead) = dead.get_mut(at) {
            dead.push(made_by);
        }
    }
    dead
}

/// True for the steps that are computed together.
fn is_within_attention(op: &Op) -> bool {
    match op {
        Op::Scores { .. } | Op::AddMask { .. } | Op::Squash(_) | Op::Context | Op::SplitHeads(_) => true,
        Op::Ids(_)
        | Op::TypeIds(_)
        | Op::Features
        | Op::Embed { .. }
        | Op::Positions { .. }
        | Op::AddPositions
        | Op::Conv1d { .. }
        | Op::Transpose
        | Op::Same
        | Op::Norm { .. }
        | Op::Linear
        | Op::Rotate { .. }
        | Op::RelativeBias { .. }
        | Op::Mask(_)
        | Op::MergeHeads(_)
        | Op::Residual { .. }
        | Op::Activate(_)
        | Op::Gate
        | Op::Logits { .. } => false,
    }
}

/// The nodes of one attention, found from its end.
#[derive(Debug, Clone)]
pub(super) struct Attention {
    pub(super) q: NodeId,
    pub(super) k: NodeId,
    pub(super) v: NodeId,
    pub(super) scores: NodeId,
    pub(super) masked: NodeId,
    pub(super) weights: NodeId,
    pub(super) context: NodeId,
    pub(super) scale: Factor,
    pub(super) squash: Squash,
    pub(super) bias: Option<(NodeId, Stack)>,
    pub(super) mask: Option<(NodeId, MaskKind)>,
    /// Width of a head.
    pub(super) size: Dim,
}

impl Attention {
    fn of(graph: &Graph, merge: &Node) -> Option<Self> {
        let Op::MergeHeads(_) = merge.op else { return None };
        let context = *merge.inputs.first()?;
        let [weights, v] = graph.node(context).inputs[..] else { return None };
        let Op::Squash(squash) = graph.node(weights).op else { return None };
        let masked = *graph.node(weights).inputs.first()?;
        let (&scores, added) = graph.node(masked).inputs.split_first()?;
        let [q, k] = graph.node(scores).inputs[..] else { return None };
        let Op::Scores { scale } = graph.node(scores).op else { return None };
        let (mut bias, mut mask) = (None, None);
        for &id in added {
            match graph.node(id).op {
                Op::RelativeBias { stack, .. } => bias = Some((id, stack)),
                Op::Mask(kind) => mask = Some((id, kind)),
                _ => {}
            }
        }
        let size = *graph.node(context).dims.last()?;
        Some(Self { q, k, v, scores, masked, weights, context, scale, squash, bias, mask, size })
    }
}
