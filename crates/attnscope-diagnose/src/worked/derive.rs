//! Every step of an example, worked out by a recipe.

use std::collections::BTreeMap;

use super::example::{Claim, Example, Mask, Operand, Part, Step};
use super::matrix::Matrix;
use super::normaliser::normalise;
use super::recipe::{Masking, Mixed, Projection, Recipe};
use super::rounded::Rounded;

/// A step's values.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    /// All heads side by side.
    Whole(Rounded),
    /// A matrix for each head.
    Heads(Vec<Rounded>),
}

/// A claim that stands for what it is about.
#[derive(Debug, Clone)]
pub(super) struct Fixed<'a> {
    pub(super) claim: &'a Claim,
    /// How far each of its numbers may be from what its author went on with; nothing where it is taken as it is written.
    pub(super) reach: Option<Matrix>,
}

/// The steps that could be worked out.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    heads: usize,
    steps: BTreeMap<Step, Value>,
}

impl Derived {
    /// Whether a step could be worked out.
    pub fn has(&self, step: Step) -> bool {
        self.steps.contains_key(&step)
    }

    /// The matrix of a step or of one of its heads.
    pub fn part(&self, part: Part) -> Option<Matrix> {
        self.rounded(part).map(|rounded| rounded.middle)
    }

    /// As above, with how far it may be off.
    pub(super) fn rounded(&self, part: Part) -> Option<Rounded> {
        match (self.steps.get(&part.step)?, part.head) {
            (Value::Whole(matrix), None) => Some(matrix.clone()),
            (Value::Whole(matrix), Some(head)) => matrix.head(head, self.heads),
            (Value::Heads(matrices), head) => matrices.get(head.unwrap_or(0)).cloned(),
        }
    }

    fn whole(&self, step: Step) -> Option<&Rounded> {
        match self.steps.get(&step)? {
            Value::Whole(matrix) => Some(matrix),
            Value::Heads(_) => None,
        }
    }

    fn set(&mut self, fixed: &Fixed<'_>) {
        let part = fixed.claim.part;
        let head = part.head.unwrap_or(0);
        let claimed = Rounded::new(fixed.claim.stated.matrix.clone(), fixed.reach.clone());
        let heads = self.heads;
        match self.steps.get_mut(&part.step) {
            Some(Value::Heads(matrices)) => matrices[head.min(heads - 1)] = claimed,
            Some(Value::Whole(whole)) if part.head.is_some() => {
                if let Some(changed) = whole.with_head(head, heads, &claimed) {
                    *whole = changed;
                }
            }
            Some(Value::Whole(whole)) => *whole = claimed,
            None => {}
        }
    }
}

/// Works out every step by a recipe; `fixed` claims stand for what they are about.
pub(super) fn derive(example: &Example, recipe: &Recipe, fixed: &[Fixed<'_>]) -> Derived {
    let mut run = Run { example, recipe, derived: Derived { heads: example.heads, steps: BTreeMap::new() } };
    for step in Step::ALL {
        let Some(value) = run.given(step).or_else(|| run.compute(step)) else { continue };
        run.derived.steps.insert(step, value);
        fixed.iter().filter(|fixed| fixed.claim.part.step == step).for_each(|fixed| run.derived.set(fixed));
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
            true => Some(Value::Heads(matrices.into_iter().map(Rounded::exact).collect())),
            false => Matrix::beside(&matrices).map(|whole| Value::Whole(Rounded::exact(whole))),
        }
    }

    fn compute(&self, step: Step) -> Option<Value> {
        let recipe = self.recipe;
        match step {
            Step::Q => self.project(recipe.q, Operand::BQ),
            Step::K => self.project(recipe.k, Operand::BK),
            Step::V => self.project(recipe.v, Operand::BV),
            Step::Products => self.heads(|head| self.products(head)),
            Step::Scores => self.each(Step::Products, |m| Some(m.divided(recipe.divisor))),
            Step::MaskedScores => self.each(Step::Scores, |m| self.mask(m)),
            Step::Weights => self.each(Step::MaskedScores, |m| self.weights(m)),
            Step::Context => self.context().map(Value::Whole),
            Step::Output => {
                let weight = Rounded::exact(self.weight(recipe.out)?);
                let product = self.derived.whole(Step::Context)?.times(&weight)?;
                self.add_bias(product, recipe.out, Operand::BO).map(Value::Whole)
            }
        }
    }

    fn weight(&self, projection: Projection) -> Option<Matrix> {
        let weight = self.example.operand(projection.weight)?;
        Some(if projection.transposed { weight.transposed() } else { weight.clone() })
    }

    fn add_bias(&self, product: Rounded, projection: Projection, bias: Operand) -> Option<Rounded> {
        match self.example.operand(bias).filter(|_| projection.bias) {
            Some(bias) => product.plus_row(bias),
            None => Some(product),
        }
    }

    fn project(&self, projection: Projection, bias: Operand) -> Option<Value> {
        let source = self.example.operand(projection.source)?;
        if self.example.unprojected() {
            return Some(Value::Whole(Rounded::exact(source.clone())));
        }
        let product = Rounded::exact(source.times(&self.weight(projection)?)?);
        self.add_bias(product, projection, bias).map(Value::Whole)
    }

    fn heads(&self, of: impl Fn(usize) -> Option<Rounded>) -> Option<Value> {
        (0..self.example.heads).map(of).collect::<Option<Vec<_>>>().map(Value::Heads)
    }

    fn each(&self, step: Step, of: impl Fn(&Rounded) -> Option<Rounded>) -> Option<Value> {
        match self.derived.steps.get(&step)? {
            Value::Heads(matrices) => matrices.iter().map(of).collect::<Option<Vec<_>>>().map(Value::Heads),
            Value::Whole(_) => None,
        }
    }

    fn products(&self, head: usize) -> Option<Rounded> {
        let part = |step| self.derived.whole(step)?.head(head, self.example.heads);
        let right = part(self.recipe.right)?;
        let right = if self.recipe.right_as_it_is { right } else { right.transposed() };
        Some(part(self.recipe.left)?.times(&right)?.divided(self.recipe.early_divisor))
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

    fn mask(&self, scores: &Rounded) -> Option<Rounded> {
        let open = self.open(scores.middle.shape())?;
        match self.recipe.masking {
            Masking::Added => scores.masked(&open),
            Masking::Transposed => scores.masked(&open.transposed()),
            Masking::MultipliedBefore => scores.multiplied(&open),
            Masking::Ignored | Masking::MultipliedAfter => Some(scores.clone()),
        }
    }

    fn weights(&self, scores: &Rounded) -> Option<Rounded> {
        let weights = normalise(self.recipe.normaliser, scores)?;
        match self.recipe.masking {
            Masking::MultipliedAfter => weights.multiplied(&self.open(scores.middle.shape())?),
            _ => Some(weights),
        }
    }

    /// What the weights mix, all heads side by side.
    fn mixed(&self) -> Option<Rounded> {
        let mixed = match self.recipe.mixed {
            Mixed::Step(step) => self.derived.whole(step)?.clone(),
            Mixed::Operand(operand) => Rounded::exact(self.example.operand(operand)?.clone()),
        };
        match &self.recipe.value_order {
            Some(order) => mixed.in_order(order),
            None => Some(mixed),
        }
    }

    fn context(&self) -> Option<Rounded> {
        let mixed = self.mixed()?;
        let Value::Heads(weights) = self.derived.steps.get(&Step::Weights)? else { return None };
        let head = |(h, weights): (usize, &Rounded)| {
            let values = mixed.head(h, self.example.heads)?;
            match self.recipe.weights_transposed {
                true => weights.transposed().times(&values),
                false => weights.times(&values),
            }
        };
        let mut parts = weights.iter().enumerate().map(head).collect::<Option<Vec<_>>>()?;
        if let Some(order) = &self.recipe.head_order {
            parts = order.iter().map(|&h| parts.get(h).cloned()).collect::<Option<Vec<_>>>()?;
        }
        let side_by_side = Rounded::beside(&parts)?;
        if !self.recipe.interleaved {
            return Some(side_by_side);
        }
        let (heads, size) = (parts.len(), side_by_side.middle.columns() / parts.len());
        let in_turn = |row: &[f64]| (0..row.len()).map(|i| row[i % heads * size + i / heads]).collect();
        Some(side_by_side.each(|m| m.map_rows(in_turn)))
    }
}
