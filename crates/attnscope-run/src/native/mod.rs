//! The native executor: f32 on all cores, every stage stored that somebody wants, buffers used again.

mod attention;
mod kernels;
mod matmul;
mod pool;

use std::collections::HashMap;

use attnscope_graph::{Dim, Factor, MaskKind, Model, Node, NodeId, Op, Positions, Stack};
use gemm::Parallelism;
use pulp::Arch;
use rayon::prelude::*;

use crate::error::RunError;
use crate::input::{Input, Source};
use crate::position::{bucket, sinusoid};
use crate::prepare::Prepared;
use crate::sink::{Sink, Values};
use crate::weights::Weights;
use attention::{Extent, Given, Stages, attend};
use matmul::{Layout, View, multiply};
use pool::Pool;

/// The executor and the buffers that it keeps from run to run.
#[derive(Debug)]
pub struct Native {
    pool: Pool,
    arch: Arch,
}

/// What a run has to say besides its tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Attentions in which queries had nothing to see, and how many: their weights are 0 by definition.
    pub blind: Vec<(NodeId, usize)>,
}

impl Default for Native {
    fn default() -> Self {
        Self::new()
    }
}

impl Native {
    /// An executor without buffers; the first run makes them.
    pub fn new() -> Self {
        Self { pool: Pool::default(), arch: Arch::new() }
    }

    /// Runs a model on an input and hands every wanted tensor to the sink.
    ///
    /// # Errors
    /// When the input does not fit the model, or the sink refuses a tensor.
    pub fn run(
        &mut self,
        model: &Model,
        weights: &Weights,
        input: &Input,
        sink: &mut dyn Sink,
    ) -> Result<Report, RunError> {
        let prepared = Prepared::new(model, input)?;
        let nodes = model.graph.nodes().len();
        let mut run = Run {
            model,
            weights,
            prepared: &prepared,
            pool: &mut self.pool,
            arch: self.arch,
            values: (0..nodes).map(|_| Vec::new()).collect(),
            root: (0..nodes).collect(),
            masks: HashMap::new(),
            biases: HashMap::new(),
            report: Report::default(),
        };
        let last_use = run.last_uses();
        for (id, node) in model.graph.iter() {
            run.step(id, node, sink)?;
            // What was read for the last time here, this node included if nobody reads it.
            for dead in last_use.get(&id.index()).into_iter().flatten() {
                let buffer = std::mem::take(&mut run.values[*dead]);
                run.pool.give(buffer);
            }
        }
        Ok(run.finish())
    }
}

struct Run<'a> {
    model: &'a Model,
    weights: &'a Weights,
    prepared: &'a Prepared<'a>,
    pool: &'a mut Pool,
    arch: Arch,
    /// The tensors that are alive, by the node that made them.
    values: Vec<Vec<f32>>,
    /// The node that made a node's tensor: another one, where a node only names or reshapes.
    root: Vec<usize>,
    masks: HashMap<(bool, bool, bool, bool), Vec<f32>>,
    biases: HashMap<Stack, Vec<f32>>,
    report: Report,
}

impl Run<'_> {
    /// For each step, the tensors that nobody reads after it. The steps of an attention are taken together, at its end.
    fn last_uses(&self) -> HashMap<usize, Vec<usize>> {
        let nodes = self.model.graph.nodes();
        let mut root: Vec<usize> = (0..nodes.len()).collect();
        let mut last: Vec<usize> = (0..nodes.len()).collect();
        let mut end = nodes.len();
        let mut ends = vec![0; nodes.len()];
        for (i, node) in nodes.iter().enumerate().rev() {
            if matches!(node.op, Op::MergeHeads(_)) {
                end = i;
            }
            ends[i] = end;
        }
        for (i, node) in nodes.iter().enumerate() {
            let at = if is_within_attention(&node.op) { ends[i] } else { i };
            for input in &node.inputs {
                let made_by = root[input.index()];
                last[made_by] = last[made_by].max(at);
            }
            if let (Op::Same | Op::SplitHeads(_), Some(input)) = (&node.op, node.inputs.first()) {
                root[i] = root[input.index()];
                last[root[i]] = last[root[i]].max(at);
            }
        }
        let mut uses: HashMap<usize, Vec<usize>> = HashMap::new();
        for (made_by, &at) in last.iter().enumerate() {
            uses.entry(at.max(made_by)).or_default().push(made_by);
        }
        uses
    }

    fn finish(self) -> Report {
        let Self { pool, values, masks, biases, report, .. } = self;
        values.into_iter().chain(masks.into_values()).chain(biases.into_values()).for_each(|b| pool.give(b));
        report
    }

    fn step(&mut self, id: NodeId, node: &Node, sink: &mut dyn Sink) -> Result<(), RunError> {
        let shape = self.prepared.shape(node)?;
        match node.op {
            Op::Same => self.root[id.index()] = self.made_by(node, 0),
            Op::SplitHeads(_) => {
                self.root[id.index()] = self.made_by(node, 0);
                if sink.wants(id) {
                    let heads = self.split(node, &shape);
                    sink.put(id, &shape, Values::F32(&heads))?;
                    self.pool.give(heads);
                }
                return Ok(());
            }
            // Computed with the attention that they are a part of.
            Op::Scores { .. } | Op::AddMask { .. } | Op::Squash(_) | Op::Context => return Ok(()),
            Op::MergeHeads(_) => {
                let merged = self.attention(node, &shape, sink)?;
                self.values[id.index()] = merged;
            }
            Op::Mask(kind) => {
                self.mask(kind, &shape);
                if sink.wants(id) {
                    let mask = self.masks.get(&mask_key(kind)).map(Vec::as_slice).unwrap_or_default();
                    sink.put(id, &shape, Values::F32(mask))?;
                }
                return Ok(());
            }
            Op::RelativeBias { stack, max_distance } => {
                self.relative_bias(node, stack, max_distance, &shape);
                if sink.wants(id) {
                    let bias = self.biases.get(&stack).map(Vec::as_slice).unwrap_or_default();
                    sink.put(id, &shape, Values::F32(bias))?;
                }
                return Ok(());
            }
            _ => {
                let mut out = self.pool.take(shape.iter().product());
                self.compute(node, &shape, &mut out);
                self.values[id.index()] = out;
            }
        }
        if sink.wants(id) {
            sink.put(id, &shape, Values::F32(&self.values[self.root[id.index()]]))?;
        }
        Ok(())
    }

    fn made_by(&self, node: &Node, i: usize) -> usize {
        node.inputs.get(i).map_or(0, |input| self.root[input.index()])
    }

    fn input(&self, node: &Node, i: usize) -> &[f32] {
        &self.values[self.made_by(node, i)]
    }

    fn weight(&self, node: &Node, i: usize) -> &[f32] {
        node.weights.get(i).map_or(&[], |&id| self.weights.get(id))
    }

    fn factor(&self, factor: Factor) -> f32 {
        factor.value(&self.prepared.sizes).unwrap_or(1.0) as f32
    }

    /// Everything that is one loop over its output.
    fn compute(&self, node: &Node, shape: &[usize], out: &mut [f32]) {
        let width = shape.last().copied().unwrap_or(1).max(1);
        let arch = self.arch;
        match node.op {
            Op::Ids(side) => {
                let ids = self.prepared.rows(side).map(|rows| rows.ids()).unwrap_or_default();
                out.iter_mut().zip(ids).for_each(|(o, &id)| *o = id as f32);
            }
            Op::Features => {
                if let Source::Features(f) = &self.prepared.input.source {
                    out.copy_from_slice(&f.values);
                }
            }
            Op::Embed { scale } => self.embed(node, self.factor(scale), width, out),
            Op::Positions { kind, offset, .. } => self.positions(node, kind, offset, width, out),
            Op::AddPositions => {
                out.copy_from_slice(self.input(node, 0));
                let positions = self.input(node, 1);
                out.chunks_mut(positions.len().max(1)).for_each(|row| kernels::add(arch, row, positions));
            }
            Op::Conv1d { stride } => self.conv(node, stride, shape, out),
            Op::Transpose => transpose(self.input(node, 0), shape, out),
            Op::Norm { kind, eps } => {
                let (x, gain, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
                let rows = out.par_chunks_mut(width).zip(x.par_chunks(width)).with_min_len(16);
                rows.for_each(|(out, x)| kernels::norm(arch, kind, eps, x, gain, bias, out));
            }
            Op::Linear => self.linear(node, 1.0, width, out),
            Op::Logits { scale } => self.linear(node, self.factor(scale), width, out),
            Op::Residual { gain } => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                out.iter_mut().zip(x).zip(y).for_each(|((o, x), y)| *o = x + gain * y);
            }
            Op::Activate(activation) => {
                let x = self.input(node, 0);
                let parts = out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK));
                parts.for_each(|(out, x)| kernels::activate(arch, activation, x, out));
            }
            Op::Gate => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                out.iter_mut().zip(x).zip(y).for_each(|((o, x), y)| *o = x * y);
            }
            // Handled before: they make no tensor of their own, or one that is kept elsewhere.
            Op::Same
            | Op::SplitHeads(_)
            | Op::Scores { .. }
            | Op::RelativeBias { .. }
            | Op::Mask(_)
            | Op::AddMask { .. }
            | Op::Squash(_)
            | Op::Context
            | Op::MergeHeads(_) => {}
        }
    }

    fn embed(&self, node: &Node, scale: f32, width: usize, out: &mut [f32]) {
        let (ids, table) = (self.input(node, 0), self.weight(node, 0));
        for (out, &id) in out.chunks_mut(width).zip(ids) {
            let row = &table[id as usize * width..][..width];
            out.iter_mut().zip(row).for_each(|(o, x)| *o = x * scale);
        }
    }

    fn positions(&self, node: &Node, kind: Positions, offset: usize, width: usize, out: &mut [f32]) {
        let table = self.weight(node, 0);
        for (p, row) in out.chunks_mut(width).enumerate() {
            match kind {
                Positions::Table => row.copy_from_slice(&table[(p + offset) * width..][..width]),
                _ => row
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, o)| *o = sinusoid(kind, p + offset, i, width) as f32),
            }
        }
    }

    /// x · scale · Wᵀ + b
    fn linear(&self, node: &Node, scale: f32, outputs: usize, out: &mut [f32]) {
        let (x, w, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
        let rows = out.len() / outputs;
        let inputs = w.len() / outputs;
        if !bias.is_empty() {
            out.chunks_mut(outputs).for_each(|row| row.copy_from_slice(bias));
        }
        let x = View::new(x, Layout::dense(rows, inputs));
        let w = View::new(w, Layout::dense(outputs, inputs).transposed());
        multiply(out, Layout::dense(rows, outputs), x, w, scale, !bias.is_empty(), Parallelism::Rayon(0));
    }

    /// The convolution as a product: every window of three frames is a row.
    fn conv(&self, node: &Node, stride: usize, shape: &[usize], out: &mut [f32]) {
        let (x, w, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
        let (outputs, steps) = (shape[1], shape[2]);
        let channels = w.len() / outputs / 3;
        let frames = x.len() / shape[0] / channels;
        let mut windows = vec![0.0; steps * channels * 3];
        for (x, out) in x.chunks(channels * frames).zip(out.chunks_mut(outputs * steps)) {
            windows.par_chunks_mut(channels * 3).enumerate().for_each(|(t, window)| {
                for (cell, at) in
                    window.iter_mut().enumerate().map(|(c, cell)| (cell, (c / 3, t * stride + c % 3)))
                {
                    let (channel, frame) = at;
                    // One frame of zeros at each end.
                    let inside = (1..=frames).contains(&frame);
                    *cell = if inside { x[channel * frames + frame - 1] } else { 0.0 };
                }
            });
            out.chunks_mut(steps).zip(bias).for_each(|(row, &b)| row.fill(b));
            let w = View::new(w, Layout::dense(outputs, channels * 3));
            let windows = View::new(&windows, Layout::dense(steps, channels * 3).transposed());
            multiply(out, Layout::dense(outputs, steps), w, windows, 1.0, true, Parallelism::Rayon(0));
        }
    }

    /// [b, l, h · k] → [b, h, l, k], for whoever wants to see it: attention reads the heads where they lie.
    fn split(&mut self, node: &Node, shape: &[usize]) -> Vec<f32> {
        let (heads, length, size) = (shape[1], shape[2], shape[3]);
        let mut out = self.pool.take(shape.iter().product());
        let x = self.input(node, 0);
        for (n, row) in out.chunks_mut(size.max(1)).enumerate() {
            let (b, h, l) = (n / (heads * length), n / length % heads, n % length);
            row.copy_from_slice(&x[((b * length + l) * heads + h) * size..][..size]);
        }
        out
    }

    /// One mask a kind, shared by all layers.
    fn mask(&mut self, kind: MaskKind, shape: &[usize]) {
        if self.masks.contains_key(&mask_key(kind)) {
            return;
        }
        let (queries, keys) = (shape[2], shape[3]);
        let mut mask = self.pool.take_zeroed(shape.iter().product());
        for (n, cell) in mask.iter_mut().enumerate() {
            if !self.prepared.is_open(kind, n / (queries * keys), n / keys % queries, n % keys) {
                *cell = f32::NEG_INFINITY;
            }
        }
        self.masks.insert(mask_key(kind), mask);
    }

    /// One bias a stack, shared by all layers.
    fn relative_bias(&mut self, node: &Node, stack: Stack, max_distance: usize, shape: &[usize]) {
        if self.biases.contains_key(&stack) {
            return;
        }
        let (heads, queries, keys) = (shape[1], shape[2], shape[3]);
        let mut bias = self.pool.take(shape.iter().product());
        let table = self.weight(node, 0);
        let buckets = table.len() / heads.max(1);
        for (n, cell) in bias.iter_mut().enumerate() {
            let (h, t, s) = (n / (queries * keys), n / keys % queries, n % keys);
            *cell = table[bucket(stack, t, s, buckets, max_distance) * heads + h];
        }
        self.biases.insert(stack, bias);
    }

    /// The whole attention that ends in `merge`: scores, mask, weights, context, each handed over where it is wanted.
    fn attention(
        &mut self,
        merge: &Node,
        shape: &[usize],
        sink: &mut dyn Sink,
    ) -> Result<Vec<f32>, RunError> {
        let parts = Parts::of(self.model, merge)
            .ok_or_else(|| RunError::Obstacle(format!("{} is no attention", merge.path)))?;
        let extent = parts.extent(self.prepared)?;
        let Extent { batch, heads, queries, keys, size } = extent;
        let cells = batch * heads * queries * keys;
        let wanted = [parts.scores, parts.masked, parts.weights].map(|id| sink.wants(id));
        let mut stages = wanted.map(|wanted| self.pool.take(if wanted { cells } else { 0 }));
        let mut context = self.pool.take(batch * heads * queries * size);
        let graph = &self.model.graph;
        let of = |id: NodeId| self.values[self.root[id.index()]].as_slice();
        let given = Given {
            extent,
            q: of(parts.q),
            k: of(parts.k),
            v: of(parts.v),
            scale: self.factor(parts.scale),
            squash: parts.squash,
            bias: parts.bias.and_then(|stack| self.biases.get(&stack)).map(Vec::as_slice),
            mask: parts.mask.and_then(|kind| self.masks.get(&mask_key(kind))).map(Vec::as_slice),
        };
        let [scores, masked, weights] = &mut stages;
        let blind = attend(self.arch, &given, Stages { scores, masked, weights, context: &mut context });
        if blind > 0 {
            self.report.blind.push((parts.weights, blind));
        }
        let ids = [parts.scores, parts.masked, parts.weights];
        for ((id, stage), wanted) in ids.into_iter().zip(stages).zip(wanted) {
            if wanted {
                sink.put(id, &self.prepared.shape(graph.node(id))?, Values::F32(&stage))?;
            }
            self.pool.give(stage);
        }
        if sink.wants(parts.context) {
            sink.put(parts.context, &self.prepared.shape(graph.node(parts.context))?, Values::F32(&context))?;
        }
        let mut merged = self.pool.take(shape.iter().product());
        merge_heads(&context, extent, &mut merged);
        self.pool.give(context);
        Ok(merged)
    }
}

/// Elements that one task of an element-wise loop handles.
const CHUNK: usize = 1 << 14;

/// True for the steps that are computed together.
fn is_within_attention(op: &Op) -> bool {
    matches!(op, Op::Scores { .. } | Op::AddMask { .. } | Op::Squash(_) | Op::Context | Op::SplitHeads(_))
}

fn mask_key(kind: MaskKind) -> (bool, bool, bool, bool) {
    let source = attnscope_graph::Side::Source;
    (kind.queries == source, kind.keys == source, kind.causal, kind.padding)
}

/// [b, h, l, k] → [b, l, h · k]
fn merge_heads(context: &[f32], extent: Extent, out: &mut [f32]) {
    let Extent { heads, queries, size, .. } = extent;
    for (n, row) in context.chunks(size.max(1)).enumerate() {
        let (b, h, l) = (n / (heads * queries), n / queries % heads, n % queries);
        out[((b * queries + l) * heads + h) * size..][..size].copy_from_slice(row);
    }
}

/// [b, c, r] → [b, r, c]
fn transpose(x: &[f32], shape: &[usize], out: &mut [f32]) {
    let (rows, columns) = (shape[1], shape[2]);
    for (x, out) in x.chunks(rows * columns).zip(out.chunks_mut(rows * columns)) {
        out.par_chunks_mut(columns).enumerate().for_each(|(r, out)| {
            out.iter_mut().enumerate().for_each(|(c, o)| *o = x[c * rows + r]);
        });
    }
}

/// The nodes of one attention, found from its end.
struct Parts {
    q: NodeId,
    k: NodeId,
    v: NodeId,
    scores: NodeId,
    masked: NodeId,
    weights: NodeId,
    context: NodeId,
    scale: Factor,
    squash: attnscope_graph::Squash,
    bias: Option<Stack>,
    mask: Option<MaskKind>,
    dims: Vec<Dim>,
    size: Dim,
}

impl Parts {
    fn of(model: &Model, merge: &Node) -> Option<Self> {
        let graph = &model.graph;
        let context = *merge.inputs.first()?;
        let [weights, v] = graph.node(context).inputs[..] else { return None };
        let Op::Squash(squash) = graph.node(weights).op else { return None };
        let masked = *graph.node(weights).inputs.first()?;
        let added = &graph.node(masked).inputs;
        let scores = *added.first()?;
        let [q, k] = graph.node(scores).inputs[..] else { return None };
        let Op::Scores { scale } = graph.node(scores).op else { return None };
        let (mut bias, mut mask) = (None, None);
        for &id in &added[1..] {
            match graph.node(id).op {
                Op::RelativeBias { stack, .. } => bias = Some(stack),
                Op::Mask(kind) => mask = Some(kind),
                _ => {}
            }
        }
        let dims = graph.node(scores).dims.clone();
        let size = *graph.node(context).dims.last()?;
        Some(Self { q, k, v, scores, masked, weights, context, scale, squash, bias, mask, dims, size })
    }

    fn extent(&self, prepared: &Prepared<'_>) -> Result<Extent, RunError> {
        let shape = prepared.sizes.shape(&self.dims).zip(prepared.sizes.get(self.size));
        match shape.as_ref().map(|(shape, size)| (shape.as_slice(), *size)) {
            Some(([batch, heads, queries, keys], size)) => {
                Ok(Extent { batch: *batch, heads: *heads, queries: *queries, keys: *keys, size })
            }
            _ => Err(RunError::Obstacle("the head count is not known".into())),
        }
    }
}
