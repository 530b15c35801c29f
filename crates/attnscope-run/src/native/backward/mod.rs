//! From the gradient of the loss by a model's output to those of all tensors and weights: the graph from its last node to its
//! first. Each operation's gradient is an arm of one match over [`Op`]: an operation without one does not compile.
//!
//! Sums over rows are taken in pieces that do not depend on the number of threads: the same batch gives the same bits.

mod attention;
mod blocks;
mod conv;
mod demand;
mod kernels;
mod loss;
mod ops;
mod product;
mod recur;
mod tables;

use attnscope_graph::{Capped, Graph, Layout, Model, Node, NodeId, Op};

use super::ops::split_heads;
use super::plan::Plan;
use super::product::Machine;
use super::window::Window;
use crate::error::RunError;
use crate::learn::{LearningSink, is_constant};
use crate::limits::Cancel;
use crate::pool::{Buffer, Shared};
use crate::tensor::Tensor;
use crate::weights::Weights;
pub(super) use demand::demand;
pub(super) use loss::{loss, loss_and_gradient};

/// What the gradient of an operation is computed from, beside that of its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Inputs,
    Output,
}

/// What backward reads of an operation.
fn reads(op: &Op) -> Reads {
    match op {
        Op::Embed { .. }
        | Op::Norm { .. }
        | Op::Linear
        | Op::Logits { .. }
        | Op::Scores { .. }
        | Op::Context { .. }
        | Op::Activate(_)
        | Op::Gate
        | Op::SoftCap { .. }
        | Op::Pool { .. } => Reads::Inputs,
        Op::Normalise(_) | Op::Recur { .. } => Reads::Output,
        Op::Ids(_)
        | Op::TypeIds(_)
        | Op::Features
        | Op::Positions { .. }
        | Op::AddPositions
        | Op::Conv1d { .. }
        | Op::Transpose
        | Op::Same
        | Op::SplitHeads(_)
        | Op::Rotate { .. }
        | Op::RelativeBias { .. }
        | Op::Mask(_)
        | Op::AddMask { .. }
        | Op::MergeHeads(_)
        | Op::Residual { .. }
        | Op::Hidden
        | Op::Beside
        | Op::LastState { .. }
        | Op::Flatten { .. }
        | Op::Dropout { .. } => Reads::Nothing,
    }
}

/// For each node that makes a tensor, whether backward reads it; `output` is what the loss reads.
pub(super) fn kept(graph: &Graph, plan: &Plan, output: NodeId) -> Vec<bool> {
    let mut kept = vec![false; graph.nodes().len()];
    kept[plan.root[output.index()]] = true;
    for (id, node) in graph.iter() {
        match reads(&node.op) {
            Reads::Nothing => {}
            Reads::Inputs => node.inputs.iter().for_each(|input| kept[plan.root[input.index()]] = true),
            Reads::Output => kept[plan.root[id.index()]] = true,
        }
    }
    kept
}

/// The weights of attentions: steps within them, which a pass hands to its sink and keeps nowhere.
pub(super) fn attention_weights(graph: &Graph) -> impl Iterator<Item = NodeId> {
    graph.iter().filter(|(_, node)| matches!(node.op, Op::Normalise(_))).map(|(id, _)| id)
}

/// For each node, whether its tensor's gradient is computed: it has weights or is made of a tensor that has, or somebody wants
/// to see it.
pub(super) fn wanted(graph: &Graph, sink: &dyn LearningSink) -> Vec<bool> {
    let mut wanted = vec![false; graph.nodes().len()];
    for (id, node) in graph.iter() {
        let of_input = node.inputs.iter().any(|input| wanted[input.index()]);
        wanted[id.index()] =
            !is_constant(&node.op) && (!node.weights.is_empty() || of_input || sink.wants_gradient(id));
    }
    wanted
}

/// A walk from the last node to the first.
pub(super) struct Backward<'a> {
    pub(super) model: &'a Model,
    pub(super) weights: &'a Weights,
    pub(super) plan: &'a Plan,
    pub(super) window: Window<'a>,
    pub(super) machine: Machine<'a>,
    pub(super) cancel: &'a Cancel,
    /// What the forward pass kept, by the node that made it.
    pub(super) values: &'a mut [Shared],
    /// The weights of each attention.
    pub(super) attention_weights: &'a [(NodeId, Tensor)],
    /// What the forward pass kept beside, by the node.
    pub(super) kept: &'a mut [Buffer],
    /// Where the gradients of the model's weights are added, each lying as its weight does.
    pub(super) parameters: &'a mut [Vec<f32>],
    /// What dropout's masks follow from, where something is dropped.
    pub(super) dropout_seed: Option<u64>,
    /// Whose gradients are computed.
    pub(super) wanted: &'a [bool],
    /// The gradients of tensors, as far as they are known. Heads lie as [row, position, head · feature].
    pub(super) gradients: Vec<Option<Buffer>>,
}

impl Backward<'_> {
    /// Walks from a node whose gradient is given.
    pub(super) fn run(
        mut self,
        output: NodeId,
        gradient: Buffer,
        sink: &mut dyn LearningSink,
    ) -> Result<(), RunError> {
        self.gradients[output.index()] = Some(gradient);
        let nodes: Vec<_> = self.model.graph.iter().collect();
        for (id, node) in nodes.into_iter().rev() {
            self.cancel.check()?;
            if let Some(gradient) = self.gradients[id.index()].take() {
                self.hand_over(id, node, &gradient, sink)?;
                self.step(id, node, gradient, sink)?;
            }
            // Whoever reads it comes after it, and is done.
            self.values[id.index()] = Shared::default();
        }
        Ok(())
    }

    fn step(
        &mut self,
        id: NodeId,
        node: &Node,
        gradient: Buffer,
        sink: &mut dyn LearningSink,
    ) -> Result<(), RunError> {
        match node.op {
            // What the user gave, and constants.
            Op::Ids(_) | Op::TypeIds(_) | Op::Features | Op::Mask(_) => {}
            // Heads stay where they lie.
            Op::Same | Op::SplitHeads(_) | Op::Flatten { .. } => self.give(node, 0, gradient),
            Op::Dropout { p } => self.dropout(id, node, p, gradient),
            Op::Embed { scale } => self.embed(node, self.factor(scale), &gradient),
            Op::Positions { kind, offset, count, side } => {
                let places = self.window.places(side, count, offset, &self.shape(id)?);
                self.positions(node, kind, offset, &places, &gradient);
            }
            Op::RelativeBias { stack, buckets, max_distance } => {
                self.relative_bias(node, stack, [buckets, max_distance], &self.shape(id)?, &gradient);
            }
            Op::AddPositions => self.add_positions(node, gradient)?,
            Op::Conv1d { kernel, stride, padding, .. } => {
                let kept = std::mem::take(&mut self.kept[id.index()]);
                self.conv(node, [kernel, stride, padding], &self.shape(id)?, &kept, &gradient)?;
            }
            Op::Transpose => self.transpose(node, &self.shape(id)?, &gradient),
            Op::Norm { kind, eps, gain } => self.norm(node, kind, eps, gain, gradient),
            Op::Linear => self.linear(node, 1.0, &gradient),
            Op::Logits { scale } => self.linear(node, self.factor(scale), &gradient),
            Op::Rotate { side, rotary } => self.rotate(id, node, side, rotary, &gradient)?,
            Op::MergeHeads(_) => self.attention(id, &gradient, sink)?,
            // Computed with the attention that they are a part of.
            Op::Scores { .. } | Op::AddMask { .. } | Op::Normalise(_) | Op::Context { .. } => {}
            Op::SoftCap { of: Capped::Scores, .. } => {}
            Op::SoftCap { cap, of: Capped::Logits } => self.soft_cap(node, cap, gradient),
            Op::Residual { gain } => self.residual(node, gain, gradient),
            Op::Activate(activation) => self.activate(node, activation, gradient),
            Op::Gate => self.gate(node, &gradient),
            Op::Recur { cell, reverse } => {
                let (shape, states) = (self.shape(id)?, self.value(id));
                let gates = std::mem::take(&mut self.kept[id.index()]);
                self.recur(node, (cell, reverse), &shape, [&states, &gradient], gates);
            }
            Op::Hidden => self.hidden(node, width(&self.shape(id)?), &gradient),
            Op::Beside => self.beside(node, width(&self.shape(id)?), &gradient)?,
            Op::LastState { reverse } => {
                self.last_state(node, reverse, width(&self.shape(id)?), &gradient)?
            }
            Op::Pool { pooling, axis, padding_of } => {
                self.pool(node, (pooling, axis, padding_of), self.shape(id)?[0], &gradient);
            }
        }
        Ok(())
    }

    /// Shows a tensor's gradient to whoever wants it.
    fn hand_over(
        &self,
        id: NodeId,
        node: &Node,
        gradient: &[f32],
        sink: &mut dyn LearningSink,
    ) -> Result<(), RunError> {
        if !sink.wants_gradient(id) {
            return Ok(());
        }
        let shape = self.shape(id)?;
        let values = match node.op.facets().layout {
            Layout::NameInHeads | Layout::OwnInHeads => {
                split_heads(self.machine, gradient, &shape, self.machine.pool.take_to_keep(gradient.len()))
            }
            Layout::Own | Layout::Name => {
                let mut copy = self.machine.pool.take_to_keep(gradient.len());
                copy.copy_from_slice(gradient);
                copy
            }
        };
        sink.put_gradient(id, &Tensor::shared_with(&shape, &Shared::new(values)))
    }

    fn shape(&self, id: NodeId) -> Result<Vec<usize>, RunError> {
        self.window.shape(self.model.graph.node(id), self.plan.on_target[id.index()])
    }

    /// The tensor that a node reads.
    fn input(&self, node: &Node, i: usize) -> Shared {
        node.inputs.get(i).map(|&id| self.value(id)).unwrap_or_default()
    }

    fn value(&self, id: NodeId) -> Shared {
        self.values[self.plan.root[id.index()]].clone()
    }

    /// Adds to the gradient of what a node reads.
    fn give(&mut self, node: &Node, i: usize, gradient: Buffer) {
        if let Some(&input) = node.inputs.get(i) {
            self.give_to(input, gradient);
        }
    }

    fn give_to(&mut self, to: NodeId, gradient: Buffer) {
        if !self.wanted[to.index()] {
            return;
        }
        match &mut self.gradients[to.index()] {
            Some(there) => {
                let arch = self.machine.arch;
                self.machine.share(there, 1, |from, there| {
                    super::kernels::add(arch, there, &gradient[from..]);
                });
            }
            none => *none = Some(gradient),
        }
    }

    /// The same for a gradient that is computed where it goes: `compute` writes it, or adds it to what is there.
    fn give_computed(
        &mut self,
        node: &Node,
        i: usize,
        len: usize,
        compute: impl FnOnce(&Self, &mut [f32], bool),
    ) {
        let Some(&input) = node.inputs.get(i).filter(|input| self.wanted[input.index()]) else { return };
        let there = self.gradients[input.index()].take();
        let adds = there.is_some();
        let mut gradient = there.unwrap_or_else(|| self.machine.pool.take(len));
        compute(self, &mut gradient, adds);
        self.gradients[input.index()] = Some(gradient);
    }

    /// The gradient of a node's weight, as the weight lies, to be put back.
    fn take_parameter(&mut self, node: &Node, i: usize) -> Option<(usize, Vec<f32>)> {
        let at = node.weights.get(i)?.index();
        Some((at, std::mem::take(&mut self.parameters[at])))
    }
}

/// Elements of a tensor's rows.
fn width(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1).max(1)
}
