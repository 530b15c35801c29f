//! A saved run, checked: every captured tensor is computed again in f64 from its inputs, and the difference is compared with the
//! bound of rounding.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use attnscope_checkpoint::Remedy;
use attnscope_graph::{Model, Node, NodeId, Op};
use attnscope_run::trace::{Trace, TraceError};
use attnscope_run::{CheckedInput, Counted, Formula, Input, Kept, Limits, RunError, Weights};
use rayon::prelude::*;

use crate::rounding::{BoundedInput, Computed, Precision, Rounding};

/// What was checked, and what could not be.
#[derive(Debug, Clone, PartialEq)]
pub struct Recomputed {
    /// In the order of computation.
    pub checked: Vec<Checked>,
    /// In the order of computation.
    pub unchecked: Vec<Unchecked>,
}

/// A tensor and its distance from the value computed from its inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The node.
    pub node: NodeId,
    /// The largest error.
    pub error: f64,
    /// The largest value of the tensor.
    pub largest: f64,
    /// The largest error divided by its rounding bound: above 1, rounding does not explain it.
    pub share: f64,
    /// The cell with that ratio.
    pub worst: Option<WorstCell>,
}

/// One cell of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct WorstCell {
    /// One index per dimension.
    pub at: Vec<usize>,
    /// What was captured.
    pub captured: f64,
    /// The value computed from its inputs.
    pub derived: f64,
}

/// A tensor that was not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchecked {
    /// The node.
    pub node: NodeId,
    /// Why.
    pub why: Why,
}

/// Why a tensor was not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is not in the trace.
    NotSaved,
    /// A tensor that it is computed from is not in the trace.
    InputNotSaved(NodeId),
    /// It is the input of the run.
    Given,
}

/// Why the run could not be computed again.
#[derive(Debug, thiserror::Error)]
pub enum RecomputeError {
    /// The trace belongs to another model or input.
    #[error("{path}: expected {expected}, found {found}")]
    Foreign {
        /// The node.
        path: String,
        /// What the model has.
        expected: String,
        /// What the trace has.
        found: String,
    },
    /// The input or the tensors do not fit the model.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl RecomputeError {
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Foreign { .. } => Remedy::TracedModel(None),
            Self::Run(e) => e.remedy(),
            Self::Trace(e) => e.remedy(),
        }
    }
}

impl Checked {
    /// Whether rounding does not explain the error.
    pub fn beyond(&self) -> bool {
        self.share > 1.0
    }
}

/// Computes every captured tensor again. `precision` is that of the run.
///
/// # Errors
/// When the trace is not one of this model on this input, or it is cancelled.
pub fn recompute(
    model: &Model,
    weights: &Weights,
    trace: &Trace,
    input: &Input,
    precision: Precision,
    limits: &Limits,
) -> Result<Recomputed, RecomputeError> {
    let checked = CheckedInput::new(model, input.clone())?;
    let formula = Formula::new(&model.graph, checked.sizes().clone(), input)?.with_cancel(&limits.cancel);
    let cells = trace.nodes.iter().map(|node| node.shape.iter().product::<usize>()).sum();
    let rounding = Rounding::new(precision, cells);
    let last_reader = last_readers(model);
    let mut recomputer =
        Recomputer { model, weights, trace, formula, rounding, last_reader, held: HashMap::new() };
    let mut recomputed = Recomputed { checked: Vec::new(), unchecked: Vec::new() };
    let total = model.graph.nodes().len();
    for (done, (id, node)) in model.graph.iter().enumerate() {
        limits.cancel.check()?;
        limits.progress.tell(Counted::Compared, done, total);
        match recomputer.node(id, node)? {
            Ok(checked) => recomputed.checked.push(checked),
            Err(why) => recomputed.unchecked.push(Unchecked { node: id, why }),
        }
        recomputer.forget(id);
    }
    Ok(recomputed)
}

/// For each node the last node that reads it, or the node itself.
fn last_readers(model: &Model) -> Vec<NodeId> {
    let mut last: Vec<NodeId> = model.graph.iter().map(|(id, _)| id).collect();
    for (id, node) in model.graph.iter() {
        node.inputs.iter().for_each(|input| last[input.index()] = id);
    }
    last
}

struct Recomputer<'a> {
    model: &'a Model,
    weights: &'a Weights,
    trace: &'a Trace,
    formula: Formula<'a>,
    rounding: Rounding,
    last_reader: Vec<NodeId>,
    /// Tensors that are still needed: each is read from the file once.
    held: HashMap<NodeId, Arc<Kept>>,
}

impl Recomputer<'_> {
    fn node(&mut self, id: NodeId, node: &Node) -> Result<Result<Checked, Why>, RecomputeError> {
        let Some(captured) = self.captured(id)? else { return Ok(Err(Why::NotSaved)) };
        if node.op == Op::Features {
            return Ok(Err(Why::Given));
        }
        let mut inputs = Vec::new();
        for &input in &node.inputs {
            match self.captured(input)? {
                Some(kept) => inputs.push(kept),
                None => return Ok(Err(Why::InputNotSaved(input))),
            }
        }
        let held: Vec<Cow<'_, [f32]>> =
            node.weights.iter().map(|&w| self.weights.get(w)).collect::<Result<_, _>>()?;
        let weights: Vec<&[f32]> = held.iter().map(|values| &**values).collect();
        let derived = self.formula.compute(node, &inputs, &weights)?;
        let readings: Vec<BoundedInput<'_>> = inputs.iter().map(|kept| BoundedInput::exact(kept)).collect();
        let computed =
            Computed { formula: &self.formula, node, inputs: &readings, weights: &weights, output: &derived };
        let bounds = self.rounding.bounds(computed).all();
        Ok(Ok(compare(id, &captured, &derived, &bounds)))
    }

    /// Drops the tensors that no later node reads.
    fn forget(&mut self, id: NodeId) {
        let last_reader = &self.last_reader;
        self.held.retain(|held, _| last_reader[held.index()] > id);
    }

    /// A tensor of the trace, in the shape that the model gives it.
    fn captured(&mut self, id: NodeId) -> Result<Option<Arc<Kept>>, RecomputeError> {
        if let Some(kept) = self.held.get(&id) {
            return Ok(Some(kept.clone()));
        }
        let path = self.model.graph.node(id).path.as_str();
        let Some(kept) = self.trace.read(path)? else { return Ok(None) };
        let expected = self.formula.sizes().shape(&self.model.graph.node(id).dims).unwrap_or_default();
        if kept.shape == expected {
            let kept = Arc::new(kept);
            self.held.insert(id, kept.clone());
            return Ok(Some(kept));
        }
        let (expected, found) = (format!("a tensor of shape {expected:?}"), format!("{:?}", kept.shape));
        Err(RecomputeError::Foreign { path: path.to_owned(), expected, found })
    }
}

/// Masked scores have no magnitude.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

fn compare(node: NodeId, captured: &Kept, derived: &Kept, bounds: &[f64]) -> Checked {
    let cell = |(i, (&a, &b)): (usize, (&f64, &f64))| {
        // The same infinity, or NaN on both sides, is no error.
        let error = match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false if (a - b).is_nan() => f64::INFINITY,
            false => (a - b).abs(),
        };
        let bound = bounds.get(i).copied().unwrap_or(0.0);
        Worst {
            error,
            largest: finite(b.abs()),
            share: if error == 0.0 { 0.0 } else { error / bound },
            at: i,
        }
    };
    let cells = captured.values.par_iter().zip(&derived.values).enumerate().map(cell);
    let Worst { error, largest, share, at } = cells.reduce(Worst::default, Worst::with);
    let worst = (share > 0.0).then(|| WorstCell {
        at: index(at, &captured.shape),
        captured: captured.values[at],
        derived: derived.values[at],
    });
    Checked { node, error, largest, share, worst }
}

/// The worst of some cells.
#[derive(Default)]
struct Worst {
    error: f64,
    largest: f64,
    share: f64,
    /// The first cell with that ratio.
    at: usize,
}

impl Worst {
    /// The worst of these cells and of later ones.
    fn with(self, after: Self) -> Self {
        let (share, at) =
            if after.share > self.share { (after.share, after.at) } else { (self.share, self.at) };
        Self { error: self.error.max(after.error), largest: self.largest.max(after.largest), share, at }
    }
}

/// An offset in memory as one index per dimension.
fn index(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut at: Vec<usize> = Vec::with_capacity(shape.len());
    for &n in shape.iter().rev() {
        at.push(i % n.max(1));
        i /= n.max(1);
    }
    at.reverse();
    at
}
