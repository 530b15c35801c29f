//! The formulas of a classifier's blocks: recurrent layers, tensors side by side, pools.

use attnscope_graph::{Pooling, RecurrentCell, Side};
use rayon::prelude::*;

use super::step::Step;

impl Step<'_> {
    /// The states of a recurrent layer, position after position: h, or h and c side by side.
    pub(super) fn recur(&self, cell: RecurrentCell, reverse: bool) -> Vec<f64> {
        let (w, bias) = (self.weight(0), self.weight(1));
        let (length, gates) = (self.inputs[0].dim(2), self.inputs[0].width());
        let hidden = gates / cell.gates();
        let width = hidden * cell.carried();
        let mut out = self.zeros(); // [batch, position, state]
        let rows = out.par_chunks_mut((length * width).max(1));
        rows.zip(self.inputs[0].values.par_chunks((length * gates).max(1))).for_each(|(out, x)| {
            let mut state = vec![0.0; width];
            for n in 0..length {
                let t = if reverse { length - 1 - n } else { n };
                let gate = |g: usize| {
                    let products =
                        w[g * hidden..].iter().zip(&state[..hidden]).map(|(&w, h)| f64::from(w) * h);
                    x[t * gates + g] + products.sum::<f64>() + bias.get(g).map_or(0.0, |&b| f64::from(b))
                };
                let before: Vec<f64> = (0..gates).map(gate).collect();
                next_state(cell, &before, &mut state);
                out[t * width..(t + 1) * width].copy_from_slice(&state);
            }
        });
        out
    }

    /// Rows of several tensors side by side.
    pub(super) fn beside(&self) -> Vec<f64> {
        let rows = self.inputs[0].values.len() / self.inputs[0].width().max(1);
        let row = |n: usize| {
            self.inputs.iter().flat_map(move |x| &x.values[n * x.width()..(n + 1) * x.width()]).copied()
        };
        (0..rows).flat_map(row).collect()
    }

    /// The largest value or the mean over positions; of nothing but padding it is 0.
    pub(super) fn pool(&self, pooling: Pooling, axis: usize, padding_of: Option<Side>) -> Vec<f64> {
        let x = &self.inputs[0];
        let (positions, features) = match axis {
            1 => (x.shape[1], x.shape[2]),
            _ => (x.shape[2], x.shape[1]),
        };
        let rows = padding_of.and_then(|side| self.sized_input.rows(side));
        let is_open = |b: usize, p: usize| rows.is_none_or(|rows| rows.open()[b * positions + p]);
        self.each(|n, x| {
            let (b, f) = (n / features, n % features);
            let cell = |p: usize| match axis {
                1 => x[0].values[(b * positions + p) * features + f],
                _ => x[0].values[(b * features + f) * positions + p],
            };
            let mut values = (0..positions).filter(|&p| is_open(b, p)).map(cell);
            match pooling {
                Pooling::Max => values.reduce(larger).unwrap_or(0.0),
                Pooling::First => cell(0),
                Pooling::Last => values.next_back().unwrap_or(0.0),
                Pooling::Mean => values.clone().sum::<f64>() / values.count().max(1) as f64,
            }
        })
    }
}

/// The state after one more position, from what its gates are given. An LSTM's gates are in torch's order: input, forget, cell,
/// output; its state is h, then c.
pub fn next_state(cell: RecurrentCell, gates: &[f64], state: &mut [f64]) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match cell {
        RecurrentCell::Rnn => state.iter_mut().zip(gates).for_each(|(h, x)| *h = x.tanh()),
        RecurrentCell::Lstm => {
            let hidden = gates.len() / 4;
            let (h, c) = state.split_at_mut(hidden);
            for (i, (h, c)) in h.iter_mut().zip(c).enumerate() {
                let [input, forget, new, output] = [0, 1, 2, 3].map(|gate| gates[gate * hidden + i]);
                *c = sigmoid(forget) * *c + sigmoid(input) * new.tanh();
                *h = sigmoid(output) * c.tanh();
            }
        }
    }
}

/// The larger of two; a NaN stays.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}
