//! Rounding or a bug: a node's tensor is computed again, in f64, from the same side's inputs, and the difference is compared
//! with the bound of rounding. Errors of earlier steps do not count here; errors of this step do.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use attnscope_checkpoint::{Error, ErrorKind, Shortage, check_memory};
use attnscope_graph::{Graph, Node, Op};
use attnscope_run::{Formula, Kept, RunError, Weights};
use rayon::prelude::*;

use super::eps;
use super::frame::Frame;
use super::gap::Gap;
use super::grain::Grain;
use super::measure::masked_to_infinity;
use super::pair::{Bindings, load};
use super::relation::Relation;
use super::side::Side;
use super::spread;
use crate::rounding::{Bounded, BoundedInput, Bounds, Computed, Errors, Precision, Rounding};

/// If more than one cell in so many needs its own bound, the bounds of all cells are computed.
const FEW: usize = 16;
/// How many tensors of a side are kept for later nodes: the stream, its norm, queries, keys and values.
const HELD: usize = 6;
/// No tensor of more values is kept.
const LARGEST_HELD: usize = 1 << 24;

/// A difference of so many times its bound is a bug. Bounds hold for every cell of a comparison except with a stated
/// probability. Some allowances are measured, not proven, so a value just outside its bound is only called unusual.
pub(super) const FAR: f64 = 4.0;

/// Root mean square error of runs without a bug, at most, in units of f32 and of a shorter type.
pub(super) const COARSE: f64 = 64.0;
const COARSE_SHORT: f64 = 4.0;
/// A cell's error may be so many times the root mean square of all.
pub(super) const TAILS: f64 = 8.0;

/// Computes nodes of a side from that side's tensors.
pub(super) struct Judge<'a> {
    pub(super) frame: &'a Frame,
    pub(super) graph: &'a Graph,
    pub(super) formula: &'a Formula<'a>,
    /// Absent where the model's file was not found; nodes with weights are then not computed.
    pub(super) weights: Option<&'a Weights>,
    /// Cells that are compared in all.
    pub(super) cells: usize,
}

/// The tensors of one side.
#[derive(Clone, Copy)]
pub(super) struct Tensors<'a> {
    pub(super) side: &'a Side,
    pub(super) bindings: &'a Bindings,
    pub(super) memory: &'a Memory,
}

/// What is known about a side's tensors so far.
#[derive(Default)]
pub(super) struct Memory {
    /// The precision that the user says the side was computed in, at least.
    pub(super) least: Option<Precision>,
    held: RefCell<Vec<(usize, Arc<Kept>)>>,
    grains: RefCell<HashMap<usize, Option<Grain>>>,
}

impl Memory {
    pub(super) fn new(least: Option<Precision>) -> Self {
        Self { least, ..Self::default() }
    }

    /// The short types that were seen: in how many computing nodes, and of how many that were checked.
    pub(super) fn grains(&self, frame: &Frame) -> Vec<(Grain, usize, usize)> {
        let grains = self.grains.borrow();
        let computes = |node: usize| !frame.op(node).is_some_and(|op| is_lookup(&op));
        let is = |(node, found): &(&usize, &Option<Grain>), grain: Grain| {
            **found == Some(grain) && computes(**node)
        };
        let count = |grain: Grain| grains.iter().filter(|one| is(one, grain)).count();
        [Grain::F16, Grain::Bf16]
            .map(|grain| (grain, count(grain), grains.len()))
            .into_iter()
            .filter(|(_, n, _)| *n > 0)
            .collect()
    }
}

/// The expected tensor of a node, from its own inputs.
pub(super) struct Local {
    pub(super) expected: Kept,
    /// The rounding bound of each cell, infinite at padding. Where the node is inside its bound, a lower limit of it.
    pub(super) allowed: Vec<f64>,
    /// What the side has.
    pub(super) found: Kept,
    /// The largest error of a cell, divided by its bound.
    pub(super) worst: f64,
    /// The relation that explains the difference, although no cell is far outside its bound.
    pub(super) like: Option<Relation>,
    /// Whether the bounds are those of f32 throughout.
    pub(super) single: bool,
    /// For a node after several steps with a large difference: how far rounding is likely to move it, in root mean square.
    pub(super) spread: Option<f64>,
}

/// The root mean square of a difference, in terms of that of the tensor.
pub(super) fn relative_rms(expected: &Kept, found: &Kept) -> f64 {
    let cells = expected.values.iter().zip(&found.values);
    let finite = cells.filter(|(e, f)| e.is_finite() && f.is_finite());
    let (off, size) = finite.fold((0.0, 0.0), |(off, size), (e, f)| (off + (e - f).powi(2), size + e * e));
    (off / f64::max(size, f64::MIN_POSITIVE)).sqrt()
}

/// A difference above this root mean square is examined further, even if bounds over several steps allow it.
fn suspicious(precision: Precision) -> f64 {
    (COARSE * Precision::F32.result).max(COARSE_SHORT * precision.operand.max(precision.result))
}

impl<'a> Tensors<'a> {
    /// A node's tensor in the node's shape.
    pub(super) fn get(&self, frame: &Frame, node: usize) -> Result<Option<Arc<Kept>>, Error> {
        if let Some((_, kept)) = self.memory.held.borrow().iter().find(|(held, _)| *held == node) {
            return Ok(Some(kept.clone()));
        }
        let (Some(bound), Some(shape)) = (&self.bindings.of[node], &frame.nodes[node].shape) else {
            return Ok(None);
        };
        let values = load(self.side, bound)?;
        if values.len() != shape.iter().product::<usize>() {
            return Ok(None);
        }
        self.memory.grains.borrow_mut().entry(node).or_insert_with(|| Grain::of(&values, bound.scale));
        let kept = Arc::new(Kept { shape: shape.clone(), values });
        if kept.values.len() <= LARGEST_HELD {
            let mut held = self.memory.held.borrow_mut();
            if held.len() >= HELD {
                held.remove(0);
            }
            held.push((node, kept.clone()));
        }
        Ok(Some(kept))
    }

    /// The precision that a node's tensor shows, once it was read.
    pub(super) fn precision(&self, judge: &Judge<'_>, node: usize) -> Precision {
        let least = self.memory.least.unwrap_or(Precision::F32);
        let grain = self.memory.grains.borrow().get(&node).copied().flatten();
        match grain.filter(|grain| !judge.is_short_anyway(node, *grain)) {
            Some(grain) => least.coarser(grain.precision()),
            None => least,
        }
    }

    /// A tensor that was read. If it has a short type, it may have been rounded only for the dump, after it was used.
    pub(super) fn bounded(&self, judge: &Judge<'_>, node: usize, kept: Arc<Kept>) -> Bounded {
        let precision = self.precision(judge, node);
        if precision.result <= Precision::F32.result {
            return Bounded::exact(kept);
        }
        let error =
            |x: &f64| if x.is_finite() { precision.result * x.abs() + precision.smallest } else { 0.0 };
        let error = Errors::Each(kept.values.iter().map(error).collect());
        Bounded { kept, error }
    }
}

impl<'a> Judge<'a> {
    /// The expected tensor of a node of this side; `None` where its inputs or weights are missing.
    pub(super) fn local(
        &self,
        node: usize,
        tensors: Tensors<'_>,
        given: Tensors<'_>,
    ) -> Result<Option<Local>, Error> {
        self.check_room(node, tensors)?;
        let Some(found) = tensors.get(self.frame, node)? else { return Ok(None) };
        let gap = self.gap_precision(node, tensors)?;
        let mut way = Gap::new(self, tensors, given, gap);
        let Some(inputs) = way.inputs(node)? else { return Ok(None) };
        let at = self.node(node);
        let Some(weights) = self.weights_of(at) else { return Ok(None) };
        let kept: Vec<Arc<Kept>> = inputs.iter().map(|input| input.kept.clone()).collect();
        let Some(expected) = self.compute(at, &kept, &weights, tensors)? else { return Ok(None) };
        let readings: Vec<BoundedInput<'_>> =
            inputs.iter().map(|input| BoundedInput::from(&**input)).collect();
        let rounding = Rounding::new(tensors.precision(self, node), self.cells);
        let computed = Computed {
            formula: self.formula,
            node: at,
            inputs: &readings,
            weights: &weights,
            output: &expected,
        };
        let bounds = rounding.bounds(computed);
        let mut found = Kept::clone(&found);
        let Some((mut worst, mut allowed)) =
            self.held_against(node, &expected.values, &mut found.values, bounds)
        else {
            return Ok(None);
        };
        let precision = gap.coarser(tensors.precision(self, node));
        let mut spread = None;
        if way.steps() > 0 && relative_rms(&expected, &found) > suspicious(precision) {
            spread = self.spread(node, [tensors, given], gap, &expected)?;
        }
        if let Some(spread) = spread {
            let open = self.frame.open(node);
            let counts = |i: usize| open.as_ref().is_none_or(|open| open.has(i));
            worst = worst.max(spread::distance(&expected, &found, counts) / spread);
            allowed.iter_mut().filter(|a| a.is_finite()).for_each(|a| *a = a.min(TAILS * spread));
        }
        let mut like = None;
        if worst <= FAR {
            let open = self.frame.open(node);
            let counts = |i: usize| open.as_ref().is_none_or(|open| open.has(i));
            let compute = |node: &Node| self.formula.compute(node, &kept, &weights).ok();
            like = eps::closer(at, [&expected, &found], counts, compute);
        }
        let single = precision == Precision::F32;
        Ok(Some(Local { expected, allowed, found, worst, like, single, spread }))
    }

    /// Refuses a node that needs more memory than there is: the node and its inputs in f64, its expected tensor, and a bound
    /// for each cell.
    fn check_room(&self, node: usize, tensors: Tensors<'_>) -> Result<(), Error> {
        let values = |node: usize| {
            let shape = self.frame.nodes[node].shape.as_deref().unwrap_or_default();
            shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64))
        };
        let inputs = self.node(node).inputs.iter().map(|id| values(id.index()).saturating_mul(2));
        let all = inputs.fold(values(node).saturating_mul(4), u64::saturating_add);
        check_memory(all.saturating_mul(8)).map_err(|shortage| refuse(self.node(node), tensors, shortage))
    }

    /// A node's value; `None` where something about it does not fit.
    fn compute(
        &self,
        node: &Node,
        inputs: &[Arc<Kept>],
        weights: &[&[f32]],
        tensors: Tensors<'_>,
    ) -> Result<Option<Kept>, Error> {
        match self.formula.compute(node, inputs, weights) {
            Ok(kept) => Ok(Some(kept)),
            Err(RunError::Memory(shortage)) => Err(refuse(node, tensors, shortage)),
            Err(_) => Ok(None),
        }
    }

    /// The largest ratio of a difference to its bound, if there is a difference, and the bounds of all cells (only lower limits
    /// where every difference is inside).
    fn held_against(
        &self,
        node: usize,
        expected: &[f64],
        found: &mut [f64],
        bounds: Bounds<'_>,
    ) -> Option<(f64, Vec<f64>)> {
        let masked = self.frame.is_masked(node);
        let open = self.frame.open(node);
        let share = |i: usize, allowed: f64| {
            let visible = open.as_ref().is_none_or(|open| open.has(i));
            if visible { share(expected[i], found[i], allowed, masked) } else { 0.0 }
        };
        let cells = (0..expected.len()).into_par_iter();
        let doubtful: Vec<usize> = cells.filter(|&i| share(i, bounds.floor(i)) > 1.0).collect();
        if doubtful.len() <= expected.len() / FEW {
            let worst = doubtful.par_iter().map(|&i| share(i, bounds.at(i))).reduce(|| 0.0, f64::max);
            if worst <= 1.0 {
                let mut allowed: Vec<f64> =
                    (0..expected.len()).into_par_iter().map(|i| bounds.floor(i)).collect();
                close(self.frame, node, expected, found, &mut allowed);
                return Some((worst, allowed));
            }
        }
        let mut allowed = bounds.all();
        // A cell that could not be computed has no bound, and is not judged.
        if allowed.iter().any(|bound| !bound.is_finite()) {
            return None;
        }
        let cells = (0..expected.len()).into_par_iter();
        let worst = cells.map(|i| share(i, allowed[i])).reduce(|| 0.0, f64::max);
        close(self.frame, node, expected, found, &mut allowed);
        Some((worst, allowed))
    }

    /// Whether a node's values fit a short type because its table's do: nothing was rounded.
    fn is_short_anyway(&self, node: usize, grain: Grain) -> bool {
        let table = self.weights_of(self.node(node)).and_then(|weights| weights.first().copied());
        let is_short = |table: &[f32]| table.iter().take(1 << 16).all(|&x| grain.holds(f64::from(x)));
        match self.node(node).op {
            Op::Ids(_) | Op::Mask(_) | Op::Features => true,
            op => is_lookup(&op) && table.is_some_and(is_short),
        }
    }

    pub(super) fn node(&self, node: usize) -> &'a Node {
        &self.graph.nodes()[node]
    }

    /// A node with its bound.
    pub(super) fn evaluate(
        &self,
        node: &Node,
        inputs: &[Arc<Bounded>],
        precision: Precision,
        tensors: Tensors<'_>,
    ) -> Result<Option<Bounded>, Error> {
        let Some(weights) = self.weights_of(node) else { return Ok(None) };
        let kept: Vec<Arc<Kept>> = inputs.iter().map(|input| input.kept.clone()).collect();
        let Some(output) = self.compute(node, &kept, &weights, tensors)? else { return Ok(None) };
        let readings: Vec<BoundedInput<'_>> =
            inputs.iter().map(|input| BoundedInput::from(&**input)).collect();
        let computed =
            Computed { formula: self.formula, node, inputs: &readings, weights: &weights, output: &output };
        let error = Errors::Each(Rounding::new(precision, self.cells).bounds(computed).all());
        Ok(Some(Bounded { kept: Arc::new(output), error }))
    }

    pub(super) fn weights_of(&self, node: &Node) -> Option<Vec<&'a [f32]>> {
        node.weights.iter().map(|&id| self.weights?.plain(id)).collect()
    }
}

fn refuse(node: &Node, tensors: Tensors<'_>, shortage: Shortage) -> Error {
    let place = format!("computing {} again", node.path);
    Error::new(tensors.side.path(), ErrorKind::Shortage { place, shortage })
}

/// Ignores cells at padding: any value there is as expected.
pub(super) fn close(frame: &Frame, node: usize, expected: &[f64], found: &mut [f64], allowed: &mut [f64]) {
    let Some(open) = frame.open(node) else { return };
    for (i, ((e, f), allowed)) in expected.iter().zip(found).zip(allowed).enumerate() {
        if !open.has(i) {
            (*f, *allowed) = (*e, f64::INFINITY);
        }
    }
}

/// Whether values are looked up or part of the input: their type says nothing about the precision of the computation.
fn is_lookup(op: &Op) -> bool {
    matches!(
        op,
        Op::Ids(_)
            | Op::Features
            | Op::Mask(_)
            | Op::Embed { .. }
            | Op::RelativeBias { .. }
            | Op::Positions { .. }
    )
}

/// The error of a cell, divided by its bound.
fn share(expected: f64, found: f64, allowed: f64, masked: bool) -> f64 {
    let (e, f) =
        if masked { (masked_to_infinity(expected), masked_to_infinity(found)) } else { (expected, found) };
    match (e.is_finite(), f.is_finite()) {
        // Nobody's business.
        _ if allowed.is_infinite() => 0.0,
        (true, true) if e == f => 0.0,
        (true, true) => (e - f).abs() / allowed.max(f64::MIN_POSITIVE),
        _ if e == f || (e.is_nan() && f.is_nan()) => 0.0,
        _ => f64::INFINITY,
    }
}

/// The largest error of a cell, divided by its bound.
pub(super) fn worst(expected: &[f64], found: &[f64], allowed: &[f64], masked: bool) -> f64 {
    let cell = |((e, f), allowed): ((&f64, &f64), &f64)| share(*e, *f, *allowed, masked);
    expected.iter().zip(found).zip(allowed).map(cell).fold(0.0, f64::max)
}
