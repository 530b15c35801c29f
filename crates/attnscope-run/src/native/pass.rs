//! One pass over the graph, or over the part of it that depends on the target.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use attnscope_graph::{Layout, Model, Node, NodeId, Op, Stack};

use super::Report;
use super::attention::{Extent, Given, Keys, Stages, attend};
use super::cache::Cache;
use super::ops::mask_key;
use super::plan::{Attention, Plan};
use super::pool::{OutOfMemory, Shared};
use super::product::Machine;
use super::window::Window;
use crate::change::Changes;
use crate::error::RunError;
use crate::sink::Sink;
use crate::weights::Weights;

/// Which nodes a pass computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    All,
    /// Those for which it is true.
    Needed(&'a [bool]),
    /// What depends on the source only.
    Source,
    /// What depends on the target. Of the logits, only each row's last are computed unless all are wanted.
    Target,
}

/// A pass under way.
pub(super) struct Pass<'a> {
    pub(super) model: &'a Model,
    pub(super) weights: &'a Weights,
    pub(super) plan: &'a Plan,
    pub(super) changes: &'a Changes<'a>,
    pub(super) window: Window<'a>,
    pub(super) part: Part<'a>,
    pub(super) machine: Machine<'a>,
    /// The tensors that are alive, by the node that made them.
    pub(super) values: &'a mut [Shared],
    /// Keys and values of positions before the window, by the node that made them; absent where there are none.
    pub(super) caches: Option<&'a mut [Cache]>,
    /// Where a pass over the target puts the logits of each row's last position.
    pub(super) last_logits: &'a mut Vec<f32>,
    pub(super) masks: HashMap<(bool, bool, bool, bool), Shared>,
    pub(super) biases: HashMap<Stack, Shared>,
    pub(super) report: &'a mut Report,
}

impl Pass<'_> {
    /// Runs the pass. What it leaves half made where it fails is not read again.
    pub(super) fn run(self, sink: &mut dyn Sink) -> Result<(), RunError> {
        match catch_unwind(AssertUnwindSafe(|| self.steps(sink))) {
            Ok(result) => result,
            Err(panic) => match panic.downcast::<OutOfMemory>() {
                Ok(missing) => Err(RunError::OutOfMemory { need: missing.0 }),
                Err(panic) => resume_unwind(panic),
            },
        }
    }

    fn steps(mut self, sink: &mut dyn Sink) -> Result<(), RunError> {
        let (model, plan) = (self.model, self.plan);
        // One more token needs next to nothing, and comes often.
        if self.part != Part::Target || self.window.length > 1 {
            self.check_demand(sink)?;
        }
        for (id, node) in model.graph.iter() {
            if !self.is_computed(id) {
                continue;
            }
            self.step(id, node, sink)?;
            for &dead in &plan.dead[id.index()] {
                // What the source gave serves every pass over the target.
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
            Op::Same => self.change_name(id, node, |cell| cell),
            Op::SplitHeads(_) => {
                self.change_name(id, node, in_heads(&shape));
                return self.hand_over_heads(id, &shape, sink);
            }
            Op::Rotate { side, base, pairs } => {
                let mut out = self.machine.pool.take(shape.iter().product());
                self.rotate(node, base, pairs, self.window.first(side), &mut out, &shape);
                self.changes.apply_at(id, &mut out, in_heads(&shape));
                self.values[id.index()] = Shared::new(out);
                self.remember(id, node, &shape);
                return self.hand_over_heads(id, &shape, sink);
            }
            // Computed with the attention that they are a part of.
            Op::Scores { .. } | Op::AddMask { .. } | Op::Squash(_) | Op::Context => return Ok(()),
            Op::MergeHeads(_) => {
                self.values[id.index()] = self.attention(id, node, sink)?;
            }
            Op::Mask(kind) => {
                self.mask(kind, &shape);
                let shared = self.masks.get(&mask_key(kind));
                self.values[id.index()] = changed_copy(self.changes, id, shared);
                if sink.wants(id) {
                    let mask = self.own_or(id, self.masks.get(&mask_key(kind)));
                    sink.take(id, &shape, mask.unwrap_or(&Shared::default()))?;
                }
                return Ok(());
            }
            Op::RelativeBias { stack, buckets, max_distance } => {
                self.relative_bias(node, stack, [buckets, max_distance], &shape);
                self.values[id.index()] = changed_copy(self.changes, id, self.biases.get(&stack));
                if sink.wants(id) {
                    let bias = self.own_or(id, self.biases.get(&stack));
                    sink.take(id, &shape, bias.unwrap_or(&Shared::default()))?;
                }
                return Ok(());
            }
            Op::Logits { scale } if self.part == Part::Target && !sink.wants(id) => {
                self.logits_at_the_end(node, self.factor(scale), &shape);
                return Ok(());
            }
            _ => {
                let mut out = self.machine.pool.take(shape.iter().product());
                self.compute(node, &shape, &mut out);
                self.changes.apply(id, 0, &mut out);
                self.values[id.index()] = Shared::new(out);
            }
        }
        self.remember(id, node, &shape);
        if sink.wants(id) {
            sink.take(id, &shape, &self.values[self.plan.root[id.index()]])?;
        }
        Ok(())
    }

    /// Hands over a tensor whose heads were left where they lie.
    fn hand_over_heads(&self, id: NodeId, shape: &[usize], sink: &mut dyn Sink) -> Result<(), RunError> {
        if sink.wants(id) {
            let heads = self.split(&self.values[self.plan.root[id.index()]], shape);
            sink.take(id, shape, &Shared::new(heads))?;
        }
        Ok(())
    }

    /// A node that only names a tensor gets one of its own where it is changed. `place` says where a cell is kept.
    fn change_name(&mut self, id: NodeId, node: &Node, place: impl Fn(usize) -> usize) {
        if self.changes.touch(id) {
            let mut own = self.input(node, 0).to_vec();
            self.changes.apply_at(id, &mut own, place);
            self.values[id.index()] = own.into();
        }
    }

    /// A node's own table where it was changed, else the one that layers share.
    fn own_or<'s>(&'s self, id: NodeId, shared: Option<&'s Shared>) -> Option<&'s Shared> {
        let own = &self.values[id.index()];
        if own.is_empty() { shared } else { Some(own) }
    }

    /// Keeps what later passes read: keys and values, behind those of the positions before.
    fn remember(&mut self, id: NodeId, node: &Node, shape: &[usize]) {
        let i = id.index();
        if let (Op::Logits { .. }, Part::Target, &[_, length, width]) = (node.op, self.part, shape) {
            self.last_logits.clear();
            let last = self.values[i].chunks(width.max(1)).skip(length - 1).step_by(length);
            last.for_each(|row| self.last_logits.extend(row));
        }
        // [row, position, width], or heads that lie like this.
        let (rows, width) = match *shape {
            [rows, _, width] => (rows, width),
            [rows, heads, _, size] if node.op.layout() == Layout::OwnInHeads => (rows, heads * size),
            _ => return,
        };
        if let (Some(caches), true) = (&mut self.caches, self.plan.cached[i]) {
            caches[i].put(self.machine.pool, self.window.past, rows, width, &self.values[i]);
        }
    }

    /// Of the logits, only those that say what comes next.
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

    pub(super) fn input(&self, node: &Node, i: usize) -> &[f32] {
        node.inputs.get(i).map_or(&[], |input| &self.values[self.plan.root[input.index()]])
    }

    pub(super) fn weight(&self, node: &Node, i: usize) -> &[f32] {
        node.weights.get(i).map_or(&[], |&id| self.weights.get(id))
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
        match (&scores[..], &k[..], self.window.sizes.get(attention.size)) {
            (&[batch, heads, queries, keys], &[_, kv_heads, ..], Some(size)) if kv_heads > 0 => {
                Ok(Extent { batch, heads, kv_heads, queries, keys, size })
            }
            _ => Err(RunError::Obstacle("the head count is not known".into())),
        }
    }

    /// The whole attention that ends in `merge`: scores, mask, weights, context, each handed over where it is wanted.
    fn attention(&mut self, id: NodeId, merge: &Node, sink: &mut dyn Sink) -> Result<Shared, RunError> {
        let plan = self.plan;
        let Some(parts) = &plan.attention[id.index()] else {
            return Err(RunError::Obstacle(format!("{} is no attention", merge.path)));
        };
        let extent = self.extent(parts)?;
        let Extent { batch, heads, queries, keys, size, .. } = extent;
        let bias = parts.bias.and_then(|(id, stack)| self.own_or(id, self.biases.get(&stack)));
        let mask = parts.mask.and_then(|(id, kind)| self.own_or(id, self.masks.get(&mask_key(kind))));
        // Where nothing is added, the masked scores are the scores.
        let same = bias.is_none() && mask.is_none() && !self.changes.touch(parts.masked);
        let wants_masked = sink.wants(parts.masked);
        let wants_scores = sink.wants(parts.scores) || (same && wants_masked);
        let wanted = [wants_scores, wants_masked && !same, sink.wants(parts.weights)];
        let cells = batch * heads * queries * keys;
        let mut stages = wanted.map(|wanted| self.machine.pool.take(if wanted { cells } else { 0 }));
        let mut context = self.machine.pool.take(batch * heads * queries * size);
        let given = Given {
            extent,
            q: &self.values[plan.root[parts.q.index()]],
            k: self.keys(parts.k, &self.shape(parts.k)?),
            v: self.keys(parts.v, &self.shape(parts.v)?),
            scale: self.factor(parts.scale),
            squash: parts.squash,
            bias: bias.map(|bias| &**bias),
            mask: mask.map(|mask| &**mask),
            changes: self.changes,
            stages: [parts.scores, parts.masked, parts.weights],
        };
        let [scores, masked, weights] = &mut stages;
        let blind = attend(self.machine, &given, Stages { scores, masked, weights, context: &mut context });
        self.report.add(parts.weights, blind);
        self.changes.apply(parts.context, 0, &mut context);
        let mut merged = self.merge(&context, &[batch, heads, queries, size]);
        self.changes.apply(id, 0, &mut merged);
        let [scores, masked, weights] = stages.map(Shared::new);
        let masked = if same { scores.clone() } else { masked };
        let made = [
            (parts.scores, scores),
            (parts.masked, masked),
            (parts.weights, weights),
            (parts.context, Shared::new(context)),
        ];
        for (id, stage) in made {
            if sink.wants(id) {
                sink.take(id, &self.shape(id)?, &stage)?;
            }
        }
        Ok(Shared::new(merged))
    }
}

/// Where a cell of [batch, head, position, feature] is kept: as [batch, position, head · feature].
fn in_heads(shape: &[usize]) -> impl Fn(usize) -> usize + use<> {
    let (heads, length, size) = (shape[1], shape[2], shape[3]);
    move |cell| {
        let (row, k) = (cell / size, cell % size);
        let (b, h, l) = (row / (heads * length), row / length % heads, row % length);
        ((b * length + l) * heads + h) * size + k
    }
}

/// A shared table with the changes of one node; empty where there are none.
fn changed_copy(changes: &Changes<'_>, id: NodeId, shared: Option<&Shared>) -> Shared {
    let mut own = shared.filter(|_| changes.touch(id)).map(|table| table.to_vec()).unwrap_or_default();
    changes.apply(id, 0, &mut own);
    own.into()
}
