//! How an attention is worked out, as a value: a mistake is an edit of it.

use super::example::{Example, Operand, Scale, Step};
use super::matrix::Matrix;

/// How Q, K, V and the output are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Projection {
    pub(super) source: Operand,
    pub(super) weight: Operand,
    pub(super) transposed: bool,
    pub(super) bias: bool,
}

/// What becomes of the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// Added to the scores: right.
    Added,
    /// Forgotten.
    Ignored,
    /// The scores multiplied by 1 and 0.
    MultipliedBefore,
    /// The weights multiplied by 1 and 0.
    MultipliedAfter,
    /// The mask's transpose added: the past hidden instead of the future.
    Transposed,
}

/// How scores become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkedNormaliser {
    /// A softmax of each row: right.
    Softmax,
    /// A sigmoid of each cell.
    Sigmoid,
    /// A softmax of each column.
    Columns,
    /// One softmax of all cells.
    Everything,
    /// The scores divided by the sum of their row, without exponentials.
    Shares,
    /// Exponentials that are not divided by their sum.
    Exponentials,
    /// The scores as they are.
    Skipped,
}

/// What the weights are multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixed {
    /// A step: V is right.
    Step(Step),
    /// An input that was not projected.
    Operand(Operand),
}

impl Mixed {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Step(step) => step.name(),
            Self::Operand(operand) => operand.name(),
        }
    }
}

/// Every choice in an attention.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recipe {
    pub(super) q: Projection,
    pub(super) k: Projection,
    pub(super) v: Projection,
    pub(super) out: Projection,
    pub(super) left: Step,
    pub(super) right: Step,
    /// Q·K where Q·Kᵀ is meant.
    pub(super) right_as_it_is: bool,
    /// What the products are divided by before they are called products: 1.
    pub(super) early_divisor: f64,
    pub(super) divisor: f64,
    pub(super) masking: Masking,
    pub(super) normaliser: WorkedNormaliser,
    pub(super) weights_transposed: bool,
    pub(super) mixed: Mixed,
    /// V's rows in another order, by their numbers.
    pub(super) value_order: Option<Vec<usize>>,
    /// The heads in another order beside each other.
    pub(super) head_order: Option<Vec<usize>>,
    /// Columns of heads taken in turn instead of head after head.
    pub(super) interleaved: bool,
}

impl Recipe {
    /// The right one.
    pub(super) fn of(example: &Example) -> Self {
        let projection = |source, weight| Projection { source, weight, transposed: false, bias: true };
        Self {
            q: projection(example.query_source(), Operand::WQ),
            k: projection(Operand::X, Operand::WK),
            v: projection(Operand::X, Operand::WV),
            out: projection(Operand::X, Operand::WO),
            left: Step::Q,
            right: Step::K,
            right_as_it_is: false,
            early_divisor: 1.0,
            divisor: divisor(example, example.scale).unwrap_or(1.0),
            masking: Masking::Added,
            normaliser: WorkedNormaliser::Softmax,
            weights_transposed: false,
            mixed: Mixed::Step(Step::V),
            value_order: None,
            head_order: None,
            interleaved: false,
        }
    }

    pub(super) fn projection(&mut self, step: Step) -> Option<&mut Projection> {
        match step {
            Step::Q => Some(&mut self.q),
            Step::K => Some(&mut self.k),
            Step::V => Some(&mut self.v),
            Step::Output => Some(&mut self.out),
            _ => None,
        }
    }
}

/// The width of all heads together, where queries or keys are known.
pub(super) fn inner(example: &Example) -> Option<usize> {
    let weight = |operand| example.operand(operand).map(Matrix::columns);
    let unprojected = || example.operand(Operand::X).filter(|_| example.unprojected()).map(Matrix::columns);
    let given = |step| {
        let part = example.given.iter().find(|given| given.part.step == step)?;
        Some(part.stated.matrix.columns() * if part.part.head.is_some() { example.heads } else { 1 })
    };
    weight(Operand::WQ)
        .or_else(|| weight(Operand::WK))
        .or_else(|| given(Step::Q))
        .or_else(|| given(Step::K))
        .or_else(unprojected)
}

/// A head's size.
pub fn head_size(example: &Example) -> Option<usize> {
    inner(example).map(|columns| columns / example.heads)
}

/// The width of what is projected, or of all heads together.
pub fn model_size(example: &Example) -> Option<usize> {
    example.operand(example.query_source()).map(Matrix::columns).or_else(|| inner(example))
}

/// A scale as a number, where the sizes behind it are known.
pub fn divisor(example: &Example, scale: Scale) -> Option<f64> {
    let root = |size: Option<usize>| size.map(|n| (n as f64).sqrt());
    match scale {
        Scale::SqrtHead => root(head_size(example)),
        Scale::SqrtModel => root(model_size(example)),
        Scale::None => Some(1.0),
        Scale::By(x) => Some(x),
    }
}
