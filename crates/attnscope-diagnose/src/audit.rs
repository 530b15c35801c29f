//! A run's own audit: every captured tensor computed again in f64 from the tensors it was made of, and the difference
//! held against what rounding can explain.

use std::sync::Arc;

use attnscope_graph::{Activation, Model, Node, NodeId, NormKind, Op, Positions};
use attnscope_run::trace::{Trace, TraceError};
use attnscope_run::{Formula, Input, Kept, RunError, Weights, sizes_of};

/// The unit roundoff of f32: no operation on numbers in range is off by more, relative to its result.
pub const ROUNDOFF_F32: f64 = 1.0 / (1 << 24) as f64;
/// The same of f64.
pub const ROUNDOFF_F64: f64 = ROUNDOFF_F32 * ROUNDOFF_F32 / 32.0;
/// Roundings that an exponential or an activation may cost beside its sums: the kernels' own tests allow them less.
const FUNCTION: f64 = 16.0;
/// What is smaller may be flushed to 0.
const FLUSHED: f64 = 1e-37;

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

/// Computes every captured tensor again. `roundoff` is that of the numbers the run computed with.
///
/// # Errors
/// When the trace is not one of this model on this input.
pub fn audit(
    model: &Model,
    weights: &Weights,
    trace: &Trace,
    input: &Input,
    roundoff: f64,
) -> Result<Audit, AuditError> {
    let formula = Formula::new(&model.graph, sizes_of(model, input)?, input)?;
    let auditor = Auditor { model, weights, trace, formula, roundoff };
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
    roundoff: f64,
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
        let bounds = self.bounds(node, &inputs, &derived)?;
        Ok(Ok(compare(id, &captured, &derived, &bounds, self.roundoff)))
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

    /// How many roundings each value can have suffered, times what they were relative to. A sum of n products is off by
    /// at most n roundings of the sum of the products' magnitudes, in whatever order it is added up (Higham, Accuracy and
    /// Stability of Numerical Algorithms, 2002, §3.1).
    fn bounds(&self, node: &Node, inputs: &[Arc<Kept>], derived: &Kept) -> Result<Vec<f64>, AuditError> {
        let width = |i: usize| inputs.get(i).and_then(|x| x.shape.last()).copied().unwrap_or(1);
        let of_output = |roundings: f64| derived.values.iter().map(|x| finite(x.abs()) * roundings).collect();
        let terms = match node.op {
            Op::Ids(_) | Op::Features | Op::Transpose | Op::Same | Op::Mask(_) => return Ok(of_output(0.0)),
            Op::SplitHeads(_) | Op::MergeHeads(_) | Op::RelativeBias { .. } => return Ok(of_output(0.0)),
            Op::Positions { kind: Positions::Table, .. } | Op::Activate(Activation::Relu) => {
                return Ok(of_output(0.0));
            }
            Op::Positions { .. } => return Ok(of_output(1.0)),
            Op::Embed { .. } => return Ok(of_output(2.0)),
            Op::Norm { kind, eps } => return Ok(self.norm(node, kind, eps, inputs)),
            Op::Squash(_) => return Ok(squash(inputs, derived)),
            Op::AddPositions | Op::Residual { .. } | Op::AddMask { .. } | Op::Gate => 2,
            Op::Activate(_) => {
                let of_input = |x: &Arc<Kept>| x.values.iter().map(|x| finite(x.abs()) * FUNCTION).collect();
                return Ok(inputs.first().map(of_input).unwrap_or_default());
            }
            Op::Linear | Op::Logits { .. } | Op::Scores { .. } | Op::Context => width(0) + 2,
            Op::Conv1d { .. } => 3 * inputs.first().and_then(|x| x.shape.get(1)).copied().unwrap_or(1) + 1,
        };
        Ok(self.magnitudes(node, inputs)?.values.iter().map(|x| x * terms as f64).collect())
    }

    /// The node computed from magnitudes: the sum of the magnitudes of its terms.
    fn magnitudes(&self, node: &Node, inputs: &[Arc<Kept>]) -> Result<Kept, AuditError> {
        let magnitude = |kept: &Arc<Kept>| {
            let values = kept.values.iter().map(|x| finite(x.abs())).collect();
            Arc::new(Kept { shape: kept.shape.clone(), values })
        };
        let inputs: Vec<Arc<Kept>> = inputs.iter().map(magnitude).collect();
        let weights: Vec<Vec<f32>> =
            node.weights.iter().map(|&w| self.weights.get(w).iter().map(|x| x.abs()).collect()).collect();
        let weights: Vec<&[f32]> = weights.iter().map(Vec::as_slice).collect();
        Ok(self.formula.compute(node, &inputs, &weights)?)
    }

    /// The mean is a sum of n values; the spread a root of a sum of n squares; then four operations.
    fn norm(&self, node: &Node, kind: NormKind, eps: f64, inputs: &[Arc<Kept>]) -> Vec<f64> {
        let Some(x) = inputs.first() else { return Vec::new() };
        let width = x.shape.last().copied().unwrap_or(1).max(1);
        let weight = |i: usize| node.weights.get(i).map(|&w| self.weights.get(w)).unwrap_or_default();
        let (gain, bias) = (weight(0), weight(1));
        let row = |x: &[f64]| -> Vec<f64> {
            let n = width as f64;
            let centred = kind == NormKind::Layer;
            let mean = if centred { x.iter().sum::<f64>() / n } else { 0.0 };
            let size = if centred { x.iter().map(|v| v.abs()).sum::<f64>() / n } else { 0.0 };
            let spread = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n + eps).sqrt();
            let one = |(i, v): (usize, &f64)| {
                let gain = gain.get(i).map_or(1.0, |&g| f64::from(g).abs()) / spread;
                let shift = bias.get(i).map_or(0.0, |&b| f64::from(b).abs());
                gain * (n * size + (v - mean).abs() * (n / 2.0 + 8.0)) + 2.0 * shift
            };
            x.iter().enumerate().map(one).collect()
        };
        x.values.chunks(width).flat_map(row).collect()
    }
}

/// An exponential is off by the roundings of its argument and its own; a quotient by those of the sum, too.
fn squash(inputs: &[Arc<Kept>], derived: &Kept) -> Vec<f64> {
    let Some(x) = inputs.first() else { return Vec::new() };
    let width = x.shape.last().copied().unwrap_or(1).max(1);
    let row = |(x, out): (&[f64], &[f64])| -> Vec<f64> {
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let argument = |x: f64| finite((x - most).abs() + x.abs());
        let mean: f64 = x.iter().zip(out).map(|(&x, &out)| out.abs() * argument(x)).sum();
        let one = |(&x, &out): (&f64, &f64)| out.abs() * (width as f64 + FUNCTION + argument(x) + mean);
        x.iter().zip(out).map(one).collect()
    };
    x.values.chunks(width).zip(derived.values.chunks(width)).flat_map(row).collect()
}

/// What is masked has no magnitude.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

fn compare(node: NodeId, captured: &Kept, derived: &Kept, bounds: &[f64], roundoff: f64) -> Checked {
    let mut checked = Checked { node, error: 0.0, largest: 0.0, share: 0.0, worst: None };
    for (i, (&a, &b)) in captured.values.iter().zip(&derived.values).enumerate() {
        checked.largest = checked.largest.max(finite(b.abs()));
        // The same infinity, or not a number on both sides, is no error.
        let error = match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false if (a - b).is_nan() => f64::INFINITY,
            false => (a - b).abs(),
        };
        let bound = bounds.get(i).copied().unwrap_or(0.0) * roundoff;
        let share =
            if error == 0.0 { 0.0 } else { error / (bound + if bound > 0.0 { FLUSHED } else { 0.0 }) };
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
