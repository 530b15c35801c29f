//! Measures the tensors of a batch as they are made. Nothing is padded, so that every position is a token.

use std::collections::BTreeMap;

use attnscope_diagnose::{Decoded, HeadMeasures, Weights, head_measures, nll_of_labels, stream_norm};
use attnscope_graph::{AttentionKind, AttentionPlace, AttentionStep, Model, NodeId, Op, Role, Stack};
use attnscope_run::{RunError, Sink, Tensor};

use super::KernelOptions;
use crate::model::AuditModel;

/// A sublayer's sum with its stream.
#[derive(Debug, Clone)]
pub(super) struct Join {
    pub(super) path: String,
    pub(super) layer: usize,
    stack: Stack,
    node: NodeId,
    stream: NodeId,
    branch: NodeId,
    gain: f64,
}

/// An attention whose weights are measured.
#[derive(Debug, Clone)]
pub(super) struct Attention {
    pub(super) place: AttentionPlace,
    weights: NodeId,
}

/// The nodes that are measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    attentions: Vec<Attention>,
    joins: Vec<Join>,
    logits: Option<NodeId>,
    /// The cross-attentions whose heads say which source token a target token is from.
    aligning: Vec<(NodeId, Vec<usize>)>,
}

impl Watched {
    pub(super) fn of(model: &AuditModel, options: &KernelOptions) -> Self {
        let graph = &model.model().graph;
        let mut watched = Self { logits: graph.at(Role::Logits), ..Self::default() };
        for (id, node) in graph.iter().filter(|_| options.measures) {
            match (node.role.attention(), node.op, &node.inputs[..]) {
                (Some((place, AttentionStep::Weights)), _, _) => {
                    watched.attentions.push(Attention { place, weights: id });
                }
                (_, Op::Residual { gain }, &[stream, branch]) => {
                    let Some((stack, layer)) = node.role.layer() else { continue };
                    let path = format!("{}.{layer}.{}", stack.name(), node.role.part_name());
                    let gain = f64::from(gain).abs();
                    watched.joins.push(Join { path, layer, stack, node: id, stream, branch, gain });
                }
                _ => {}
            }
        }
        for head in model.alignment_heads.iter().filter(|_| options.alignments) {
            let kind = AttentionKind::CrossAttention;
            let place = AttentionPlace { stack: Stack::Decoder, layer: head.layer, kind };
            let Some(node) = graph.at(place.step(AttentionStep::Weights)) else { continue };
            match watched.aligning.iter_mut().find(|(known, _)| *known == node) {
                Some((_, heads)) => heads.push(head.head),
                None => watched.aligning.push((node, vec![head.head])),
            }
        }
        watched
    }
}

/// What a run showed of one row, on one side of the model.
#[derive(Debug, Clone, Default)]
pub(super) struct RowSeen {
    /// Nats that the labels cost.
    pub(super) nll: Option<f64>,
    pub(super) attentions: Vec<(AttentionPlace, Vec<HeadMeasures>)>,
    /// Path, layer, output ratio and norm of the sum.
    pub(super) joins: Vec<(String, usize, [f64; 2])>,
    /// For each label the source token that it is from, and the weight.
    pub(super) alignment: Vec<(usize, usize, f64)>,
}

/// Receives the tensors of one batch.
pub(super) struct WaveSink<'a> {
    model: &'a Model,
    watched: &'a Watched,
    rows: usize,
    /// Whether heads and layers are measured, too.
    measured: bool,
    stack: Stack,
    encoder: Option<NodeId>,
    decoded: Vec<&'a Decoded>,
    source_ends: Vec<Vec<usize>>,
    target_ends: Vec<Vec<usize>>,
    seen: Vec<RowSeen>,
    outputs: Vec<Vec<f32>>,
    /// For each row, the norms of its streams and branches.
    norms: BTreeMap<NodeId, Vec<f64>>,
    /// For each row, the summed weights of the aligning heads, [query, key].
    aligning: Vec<Vec<f64>>,
    keys: usize,
}

impl<'a> WaveSink<'a> {
    pub(super) fn new(model: &'a Model, watched: &'a Watched, rows: usize, measured: bool) -> Self {
        Self {
            model,
            watched,
            rows,
            measured,
            stack: Stack::Encoder,
            encoder: None,
            decoded: Vec::new(),
            source_ends: Vec::new(),
            target_ends: Vec::new(),
            seen: vec![RowSeen::default(); rows],
            outputs: Vec::new(),
            norms: BTreeMap::new(),
            aligning: vec![Vec::new(); rows],
            keys: 0,
        }
    }

    pub(super) fn of_encoder(self, encoder: NodeId, source_ends: Vec<Vec<usize>>) -> Self {
        Self { encoder: Some(encoder), source_ends, ..self }
    }

    pub(super) fn of_decoder(
        self,
        decoded: Vec<&'a Decoded>,
        source_ends: Vec<Vec<usize>>,
        target_ends: Vec<Vec<usize>>,
    ) -> Self {
        Self { stack: Stack::Decoder, decoded, source_ends, target_ends, ..self }
    }

    fn attention(&self, node: NodeId) -> Option<&'a Attention> {
        let of_stack = |attention: &&Attention| attention.place.stack == self.stack;
        let mut own = self.watched.attentions.iter().filter(of_stack).filter(|_| self.measured);
        own.find(|attention| attention.weights == node)
    }

    fn joins(&self) -> impl Iterator<Item = &'a Join> + use<'a> {
        let (stack, measured) = (self.stack, self.measured);
        self.watched.joins.iter().filter(move |join| measured && join.stack == stack)
    }

    fn is_joined(&self, node: NodeId) -> bool {
        self.joins().any(|join| [join.node, join.stream, join.branch].contains(&node))
    }

    fn aligning_heads(&self, node: NodeId) -> Option<&'a [usize]> {
        let is_wanted = self.measured && self.stack == Stack::Decoder;
        let found = self.watched.aligning.iter().filter(|_| is_wanted).find(|(own, _)| *own == node);
        found.map(|(_, heads)| &heads[..])
    }

    fn is_logits(&self, node: NodeId) -> bool {
        self.stack == Stack::Decoder && Some(node) == self.watched.logits
    }

    /// One row after the other, each with its part of the values.
    fn each_row(&mut self, values: &[f32], mut look: impl FnMut(&mut Self, usize, &[f32])) {
        let size = (values.len() / self.rows.max(1)).max(1);
        for (row, part) in values.chunks(size).enumerate().take(self.rows) {
            look(self, row, part);
        }
    }

    /// [head, query, key]
    fn measure_heads(&mut self, place: AttentionPlace, shape: &[usize], row: usize, values: &[f32]) {
        let &[_, heads, queries, keys] = shape else { return };
        let of_target = self.stack == Stack::Decoder && place.kind == AttentionKind::SelfAttention;
        let ends = if of_target { &self.target_ends } else { &self.source_ends };
        let open = vec![true; keys];
        let weights = Weights {
            values,
            heads,
            queries,
            stride: queries,
            open: &open,
            end: ends.get(row).map(Vec::as_slice).unwrap_or_default(),
            mask: self.model.graph.mask_of(place),
        };
        self.seen[row].attentions.push((place, head_measures(&weights)));
    }

    /// [head, query, key]
    fn add_alignment(&mut self, heads: &[usize], [queries, keys]: [usize; 2], row: usize, values: &[f32]) {
        self.keys = keys;
        let sum = &mut self.aligning[row];
        sum.resize(queries * keys, 0.0);
        for head in heads {
            let of_head = values.get(head * queries * keys..(head + 1) * queries * keys).unwrap_or_default();
            sum.iter_mut().zip(of_head).for_each(|(sum, &a)| *sum += f64::from(a));
        }
    }

    /// What was seen of every row.
    pub(super) fn seen(mut self) -> Vec<RowSeen> {
        for join in self.joins() {
            let norms = [join.stream, join.branch, join.node].map(|node| self.norms.get(&node));
            let [Some(stream), Some(branch), Some(sum)] = norms else { continue };
            for (row, seen) in self.seen.iter_mut().enumerate() {
                let (stream, branch, sum) = (stream[row], branch[row], sum[row]);
                seen.joins.push((join.path.clone(), join.layer, [join.gain * branch / stream, sum]));
            }
        }
        let heads: usize = self.watched.aligning.iter().map(|(_, heads)| heads.len()).sum();
        for (row, (seen, decoded)) in self.seen.iter_mut().zip(&self.decoded).enumerate() {
            let queries = self.aligning[row].chunks(self.keys.max(1)).skip(decoded.first);
            for (label, weights) in queries.take(decoded.labels.len()).enumerate() {
                let strongest =
                    weights.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
                let Some((key, &weight)) = strongest else { continue };
                seen.alignment.push((key, label, weight / heads.max(1) as f64));
            }
        }
        self.seen
    }

    /// The encoder's output and what was seen of every row.
    pub(super) fn encoded(mut self) -> Vec<(Vec<f32>, RowSeen)> {
        let outputs = std::mem::take(&mut self.outputs);
        outputs.into_iter().zip(self.seen()).collect()
    }
}

impl Sink for WaveSink<'_> {
    fn wants(&self, node: NodeId) -> bool {
        Some(node) == self.encoder
            || self.is_logits(node)
            || self.attention(node).is_some()
            || self.aligning_heads(node).is_some()
            || self.is_joined(node)
    }

    fn held(&self, node: NodeId, _: u64) -> u64 {
        // Only the encoder's output is copied.
        if Some(node) == self.encoder { 4 } else { 0 }
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        let (shape, values) = (tensor.shape(), &*tensor.values().as_f32());
        if Some(node) == self.encoder {
            self.each_row(values, |sink, _, row| sink.outputs.push(row.to_vec()));
        }
        if let Some(attention) = self.attention(node) {
            self.each_row(values, |sink, row, part| sink.measure_heads(attention.place, shape, row, part));
        }
        if let (Some(heads), &[_, _, queries, keys]) = (self.aligning_heads(node), shape) {
            self.each_row(values, |sink, row, part| sink.add_alignment(heads, [queries, keys], row, part));
        }
        if let (true, Some(&width)) = (self.is_joined(node), shape.last()) {
            let mut norms = Vec::with_capacity(self.rows);
            self.each_row(values, |_, _, part| {
                let positions = (part.len() / width.max(1)).max(1) as f64;
                norms.push(stream_norm(part, width, None) / positions.sqrt());
            });
            self.norms.insert(node, norms);
        }
        if let (true, Some(&width)) = (self.is_logits(node), shape.last()) {
            self.each_row(values, |sink, row, part| {
                let Some(decoded) = sink.decoded.get(row) else { return };
                sink.seen[row].nll = Some(nll_of_labels(part, width, decoded.first, &decoded.labels));
            });
        }
        Ok(())
    }
}
