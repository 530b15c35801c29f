//! Every step of an example, worked out. How it is worked out is a value, a [`Recipe`], so that a mistake is an edit of
//! it.

use std::collections::BTreeMap;

use super::example::{Claim, Example, Mask, Operand, Part, Scale, Step};
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
pub enum Squash {
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
    pub(super) squash: Squash,
    pub(super) weights_transposed: bool,
    pub(super) mixed: Mixed,
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
            squash: Squash::Softmax,
            weights_transposed: false,
            mixed: Mixed::Step(Step::V),
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

/// A step's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// All heads side by side.
    Whole(Matrix),
    /// A matrix a head.
    Heads(Vec<Matrix>),
}

/// The steps that could be worked out.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    heads: usize,
    steps: BTreeMap<Step, Value>,
}

impl Derived {
    /// A step's values.
    pub fn get(&self, step: Step) -> Option<&Value> {
        self.steps.get(&step)
    }

    /// The matrix of a step or of one of its heads.
    pub fn part(&self, part: Part) -> Option<Matrix> {
        match (self.steps.get(&part.step)?, part.head) {
            (Value::Whole(matrix), None) => Some(matrix.clone()),
            (Value::Whole(matrix), Some(head)) => matrix.head(head, self.heads),
            (Value::Heads(matrices), head) => matrices.get(head.unwrap_or(0)).cloned(),
        }
    }

    fn whole(&self, step: Step) -> Option<&Matrix> {
        match self.steps.get(&step)? {
            Value::Whole(matrix) => Some(matrix),
            Value::Heads(_) => None,
        }
    }

    fn set(&mut self, claim: &Claim) {
        let (step, head) = (claim.part.step, claim.part.head.unwrap_or(0));
        let matrix = &claim.stated.matrix;
        let heads = self.heads;
        match self.steps.get_mut(&step) {
            Some(Value::Heads(matrices)) => matrices[head.min(heads - 1)] = matrix.clone(),
            Some(Value::Whole(whole)) if claim.part.head.is_some() => {
                if let Some(changed) = whole.with_head(head, heads, matrix) {
                    *whole = changed;
                }
            }
            Some(Value::Whole(whole)) => *whole = matrix.clone(),
            None => {}
        }
    }
}

/// Works out every step by a recipe; `fixed` claims stand for what they are about.
pub(super) fn derive(example: &Example, recipe: &Recipe, fixed: &[&Claim]) -> Derived {
    let mut run = Run { example, recipe, derived: Derived { heads: example.heads, steps: BTreeMap::new() } };
    for step in Step::ALL {
        let Some(value) = run.given(step).or_else(|| run.compute(step)) else { continue };
        run.derived.steps.insert(step, value);
        fixed.iter().filter(|claim| claim.part.step == step).for_each(|claim| run.derived.set(claim));
    }
    run.derived
}

struct Run<'a> {
    example: &'a Example,
    recipe: &'a Recipe,
    derived: Derived,
}

impl Run<'_> {
    fn given(&self, step: Step) -> Option<Value> {
        let parts = self.example.given.iter().filter(|given| given.part.step == step);
        let matrices: Vec<Matrix> = {
            let mut parts: Vec<&Claim> = parts.collect();
            parts.sort_by_key(|part| part.part.head);
            parts.iter().map(|part| part.stated.matrix.clone()).collect()
        };
        match step.per_head() {
            _ if matrices.is_empty() => None,
            true => Some(Value::Heads(matrices)),
            false => Matrix::beside(&matrices).map(Value::Whole),
        }
    }

    fn compute(&self, step: Step) -> Option<Value> {
        let recipe = self.recipe;
        match step {
            Step::Q => self.project(recipe.q, Operand::BQ).map(Value::Whole),
            Step::K => self.project(recipe.k, Operand::BK).map(Value::Whole),
            Step::V => self.project(recipe.v, Operand::BV).map(Value::Whole),
            Step::Products => self.heads(|head| self.products(head)),
            Step::Scores => self.each(Step::Products, |m| Some(m.map(|x| x / recipe.divisor))),
            Step::MaskedScores => self.each(Step::Scores, |m| self.mask(m)),
            Step::Weights => self.each(Step::MaskedScores, |m| self.weights(m)),
            Step::Context => self.context().map(Value::Whole),
            Step::Output => {
                let product = self.derived.whole(Step::Context)?.times(&self.weight(recipe.out)?)?;
                self.add_bias(product, recipe.out, Operand::BO).map(Value::Whole)
            }
        }
    }

    fn weight(&self, projection: Projection) -> Option<Matrix> {
        let weight = self.example.operand(projection.weight)?;
        Some(if projection.transposed { weight.transposed() } else { weight.clone() })
    }

    fn add_bias(&self, product: Matrix, projection: Projection, bias: Operand) -> Option<Matrix> {
        match self.example.operand(bias).filter(|_| projection.bias) {
            Some(bias) => product.plus_row(bias),
            None => Some(product),
        }
    }

    fn project(&self, projection: Projection, bias: Operand) -> Option<Matrix> {
        let source = self.example.operand(projection.source)?;
        if self.example.unprojected() {
            return Some(source.clone());
        }
        self.add_bias(source.times(&self.weight(projection)?)?, projection, bias)
    }

    fn heads(&self, of: impl Fn(usize) -> Option<Matrix>) -> Option<Value> {
        (0..self.example.heads).map(of).collect::<Option<Vec<_>>>().map(Value::Heads)
    }

    fn each(&self, step: Step, of: impl Fn(&Matrix) -> Option<Matrix>) -> Option<Value> {
        match self.derived.get(step)? {
            Value::Heads(matrices) => matrices.iter().map(of).collect::<Option<Vec<_>>>().map(Value::Heads),
            Value::Whole(_) => None,
        }
    }

    fn products(&self, head: usize) -> Option<Matrix> {
        let part = |step| self.derived.whole(step)?.head(head, self.example.heads);
        let right = part(self.recipe.right)?;
        let right = if self.recipe.right_as_it_is { right } else { right.transposed() };
        Some(part(self.recipe.left)?.times(&right)?.map(|x| x / self.recipe.early_divisor))
    }

    /// Whether each query may see each key.
    fn open(&self, [rows, columns]: [usize; 2]) -> Option<Matrix> {
        let cells = (0..rows * columns).map(|i| f64::from(u8::from(i % columns <= i / columns)));
        match &self.example.mask {
            Mask::None => Matrix::new(rows, columns, vec![1.0; rows * columns]),
            Mask::Causal => Matrix::new(rows, columns, cells.collect()),
            Mask::Given(mask) => Some(mask.matrix.map(|x| if x == 0.0 { 1.0 } else { 0.0 })),
        }
    }

    fn mask(&self, scores: &Matrix) -> Option<Matrix> {
        let open = self.open(scores.shape())?;
        let shut = |x: f64, open: f64| if open == 1.0 { x } else { f64::NEG_INFINITY };
        match self.recipe.masking {
            Masking::Added => scores.zip(&open, shut),
            Masking::Transposed => scores.zip(&open.transposed(), shut),
            Masking::MultipliedBefore => scores.zip(&open, |x, open| x * open),
            Masking::Ignored | Masking::MultipliedAfter => Some(scores.clone()),
        }
    }

    fn weights(&self, scores: &Matrix) -> Option<Matrix> {
        let squashed = squash(self.recipe.squash, scores)?;
        match self.recipe.masking {
            Masking::MultipliedAfter => squashed.zip(&self.open(scores.shape())?, |x, open| x * open),
            _ => Some(squashed),
        }
    }

    fn context(&self) -> Option<Matrix> {
        let mixed = match self.recipe.mixed {
            Mixed::Step(step) => self.derived.whole(step)?,
            Mixed::Operand(operand) => self.example.operand(operand)?,
        };
        let Value::Heads(weights) = self.derived.get(Step::Weights)? else { return None };
        let head = |(h, weights): (usize, &Matrix)| {
            let values = mixed.head(h, self.example.heads)?;
            if self.recipe.weights_transposed {
                weights.transposed().times(&values)
            } else {
                weights.times(&values)
            }
        };
        let parts = weights.iter().enumerate().map(head).collect::<Option<Vec<_>>>()?;
        let side_by_side = Matrix::beside(&parts)?;
        if !self.recipe.interleaved {
            return Some(side_by_side);
        }
        let (heads, size) = (parts.len(), side_by_side.columns() / parts.len());
        Some(side_by_side.map_rows(|row| (0..row.len()).map(|i| row[i % heads * size + i / heads]).collect()))
    }
}

/// Scores to weights. A row in which nothing may be seen has no weights: all are 0.
fn squash(how: Squash, scores: &Matrix) -> Option<Matrix> {
    Some(match how {
        Squash::Softmax => scores.map_rows(softmax),
        Squash::Sigmoid => scores.map(|x| 1.0 / (1.0 + (-x).exp())),
        Squash::Columns => scores.transposed().map_rows(softmax).transposed(),
        Squash::Everything => Matrix::new(scores.rows(), scores.columns(), softmax(scores.values()))?,
        Squash::Shares => scores.map_rows(|row| {
            let sum: f64 = row.iter().filter(|x| x.is_finite()).sum();
            row.iter().map(|&x| if x.is_finite() { x / sum } else { 0.0 }).collect()
        }),
        Squash::Exponentials => scores.map(f64::exp),
        Squash::Skipped => scores.clone(),
    })
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return vec![0.0; row.len()];
    }
    let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / sum).collect()
}
