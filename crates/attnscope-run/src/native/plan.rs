//! What follows from the graph alone: which node makes a tensor, when it is last read, what depends on the target.

use attnscope_graph::{
    Dim, Factor, Graph, KvSharing, Layout, MaskKind, Node, NodeId, Normaliser, Op, WeightId,
};

use crate::executor::on_target;
use crate::intervention::Interventions;

/// The order of a run, derived once from a graph.
#[derive(Debug)]
pub(super) struct Plan {
    /// The node that made a node's tensor: another one, where a node only names or reshapes.
    pub(super) root: Vec<usize>,
    /// For each step, the tensors that are not read after it.
    pub(super) dead: Vec<Vec<usize>>,
    /// Whether a node's tensor depends on the target. A tensor that does not is computed once per source.
    pub(super) on_target: Vec<bool>,
    /// The attention that ends in a node.
    pub(super) attention: Vec<Option<Attention>>,
    /// The nodes that make keys and values of positions before the window.
    pub(super) cached: Vec<bool>,
    /// Whether a position does not see those after it, so that its tensors stay as they are when the target grows.
    pub(super) is_causal: bool,
}

impl Plan {
    /// A node with an intervention has its own tensor, even where it is only a second name.
    pub(super) fn new(graph: &Graph, interventions: &Interventions<'_>) -> Self {
        Self::with_own(graph, |id| interventions.intervenes_on(id))
    }

    /// The same where some nodes have a tensor of their own although they are only names.
    pub(super) fn with_own(graph: &Graph, has_own: impl Fn(NodeId) -> bool) -> Self {
        let nodes = graph.nodes();
        let changed: Vec<bool> = graph.iter().map(|(id, _)| has_own(id)).collect();
        let mut root: Vec<usize> = (0..nodes.len()).collect();
        let on_target = on_target(graph);
        for (i, node) in nodes.iter().enumerate() {
            let is_name =
                matches!(node.op.facets().layout, Layout::Name | Layout::NameInHeads) && !changed[i];
            if let (true, Some(input)) = (is_name, node.inputs.first()) {
                root[i] = root[input.index()];
            }
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

impl Plan {
    /// The same for a run after which some tensors are still there, by the node that makes them.
    pub(super) fn keeping(mut self, kept: &[bool]) -> Self {
        self.dead.iter_mut().for_each(|dead| dead.retain(|&made_by| !kept[made_by]));
        self
    }
}

/// The steps of an attention are computed together, at its end.
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
        let facets = node.op.facets();
        // Heads that were left where they lie are read when the attention is computed.
        let waits = facets.within_attention || facets.layout == Layout::NameInHeads;
        let at = if waits { ends[i] } else { i };
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
    /// Which heads of queries share keys and values.
    pub(super) sharing: KvSharing,
    pub(super) normaliser: Normaliser,
    /// The scores after their cap, and the cap.
    pub(super) capped: Option<(NodeId, f64)>,
    pub(super) bias: Option<(NodeId, WeightId)>,
    pub(super) mask: Option<(NodeId, MaskKind)>,
    /// Width of a head.
    pub(super) size: Dim,
}

impl Attention {
    /// What it is computed from that has a gradient.
    pub(super) fn differentiable(&self) -> Vec<NodeId> {
        [self.q, self.k, self.v].into_iter().chain(self.bias.map(|(id, _)| id)).collect()
    }

    fn of(graph: &Graph, merge: &Node) -> Option<Self> {
        let Op::MergeHeads(_) = merge.op else { return None };
        let context = *merge.inputs.first()?;
        let [weights, v] = graph.node(context).inputs[..] else { return None };
        let Op::Normalise(normaliser) = graph.node(weights).op else { return None };
        let masked = *graph.node(weights).inputs.first()?;
        let (&first, added) = graph.node(masked).inputs.split_first()?;
        let (scores, capped) = match graph.node(first).op {
            Op::SoftCap { cap, .. } => (*graph.node(first).inputs.first()?, Some((first, cap))),
            _ => (first, None),
        };
        let [q, k] = graph.node(scores).inputs[..] else { return None };
        let Op::Scores { scale, sharing } = graph.node(scores).op else { return None };
        let (mut bias, mut mask) = (None, None);
        for &id in added {
            match graph.node(id).op {
                Op::RelativeBias { .. } => bias = graph.node(id).weights.first().map(|&table| (id, table)),
                Op::Mask(kind) => mask = Some((id, kind)),
                _ => {}
            }
        }
        let size = *graph.node(context).dims.last()?;
        Some(Self {
            q,
            k,
            v,
            scores,
            capped,
            masked,
            weights,
            context,
            scale,
            sharing,
            normaliser,
            bias,
            mask,
            size,
        })
    }
}
