//! A run's own audit: every captured tensor computed again in f64 from the tensors it was made of, and the difference
//! held against what rounding can explain.

use std::sync::Arc;

use attnscope_graph::{Model, Node, NodeId, Op};
use attnscope_run::trace::{Trace, TraceError};
use attnscope_run::{Formula, Input, Kept, RunError, Weights, sizes_of};

use crate::rounding::{Computed, Precision, Reading, Rounding};

/// What was checked, and what could not be.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// In the order of computation.
    pub checked: Vec<Checked>,
    /// In the order of computation.
    pub unchecked: Vec<Unchecked>,
}

/// A tensor and how far it is from what its inputs give.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The node.
    pub node: NodeId,
    /// The largest error.
    pub error: f64,
    /// The largest value of the tensor.
    pub largest: f64,
    /// The largest share that an error has of what rounding explains: beyond 1, rounding does not explain it.
    pub share: f64,
    /// The cell with that share.
    pub worst: Option<WorstCell>,
}

/// One cell of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct WorstCell {
    /// An index a dimension.
    pub at: Vec<usize>,
    /// What was captured.
    pub captured: f64,
    /// What its inputs give.
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
    /// It is what the run was given.
    Given,
}

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The trace is of another model or input.
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

impl AuditError {
    /// What the user can do next, for the `help:` line.
    pub fn help(&self) -> String {
        match self {
            Self::Foreign { .. } => "give the model that was traced: check --trace DIR MODEL".into(),
            Self::Run(e) => e.help(),
            Self::Trace(e) => e.help(),
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
/// When the trace is not one of this model on this input.
pub fn audit(
    model: &Model,
    weights: &Weights,
    trace: &Trace,
    input: &Input,
    precision: Precision,
) -> Result<Audit, AuditError> {
    let formula = Formula::new(&model.graph, sizes_of(model, input)?, input)?;
    let cells = trace.nodes.iter().map(|node| node.shape.iter().product::<usize>()).sum();
    let auditor = Auditor { model, weights, trace, formula, rounding: Rounding::new(precision, cells) };
    let mut audit = Audit { checked: Vec::new(), unchecked: Vec::new() };
    for (id, node) in model.graph.iter() {
        match auditor.node(id, node)? {
            Ok(checked) => audit.checked.push(checked),
            Err(why) => audit.unchecked.push(Unchecked { node: id, why }),
        }
    }
    Ok(audit)
}

struct Auditor<'a> {
    model: &'a Model,
    weights: &'a Weights,
    trace: &'a Trace,
    formula: Formula<'a>,
    rounding: Rounding,
}

impl Auditor<'_> {
    fn node(&self, id: NodeId, node: &Node) -> Result<Result<Checked, Why>, AuditError> {
        let Some(captured) = self.captured(id)? else { return Ok(Err(Why::NotSaved)) };
        if node.op == Op::Features {
            return Ok(Err(Why::Given));
        }
        let mut inputs = Vec::new();
        for &input in &node.inputs {
            match self.captured(input)? {
                Some(kept) => inputs.push(Arc::new(kept)),
                None => return Ok(Err(Why::InputNotSaved(input))),
            }
        }
        let weights: Vec<&[f32]> = node.weights.iter().map(|&w| self.weights.get(w)).collect();
        let derived = self.formula.compute(node, &inputs, &weights)?;
        let readings: Vec<Reading<'_>> = inputs.iter().map(|kept| Reading::exact(kept)).collect();
        let computed =
            Computed { formula: &self.formula, node, inputs: &readings, weights: &weights, output: &derived };
        let bounds = self.rounding.bounds(computed).all();
        Ok(Ok(compare(id, &captured, &derived, &bounds)))
    }

    /// A tensor of the trace, in the shape that the model gives it.
    fn captured(&self, id: NodeId) -> Result<Option<Kept>, AuditError> {
        let path = self.model.graph.node(id).path.as_str();
        let Some(kept) = self.trace.read(path)? else { return Ok(None) };
        let expected = self.formula.sizes().shape(&self.model.graph.node(id).dims).unwrap_or_default();
        if kept.shape == expected {
            return Ok(Some(kept));
        }
        let (expected, found) = (format!("a tensor of shape {expected:?}"), format!("{:?}", kept.shape));
        Err(AuditError::Foreign { path: path.to_owned(), expected, found })
    }
}

/// What is masked has no magnitude.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

fn compare(node: NodeId, captured: &Kept, derived: &Kept, bounds: &[f64]) -> Checked {
    let mut checked = Checked { node, error: 0.0, largest: 0.0, share: 0.0, worst: None };
    for (i, (&a, &b)) in captured.values.iter().zip(&derived.values).enumerate() {
        checked.largest = checked.largest.max(finite(b.abs()));
        // The same infinity, or not a number on both sides, is no error.
        let error = match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false if (a - b).is_nan() => f64::INFINITY,
            false => (a - b).abs(),
        };
        let bound = bounds.get(i).copied().unwrap_or(0.0);
        let share = if error == 0.0 { 0.0 } else { error / bound };
        checked.error = checked.error.max(error);
        if share > checked.share {
            checked.share = share;
            checked.worst = Some(WorstCell { at: index(i, &captured.shape), captured: a, derived: b });
        }
    }
    checked
}

/// A place in memory as an index a dimension.
fn index(mut i: usize, shape: &[usize]) -> Vec<usize> {
    let mut at: Vec<usize> = Vec::with_capacity(shape.len());
    for &n in shape.iter().rev() {
        at.push(i % n.max(1));
        i /= n.max(1);
    }
    at.reverse();
    at
}
