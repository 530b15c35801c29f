//! Bounds of operations that compute each cell from its whole row: norms and softmax.

use attnscope_graph::{NormGain, NormKind, Normaliser};
use rayon::prelude::*;

use super::{Computed, Rounding, allowance, finite};

impl Rounding {
    /// The bounds of each row, from the row of the first input, its errors, and the row of the output.
    fn by_row(&self, of: Computed<'_>, row: impl Fn(Row<'_>, &mut [f64]) + Sync) -> Vec<f64> {
        let width = of.inputs.first().and_then(|input| input.kept.shape.last().copied()).unwrap_or(1);
        self.by_group(of, width.max(1), row)
    }

    /// The same for groups of so many neighbouring cells.
    fn by_group(&self, of: Computed<'_>, width: usize, row: impl Fn(Row<'_>, &mut [f64]) + Sync) -> Vec<f64> {
        let mut bounds = vec![0.0; of.output.values.len()];
        let Some(input) = of.inputs.first() else { return bounds };
        let values = input.kept.values.par_chunks(width).zip(of.output.values.par_chunks(width));
        bounds.par_chunks_mut(width).zip(values).enumerate().for_each(|(r, (bounds, (values, output)))| {
            let errors = match input.error.is_none() {
                true => Vec::new(),
                false => (r * width..(r + 1) * width).map(|i| input.error.at(i)).collect(),
            };
            row(Row { values, output, errors }, bounds);
        });
        bounds
    }

    /// (x − mean)·r·g + b with r = 1/√(var + eps). The mean is a sum of n; the variance another, of squares, in one pass
    /// (mean x² − mean²), two, or by Welford's updates, of which the first loses most. An error of the input moves the
    /// cell, the mean and the spread: e + mean e + |normed|·mean(|normed|·e), times g·r.
    pub(super) fn norm(&self, of: Computed<'_>, kind: NormKind, eps: f64, of_weight: NormGain) -> Vec<f64> {
        let weight = |i: usize| of.weights.get(i).copied().unwrap_or_default();
        let (gain, bias) = (weight(0), weight(1));
        let offset = f64::from(of_weight.offset());
        let p = self.precision;
        self.by_group(of, gain.len().max(1), |row, bounds| {
            let n = row.values.len() as f64;
            let centred = kind == NormKind::Layer;
            let sum: f64 = row.values.iter().sum();
            let (mean, size) = match centred {
                true => (sum / n, row.values.iter().map(|x| x.abs()).sum::<f64>() / n),
                false => (0.0, 0.0),
            };
            let squares = row.values.iter().map(|x| x * x).sum::<f64>() / n;
            let variance = row.values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + eps;
            let root = 1.0 / variance.sqrt();
            let of_mean =
                p.sum * (self.sum(row.values.len(), size, mean) + mean.abs()) + p.result * mean.abs();
            let of_variance = p.sum * (self.sum(row.values.len(), squares, squares) + 2.0 * squares)
                + p.sum * mean * mean
                + 2.0 * p.result * variance;
            let of_root = 0.5 * of_variance / variance + allowance::RSQRT * p.sum;
            let normed = |x: f64| ((x - mean) * root).abs();
            let (drift, spread) = match row.errors.is_empty() {
                true => (0.0, 0.0),
                false => {
                    let shares = row.errors.iter().zip(row.values);
                    (row.errors.iter().sum::<f64>() / n, shares.map(|(e, &x)| e * normed(x)).sum::<f64>() / n)
                }
            };
            let cell = |(i, &x): (usize, &f64)| {
                // The sum of 1 and a weight is rounded by less than the product with it.
                let gain = gain.get(i).map_or(1.0, |&g| (offset + f64::from(g)).abs() + offset * p.sum);
                let shift = bias.get(i).map_or(0.0, |&b| f64::from(b).abs());
                let error = row.errors.get(i).copied().unwrap_or(0.0);
                let drift = if centred { drift } else { 0.0 };
                let inner = root * (of_mean + p.sum * (x.abs() + mean.abs()) + error + drift)
                    + normed(x) * (of_root + 2.0 * p.result + spread);
                let table = if p.operand > p.sum { p.operand } else { 0.0 };
                let scaled = gain * normed(x);
                gain * inner + (2.0 * p.result + table) * (scaled + shift) + p.smallest
            };
            bounds
                .iter_mut()
                .zip(row.values.iter().enumerate().map(cell))
                .for_each(|(to, bound)| *to = bound);
        })
    }

    /// e^(x − max) / Σ. An exponential is off by its argument's error, which is one of the score's own size where scores
    /// are scaled in the exponent, and by its own; the quotient by those of the whole row, too.
    pub(super) fn normalise(&self, of: Computed<'_>, normaliser: Normaliser) -> Vec<f64> {
        let p = self.precision;
        self.by_row(of, |row, bounds| {
            let n = row.values.len();
            let most = finite(row.values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            let argument = |(i, &x): (usize, &f64)| match x.is_finite() {
                true => {
                    let rounded = 2.0 * p.sum * (x.abs() + most.abs()) + p.result * (x - most).abs();
                    let error = row.errors.get(i).copied().unwrap_or(0.0);
                    error + rounded + allowance::EXP * p.sum
                }
                false => 0.0,
            };
            let arguments: Vec<f64> = row.values.iter().enumerate().map(argument).collect();
            let own = match normaliser {
                Normaliser::Sigmoid => 0.0,
                Normaliser::Softmax => {
                    let shared = arguments.iter().zip(row.output).map(|(a, w)| a * finite(w.abs()));
                    shared.sum::<f64>() + p.sum * n as f64
                }
            };
            let cell = |(argument, weight): (&f64, &f64)| {
                let weight = finite(weight.abs());
                // Not first order: with a short type the error of an exponent need not be small.
                let moved = match normaliser {
                    Normaliser::Softmax => weight * (argument + own).exp_m1().min(1.0 / weight.max(1e-300)),
                    Normaliser::Sigmoid => argument * weight.min(1.0 - weight).max(0.0) + argument * argument,
                };
                moved + 3.0 * p.result * weight + p.smallest
            };
            let cells = arguments.iter().zip(row.output).map(cell);
            bounds.iter_mut().zip(cells).for_each(|(to, bound)| *to = bound);
        })
    }
}

/// One row of an input.
struct Row<'r> {
    values: &'r [f64],
    output: &'r [f64],
    /// Empty where there are none.
    errors: Vec<f64>,
}
