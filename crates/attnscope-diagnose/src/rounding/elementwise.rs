//! Bounds of operations that compute each cell from a few cells.

use attnscope_graph::{Activation, Op, Positions, Rotary};
use attnscope_run::Rotations;
use rayon::prelude::*;

use super::{Computed, Rounding, allowance, finite};

impl Rounding {
    /// A result and its own rounding.
    fn stored(&self, x: f64, roundings: f64) -> f64 {
        self.precision.result * roundings * finite(x.abs()) + self.precision.smallest
    }

    fn each(&self, of: Computed<'_>, cell: impl Fn(usize, f64) -> f64 + Sync) -> Vec<f64> {
        of.output.values.par_iter().enumerate().map(|(i, &x)| cell(i, x)).collect()
    }

    /// Cells in another order, or the same: their errors with them.
    pub(super) fn moved(&self, of: Computed<'_>) -> Vec<f64> {
        let Some(input) = of.inputs.first().filter(|input| !input.error.is_none()) else {
            return vec![0.0; of.output.values.len()];
        };
        let errors = (0..input.kept.values.len()).map(|i| input.error.at(i)).collect();
        let kept = attnscope_run::Kept { shape: input.kept.shape.clone(), values: errors };
        let moved = of.formula.compute(of.node, &[std::sync::Arc::new(kept)], of.weights);
        moved.map(|kept| kept.values).unwrap_or_else(|_| vec![f64::INFINITY; of.output.values.len()])
    }

    /// A row of a table, times a factor that is itself rounded. Tables may have been rounded to a shorter type.
    pub(super) fn looked_up(&self, of: Computed<'_>) -> Vec<f64> {
        let scaled = matches!(of.node.op, Op::Embed { scale } if of.factor(scale) != 1.0);
        let roundings = if scaled { 3.0 } else { 0.0 };
        // A lookup of a table in f32 is exact; one in a shorter type is that type's.
        let table = if self.precision.operand > self.precision.sum { self.precision.operand } else { 0.0 };
        self.each(of, |_, x| table * finite(x.abs()) + self.stored(x, roundings))
    }

    /// A sinusoid is off by what its angle is off: the position times a frequency that came out of an exponential or a
    /// power, whose exponent was rounded, too.
    pub(super) fn positions(&self, of: Computed<'_>, kind: Positions, offset: usize) -> Vec<f64> {
        let [.., length, width] = of.output.shape[..] else { return vec![0.0; of.output.values.len()] };
        if !kind.is_sinusoid() {
            return self.looked_up(of);
        }
        let half = width.div_ceil(2).max(1);
        let place = |i: usize| (i / width.max(1) % length.max(1)).saturating_add(offset) as f64;
        // The exponent of a feature's frequency, at most, however frequencies are laid out over the width.
        let exponent = |i: usize| {
            let feature = i % width.max(1);
            let of_halves = 10_000f64.ln() * (feature % half) as f64 / half as f64;
            let in_turn = 10_000f64.ln() * (feature / 2) as f64 / half as f64;
            if kind == Positions::SinusoidInterleaved { in_turn } else { of_halves }
        };
        self.each(of, |i, x| {
            let exponent = exponent(i);
            let angle = place(i) * (-exponent).exp();
            let units = angle * (3.0 * exponent + allowance::EXP) + allowance::SINE;
            self.precision.sum * units + self.stored(x, 1.0)
        })
    }

    /// Two products with the sine and the cosine of an angle, which are off by what it is off, and are rounded to the
    /// operands' type.
    pub(super) fn rotated(&self, of: Computed<'_>, rotary: Rotary) -> Vec<f64> {
        let ([_, _, length, size], Some(input)) = (&of.output.shape[..], of.inputs.first()) else {
            return vec![0.0; of.output.values.len()];
        };
        let (length, size) = ((*length).max(1), (*size).max(1));
        // Where only some positions are computed, the input still has all.
        let whole = input.kept.shape.get(2).copied().unwrap_or(length);
        let places = of.formula.positions();
        let factors = of.weights.get(rotary.list_of(whole)).copied().unwrap_or_default();
        let rotations = Rotations { rotary, factors, size, length: whole };
        let p = self.precision;
        self.each(of, |cell, x| {
            let (head, at, i) = (cell / (length * size), cell / size % length, cell % size);
            let at = places.and_then(|places| places.get(at).copied()).unwrap_or(at);
            let turn = rotations.at(at, i);
            let start = (head * whole + at) * size;
            if turn.partner == i {
                return of.error(0, start + i);
            }
            let magnitude = of.magnitude(0, start + i) + of.magnitude(0, start + turn.partner);
            let carried = of.error(0, start + i) + of.error(0, start + turn.partner);
            let scaled = if rotary.scaling.is_some() { allowance::SCALED_FREQUENCY } else { 0.0 };
            let units = turn.angle * (3.0 * turn.exponent + allowance::EXP + scaled) + allowance::SINE;
            turn.magnitude * carried
                + turn.magnitude * magnitude * (p.sum * units + p.operand + p.result)
                + self.stored(x, 1.0)
        })
    }

    /// A sum of two or three cells, the second of them times a gain. What is added may repeat over rows or heads.
    pub(super) fn added(&self, of: Computed<'_>, gain: f64) -> Vec<f64> {
        let [heads, inner] = match of.output.shape[..] {
            [_, heads, queries, keys] => [heads.max(1), (queries * keys).max(1)],
            _ => [1, 1],
        };
        let place = |input: usize, i: usize| match of.inputs.get(input).map(|x| x.kept.shape.as_slice()) {
            // A bias has one row of the batch, a mask one head.
            Some(&[batch, of_heads, _, _]) if heads * inner > 1 => {
                let (b, h) = (i / (heads * inner) % batch.max(1), i / inner % heads % of_heads.max(1));
                (b * of_heads.max(1) + h) * inner + i % inner
            }
            _ => i % of.cells(input),
        };
        let terms = of.inputs.len();
        self.each(of, |i, x| {
            let part = |input: usize| {
                let (at, gain) = (place(input, i), if input == 0 { 1.0 } else { gain });
                (gain * of.magnitude(input, at), gain * of.error(input, at))
            };
            let (magnitude, error) = (0..terms)
                .map(part)
                .fold((0.0, 0.0), |(m, e), (magnitude, error)| (m + magnitude, e + error));
            // A third term, or a gain, is rounded between. Two terms may have been stored rounded, and added as they were
            // before: in f64, or where a fused kernel adds to what a product has just summed.
            let between = self.precision.result * magnitude;
            error + between + self.stored(x, 1.0)
        })
    }

    pub(super) fn activated(&self, of: Computed<'_>, activation: Activation) -> Vec<f64> {
        let (units, slope) = (allowance::of_input(activation), allowance::slope(activation));
        let own = if units == 0.0 { 0.0 } else { 2.0 };
        // ggml looks activations up in a table of half precision, by an input that is rounded to it.
        let table =
            if self.precision.operand > self.precision.sum { own * self.precision.operand } else { 0.0 };
        self.each(of, |i, x| {
            let input = of.magnitude(0, i);
            slope * (of.error(0, i) + table * input)
                + self.precision.sum * units * input
                + self.stored(x, own)
        })
    }

    /// A quotient, a tanh, whose slope is at most 1, and a product.
    pub(super) fn soft_capped(&self, of: Computed<'_>, cap: f64) -> Vec<f64> {
        self.each(of, |i, x| {
            let units = allowance::of_input(Activation::Tanh);
            // Rounding of the quotient moves the tanh by no more than it moves its input.
            let own = self.precision.sum * (units + 1.0) * of.magnitude(0, i).min(cap);
            of.error(0, i) + own + self.stored(x, 2.0)
        })
    }

    pub(super) fn gated(&self, of: Computed<'_>) -> Vec<f64> {
        self.each(of, |i, x| {
            let (a, b) = (of.magnitude(0, i), of.magnitude(1, i));
            let (of_a, of_b) = (of.error(0, i), of.error(1, i));
            a * of_b + b * of_a + of_a * of_b + self.stored(x, 2.0)
        })
    }
}
