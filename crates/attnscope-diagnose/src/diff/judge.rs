//! Rounding or a bug: a node's tensor computed again, in f64, from the same side's own inputs. What a side got wrong
//! before does not count against it here; what this step gets wrong does.

use std::collections::HashMap;
use std::sync::Arc;

use attnscope_checkpoint::Error;
use attnscope_graph::{Graph, Node, NodeId, Op};
use attnscope_run::{Formula, Kept, SplitMix, Weights};

use super::frame::Frame;
use super::measure::{roundoff, shut};
use super::pair::{Bindings, load};
use super::side::Side;

/// Rounding errors that an operation may make in one cell, in terms of the type's unit: of the sum of the magnitudes of
/// what is added up, and of the result itself (functions are computed to a few units).
const OF_TERMS: f64 = 4.0;
const OF_RESULT: f64 = 16.0;
/// How much larger than a random sample of its propagation an error may be.
const OF_SAMPLE: f64 = 8.0;
/// Steps between a node and the nearest tensors that a side has; more is a part of the model that was not dumped at all.
const MAX_STEPS: usize = 64;

/// Computes nodes of a side from that side's tensors.
pub(super) struct Judge<'a> {
    pub(super) frame: &'a Frame,
    pub(super) graph: &'a Graph,
    pub(super) formula: &'a Formula<'a>,
    /// Absent where the model's file is not at hand; nodes with weights are then not computed.
    pub(super) weights: Option<&'a Weights>,
}

/// The tensors of one side.
#[derive(Clone, Copy)]
pub(super) struct Tensors<'a> {
    pub(super) side: &'a Side,
    pub(super) bindings: &'a Bindings,
}

/// What a node should be, by its own inputs.
pub(super) struct Local {
    pub(super) expected: Kept,
    /// The rounding that is allowed in each cell.
    pub(super) allowed: Vec<f64>,
    pub(super) inputs: Vec<Arc<Kept>>,
    /// What the side has.
    pub(super) found: Kept,
    /// The most that a cell is off, in terms of what is allowed there.
    pub(super) worst: f64,
}

impl<'a> Tensors<'a> {
    /// A node's tensor in the node's shape.
    pub(super) fn get(&self, frame: &Frame, node: usize) -> Result<Option<Kept>, Error> {
        let (Some(bound), Some(shape)) = (&self.bindings.of[node], &frame.nodes[node].shape) else {
            return Ok(None);
        };
        let values = load(self.side, bound)?;
        Ok((values.len() == shape.iter().product::<usize>()).then(|| Kept { shape: shape.clone(), values }))
    }

    /// The unit of rounding of a node's tensor.
    fn unit(&self, node: usize) -> f64 {
        let bound = self.bindings.of[node].as_ref();
        bound.map_or(0.0, |bound| roundoff(self.side.dump.tensors()[bound.tensor].dtype))
    }
}

/// A walk from a node back to the tensors that a side has.
struct Walk<'w, 'a> {
    judge: &'w Judge<'a>,
    tensors: Tensors<'w>,
    /// What stands in for inputs that nobody computes: ids, features.
    given: Tensors<'w>,
    /// Whether rounding errors are sprinkled on what is computed.
    noisy: bool,
    unit: f64,
    made: HashMap<usize, Arc<Kept>>,
    steps: usize,
}

impl<'a> Judge<'a> {
    /// What a node of this side should be; `None` where its inputs or weights are not at hand.
    pub(super) fn local(
        &self,
        node: usize,
        tensors: Tensors<'_>,
        given: Tensors<'_>,
    ) -> Result<Option<Local>, Error> {
        let Some(mut found) = tensors.get(self.frame, node)? else { return Ok(None) };
        let unit = self.units(tensors);
        let mut clean = self.walk(tensors, given, false, unit);
        let Some(inputs) = clean.inputs(node)? else { return Ok(None) };
        let Some(expected) = self.compute(self.node(node), &inputs, None) else { return Ok(None) };
        let gap = clean.steps > 0 || unit > roundoff(attnscope_checkpoint::DType::F32);
        let sample = match gap {
            true => self.sampled(node, &expected, tensors, given, unit)?,
            false => 0.0,
        };
        let mut allowed = self.allowed(node, &expected, &inputs, unit, sample);
        close(self.frame, node, &expected.values, &mut found.values, &mut allowed);
        let worst = worst(&expected.values, &found.values, &allowed, self.frame.is_masked(node));
        Ok(Some(Local { expected, allowed, inputs, found, worst }))
    }

    pub(super) fn node(&self, node: usize) -> &'a Node {
        &self.graph.nodes()[node]
    }

    /// The coarsest unit of rounding in use on a side.
    fn units(&self, tensors: Tensors<'_>) -> f64 {
        let all = (0..self.frame.nodes.len()).map(|node| tensors.unit(node));
        all.fold(roundoff(attnscope_checkpoint::DType::F32), f64::max)
    }

    fn walk<'w>(&'w self, tensors: Tensors<'w>, given: Tensors<'w>, noisy: bool, unit: f64) -> Walk<'w, 'a> {
        Walk { judge: self, tensors, given, noisy, unit, made: HashMap::new(), steps: 0 }
    }

    /// The inputs of a node on a side, computed where they were not dumped.
    pub(super) fn input(
        &self,
        node: usize,
        tensors: Tensors<'_>,
        given: Tensors<'_>,
    ) -> Result<Option<Arc<Kept>>, Error> {
        let unit = self.units(tensors);
        self.walk(tensors, given, false, unit).value(node)
    }

    /// A node as it comes out when one of the steps before it gives another value.
    pub(super) fn carried(
        &self,
        node: usize,
        (step, value): (usize, Kept),
        tensors: Tensors<'_>,
        given: Tensors<'_>,
    ) -> Result<Option<Kept>, Error> {
        let mut walk = self.walk(tensors, given, false, 0.0);
        walk.made.insert(step, Arc::new(value));
        let inputs = walk.inputs(node)?;
        Ok(inputs.and_then(|inputs| self.compute(self.node(node), &inputs, None)))
    }

    /// A node, or an edited copy of one, with the weights of the graph or with others.
    pub(super) fn compute(
        &self,
        node: &Node,
        inputs: &[Arc<Kept>],
        weights: Option<&[&[f32]]>,
    ) -> Option<Kept> {
        let own;
        let weights = match weights {
            Some(weights) => weights,
            None => {
                own = self.weights_of(node)?;
                &own
            }
        };
        self.formula.compute(node, inputs, weights).ok()
    }

    pub(super) fn weights_of(&self, node: &Node) -> Option<Vec<&'a [f32]>> {
        node.weights.iter().map(|&id| Some(self.weights?.get(id))).collect()
    }

    /// How far rounding on the way moves a result: one random sample of it.
    fn sampled(
        &self,
        node: usize,
        clean: &Kept,
        tensors: Tensors<'_>,
        given: Tensors<'_>,
        unit: f64,
    ) -> Result<f64, Error> {
        let mut noisy = self.walk(tensors, given, true, unit);
        let Some(inputs) = noisy.inputs(node)? else { return Ok(0.0) };
        let Some(moved) = self.compute(self.node(node), &inputs, None) else { return Ok(0.0) };
        let apart = clean.values.iter().zip(&moved.values).map(|(a, b)| (a - b).abs());
        Ok(apart.filter(|x| x.is_finite()).fold(0.0, f64::max))
    }

    /// The rounding that is allowed in each cell.
    fn allowed(
        &self,
        node: usize,
        expected: &Kept,
        inputs: &[Arc<Kept>],
        unit: f64,
        sample: f64,
    ) -> Vec<f64> {
        let finite = expected.values.iter().filter(|x| x.is_finite());
        let (sum, count) = finite.fold((0.0, 0usize), |(sum, n), x| (sum + x * x, n + 1));
        let usual = (sum / count.max(1) as f64).sqrt();
        let terms = self.terms(node, inputs);
        let cell = |(i, x): (usize, &f64)| {
            let own = if x.is_finite() { x.abs() } else { 0.0 };
            let added = match &terms {
                Some(terms) => OF_TERMS * terms[i],
                None => OF_RESULT * usual,
            };
            unit * (OF_RESULT * own + added) + OF_SAMPLE * sample
        };
        expected.values.iter().enumerate().map(cell).collect()
    }

    /// For sums of products: the sum of the magnitudes of what is added up.
    fn terms(&self, node: usize, inputs: &[Arc<Kept>]) -> Option<Vec<f64>> {
        let node = self.node(node);
        if !matches!(
            node.op,
            Op::Linear | Op::Logits { .. } | Op::Scores { .. } | Op::Context | Op::Conv1d { .. }
        ) {
            return None;
        }
        let positive = |kept: &Arc<Kept>| {
            Arc::new(Kept {
                shape: kept.shape.clone(),
                values: kept.values.iter().map(|x| x.abs()).collect(),
            })
        };
        let inputs: Vec<Arc<Kept>> = inputs.iter().map(positive).collect();
        let weights: Vec<Vec<f32>> =
            self.weights_of(node)?.iter().map(|w| w.iter().map(|x| x.abs()).collect()).collect();
        let weights: Vec<&[f32]> = weights.iter().map(Vec::as_slice).collect();
        Some(self.compute(node, &inputs, Some(&weights))?.values)
    }
}

impl Walk<'_, '_> {
    fn inputs(&mut self, node: usize) -> Result<Option<Vec<Arc<Kept>>>, Error> {
        let ids: Vec<usize> = self.judge.node(node).inputs.iter().map(|id: &NodeId| id.index()).collect();
        let mut inputs = Vec::with_capacity(ids.len());
        for id in ids {
            match self.value(id)? {
                Some(value) => inputs.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(inputs))
    }

    /// A node's tensor: the side's own, or computed.
    fn value(&mut self, node: usize) -> Result<Option<Arc<Kept>>, Error> {
        if let Some(value) = self.made.get(&node) {
            return Ok(Some(value.clone()));
        }
        let frame = self.judge.frame;
        let mut value = self.tensors.get(frame, node)?;
        let dumped = value.is_some();
        if !dumped && matches!(self.judge.node(node).op, Op::Ids(_) | Op::Features) {
            value = self.given.get(frame, node)?;
        }
        if value.is_none() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Ok(None);
            }
            let Some(inputs) = self.inputs(node)? else { return Ok(None) };
            value = self.judge.compute(self.judge.node(node), &inputs, None);
        }
        let Some(mut value) = value else { return Ok(None) };
        let layout_only = matches!(
            self.judge.node(node).op,
            Op::Ids(_)
                | Op::Features
                | Op::Same
                | Op::SplitHeads(_)
                | Op::MergeHeads(_)
                | Op::Mask(_)
                | Op::Transpose
        );
        let short = self.unit > roundoff(attnscope_checkpoint::DType::F32);
        if self.noisy && !layout_only && (!dumped || short) {
            sprinkle(&mut value.values, if dumped { self.unit } else { 4.0 * self.unit }, node);
        }
        let value = Arc::new(value);
        self.made.insert(node, value.clone());
        Ok(Some(value))
    }
}

/// Rounding errors of `size`, in terms of a value and of the usual one, up and down by chance.
fn sprinkle(values: &mut [f64], size: f64, seed: usize) {
    let finite = values.iter().filter(|x| x.is_finite());
    let (sum, count) = finite.fold((0.0, 0usize), |(sum, n), x| (sum + x * x, n + 1));
    let usual = (sum / count.max(1) as f64).sqrt();
    let mut random = SplitMix::new(seed as u64);
    for value in values.iter_mut().filter(|x| x.is_finite()) {
        *value += f64::from(random.unit()) * size * (value.abs() + usual);
    }
}

/// Takes cells that stand for padding out of the question: whatever is there is as expected.
pub(super) fn close(frame: &Frame, node: usize, expected: &[f64], found: &mut [f64], allowed: &mut [f64]) {
    let Some(open) = frame.open(node) else { return };
    for (i, ((e, f), allowed)) in expected.iter().zip(found).zip(allowed).enumerate() {
        if !open.has(i) {
            (*f, *allowed) = (*e, f64::INFINITY);
        }
    }
}

/// The most that a cell is off, in terms of what is allowed there.
pub(super) fn worst(expected: &[f64], found: &[f64], allowed: &[f64], masked: bool) -> f64 {
    let cell = |((e, f), allowed): ((&f64, &f64), &f64)| {
        let (e, f) = if masked { (shut(*e), shut(*f)) } else { (*e, *f) };
        match (e.is_finite(), f.is_finite()) {
            // Nobody's business.
            _ if allowed.is_infinite() => 0.0,
            (true, true) if e == f => 0.0,
            (true, true) => (e - f).abs() / allowed.max(f64::MIN_POSITIVE),
            _ if e == f || (e.is_nan() && f.is_nan()) => 0.0,
            _ => f64::INFINITY,
        }
    };
    expected.iter().zip(found).zip(allowed).map(cell).fold(0.0, f64::max)
}
