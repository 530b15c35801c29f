//! Bounds of a classifier's blocks: recurrent layers, pools, tensors side by side.

use attnscope_graph::{Activation, Pooling, RecurrentCell};
use rayon::prelude::*;

use super::{Computed, Rounding, allowance, finite};

/// The error of a sigmoid in units of rounding: of its exponential, a sum and a quotient.
const SIGMOID: f64 = allowance::EXP + 2.0;
/// The steepest slope of a sigmoid.
const SIGMOID_SLOPE: f64 = 0.25;

/// A value and how far it may be off.
#[derive(Debug, Clone, Copy, Default)]
struct Uncertain {
    value: f64,
    error: f64,
}

impl Uncertain {
    fn times(self, other: Self) -> Self {
        let error =
            self.value.abs() * other.error + other.value.abs() * self.error + self.error * other.error;
        Self { value: self.value * other.value, error }
    }
}

impl Rounding {
    /// States of a recurrent layer. Each carries the error of the state before it, which grows with every position; where
    /// `is_known` the states before are taken as they are, and only one step's own rounding is left.
    pub(super) fn recurred(
        &self,
        of: Computed<'_>,
        cell: RecurrentCell,
        reverse: bool,
        is_known: bool,
    ) -> Vec<f64> {
        let (Some(x), &[_, length, width]) = (of.inputs.first(), of.output.shape.as_slice()) else {
            return vec![f64::INFINITY; of.output.values.len()];
        };
        let gates = x.kept.shape.last().copied().unwrap_or(1).max(1);
        let hidden = gates / cell.gates();
        let size = (length * width).max(1);
        let mut bounds = vec![0.0; of.output.values.len()];
        bounds.par_chunks_mut(size).enumerate().for_each(|(b, bounds)| {
            let states = &of.output.values[b * size..(b + 1) * size];
            for n in 0..length {
                let at = |n: usize| if reverse { length - 1 - n } else { n };
                let before = |i: usize| match n.checked_sub(1).map(at) {
                    None => Uncertain::default(),
                    Some(t) => Uncertain {
                        value: finite(states[t * width + i]),
                        error: if is_known { 0.0 } else { bounds[t * width + i] },
                    },
                };
                let t = at(n);
                let gate = |g: usize| {
                    let cell = (b * length + t) * gates + g;
                    let own = Uncertain { value: x.kept.values[cell], error: of.error(0, cell) };
                    self.gate(&of, own, (0..hidden).map(before), g, hidden)
                };
                let step: Vec<Uncertain> = match cell {
                    RecurrentCell::Rnn => (0..hidden).map(|i| self.tanh(gate(i))).collect(),
                    RecurrentCell::Lstm => self.lstm(hidden, gate, |i| before(hidden + i)),
                };
                step.iter().enumerate().for_each(|(i, state)| bounds[t * width + i] = state.error);
            }
        });
        bounds
    }

    /// x + Σ W·h + b of one gate.
    fn gate(
        &self,
        of: &Computed<'_>,
        own: Uncertain,
        state: impl Iterator<Item = Uncertain>,
        gate: usize,
        hidden: usize,
    ) -> Uncertain {
        let weight = |i: usize| of.weights.first().and_then(|w| w.get(i)).map_or(0.0, |&w| f64::from(w));
        let bias = of.weights.get(1).and_then(|b| b.get(gate)).map_or(0.0, |&b| f64::from(b));
        let mut sum = Uncertain { value: own.value + bias, error: own.error };
        let mut magnitudes = finite(own.value.abs()) + bias.abs();
        let mut products = 0.0;
        for (k, h) in state.enumerate() {
            let w = weight(gate * hidden + k);
            sum.value += w * h.value;
            sum.error += w.abs() * h.error;
            products += (w * h.value).abs();
        }
        magnitudes += products;
        let p = self.precision;
        sum.error += p.sum * self.sum(hidden + 2, magnitudes, sum.value) + p.smallest;
        if p.operand > p.sum {
            sum.error += 2.0 * p.operand * products + p.result * magnitudes;
        }
        sum
    }

    fn tanh(&self, x: Uncertain) -> Uncertain {
        let value = x.value.tanh();
        let own = self.precision.sum * allowance::of_input(Activation::Tanh) * finite(x.value.abs()).min(1.0);
        let error = x.error.min(2.0) + own + self.precision.result * value.abs() + self.precision.smallest;
        Uncertain { value, error }
    }

    fn sigmoid(&self, x: Uncertain) -> Uncertain {
        let value = 1.0 / (1.0 + (-x.value).exp());
        let error = (SIGMOID_SLOPE * x.error).min(1.0) + self.precision.result * SIGMOID * value;
        Uncertain { value, error }
    }

    /// h, then c, of one position.
    fn lstm(
        &self,
        hidden: usize,
        gate: impl Fn(usize) -> Uncertain,
        cell: impl Fn(usize) -> Uncertain,
    ) -> Vec<Uncertain> {
        let p = self.precision;
        let one = |i: usize| {
            let [input, forget, new, output] = [0, 1, 2, 3].map(|g| gate(g * hidden + i));
            let kept = self.sigmoid(forget).times(cell(i));
            let added = self.sigmoid(input).times(self.tanh(new));
            let value = kept.value + added.value;
            let own = p.sum.max(p.result) * 2.0 * (kept.value.abs() + added.value.abs());
            let c = Uncertain { value, error: kept.error + added.error + own + p.smallest };
            let mut h = self.sigmoid(output).times(self.tanh(c));
            h.error += p.result * h.value.abs() + p.smallest;
            (h, c)
        };
        let (h, c): (Vec<Uncertain>, Vec<Uncertain>) = (0..hidden).map(one).unzip();
        h.into_iter().chain(c).collect()
    }

    /// The largest value is off by no more than the largest error, a mean by the mean of errors and its own sum.
    pub(super) fn pooled(&self, of: Computed<'_>, pooling: Pooling, axis: usize) -> Vec<f64> {
        let Some(&[_, a, b]) = of.inputs.first().map(|x| x.kept.shape.as_slice()) else {
            return vec![f64::INFINITY; of.output.values.len()];
        };
        let (positions, features) = if axis == 1 { (a, b) } else { (b, a) };
        let cell = |n: usize, p: usize| match axis {
            1 => (n / features.max(1) * positions + p) * features + n % features.max(1),
            _ => n * positions + p,
        };
        let bound = |(n, &out): (usize, &f64)| {
            let errors = (0..positions).map(|p| of.error(0, cell(n, p)));
            match pooling {
                Pooling::First => of.error(0, cell(n, 0)),
                // Which position is the last is in the input: the largest error of all holds for it, too.
                Pooling::Max | Pooling::Last => errors.fold(0.0, f64::max),
                Pooling::Mean => {
                    let magnitudes: f64 = (0..positions).map(|p| of.magnitude(0, cell(n, p))).sum();
                    // Padding is left out of both, so that this is at most too wide.
                    let own = self.precision.sum * self.sum(positions, magnitudes, out);
                    errors.fold(0.0, f64::max)
                        + own / positions.max(1) as f64
                        + self.precision.result * 2.0 * finite(out.abs())
                        + self.precision.smallest
                }
            }
        };
        of.output.values.par_iter().enumerate().map(bound).collect()
    }

    /// Each half has the errors of its own tensor.
    pub(super) fn side_by_side(&self, of: Computed<'_>) -> Vec<f64> {
        let width = of.output.shape.last().copied().unwrap_or(1).max(1);
        let mut bounds = vec![0.0; of.output.values.len()];
        let mut from = 0;
        for (i, input) in of.inputs.iter().enumerate() {
            let own = input.kept.shape.last().copied().unwrap_or(1).max(1);
            for cell in 0..input.kept.values.len() {
                if let Some(bound) = bounds.get_mut(cell / own * width + from + cell % own) {
                    *bound = of.error(i, cell);
                }
            }
            from += own;
        }
        bounds
    }
}
