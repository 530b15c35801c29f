//! One run of the sample, measured on the way: the first NaN, what heads do, the size of each branch relative to its stream.

use std::collections::BTreeMap;

use attnscope_graph::{
    AttentionKind, AttentionPlace, AttentionStep, Dim, Graph, Model, NodeId, Op, Role, Side,
};
use attnscope_run::{CheckedInput, Input, Prepared, Report, Rows, RunError, Sink, Tensor, Weights};

use crate::heads::{Extent, HeadSeen, Pairwise, head_outputs, weights_seen};

/// What one run showed.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The first tensor with a NaN or an infinity.
    pub(crate) broken: Option<Broken>,
    /// The largest magnitude of the run, and where: how far it is from overflow.
    pub(crate) largest: Option<(NodeId, f32)>,
    /// Every attention, by the path of its part: `decoder.0.cross_attn`.
    pub(crate) attentions: Vec<AttentionSeen>,
    /// Norms of the stream and of the branch that joins it, by the residual's path.
    pub(crate) residuals: Vec<Joined>,
    /// Attentions with fully masked queries.
    pub(crate) report: Report,
}

/// The first tensor that is not finite.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Broken {
    pub(crate) node: NodeId,
    pub(crate) at: Vec<usize>,
    pub(crate) value: f32,
    /// How many are.
    pub(crate) count: usize,
    pub(crate) total: usize,
}

/// What an attention did.
#[derive(Debug, Clone)]
pub(crate) struct AttentionSeen {
    pub(crate) place: AttentionPlace,
    /// Its name for a reader.
    pub(crate) path: String,
    pub(crate) heads: Vec<HeadSeen>,
    /// How similar two heads are.
    pub(crate) pairs: Vec<Pairwise>,
}

impl AttentionSeen {
    /// The mean over heads, where they have an entropy.
    pub(crate) fn mean_entropy(&self) -> Option<f64> {
        let entropies: Vec<f64> = self.heads.iter().filter_map(|head| head.entropy).collect();
        (!entropies.is_empty()).then(|| entropies.iter().sum::<f64>() / entropies.len() as f64)
    }
}

/// A branch and the stream that it joins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Joined {
    pub(crate) role: Role,
    pub(crate) path: String,
    pub(crate) stream: f64,
    pub(crate) branch: f64,
}

impl Joined {
    /// The norm of the branch's output divided by the stream's.
    pub(crate) fn ratio(&self) -> f64 {
        self.branch / self.stream
    }
}

/// Runs the sample and measures.
pub(crate) fn observe(prepared: &dyn Prepared, input: &Input) -> Result<Observed, RunError> {
    let (model, weights) = (prepared.model(), prepared.weights());
    let graph = &model.graph;
    let mut watch = Watch {
        model,
        weights,
        input,
        norms: BTreeMap::new(),
        seen: Observed::default(),
        open: BTreeMap::new(),
    };
    let report = prepared.run(&CheckedInput::new(model, input.clone())?, &mut watch)?;
    let norms = watch.norms;
    let joined = |(_, node): (NodeId, &attnscope_graph::Node)| match (node.op, &node.inputs[..]) {
        (Op::Residual { gain }, &[stream, branch]) => Some(Joined {
            role: node.role,
            path: node.path.as_str().to_owned(),
            stream: *norms.get(&stream)?,
            branch: f64::from(gain).abs() * norms.get(&branch)?,
        }),
        _ => None,
    };
    let residuals = graph.iter().filter_map(joined).collect();
    Ok(Observed { residuals, report, attentions: watch.open.into_values().collect(), ..watch.seen })
}

struct Watch<'a> {
    model: &'a Model,
    weights: &'a Weights,
    input: &'a Input,
    /// Of tensors of the stream's width, over positions that are tokens.
    norms: BTreeMap<NodeId, f64>,
    seen: Observed,
    /// Attentions by the number of their weights' node.
    open: BTreeMap<NodeId, AttentionSeen>,
}

impl Sink for Watch<'_> {
    fn wants(&self, _: NodeId) -> bool {
        true
    }

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, id: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        let (shape, values) = (tensor.shape(), &*tensor.values().as_f32());
        let node = self.model.graph.node(id);
        if self.seen.broken.is_none() {
            self.seen.broken = broken(id, &node.op, shape, values);
        }
        let finite = values.iter().filter(|x| x.is_finite());
        let largest = finite.fold(0f32, |most, x| most.max(x.abs()));
        if !matches!(node.op, Op::Ids(_)) && self.seen.largest.is_none_or(|(_, known)| largest > known) {
            self.seen.largest = Some((id, largest));
        }
        if let [Dim::Batch, length, Dim::Model] = node.dims[..] {
            let side = if length == Dim::Target { Side::Target } else { Side::Source };
            self.norms.insert(id, self.norm(side, shape, values));
        }
        match node.op {
            Op::Normalise(_) => self.look_at_weights(id, shape, values),
            Op::Context { .. } => self.look_at_context(id, shape, values),
            _ => {}
        }
        Ok(())
    }
}

impl Watch<'_> {
    /// Which positions of a side are tokens, [batch, length]; all where the side has no tokens.
    fn is_token(&self, side: Side) -> Option<&[bool]> {
        self.input.rows(side).map(Rows::open)
    }

    fn norm(&self, side: Side, shape: &[usize], values: &[f32]) -> f64 {
        let width = shape.last().copied().unwrap_or(1).max(1);
        stream_norm(values, width, self.is_token(side))
    }

    fn extent<'s>(&'s self, graph: &Graph, id: NodeId, shape: &[usize], keys: usize) -> Option<Extent<'s>> {
        let (place, _) = graph.node(id).role.attention()?;
        let stack = place.stack;
        let key_side = match place.kind {
            AttentionKind::CrossAttention => Side::Source,
            AttentionKind::SelfAttention => stack.side(),
        };
        let &[batch, heads, queries, _] = shape else { return None };
        // Visible keys are those of the model's own masks, not those of the right masks.
        let mask = graph.mask_of(place);
        let masked = mask.is_some_and(|mask| mask.padding);
        Some(Extent {
            batch,
            heads,
            queries,
            keys,
            mask,
            query_open: self.is_token(stack.side()),
            key_open: self.is_token(key_side).filter(|_| masked),
        })
    }

    /// [batch, head, query, key]
    fn look_at_weights(&mut self, id: NodeId, shape: &[usize], values: &[f32]) {
        let keys = shape.last().copied().unwrap_or(0);
        let Some(extent) = self.extent(&self.model.graph, id, shape, keys) else { return };
        let Some((place, _)) = self.model.graph.node(id).role.attention() else { return };
        let (heads, pairs) = weights_seen(&extent, values);
        self.open.insert(id, AttentionSeen { place, path: place.to_string(), heads, pairs });
    }

    /// [batch, head, query, head size]: what each head adds to the stream, through its columns of the output projection.
    fn look_at_context(&mut self, id: NodeId, shape: &[usize], values: &[f32]) {
        let graph = &self.model.graph;
        let Some(&weights) = graph.node(id).inputs.first() else { return };
        let Some(place) = self.open.get(&weights).map(|seen| seen.place) else { return };
        let out = graph.at(place.step(AttentionStep::Out)).and_then(|id| graph.node(id).weights.first());
        let Some(out) = out.and_then(|&id| self.weights.get(id).ok()) else { return };
        let Some(extent) = self.extent(graph, id, shape, 0) else { return };
        let size = shape.last().copied().unwrap_or(1);
        let (norms, cosines) = head_outputs(&extent, size, values, &out);
        let heads = extent.heads;
        let Some(seen) = self.open.get_mut(&weights) else { return };
        seen.heads.iter_mut().zip(norms).for_each(|(head, norm)| head.norm = norm);
        for pair in &mut seen.pairs {
            pair.cosine = cosines[pair.first * heads + pair.second];
        }
    }
}

/// The norm of the positions that are tokens, which are all where `open` is absent; each position has so many values.
pub fn stream_norm(values: &[f32], width: usize, open: Option<&[bool]>) -> f64 {
    let is_token = |i: usize| open.is_none_or(|open| open.get(i).copied().unwrap_or(true));
    let rows = values.chunks(width.max(1)).enumerate().filter(|(i, _)| is_token(*i));
    rows.flat_map(|(_, row)| row).map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

/// The first NaN or infinity of a tensor. Masks and masked scores are −∞ by design.
pub(crate) fn broken(node: NodeId, op: &Op, shape: &[usize], values: &[f32]) -> Option<Broken> {
    let hides = matches!(op, Op::Mask(_) | Op::AddMask { .. });
    let bad = |x: &f32| !(x.is_finite() || (hides && *x == f32::NEG_INFINITY));
    let first = values.iter().position(bad)?;
    let count = values.iter().filter(|x| bad(x)).count();
    Some(Broken { node, at: crate::unravel(first, shape), value: values[first], count, total: values.len() })
}
