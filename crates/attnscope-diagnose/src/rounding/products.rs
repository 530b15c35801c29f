//! Bounds of sums of products: projections, scores, contexts, convolutions.

use std::sync::Arc;

use attnscope_graph::{Factor, Op};
use attnscope_run::Kept;
use rayon::prelude::*;

use super::{BoundedInput, Computed, Rounding, finite};

/// Roundings beside those of the products and their sum: of the factor, of its product, of the bias.
const BESIDE: f64 = 4.0;
/// Roundings of a result in a type that is shorter than that of the sum: a product, a factor or a bias.
const OF_RESULT: f64 = 2.0;

/// The bounds of a node whose cells are sums of products.
pub struct Products<'a> {
    rounding: Rounding,
    of: Computed<'a>,
    /// Products in a cell.
    terms: usize,
    factor: f64,
}

/// What a cell's bound is made of.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Σ|ab|.
    magnitudes: f64,
    /// Σ(ab)².
    squares: f64,
    /// Σ(|a|·e_b + |b|·e_a + e_a·e_b): what errors of the operands add up to at worst.
    carried: f64,
    /// Their squares, where they are taken as independent.
    carried_squares: Option<f64>,
}

impl Sums {
    fn add(&mut self, a: f64, b: f64, of_a: f64, of_b: f64) {
        let (a, b) = (finite(a.abs()), finite(b.abs()));
        let carried = a * of_b + b * of_a + of_a * of_b;
        self.magnitudes += a * b;
        self.squares += a * a * b * b;
        self.carried += carried;
        self.carried_squares = self.carried_squares.map(|squares| squares + carried * carried);
    }
}

impl<'a> Products<'a> {
    pub(super) fn new(rounding: Rounding, of: Computed<'a>) -> Self {
        let shape = |i: usize| of.inputs.get(i).map(|x| x.kept.shape.as_slice()).unwrap_or_default();
        let width = shape(0).last().copied().unwrap_or(1);
        let (terms, factor) = match of.node.op {
            Op::Conv1d { kernel, .. } => (kernel * shape(0).get(1).copied().unwrap_or(1), 1.0),
            Op::Scores { scale, .. } | Op::Logits { scale } => (width, of.factor(scale)),
            _ => (width, 1.0),
        };
        Self { rounding, of, terms, factor }
    }

    /// |sum| ≤ Σ|terms|, so that n·u·|sum| is below the bound whatever the terms are.
    pub(super) fn floor(&self, cell: usize) -> f64 {
        let out = finite(self.of.output.values.get(cell).copied().unwrap_or(0.0));
        let bias = self.bias(cell);
        let p = self.rounding.precision;
        p.sum * self.terms as f64 * (out - bias).abs() + p.result * (out.abs() + bias.abs())
    }

    pub(super) fn at(&self, cell: usize) -> f64 {
        let mut sums = Sums { carried_squares: Some(0.0), ..Sums::default() };
        self.visit(cell, |a, b, of_a, of_b| sums.add(a, b, of_a, of_b));
        self.combined(cell, sums)
    }

    pub(super) fn all(&self) -> Vec<f64> {
        let halves = self.rounding.precision.operand > self.rounding.precision.sum;
        let magnitude = |input: &BoundedInput<'_>, i: usize| finite(input.kept.values[i].abs());
        let error = |input: &BoundedInput<'_>, i: usize| input.error.at(i);
        let magnitudes = self.mapped(&magnitude, &magnitude, 1);
        let squares = if halves { self.mapped(&magnitude, &magnitude, 2) } else { None };
        let mut carried = Vec::new();
        let is_error = |i: usize| self.of.inputs.get(i).is_some_and(|x| !x.error.is_none());
        // e_a·(|b| + e_b) + |a|·e_b: both parts are the node's own map of magnitudes.
        let reaches = |input: &BoundedInput<'_>, i: usize| magnitude(input, i) + error(input, i);
        if is_error(0) {
            carried
                .push((self.mapped(&error, &reaches, 1), halves.then(|| self.mapped(&error, &reaches, 2))));
        }
        if is_error(1) {
            carried.push((
                self.mapped(&magnitude, &error, 1),
                halves.then(|| self.mapped(&magnitude, &error, 2)),
            ));
        }
        let at = |values: &Option<Vec<f64>>, i: usize| match values {
            Some(values) => values.get(i).copied().unwrap_or(0.0),
            // A cell that cannot be computed has no bound.
            None => f64::INFINITY,
        };
        let cell = |i: usize| {
            let mut sums = Sums { magnitudes: at(&magnitudes, i), ..Sums::default() };
            sums.squares = if halves { at(&squares, i) } else { 0.0 };
            for (carried, squares) in &carried {
                sums.carried += at(carried, i);
                if let Some(squares) = squares {
                    // (x + y)² ≤ 2x² + 2y²
                    sums.carried_squares = Some(sums.carried_squares.unwrap_or(0.0) + 2.0 * at(squares, i));
                }
            }
            self.combined(i, sums)
        };
        (0..self.of.output.values.len()).into_par_iter().map(cell).collect()
    }

    /// The node's own map of other values than its inputs', without its factor and bias; of squares where `power` is 2.
    fn mapped(
        &self,
        first: &(dyn Fn(&BoundedInput<'_>, usize) -> f64 + Sync),
        second: &(dyn Fn(&BoundedInput<'_>, usize) -> f64 + Sync),
        power: i32,
    ) -> Option<Vec<f64>> {
        let kept = |(n, input): (usize, &BoundedInput<'_>)| {
            let value = if n == 0 { first } else { second };
            let values =
                (0..input.kept.values.len()).into_par_iter().map(|i| value(input, i).powi(power)).collect();
            Arc::new(Kept { shape: input.kept.shape.clone(), values })
        };
        let inputs: Vec<Arc<Kept>> = self.of.inputs.iter().enumerate().map(kept).collect();
        let weight = |(i, weight): (usize, &&[f32])| -> Vec<f32> {
            let one = |w: &f32| if i == 0 { w.abs().powi(power) } else { 0.0 };
            weight.iter().map(one).collect()
        };
        let weights: Vec<Vec<f32>> = self.of.weights.iter().enumerate().map(weight).collect();
        let weights: Vec<&[f32]> = weights.iter().map(Vec::as_slice).collect();
        let op = match self.of.node.op {
            Op::Scores { sharing, .. } => Op::Scores { scale: Factor::One, sharing },
            Op::Logits { .. } => Op::Logits { scale: Factor::One },
            other => other,
        };
        let node = attnscope_graph::Node { op, ..self.of.node.clone() };
        Some(self.of.formula.compute(&node, &inputs, &weights).ok()?.values)
    }

    fn combined(&self, cell: usize, sums: Sums) -> f64 {
        let Rounding { precision: p, confidence } = self.rounding;
        let out = finite(self.of.output.values.get(cell).copied().unwrap_or(0.0));
        let bias = self.bias(cell);
        let magnitudes = self.factor * sums.magnitudes + bias.abs();
        let accumulated = self.rounding.sum(self.terms, magnitudes, out - bias) + BESIDE * magnitudes;
        let mut carried = self.factor * sums.carried;
        if let Some(squares) = sums.carried_squares {
            carried = carried.min(confidence * self.factor * squares.sqrt());
        }
        let mut bound = p.sum * accumulated + carried + p.smallest;
        if p.operand > p.sum {
            // Queries and keys may both be scaled before they are multiplied, which rounds each once more.
            let times = if matches!(self.of.node.op, Op::Scores { .. }) { 4.0 } else { 2.0f64 };
            let independent = confidence * (times * sums.squares).sqrt();
            bound += p.operand * (self.factor * independent.min(times * sums.magnitudes) + bias.abs());
        }
        if p.result > p.sum {
            bound += OF_RESULT * p.result * (out.abs() + bias.abs());
        }
        bound
    }

    fn bias(&self, cell: usize) -> f64 {
        let Some(bias) = self.of.weights.get(1).filter(|bias| !bias.is_empty()) else { return 0.0 };
        let output = match (self.of.node.op, self.of.output.shape.as_slice()) {
            (Op::Conv1d { .. }, &[_, outputs, steps]) => cell / steps.max(1) % outputs.max(1),
            _ => cell % bias.len(),
        };
        bias.get(output).map_or(0.0, |&b| f64::from(b))
    }

    /// Every product of a cell: both operands and their errors.
    fn visit(&self, cell: usize, mut term: impl FnMut(f64, f64, f64, f64)) {
        let of = &self.of;
        let Some(a) = of.inputs.first() else { return };
        let value = |x: &BoundedInput<'_>, i: usize| x.kept.values.get(i).copied().unwrap_or(0.0);
        let weight = |i: usize| of.weights.first().and_then(|w| w.get(i)).map_or(0.0, |&w| f64::from(w));
        let shape = of.output.shape.as_slice();
        let last = shape.last().copied().unwrap_or(1).max(1);
        match (of.node.op, shape, a.kept.shape.as_slice()) {
            (Op::Conv1d { kernel, stride, padding, .. }, &[_, outputs, steps], &[_, channels, frames]) => {
                let (b, o, t) =
                    (cell / (outputs * steps).max(1), cell / steps.max(1) % outputs, cell % steps);
                for c in 0..channels {
                    for k in 0..kernel {
                        if let Some(at) = (t * stride + k).checked_sub(padding).filter(|&at| at < frames) {
                            let i = (b * channels + c) * frames + at;
                            term(value(a, i), weight((o * channels + c) * kernel + k), a.error.at(i), 0.0);
                        }
                    }
                }
            }
            (Op::Scores { sharing, .. } | Op::Context { sharing }, &[_, _, queries, _], _) => {
                let Some(b) = of.inputs.get(1) else { return };
                let (head, t, column) = (cell / (queries * last).max(1), cell / last % queries, cell % last);
                let (heads, kv_heads) = (shape[1].max(1), b.kept.shape.get(1).copied().unwrap_or(1));
                // batch · kv_heads + the head of keys and values that is read
                let shared = head / heads * kv_heads + sharing.head(head % heads, heads, kv_heads);
                let scores = matches!(of.node.op, Op::Scores { .. });
                for n in 0..self.terms {
                    let i = (head * queries + t) * self.terms + n;
                    // Of a key's row as many features as there are terms, or of each key's row one feature.
                    let j = match scores {
                        true => (shared * last + column) * self.terms + n,
                        false => (shared * self.terms + n) * last + column,
                    };
                    term(value(a, i), value(b, j), a.error.at(i), b.error.at(j));
                }
            }
            _ => {
                let (row, o) = (cell / last, cell % last);
                for n in 0..self.terms {
                    let i = row * self.terms + n;
                    term(value(a, i), weight(o * self.terms + n), a.error.at(i), 0.0);
                }
            }
        }
    }
}
