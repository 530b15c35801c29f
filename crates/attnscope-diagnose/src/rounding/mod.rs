//! How far floating-point arithmetic may move a value: the rounding bounds with which `diff`, `check --trace` and `explain`
//! compare their differences.
//!
//! A node is computed again in f64 from the tensors that a program says it read. [`Rounding::bounds`] says how far the
//! program's own value may be from that, in each cell, whatever order it sums in, blocked or not, with or without fused
//! multiply-add. Formulas and sources are in `docs/diff.md`; in short, with u the unit roundoff of a type:
//!
//! - **A sum of n terms** is off by at most n·u·Σ|terms| (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
//!   §4.2). Rounding errors that are independent and of mean zero make it λ·√n·u·Σ|terms| (Higham and Mary, SIAM J. Sci.
//!   Comput. 41, 2019). They are not independent where terms of one sign pile up, so the part of the partial sums that
//!   drifts with the mean is taken at its worst: u·(λ√n·Σ|terms| + n·|sum|). See `Rounding::sum`.
//! - **Operands** of products that were rounded to a shorter type first move a sum of n independent terms by
//!   λ·u·√Σ terms², and never by more than u·Σ|terms|.
//! - **A function** is off by the units that were measured of the libraries in use (`allowance.rs`).
//! - **An error of an input** is carried on by the magnitude of the derivative: |W|·e for products, the Lipschitz
//!   expressions of softmax and norms, so that bounds compose over nodes that a program did not show.
//!
//! λ is chosen so that no cell of a whole comparison fails by chance with a probability above [`FAILURE`].

mod allowance;
mod blocks;
mod elementwise;
mod precision;
mod products;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use attnscope_graph::{Node, Op};
use attnscope_run::{Formula, Kept};

pub use precision::Precision;
use products::Products;

/// The probability that is allowed for one cell of a whole comparison to be outside its bound by chance.
pub const FAILURE: f64 = 1e-6;

/// A tensor, and how far each of its values may be from the exact one.
#[derive(Debug, Clone)]
pub struct Bounded {
    /// The values.
    pub kept: Arc<Kept>,
    /// Their error bounds.
    pub error: Errors,
}

impl Bounded {
    /// A tensor without error.
    pub fn exact(kept: Arc<Kept>) -> Self {
        Self { kept, error: Errors::None }
    }
}

/// The error bounds of a tensor's values.
#[derive(Debug, Clone)]
pub enum Errors {
    /// No error.
    None,
    /// An error per cell.
    Each(Vec<f64>),
    /// One cell, and by how much.
    One(usize, f64),
}

impl Errors {
    /// The error bound of a cell.
    pub fn at(&self, cell: usize) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Each(errors) => errors.get(cell).copied().unwrap_or(0.0),
            Self::One(at, error) => {
                if *at == cell {
                    *error
                } else {
                    0.0
                }
            }
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// An input of a node: a tensor of the caller, with its error.
#[derive(Debug, Clone, Copy)]
pub struct BoundedInput<'a> {
    /// The values.
    pub kept: &'a Kept,
    /// Their error bounds.
    pub error: &'a Errors,
}

impl<'a> BoundedInput<'a> {
    /// A tensor without error.
    pub fn exact(kept: &'a Kept) -> Self {
        Self { kept, error: &Errors::None }
    }
}

impl<'a> From<&'a Bounded> for BoundedInput<'a> {
    fn from(bounded: &'a Bounded) -> Self {
        Self { kept: &bounded.kept, error: &bounded.error }
    }
}

/// A node that was computed, in f64: from what, and to what.
#[derive(Clone, Copy)]
pub struct Computed<'a> {
    /// Computes the node's formula on magnitudes.
    pub formula: &'a Formula<'a>,
    /// The node, or an edited copy of one.
    pub node: &'a Node,
    /// What it read.
    pub inputs: &'a [BoundedInput<'a>],
    /// Its weights, in the operation's order.
    pub weights: &'a [&'a [f32]],
    /// What came out.
    pub output: &'a Kept,
}

impl Computed<'_> {
    fn factor(&self, factor: attnscope_graph::Factor) -> f64 {
        factor.value(self.formula.sizes()).unwrap_or(1.0)
    }

    /// The error of an input's cell.
    fn error(&self, input: usize, cell: usize) -> f64 {
        self.inputs.get(input).map_or(0.0, |input| input.error.at(cell))
    }

    /// The magnitude of an input's cell; 0 where it is masked.
    fn magnitude(&self, input: usize, cell: usize) -> f64 {
        finite(self.inputs.get(input).and_then(|x| x.kept.values.get(cell)).copied().unwrap_or(0.0).abs())
    }

    /// The number of cells of an input, to repeat it over more.
    fn cells(&self, input: usize) -> usize {
        self.inputs.get(input).map_or(1, |x| x.kept.values.len()).max(1)
    }
}

/// How a program rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounding {
    /// The types that it computes in.
    pub precision: Precision,
    /// λ: by how many standard deviations independent errors may exceed theirs.
    pub confidence: f64,
}

impl Rounding {
    /// For a comparison of that many cells.
    pub fn new(precision: Precision, cells: usize) -> Self {
        Self { precision, confidence: confidence(cells) }
    }

    /// The error of a sum of `n` terms whose magnitudes add up to `magnitudes`, in units of rounding.
    fn sum(&self, n: usize, magnitudes: f64, sum: f64) -> f64 {
        let n = n as f64;
        let independent = (self.confidence * n.sqrt()).min(n);
        independent * magnitudes + (n - independent) * sum.abs()
    }

    /// The same where a recurrent layer's own states before each position are taken as they were stored.
    pub fn bounds_of_one_step<'a>(&self, of: Computed<'a>) -> Bounds<'a> {
        match of.node.op {
            Op::Recur { cell, reverse } => Bounds::Every(self.recurred(of, cell, reverse, true)),
            _ => self.bounds(of),
        }
    }

    /// The error bound of each cell of a node.
    pub fn bounds<'a>(&self, of: Computed<'a>) -> Bounds<'a> {
        let every = |bound: Vec<f64>| Bounds::Every(bound);
        match of.node.op {
            Op::Linear | Op::Logits { .. } | Op::Scores { .. } | Op::Context { .. } | Op::Conv1d { .. } => {
                Bounds::Products(Products::new(*self, of))
            }
            Op::Ids(_) | Op::TypeIds(_) | Op::Features | Op::Mask(_) => {
                every(vec![0.0; of.output.values.len()])
            }
            Op::Same
            | Op::Transpose
            | Op::SplitHeads(_)
            | Op::MergeHeads(_)
            | Op::Hidden
            | Op::LastState { .. }
            | Op::Flatten { .. }
            | Op::Dropout { .. } => every(self.moved(of)),
            Op::Recur { cell, reverse } => every(self.recurred(of, cell, reverse, false)),
            Op::Beside => every(self.side_by_side(of)),
            Op::Pool { pooling, axis, .. } => every(self.pooled(of, pooling, axis)),
            Op::Rotate { rotary, .. } => every(self.rotated(of, rotary)),
            Op::SoftCap { cap, .. } => every(self.soft_capped(of, cap)),
            Op::Embed { .. } | Op::RelativeBias { .. } => every(self.looked_up(of)),
            Op::Positions { kind, offset, .. } => every(self.positions(of, kind, offset)),
            Op::AddPositions | Op::AddMask { .. } => every(self.added(of, 1.0)),
            Op::Residual { gain } => every(self.added(of, f64::from(gain).abs())),
            Op::Activate(activation) => every(self.activated(of, activation)),
            Op::Gate => every(self.gated(of)),
            Op::Norm { kind, eps, gain } => every(self.norm(of, kind, eps, gain)),
            Op::Normalise(normaliser) => every(self.normalise(of, normaliser)),
        }
    }
}

/// The error bounds of a node's cells, computed on demand where they cost as much as the node.
pub enum Bounds<'a> {
    /// Known for every cell.
    Every(Vec<f64>),
    /// Of sums of products.
    Products(Products<'a>),
}

impl Bounds<'_> {
    /// A lower limit of [`Bounds::at`] that costs nothing.
    pub fn floor(&self, cell: usize) -> f64 {
        match self {
            Self::Every(bounds) => bounds.get(cell).copied().unwrap_or(0.0),
            Self::Products(products) => products.floor(cell),
        }
    }

    /// The bound of one cell.
    pub fn at(&self, cell: usize) -> f64 {
        match self {
            Self::Every(bounds) => bounds.get(cell).copied().unwrap_or(0.0),
            Self::Products(products) => products.at(cell),
        }
    }

    /// The bounds of all cells. Of products they are those of a worst case where that saves a second pass, and so may be
    /// a little wider than [`Bounds::at`].
    pub fn all(self) -> Vec<f64> {
        match self {
            Self::Every(bounds) => bounds,
            Self::Products(products) => products.all(),
        }
    }
}

/// λ for so many cells: a sum of independent errors of mean zero exceeds λ times the root of the sum of their squared
/// limits with a probability of at most 2·exp(−λ²/2) (Hoeffding 1963).
fn confidence(cells: usize) -> f64 {
    (2.0 * (2.0 * cells.max(1) as f64 / FAILURE).ln()).sqrt()
}

/// Masked scores and NaN have magnitude 0.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}
