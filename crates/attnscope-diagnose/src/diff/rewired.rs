//! Relations that need to know how a node is computed: the node again from the same inputs, wired in every other way. Where
//! steps lie between a node and the tensors that were dumped, each of them is wired in every other way.

use std::cell::Cell;
use std::sync::Arc;

use attnscope_checkpoint::Error;
use attnscope_graph::{
    Activation, Dim, Factor, MaskKind, Node, NodeId, NormKind, Op, Positions, Squash, Stack,
};
use attnscope_run::Kept;

use super::direct::{self, Two};
use super::judge::{Judge, Local, Tensors};
use super::relation::Relation;
use crate::rounding::Bounded;

/// Epsilons in use.
const EPSILONS: [f64; 7] = [1e-5, 1e-6, 1e-12, 1e-8, 1e-7, 1e-3, 0.0];
/// Cells that are computed in search of a relation before the search is given up.
const BUDGET: usize = 300_000_000;

/// A node that was found to differ from what its own inputs give.
pub(super) struct Suspect<'s, 'a> {
    judge: &'s Judge<'a>,
    node: usize,
    local: &'s Local,
    tensors: Tensors<'s>,
    given: Tensors<'s>,
    /// The steps from the dumped tensors to the node, the node first.
    steps: Vec<usize>,
    spent: Cell<usize>,
}

/// A relation, and the step that it is about where that is not the node itself.
pub(super) type Found = (Relation, Option<usize>);

impl<'s, 'a> Suspect<'s, 'a> {
    pub(super) fn new(
        judge: &'s Judge<'a>,
        node: usize,
        local: &'s Local,
        tensors: Tensors<'s>,
        given: Tensors<'s>,
    ) -> Self {
        let mut steps = vec![node];
        let mut next = 0;
        while let Some(&step) = steps.get(next) {
            let inputs = judge.node(step).inputs.iter().map(|id| id.index());
            let new: Vec<usize> =
                inputs.filter(|&i| tensors.bindings.of[i].is_none() && !steps.contains(&i)).collect();
            steps.extend(new);
            next += 1;
        }
        // Nearest first: a later step hides less.
        steps[1..].sort_unstable_by(|a, b| b.cmp(a));
        Self { judge, node, local, tensors, given, steps, spent: Cell::new(0) }
    }

    /// What explains the difference, if anything simple does.
    pub(super) fn relation(&self) -> Result<Option<Found>, Error> {
        let two = self.two();
        for &step in &self.steps {
            if let Some(found) = self.rewired(&two, step)? {
                return Ok(Some((found, (step != self.node).then_some(step))));
            }
        }
        if let Some(found) = self.other_inputs(&two)? {
            return Ok(Some((found, None)));
        }
        if let Some(found) = direct::relation(&two, self.judge.frame) {
            return Ok(Some((found, None)));
        }
        for &step in &self.steps {
            if let Some(found) = self.other_weights(&two, step)? {
                return Ok(Some((found, (step != self.node).then_some(step))));
            }
        }
        Ok(direct::part(&two, self.weight_path(self.node, 0)).map(|found| (found, None)))
    }

    fn two(&self) -> Two<'_> {
        Two {
            shape: &self.local.expected.shape,
            expected: &self.local.expected.values,
            found: &self.local.found.values,
            allowed: &self.local.allowed,
            masked: self.judge.frame.is_masked(self.node),
            heads: self.judge.frame.heads(self.node),
        }
    }

    fn at(&self, step: usize) -> &'a Node {
        self.judge.node(step)
    }

    fn weight_path(&self, step: usize, i: usize) -> Option<String> {
        let id = self.at(step).weights.get(i)?;
        Some(self.judge.graph.weight(*id).path.clone())
    }

    fn inputs(&self, step: usize) -> Result<Option<Vec<Arc<Kept>>>, Error> {
        if step == self.node {
            return Ok(Some(self.local.kept()));
        }
        let inputs =
            self.at(step).inputs.iter().map(|id| self.judge.input(id.index(), self.tensors, self.given));
        inputs.collect()
    }

    /// Whether the node comes out as it was found when a step is an edited one.
    fn explains(
        &self,
        two: &Two<'_>,
        step: usize,
        edited: &Node,
        inputs: &[Arc<Kept>],
        weights: Option<&[&[f32]]>,
    ) -> Result<bool, Error> {
        if self.spent.get() > BUDGET {
            return Ok(false);
        }
        if step == self.node {
            let exact = |kept: &Arc<Kept>| Arc::new(Bounded::exact(kept.clone()));
            let exact: Vec<Arc<Bounded>> = inputs.iter().map(exact).collect();
            let value = self.judge.evaluate(edited, &exact, weights, self.local.precision);
            self.spent.set(self.spent.get() + two.found.len());
            return Ok(value.is_some_and(|value| two.is_with(&value)));
        }
        let Some(value) = self.judge.compute(edited, inputs, weights) else { return Ok(false) };
        self.spent.set(self.spent.get() + value.values.len());
        let carried = self.judge.carried(self.node, (step, value), self.tensors, self.given)?;
        self.spent.set(self.spent.get() + two.found.len() * self.steps.len());
        Ok(carried.is_some_and(|kept| two.is(&kept.values)))
    }

    /// Whether another operation in the place of a step explains the node.
    fn with_op(&self, two: &Two<'_>, step: usize, op: Op) -> Result<bool, Error> {
        let Some(inputs) = self.inputs(step)? else { return Ok(false) };
        let edited = Node { op, ..self.at(step).clone() };
        self.explains(two, step, &edited, &inputs, None)
    }

    /// The first of several operations that explains the node.
    fn first_of<T: Copy>(
        &self,
        two: &Two<'_>,
        step: usize,
        all: impl IntoIterator<Item = T>,
        op: impl Fn(T) -> Op,
    ) -> Result<Option<T>, Error> {
        for candidate in all {
            if self.with_op(two, step, op(candidate))? {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// Other operations, a missing bias, a missing input.
    fn rewired(&self, two: &Two<'_>, step: usize) -> Result<Option<Relation>, Error> {
        let found = match self.at(step).op {
            Op::Norm { kind, eps } => self.other_norm(two, step, kind, eps)?,
            Op::Activate(expected) => self
                .first_of(two, step, Activation::ALL, Op::Activate)?
                .map(|activation| Relation::OtherActivation { activation, expected }),
            Op::Positions { kind, offset, .. } => self.other_positions(two, step, kind, offset)?,
            Op::Embed { .. } => self.other_factor(two, step, |scale| Op::Embed { scale })?,
            Op::Scores { .. } => self.other_factor(two, step, |scale| Op::Scores { scale })?,
            Op::Logits { .. } => match self.missing_bias(two, step)? {
                Some(found) => Some(found),
                None => self.other_factor(two, step, |scale| Op::Logits { scale })?,
            },
            Op::Linear | Op::Conv1d { .. } => self.missing_bias(two, step)?,
            Op::Mask(kind) => {
                self.first_of(two, step, masks(kind), Op::Mask)?.map(|found| mask_relation(kind, found))
            }
            Op::AddMask { .. } => self.without_bias(two, step)?,
            Op::Squash(_) => self
                .first_of(two, step, [Squash::Sigmoid, Squash::Softmax], Op::Squash)?
                .map(|squash| Relation::OtherSquash { squash }),
            Op::Residual { .. } => self
                .first_of(two, step, [2.0, 0.0, 0.5, 1.0], |gain| Op::Residual { gain })?
                .map(|gain| Relation::OtherResidualGain { gain }),
            _ => None,
        };
        match found {
            None => self.not_applied(two, step),
            found => Ok(found),
        }
    }

    /// A step that hands its input on.
    fn not_applied(&self, two: &Two<'_>, step: usize) -> Result<Option<Relation>, Error> {
        let node = self.at(step);
        let same_shape = node.inputs.first().map(|&id| &self.judge.graph.node(id).dims) == Some(&node.dims);
        // A sum without its addend has a relation of its own.
        if !same_shape || matches!(node.op, Op::Same | Op::Residual { .. } | Op::AddMask { .. }) {
            return Ok(None);
        }
        let Some(inputs) = self.inputs(step)? else { return Ok(None) };
        let first = |all: &[NodeId]| all.iter().take(1).copied().collect();
        let edited = Node { op: Op::Same, inputs: first(&node.inputs), weights: vec![], ..node.clone() };
        let is = self.explains(two, step, &edited, &inputs[..1], Some(&[]))?;
        Ok(is.then_some(Relation::NotApplied))
    }

    fn other_norm(
        &self,
        two: &Two<'_>,
        step: usize,
        kind: NormKind,
        expected: f64,
    ) -> Result<Option<Relation>, Error> {
        if let Some(eps) = self.first_of(two, step, EPSILONS, |eps| Op::Norm { kind, eps })? {
            return Ok(Some(Relation::OtherEps { eps, expected }));
        }
        let kinds = [NormKind::Layer, NormKind::Rms];
        match self.first_of(two, step, kinds, |kind| Op::Norm { kind, eps: expected })? {
            Some(kind) => Ok(Some(Relation::OtherNorm { kind })),
            None => self.missing_bias(two, step),
        }
    }

    fn other_positions(
        &self,
        two: &Two<'_>,
        step: usize,
        kind: Positions,
        expected: usize,
    ) -> Result<Option<Relation>, Error> {
        let Op::Positions { side, count, .. } = self.at(step).op else { return Ok(None) };
        let near = [-1, 1, -2, 2].into_iter().filter_map(|by| expected.checked_add_signed(by));
        if let Some(offset) =
            self.first_of(two, step, near, |offset| Op::Positions { kind, offset, count, side })?
        {
            let by = offset as i64 - expected as i64;
            return Ok(Some(Relation::OffByOnePosition { by, offset: Some(offset) }));
        }
        for kind in [Positions::SinusoidHalves, Positions::SinusoidInterleaved, Positions::SinusoidFairseq] {
            let op = Op::Positions { kind, offset: expected, count, side };
            let edited = Node { op, weights: vec![], ..self.at(step).clone() };
            if self.explains(two, step, &edited, &[], Some(&[]))? {
                return Ok(Some(Relation::OtherPositions { kind }));
            }
        }
        Ok(None)
    }

    /// Another constant in front.
    fn other_factor(
        &self,
        two: &Two<'_>,
        step: usize,
        op: impl Fn(Factor) -> Op,
    ) -> Result<Option<Relation>, Error> {
        let stack = self.at(step).path.layer().map_or(Stack::Decoder, |(stack, _)| stack);
        let words = [
            (Factor::One, "no scale"),
            (Factor::Rsqrt(Dim::Head(stack)), "1/√d_head"),
            (Factor::Rsqrt(Dim::Model), "1/√d_model"),
            (Factor::Sqrt(Dim::Model), "√d_model"),
        ];
        let sizes = self.judge.formula.sizes();
        let (Op::Embed { scale } | Op::Scores { scale } | Op::Logits { scale }) = self.at(step).op else {
            return Ok(None);
        };
        let Some((factor, word)) = self.first_of(two, step, words, |(factor, _)| op(factor))? else {
            return Ok(None);
        };
        let known = Some(format!("what {word} gives in the place of {}", scale.text(sizes, true)));
        let ratio = factor.value(sizes).zip(scale.value(sizes)).map(|(found, own)| found / own);
        Ok(ratio.map(|factor| Relation::Scale { factor, known }))
    }

    fn missing_bias(&self, two: &Two<'_>, step: usize) -> Result<Option<Relation>, Error> {
        let (Some(weight), Some(own)) = (self.weight_path(step, 1), self.judge.weights_of(self.at(step)))
        else {
            return Ok(None);
        };
        let Some(inputs) = self.inputs(step)? else { return Ok(None) };
        // Zeros are as good as none.
        let zeros = vec![0.0; own.get(1).map_or(0, |bias| bias.len())];
        let weights: Vec<&[f32]> = own.iter().take(1).copied().chain([zeros.as_slice()]).collect();
        let is = self.explains(two, step, self.at(step), &inputs, Some(&weights))?;
        Ok(is.then_some(Relation::MissingBias { weight }))
    }

    /// Scores without their relative bias.
    fn without_bias(&self, two: &Two<'_>, step: usize) -> Result<Option<Relation>, Error> {
        let mut edited = self.at(step).clone();
        let is_bias = |id: &NodeId| matches!(self.judge.graph.node(*id).op, Op::RelativeBias { .. });
        let (Some(bias), Some(mut inputs)) = (edited.inputs.iter().position(is_bias), self.inputs(step)?)
        else {
            return Ok(None);
        };
        edited.inputs.remove(bias);
        inputs.remove(bias);
        let is = self.explains(two, step, &edited, &inputs, None)?;
        Ok(is.then_some(Relation::BiasNotAdded))
    }

    /// Computed from another tensor: one that a norm was to make something of, the stream.
    fn other_inputs(&self, two: &Two<'_>) -> Result<Option<Relation>, Error> {
        let node = self.at(self.node);
        if !matches!(
            node.op,
            Op::Linear | Op::Logits { .. } | Op::Residual { .. } | Op::Norm { .. } | Op::Same
        ) {
            return Ok(None);
        }
        let Some(&first) = node.inputs.first() else { return Ok(None) };
        for other in self.nearby(first) {
            let Some(input) = self.judge.input(other, self.tensors, self.given)? else { continue };
            let mut inputs = self.local.kept();
            inputs[0] = input;
            if self.explains(two, self.node, node, &inputs, None)? {
                let path = self.at(other).path.as_str().to_owned();
                return Ok(Some(match node.op {
                    Op::Residual { .. } => Relation::OtherResidual { node: path },
                    _ => Relation::OtherInput { node: path },
                }));
            }
        }
        Ok(None)
    }

    /// Nodes of the same shape that are read by, or read, the one that should have been read.
    fn nearby(&self, input: NodeId) -> Vec<usize> {
        let graph = self.judge.graph;
        let dims = &graph.node(input).dims;
        let mut near: Vec<usize> = Vec::new();
        let mut last = input;
        // Back along the stream.
        for _ in 0..3 {
            let Some(&before) = graph.node(last).inputs.first() else { break };
            near.push(before.index());
            last = before;
        }
        let readers = graph.iter().filter(|(_, n)| n.inputs.contains(&input)).map(|(id, _)| id.index());
        near.extend(readers);
        near.retain(|&n| n != input.index() && n < self.node && graph.nodes()[n].dims == *dims);
        near.dedup();
        near
    }

    /// Weights of other nodes, a transposed matrix, heads of the columns in another order.
    fn other_weights(&self, two: &Two<'_>, step: usize) -> Result<Option<Relation>, Error> {
        let node = self.at(step);
        let Some(own) = self.judge.weights_of(node).filter(|w| !w.is_empty()) else { return Ok(None) };
        let Some(inputs) = self.inputs(step)? else { return Ok(None) };
        let layer = node.path.layer();
        for other in self.alike(node) {
            let Some(weights) = self.judge.weights_of(other) else { continue };
            // The other's matrix and bias, or its matrix alone.
            let matrix = weights.first().copied().unwrap_or_default();
            if self.explains(two, step, node, &inputs, Some(&weights))?
                || (own.len() > 1 && self.with_matrix(two, step, &inputs, matrix, &own)?)
            {
                let name = other.path.as_str().to_owned();
                return Ok(Some(match other.path.layer() == layer {
                    true => Relation::OtherWeights { node: name },
                    false => Relation::OtherLayer { node: name },
                }));
            }
        }
        if let Some(found) = self.without_own_bias(two, step, &own) {
            return Ok(Some(found));
        }
        if let Some(turned) = transposed(node, &own)
            && self.with_matrix(two, step, &inputs, &turned, &own)?
        {
            return Ok(Some(Relation::Transpose { weight: self.weight_path(step, 0) }));
        }
        self.permuted_columns(two, step, &inputs, &own)
    }

    /// What was done to a matrix alone shows once the bias is taken off.
    fn without_own_bias(&self, two: &Two<'_>, step: usize, own: &[&[f32]]) -> Option<Relation> {
        let bias = *own.get(1).filter(|_| step == self.node && self.at(step).op == Op::Linear)?;
        let off = |values: &[f64]| -> Vec<f64> {
            values.iter().enumerate().map(|(i, x)| x - f64::from(bias[i % bias.len()])).collect()
        };
        let (expected, found) = (off(two.expected), off(two.found));
        let bare = Two { expected: &expected, found: &found, ..*two };
        let weight = self.weight_path(step, 0);
        match direct::of_weights(&bare, self.judge.frame)? {
            Relation::PermutedHeads { order, .. } => Some(Relation::PermutedHeads { order, weight }),
            Relation::AllZero { .. } => Some(Relation::AllZero { weight }),
            found => Some(found),
        }
    }

    /// Nodes whose weights would fit: of the same layer first, then of the same place in other layers.
    fn alike(&self, node: &Node) -> Vec<&'a Node> {
        let graph = self.judge.graph;
        let matrix = |node: &Node| node.weights.first().map(|&w| &graph.weight(w).dims);
        let is_alike = |other: &&Node| {
            other.path != node.path && other.op.name() == node.op.name() && matrix(other) == matrix(node)
        };
        let mut others: Vec<&Node> = graph.nodes().iter().filter(is_alike).collect();
        let (layer, within) = (node.path.layer(), node.path.within_layer());
        others.sort_by_key(|other| (other.path.layer() != layer, other.path.within_layer() != within));
        others
    }

    fn with_matrix(
        &self,
        two: &Two<'_>,
        step: usize,
        inputs: &[Arc<Kept>],
        matrix: &[f32],
        own: &[&[f32]],
    ) -> Result<bool, Error> {
        let weights: Vec<&[f32]> = std::iter::once(matrix).chain(own.iter().skip(1).copied()).collect();
        self.explains(two, step, self.at(step), inputs, Some(&weights))
    }

    /// For the map out of the heads: two heads exchanged, all turned by some places, or all in reverse.
    fn permuted_columns(
        &self,
        two: &Two<'_>,
        step: usize,
        inputs: &[Arc<Kept>],
        own: &[&[f32]],
    ) -> Result<Option<Relation>, Error> {
        let path = &self.at(step).path;
        let width = inputs.first().and_then(|kept| kept.shape.last().copied()).unwrap_or(0);
        let (Some(heads), Some(matrix)) = (self.judge.frame.heads(step), own.first()) else {
            return Ok(None);
        };
        if path.leaf() != "out" || !path.part().ends_with("attn") || heads < 2 || !width.is_multiple_of(heads)
        {
            return Ok(None);
        }
        let size = width / heads;
        for order in orders(heads) {
            let from = |i: usize| i / width * width + order[i % width / size] * size + i % size;
            let moved: Vec<f32> = (0..matrix.len()).map(|i| matrix[from(i)]).collect();
            if self.with_matrix(two, step, inputs, &moved, own)? {
                return Ok(Some(Relation::PermutedHeads { order, weight: self.weight_path(step, 0) }));
            }
        }
        Ok(None)
    }
}

/// A square matrix with rows and columns exchanged.
fn transposed(node: &Node, own: &[&[f32]]) -> Option<Vec<f32>> {
    let matrix = *own.first()?;
    let side = matrix.len().isqrt();
    let is_square = node.op == Op::Linear && side * side == matrix.len() && side > 1;
    is_square.then(|| (0..matrix.len()).map(|i| matrix[i % side * side + i / side]).collect())
}

/// Two heads exchanged, all turned by some places, all in reverse.
fn orders(heads: usize) -> Vec<Vec<usize>> {
    let plain: Vec<usize> = (0..heads).collect();
    let mut orders: Vec<Vec<usize>> = Vec::new();
    for a in 0..heads {
        for b in a + 1..heads {
            let mut order = plain.clone();
            order.swap(a, b);
            orders.push(order);
        }
    }
    orders.extend((1..heads).map(|by| plain.iter().map(|h| (h + by) % heads).collect()));
    orders.push(plain.iter().rev().copied().collect());
    orders
}

/// Every other mask.
fn masks(kind: MaskKind) -> Vec<MaskKind> {
    let all = [(false, false), (true, false), (false, true), (true, true)];
    let others = all.into_iter().map(|(causal, padding)| MaskKind { causal, padding, ..kind });
    others.filter(|other| *other != kind).collect()
}

/// In words: what is not hidden, or too much.
fn mask_relation(expected: MaskKind, found: MaskKind) -> Relation {
    let (later, pads) = (expected.causal && !found.causal, expected.padding && !found.padding);
    let padding = format!("the {}'s padding", expected.keys.word());
    match (later, pads) {
        (false, false) => Relation::MaskTooWide { mask: found.to_string() },
        (true, false) => Relation::MaskNotApplied { which: "later positions".into() },
        (false, true) => Relation::MaskNotApplied { which: padding },
        (true, true) => Relation::MaskNotApplied { which: format!("later positions and {padding}") },
    }
}
