//! Relations that need to know how a node is computed: the node again from the same inputs, wired in every other way.

use std::sync::Arc;

use attnscope_checkpoint::Error;
use attnscope_graph::{
    Activation, Dim, Factor, MaskKind, Node, NodeId, NormKind, Op, Positions, Squash, Stack,
};

use super::direct::{self, Two};
use super::judge::{Judge, Local, Tensors};
use super::relation::Relation;

/// Epsilons in use.
const EPSILONS: [f64; 7] = [1e-5, 1e-6, 1e-12, 1e-8, 1e-7, 1e-3, 0.0];

/// A node that was found to differ from what its own inputs give.
pub(super) struct Suspect<'s, 'a> {
    pub(super) judge: &'s Judge<'a>,
    pub(super) node: usize,
    pub(super) local: &'s Local,
    pub(super) tensors: Tensors<'s>,
    pub(super) given: Tensors<'s>,
}

impl Suspect<'_, '_> {
    /// What explains the difference, if anything simple does.
    pub(super) fn relation(&self) -> Result<Option<Relation>, Error> {
        let two = self.two();
        if let Some(found) = self.rewired(&two) {
            return Ok(Some(found));
        }
        if let Some(found) = self.other_inputs(&two)? {
            return Ok(Some(found));
        }
        if let Some(found) = direct::relation(&two, self.judge.frame) {
            return Ok(Some(found));
        }
        if let Some(found) = self.other_weights(&two) {
            return Ok(Some(found));
        }
        let weight = self.weight_path(0);
        Ok(direct::part(&two, weight))
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

    fn node(&self) -> &Node {
        self.judge.node(self.node)
    }

    fn weight_path(&self, i: usize) -> Option<String> {
        let id = self.node().weights.get(i)?;
        Some(self.judge.graph.weight(*id).path.clone())
    }

    /// Whether a node with the same inputs and weights, but for its operation, gives what was found.
    fn with_op(&self, two: &Two<'_>, op: Op) -> bool {
        let node = Node { op, ..self.node().clone() };
        self.judge.compute(&node, &self.local.inputs, None).is_some_and(|kept| two.is(&kept.values))
    }

    /// Other operations, a missing bias, a missing input.
    fn rewired(&self, two: &Two<'_>) -> Option<Relation> {
        match self.node().op {
            Op::Norm { kind, eps } => self.other_norm(two, kind, eps),
            Op::Activate(expected) => self.other_activation(two, expected),
            Op::Positions { kind, offset, .. } => self.other_positions(two, kind, offset),
            Op::Embed { .. } => self.other_factor(two, |scale| Op::Embed { scale }),
            Op::Scores { .. } => self.other_factor(two, |scale| Op::Scores { scale }),
            Op::Logits { .. } => {
                self.missing_bias(two).or_else(|| self.other_factor(two, |scale| Op::Logits { scale }))
            }
            Op::Linear | Op::Conv1d { .. } => self.missing_bias(two),
            Op::Mask(kind) => self.other_mask(two, kind),
            Op::AddMask { .. } => self.other_sum(two),
            Op::Squash(squash) => {
                let other = if squash == Squash::Softmax { Squash::Sigmoid } else { Squash::Softmax };
                self.with_op(two, Op::Squash(other)).then_some(Relation::OtherSquash { squash: other })
            }
            Op::Residual { .. } => [2.0, 0.0, 0.5, 1.0]
                .into_iter()
                .find(|&gain| self.with_op(two, Op::Residual { gain }))
                .map(|gain| Relation::OtherResidualGain { gain }),
            _ => None,
        }
        .or_else(|| self.not_applied(two))
    }

    fn not_applied(&self, two: &Two<'_>) -> Option<Relation> {
        let input = self.local.inputs.first()?;
        let is = input.shape == self.local.found.shape
            && !matches!(self.node().op, Op::Same)
            && two.is(&input.values);
        is.then_some(Relation::NotApplied)
    }

    fn other_norm(&self, two: &Two<'_>, kind: NormKind, expected: f64) -> Option<Relation> {
        if let Some(eps) = EPSILONS.into_iter().find(|&eps| self.with_op(two, Op::Norm { kind, eps })) {
            return Some(Relation::OtherEps { eps, expected });
        }
        let other = if kind == NormKind::Layer { NormKind::Rms } else { NormKind::Layer };
        if self.with_op(two, Op::Norm { kind: other, eps: expected }) {
            return Some(Relation::OtherNorm { kind: other });
        }
        self.missing_bias(two)
    }

    fn other_activation(&self, two: &Two<'_>, expected: Activation) -> Option<Relation> {
        let activation = Activation::ALL.into_iter().find(|&a| self.with_op(two, Op::Activate(a)))?;
        Some(Relation::OtherActivation { activation, expected })
    }

    fn other_positions(&self, two: &Two<'_>, kind: Positions, expected: usize) -> Option<Relation> {
        let Op::Positions { side, count, .. } = self.node().op else { return None };
        let near = [expected.wrapping_sub(1), expected + 1, expected.wrapping_sub(2), expected + 2, 0];
        let is = |&offset: &usize| {
            offset < 1 << 20 && self.with_op(two, Op::Positions { kind, offset, count, side })
        };
        if let Some(offset) = near.into_iter().find(is) {
            let by = offset as i64 - expected as i64;
            return Some(Relation::OffByOnePosition { by, offset: Some(offset) });
        }
        let kinds = [Positions::SinusoidHalves, Positions::SinusoidInterleaved, Positions::SinusoidFairseq];
        let kind = kinds.into_iter().find(|&kind| {
            let node = Node {
                op: Op::Positions { kind, offset: expected, count, side },
                weights: vec![],
                ..self.node().clone()
            };
            self.judge.compute(&node, &[], Some(&[])).is_some_and(|kept| two.is(&kept.values))
        })?;
        Some(Relation::OtherPositions { kind })
    }

    /// Another constant in front.
    fn other_factor(&self, two: &Two<'_>, op: impl Fn(Factor) -> Op) -> Option<Relation> {
        let stack = self.node().path.layer().map_or(Stack::Decoder, |(stack, _)| stack);
        let words = [
            (Factor::One, "no scale"),
            (Factor::Rsqrt(Dim::Head(stack)), "1/√d_head"),
            (Factor::Rsqrt(Dim::Model), "1/√d_model"),
            (Factor::Sqrt(Dim::Model), "√d_model"),
        ];
        let sizes = self.judge.formula.sizes();
        let own = match self.node().op {
            Op::Embed { scale } | Op::Scores { scale } | Op::Logits { scale } => scale.value(sizes)?,
            _ => return None,
        };
        let (factor, word) = words.into_iter().find(|(factor, _)| self.with_op(two, op(*factor)))?;
        let known = Some(format!("what {word} gives in its place"));
        Some(Relation::Scale { factor: factor.value(sizes)? / own, known })
    }

    fn missing_bias(&self, two: &Two<'_>) -> Option<Relation> {
        let weight = self.weight_path(1)?;
        let own = self.judge.weights_of(self.node())?;
        let node =
            Node { weights: self.node().weights.iter().take(1).copied().collect(), ..self.node().clone() };
        // A convolution reads its bias; zeros are as good as none.
        let zeros = vec![0.0; own.get(1)?.len()];
        let with_zeros = [*own.first()?, &zeros];
        let kept = match self.node().op {
            Op::Conv1d { .. } => self.judge.compute(self.node(), &self.local.inputs, Some(&with_zeros))?,
            _ => self.judge.compute(&node, &self.local.inputs, Some(own.get(..1)?))?,
        };
        two.is(&kept.values).then_some(Relation::MissingBias { weight })
    }

    fn masks(kind: MaskKind) -> Vec<MaskKind> {
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let others = all.into_iter().map(|(causal, padding)| MaskKind { causal, padding, ..kind });
        others.filter(|other| *other != kind).collect()
    }

    /// In words: what is not hidden, or too much.
    fn mask_relation(expected: MaskKind, found: MaskKind) -> Relation {
        let lost = MaskKind {
            causal: expected.causal && !found.causal,
            padding: expected.padding && !found.padding,
            ..expected
        };
        match (lost.causal, lost.padding) {
            (false, false) => Relation::MaskTooWide { mask: found.to_string() },
            (true, false) => Relation::MaskNotApplied { which: "later positions".into() },
            (false, true) => {
                Relation::MaskNotApplied { which: format!("the {}'s padding", expected.keys.word()) }
            }
            (true, true) => Relation::MaskNotApplied {
                which: format!("later positions and the {}'s padding", expected.keys.word()),
            },
        }
    }

    fn other_mask(&self, two: &Two<'_>, kind: MaskKind) -> Option<Relation> {
        let found = Self::masks(kind).into_iter().find(|&other| self.with_op(two, Op::Mask(other)))?;
        Some(Self::mask_relation(kind, found))
    }

    /// Scores with another mask, without one, or without the bias.
    fn other_sum(&self, two: &Two<'_>) -> Option<Relation> {
        let nodes: Vec<&Node> = self.node().inputs.iter().map(|&id| self.judge.graph.node(id)).collect();
        let place = nodes.iter().position(|node| matches!(node.op, Op::Mask(_)));
        if let Some((place, node)) = place.and_then(|place| Some((place, nodes.get(place)?)))
            && let Op::Mask(kind) = node.op
        {
            for other in Self::masks(kind) {
                let mask = Node { op: Op::Mask(other), ..(*node).clone() };
                let mut inputs = self.local.inputs.clone();
                let Some(mask) = self.judge.compute(&mask, &[], Some(&[])) else { continue };
                inputs[place] = Arc::new(mask);
                let sum = self.judge.compute(self.node(), &inputs, None);
                if sum.is_some_and(|kept| two.is(&kept.values)) {
                    return Some(Self::mask_relation(kind, other));
                }
            }
        }
        let bias = nodes.iter().position(|node| matches!(node.op, Op::RelativeBias { .. }))?;
        let mut edited = self.node().clone();
        let mut inputs = self.local.inputs.clone();
        edited.inputs.remove(bias);
        inputs.remove(bias);
        let sum = self.judge.compute(&edited, &inputs, None)?;
        two.is(&sum.values).then_some(Relation::BiasNotAdded)
    }

    /// Computed from another tensor: one that a norm was to make of it, the stream, positions that are off.
    fn other_inputs(&self, two: &Two<'_>) -> Result<Option<Relation>, Error> {
        let node = self.node();
        if matches!(node.op, Op::AddPositions) {
            return Ok(self.moved_positions(two));
        }
        if !matches!(
            node.op,
            Op::Linear | Op::Logits { .. } | Op::Residual { .. } | Op::Norm { .. } | Op::Same
        ) {
            return Ok(None);
        }
        let Some(&first) = node.inputs.first() else { return Ok(None) };
        for other in self.nearby(first) {
            let Some(input) = self.judge.input(other, self.tensors, self.given)? else { continue };
            let mut inputs = self.local.inputs.clone();
            inputs[0] = input;
            if self.judge.compute(node, &inputs, None).is_some_and(|kept| two.is(&kept.values)) {
                let node = self.judge.node(other).path.as_str().to_owned();
                return Ok(Some(match self.node().op {
                    Op::Residual { .. } => Relation::OtherResidual { node },
                    _ => Relation::OtherInput { node },
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

    fn moved_positions(&self, two: &Two<'_>) -> Option<Relation> {
        let positions = self.node().inputs.get(1).map(|&id| self.judge.graph.node(id))?;
        let Op::Positions { kind, offset, count, side } = positions.op else { return None };
        for by in [-1i64, 1, -2, 2] {
            let Some(moved) = offset.checked_add_signed(by as isize) else { continue };
            let edited = Node { op: Op::Positions { kind, offset: moved, count, side }, ..positions.clone() };
            let Some(value) = self.judge.compute(&edited, &[], None) else { continue };
            let inputs = [self.local.inputs.first()?.clone(), Arc::new(value)];
            let sum = self.judge.compute(self.node(), &inputs, None);
            if sum.is_some_and(|kept| two.is(&kept.values)) {
                return Some(Relation::OffByOnePosition { by, offset: Some(moved) });
            }
        }
        None
    }

    /// Weights of other nodes, a transposed matrix, heads of the columns in another order.
    fn other_weights(&self, two: &Two<'_>) -> Option<Relation> {
        let node = self.node();
        let own = self.judge.weights_of(node).filter(|w| !w.is_empty())?;
        let dims =
            |node: &Node| node.weights.iter().map(|&w| &self.judge.graph.weight(w).dims).collect::<Vec<_>>();
        let is_alike = |other: &&Node| {
            other.path != node.path && other.op.name() == node.op.name() && dims(other) == dims(node)
        };
        let layer = node.path.layer();
        let mut others: Vec<&Node> = self.judge.graph.nodes().iter().filter(is_alike).collect();
        // The same layer first, then the same place in other layers.
        let within = node.path.within_layer();
        others.sort_by_key(|other| (other.path.layer() != layer, other.path.within_layer() != within));
        for other in others {
            let Some(weights) = self.judge.weights_of(other) else { continue };
            let kept = self.judge.compute(node, &self.local.inputs, Some(&weights));
            if kept.is_some_and(|kept| two.is(&kept.values)) {
                let name = other.path.as_str().to_owned();
                return Some(match other.path.layer() == layer {
                    true => Relation::OtherWeights { node: name },
                    false => Relation::OtherLayer { node: name },
                });
            }
        }
        self.transposed(two, &own).or_else(|| self.permuted_columns(two, &own))
    }

    fn transposed(&self, two: &Two<'_>, own: &[&[f32]]) -> Option<Relation> {
        let matrix = *own.first()?;
        let side = matrix.len().isqrt();
        if !matches!(self.node().op, Op::Linear) || side * side != matrix.len() || side < 2 {
            return None;
        }
        let turned: Vec<f32> = (0..matrix.len()).map(|i| matrix[i % side * side + i / side]).collect();
        let is = self.with_matrix(two, &turned, own);
        is.then(|| Relation::Transpose { weight: self.weight_path(0) })
    }

    fn with_matrix(&self, two: &Two<'_>, matrix: &[f32], own: &[&[f32]]) -> bool {
        let weights: Vec<&[f32]> = std::iter::once(matrix).chain(own.iter().skip(1).copied()).collect();
        let kept = self.judge.compute(self.node(), &self.local.inputs, Some(&weights));
        kept.is_some_and(|kept| two.is(&kept.values))
    }

    /// For the map out of the heads: two heads exchanged, all turned by some places, or all in reverse.
    fn permuted_columns(&self, two: &Two<'_>, own: &[&[f32]]) -> Option<Relation> {
        let heads = two.heads.filter(|&h| h > 1)?;
        let width = self.local.inputs.first()?.shape.last().copied()?;
        if self.node().path.leaf() != "out" || !width.is_multiple_of(heads) {
            return None;
        }
        let (matrix, size) = (*own.first()?, width / heads);
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
        let order = orders.into_iter().find(|order| {
            let from = |i: usize| i / width * width + order[i % width / size] * size + i % size;
            let moved: Vec<f32> = (0..matrix.len()).map(|i| matrix[from(i)]).collect();
            self.with_matrix(two, &moved, own)
        })?;
        Some(Relation::PermutedHeads { order, weight: self.weight_path(0) })
    }
}
