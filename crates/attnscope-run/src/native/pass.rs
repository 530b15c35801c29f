//! One pass over the graph, or over the part of it that depends on the target.

use std::borrow::Cow;
use std::collections::HashMap;

use attnscope_graph::{
    Capped, Layout, MaskKind, Model, Node, NodeId, Op, RecurrentCell, Rotary, Side, WeightId,
};

use super::attention::{AttentionInputs, Extent, Keys, Stages, attend};
use super::cache::Cache;
use super::conv::Windows;
use super::dropout::Dropout;
use super::feed::{self, Feed};
use super::ops::{soft_cap_in_place, split_heads};
use super::plan::{Attention, Plan};
use super::product::Machine;
use super::rotary::RotationTable;
use super::tile::panel_width;
use super::window::Window;
use crate::error::RunError;
use crate::executor::Report;
use crate::intervention::Interventions;
use crate::limits::{Counted, Limits};
use crate::pool::{Buffer, Shared, catching};
use crate::rotation::Rotations;
use crate::sink::Sink;
use crate::tensor::Tensor;
use crate::weights::Weights;

/// Which nodes a pass computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    All,
    /// Those for which it is true.
    Needed(&'a [bool]),
    /// What depends on the source only.
    Source,
    /// What depends on the target. Of the logits, only each row's last are computed.
    Target,
}

/// A running pass.
pub(super) struct Pass<'a> {
    pub(super) model: &'a Model,
    /// While a part of the model is computed whose weights are in their file, with these.
    pub(super) weights: Cow<'a, Weights>,
    pub(super) plan: &'a Plan,
    pub(super) interventions: &'a Interventions<'a>,
    pub(super) window: Window<'a>,
    pub(super) part: Part<'a>,
    pub(super) machine: Machine<'a>,
    pub(super) limits: &'a Limits,
    /// The tensors that are alive, by the node that made them.
    pub(super) values: &'a mut [Shared],
    /// Keys and values of positions before the window, by the node that made them; absent where there are none.
    pub(super) caches: Option<&'a mut [Cache]>,
    /// Where a pass over the target puts the logits of each row's last position.
    pub(super) last_logits: &'a mut Vec<f32>,
    pub(super) masks: HashMap<MaskKind, Shared>,
    pub(super) biases: HashMap<WeightId, Shared>,
    pub(super) report: &'a mut Report,
    /// What dropout's masks follow from; nothing is dropped without one.
    pub(super) dropout_seed: Option<u64>,
    /// Where a step of learning keeps, by the node, what its gradient reads and no node holds: backward would have to compute it
    /// again.
    pub(super) kept: Option<&'a mut [Buffer]>,
}

impl Pass<'_> {
    /// Runs the pass. If it fails, its unfinished tensors are not read again.
    pub(super) fn run(self, sink: &mut dyn Sink) -> Result<(), RunError> {
        let (pool, is_one_token) = (self.machine.pool, self.is_one_token());
        let result = catching(|| self.steps(sink))?;
        if !is_one_token {
            pool.pass_is_over();
        }
        result
    }

    /// Whether it reads one more token of each row: that needs next to nothing, and comes often.
    fn is_one_token(&self) -> bool {
        self.part == Part::Target && self.window.length <= 1
    }

    fn needs_larger_caches(&self) -> bool {
        let positions = self.window.past + self.window.length;
        let is_full = |(i, cache): (usize, &Cache)| self.plan.cached[i] && cache.is_full(positions);
        self.caches.as_ref().is_some_and(|caches| caches.iter().enumerate().any(is_full))
    }

    /// Memory for a node's tensor. What a sink keeps is of just that size.
    fn buffer(&self, sink: &dyn Sink, id: NodeId, len: usize) -> Buffer {
        match sink.held(id, 4) {
            0 => self.machine.pool.take(len),
            _ => self.machine.pool.take_to_keep(len),
        }
    }

    fn steps(mut self, sink: &mut dyn Sink) -> Result<(), RunError> {
        let (model, plan) = (self.model, self.plan);
        let parts = feed::parts(&self)?;
        if !self.is_one_token() || self.needs_larger_caches() {
            self.check_demand(sink, feed::demand(&parts))?;
        }
        let width = panel_width(self.machine.arch);
        let mut feed = (!parts.is_empty()).then(|| Feed::start(parts, width, &self.limits.cancel));
        let all = self.weights.clone();
        let total = model.graph.iter().filter(|&(id, _)| self.is_computed(id)).count();
        let mut done = 0;
        for (id, node) in model.graph.iter() {
            if !self.is_computed(id) {
                continue;
            }
            if let Some(feed) = feed.as_mut().filter(|feed| feed.begins(id)) {
                // Those of the part before are let go first.
                self.weights = all.clone();
                self.weights = Cow::Owned(feed.next(&all)?);
            }
            self.step(id, node, sink)?;
            self.limits.cancel.check()?;
            done += 1;
            // Of a decoder's passes nobody is told: there is one for every token.
            if self.caches.is_none() {
                self.limits.progress.tell(Counted::Nodes, done, total);
            }
            for &dead in &plan.dead[id.index()] {
                // The tensors of the source are kept for every pass over the target.
                if self.part != Part::Target || plan.on_target[dead] {
                    self.values[dead] = Shared::default();
                }
            }
        }
        Ok(())
    }

    /// Whether a node belongs to this pass.
    pub(super) fn is_computed(&self, id: NodeId) -> bool {
        let on_target = self.plan.on_target[id.index()];
        match self.part {
            Part::All => true,
            Part::Needed(needed) => needed[id.index()],
            Part::Source => !on_target,
            Part::Target => on_target,
        }
    }

    pub(super) fn shape(&self, id: NodeId) -> Result<Vec<usize>, RunError> {
        self.window.shape(self.model.graph.node(id), self.plan.on_target[id.index()])
    }

    fn step(&mut self, id: NodeId, node: &Node, sink: &mut dyn Sink) -> Result<(), RunError> {
        let shape = self.shape(id)?;
        match node.op {
            Op::Dropout { p } if self.plan.root[id.index()] == id.index() => self.drop_some(id, node, p),
            Op::Same | Op::Flatten { .. } | Op::Dropout { .. } => self.change_name(id, node, |cell| cell),
            Op::SplitHeads(_) => {
                self.change_name(id, node, in_heads(&shape));
                return self.hand_over_heads(id, &shape, sink);
            }
            Op::Rotate { side, rotary } => {
                let mut out = self.buffer(sink, id, shape.iter().product());
                let table = RotationTable::new(
                    self.rotations(node, rotary, side, &shape),
                    self.window.first(side),
                    &shape,
                );
                table.apply(self.machine, self.input(node, 0), &mut out);
                self.interventions.apply_at(id, &mut out, in_heads(&shape));
                self.values[id.index()] = Shared::new(out);
                self.remember(id, node, &shape);
                return self.hand_over_heads(id, &shape, sink);
            }
            // Computed with the attention that they are a part of.
            Op::Scores { .. } | Op::AddMask { .. } | Op::Normalise(_) | Op::Context { .. } => return Ok(()),
            Op::SoftCap { of: Capped::Scores, .. } => return Ok(()),
            Op::SoftCap { cap, of: Capped::Logits } if self.part == Part::Target => {
                soft_cap_in_place(cap, self.last_logits);
                return Ok(());
            }
            Op::MergeHeads(_) => {
                self.values[id.index()] = self.attention(id, node, sink)?;
            }
            Op::Mask(kind) => {
                self.mask(kind, &shape);
                let shared = self.masks.get(&kind);
                self.values[id.index()] = changed_copy(self.interventions, id, shared);
                if sink.wants(id) {
                    let mask = self.own_or(id, self.masks.get(&kind));
                    self.hand_over(
                        sink,
                        id,
                        &Tensor::shared_with(&shape, mask.unwrap_or(&Shared::default())),
                    )?;
                }
                return Ok(());
            }
            Op::RelativeBias { stack, buckets, max_distance } => {
                let Some(&table) = node.weights.first() else { return Ok(()) };
                self.relative_bias(node, table, stack, [buckets, max_distance], &shape);
                self.values[id.index()] = changed_copy(self.interventions, id, self.biases.get(&table));
                if sink.wants(id) {
                    let bias = self.own_or(id, self.biases.get(&table));
                    self.hand_over(
                        sink,
                        id,
                        &Tensor::shared_with(&shape, bias.unwrap_or(&Shared::default())),
                    )?;
                }
                return Ok(());
            }
            Op::Logits { scale } if self.part == Part::Target => {
                self.logits_at_the_end(node, self.factor(scale), &shape);
                return Ok(());
            }
            Op::Recur { cell, reverse } => self.compute_keeping(id, node, sink, |this, kept, out| {
                this.recur(node, (cell, reverse), &shape, kept, out);
            })?,
            Op::Conv1d { kernel, stride, padding, .. } => {
                let windows = Windows::new([kernel, stride, padding], &self.input_shape(node)?, shape[2]);
                self.compute_keeping(id, node, sink, |this, kept, out| {
                    this.conv(node, windows, shape[1], kept, out);
                })?;
            }
            _ => {
                let mut out = self.buffer(sink, id, shape.iter().product());
                self.compute(node, &shape, &mut out)?;
                self.interventions.apply(id, 0, &mut out);
                self.values[id.index()] = Shared::new(out);
            }
        }
        self.remember(id, node, &shape);
        if sink.wants(id) {
            self.hand_over(sink, id, &Tensor::shared_with(&shape, &self.values[self.plan.root[id.index()]]))?;
        }
        Ok(())
    }

    /// How the heads of a node are rotated: some scalings depend on the length of the text so far.
    fn rotations<'s>(&'s self, node: &Node, rotary: Rotary, side: Side, shape: &[usize]) -> Rotations<'s> {
        let length = self.window.first(side) + shape[2];
        let factors = self.weight(node, rotary.list_of(length));
        Rotations { rotary, factors, size: shape[3], length }
    }

    /// Hands over a tensor, which is whole: where the pass was cancelled in the middle of a step, it is not.
    fn hand_over(&self, sink: &mut dyn Sink, id: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        self.limits.cancel.check()?;
        sink.put(id, tensor)
    }

    /// Hands over a tensor whose heads are stored as [batch, length, head · feature].
    fn hand_over_heads(&self, id: NodeId, shape: &[usize], sink: &mut dyn Sink) -> Result<(), RunError> {
        if sink.wants(id) {
            let out = self.buffer(sink, id, shape.iter().product());
            let heads = split_heads(self.machine, &self.values[self.plan.root[id.index()]], shape, out);
            self.hand_over(sink, id, &Tensor::shared_with(shape, &Shared::new(heads)))?;
        }
        Ok(())
    }

    /// Dropout in a step of learning, whose plan gives it a tensor of its own.
    fn drop_some(&mut self, id: NodeId, node: &Node, p: f32) {
        let Some(&input) = node.inputs.first() else { return };
        let x = self.values[self.plan.root[input.index()]].clone();
        self.values[id.index()] = match self.dropout_seed {
            Some(seed) => {
                let mut out = self.machine.pool.take(x.len());
                Dropout::new(seed, id, p).apply(self.machine, &x, &mut out);
                Shared::new(out)
            }
            None => x,
        };
        self.change_name(id, node, |cell| cell);
    }

    /// A node that is only a name of a tensor gets its own copy if there is an intervention on it. `place` gives the index of a
    /// cell.
    fn change_name(&mut self, id: NodeId, node: &Node, place: impl Fn(usize) -> usize) {
        if self.interventions.intervenes_on(id) {
            let mut own = self.input(node, 0).to_vec();
            self.interventions.apply_at(id, &mut own, place);
            self.values[id.index()] = own.into();
        }
    }

    /// A node's own table if there is an intervention on it, else the one that layers share.
    fn own_or<'s>(&'s self, id: NodeId, shared: Option<&'s Shared>) -> Option<&'s Shared> {
        let own = &self.values[id.index()];
        if own.is_empty() { shared } else { Some(own) }
    }

    /// Keeps keys and values for later passes, after those of the positions before.
    fn remember(&mut self, id: NodeId, node: &Node, shape: &[usize]) {
        let i = id.index();
        let Some((rows, width)) = cached_extent(node, shape) else { return };
        if let (Some(caches), true) = (&mut self.caches, self.plan.cached[i]) {
            caches[i].put(self.machine.pool, self.window.past, rows, width, &self.values[i]);
        }
    }

    /// Only the logits of the last position.
    fn logits_at_the_end(&mut self, node: &Node, scale: f32, shape: &[usize]) {
        let (rows, length, outputs) = (shape[0], shape[1], shape[2]);
        let x = self.input(node, 0);
        let width = x.len() / (rows * length).max(1);
        let ends: Vec<f32> =
            x.chunks(width.max(1)).skip(length - 1).step_by(length).flatten().copied().collect();
        let mut out = std::mem::take(self.last_logits);
        out.resize(rows * outputs, 0.0);
        self.linear(&ends, node, scale, outputs, &mut out);
        *self.last_logits = out;
    }

    /// An operation that may keep something for its gradient.
    fn compute_keeping(
        &mut self,
        id: NodeId,
        node: &Node,
        sink: &mut dyn Sink,
        compute: impl FnOnce(&Self, &mut [f32], &mut [f32]),
    ) -> Result<(), RunError> {
        let mut out = self.buffer(sink, id, self.shape(id)?.iter().product());
        let mut kept = self.machine.pool.take(self.kept_len(node)?);
        compute(self, &mut kept, &mut out);
        if let Some(all) = &mut self.kept {
            all[id.index()] = kept;
        }
        self.interventions.apply(id, 0, &mut out);
        self.values[id.index()] = Shared::new(out);
        Ok(())
    }

    /// How many values a node keeps for its gradient: of an LSTM what its gates said, of a convolution its frames side by side.
    pub(super) fn kept_len(&self, node: &Node) -> Result<usize, RunError> {
        if self.kept.is_none() {
            return Ok(0);
        }
        Ok(match node.op {
            Op::Recur { cell: RecurrentCell::Lstm, .. } => self.input_shape(node)?.iter().product(),
            Op::Conv1d { kernel, stride, padding, .. } => {
                let input = self.input_shape(node)?;
                input[0] * Windows::new([kernel, stride, padding], &input, 0).laid_len()
            }
            _ => 0,
        })
    }

    /// The shape of what a node reads first.
    fn input_shape(&self, node: &Node) -> Result<Vec<usize>, RunError> {
        node.inputs.first().map_or(Ok(Vec::new()), |&input| self.shape(input))
    }

    pub(super) fn input(&self, node: &Node, i: usize) -> &[f32] {
        node.inputs.get(i).map_or(&[], |input| &self.values[self.plan.root[input.index()]])
    }

    pub(super) fn weight(&self, node: &Node, i: usize) -> &[f32] {
        node.weights.get(i).and_then(|&id| self.weights.plain(id)).unwrap_or_default()
    }

    /// The keys or the values of an attention: of the window and, where there is a cache, of the positions before it.
    fn keys(&self, id: NodeId, shape: &[usize]) -> Keys<'_> {
        let root = self.plan.root[id.index()];
        match &self.caches {
            Some(caches) if self.plan.cached[root] => {
                Keys { data: caches[root].data(), step: caches[root].step(), rows: None }
            }
            _ => {
                // [batch, head, key, size]
                let step = shape.iter().skip(1).product();
                let rows = (!self.plan.on_target[root]).then_some(self.window.rows);
                Keys { data: &self.values[root], step, rows }
            }
        }
    }

    fn extent(&self, attention: &Attention) -> Result<Extent, RunError> {
        let (scores, k) = (self.shape(attention.scores)?, self.shape(attention.k)?);
        Extent::new(&scores, &k, self.window.sizes.get(attention.size), attention.sharing)
    }

    /// The whole attention that ends in `merge`: scores, mask, weights, context, each handed over if it is wanted.
    fn attention(&mut self, id: NodeId, merge: &Node, sink: &mut dyn Sink) -> Result<Shared, RunError> {
        let plan = self.plan;
        let Some(parts) = &plan.attention[id.index()] else {
            return Err(RunError::Defect { place: merge.path.to_string(), what: "it ends no attention" });
        };
        let extent = self.extent(parts)?;
        let Extent { batch, heads, queries, keys, size, .. } = extent;
        let bias = parts.bias.and_then(|(id, table)| self.own_or(id, self.biases.get(&table)));
        let mask = parts.mask.and_then(|(id, kind)| self.own_or(id, self.masks.get(&kind)));
        // Where nothing is added, the masked scores are the scores, capped where there is a cap.
        let same = bias.is_none() && mask.is_none() && !self.interventions.intervenes_on(parts.masked);
        let wants_masked = sink.wants(parts.masked);
        let last = parts.capped.map_or(parts.scores, |(id, _)| id);
        let wants = |id: NodeId| sink.wants(id) || (id == last && same && wants_masked);
        let wants_capped = parts.capped.is_some_and(|(id, _)| wants(id));
        let wanted = [wants(parts.scores), wants_capped, wants_masked && !same, sink.wants(parts.weights)];
        let cells = batch * heads * queries * keys;
        let stage = |id: NodeId, wanted: bool| self.buffer(sink, id, if wanted { cells } else { 0 });
        let mut stages = [
            stage(parts.scores, wanted[0]),
            stage(last, wanted[1]),
            stage(parts.masked, wanted[2]),
            stage(parts.weights, wanted[3]),
        ];
        let mut context = self.buffer(sink, parts.context, batch * heads * queries * size);
        let given = AttentionInputs {
            extent,
            q: &self.values[plan.root[parts.q.index()]],
            k: self.keys(parts.k, &self.shape(parts.k)?),
            v: self.keys(parts.v, &self.shape(parts.v)?),
            scale: self.factor(parts.scale),
            normaliser: parts.normaliser,
            bias: bias.map(|bias| &**bias),
            mask: mask.map(|mask| &**mask),
            interventions: self.interventions,
            cap: parts.capped,
            stages: [parts.scores, parts.masked, parts.weights],
        };
        let [scores, capped, masked, weights] = &mut stages;
        let fully_masked =
            attend(self.machine, &given, Stages { scores, capped, masked, weights, context: &mut context });
        let of_padding = parts
            .mask
            .map_or(0, |(_, kind)| heads * self.window.padding_without_keys(kind, [batch, queries, keys]));
        self.report.add(parts.weights, fully_masked.saturating_sub(of_padding));
        self.interventions.apply(parts.context, 0, &mut context);
        let merged = self.buffer(sink, id, batch * heads * queries * size);
        let mut merged = self.merge(&context, &[batch, heads, queries, size], merged);
        self.interventions.apply(id, 0, &mut merged);
        let [scores, capped, masked, weights] = stages.map(Shared::new);
        let before_mask = if parts.capped.is_some() { &capped } else { &scores };
        let masked = if same { before_mask.clone() } else { masked };
        let made = [
            (parts.scores, scores),
            (parts.masked, masked),
            (parts.weights, weights),
            (parts.context, Shared::new(context)),
        ];
        for (id, stage) in made.into_iter().chain(parts.capped.map(|(id, _)| (id, capped))) {
            if sink.wants(id) {
                self.hand_over(sink, id, &Tensor::shared_with(&self.shape(id)?, &stage))?;
            }
        }
        Ok(Shared::new(merged))
    }
}

/// Rows and width of what is cached of a tensor: [row, position, width], or heads that lie like this.
pub(super) fn cached_extent(node: &Node, shape: &[usize]) -> Option<(usize, usize)> {
    match *shape {
        [rows, _, width] => Some((rows, width)),
        [rows, heads, _, size] if node.op.facets().layout == Layout::OwnInHeads => Some((rows, heads * size)),
        _ => None,
    }
}

/// The index of a cell of [batch, head, position, feature], which is stored as [batch, position, head · feature].
fn in_heads(shape: &[usize]) -> impl Fn(usize) -> usize + use<> {
    let (heads, length, size) = (shape[1], shape[2], shape[3]);
    move |cell| {
        let (row, k) = (cell / size, cell % size);
        let (b, h, l) = (row / (heads * length), row / length % heads, row % length);
        ((b * length + l) * heads + h) * size + k
    }
}

/// A shared table with the interventions of one node; empty where there are none.
fn changed_copy(interventions: &Interventions<'_>, id: NodeId, shared: Option<&Shared>) -> Shared {
    let mut own =
        shared.filter(|_| interventions.intervenes_on(id)).map(|table| table.to_vec()).unwrap_or_default();
    interventions.apply(id, 0, &mut own);
    own.into()
}
