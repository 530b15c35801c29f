//! One node's arithmetic in f64, a plain loop a formula.

use std::sync::Arc;

use attnscope_graph::{
    Activation, KvSharing, NormGain, NormKind, Normaliser, Op, PositionCount, Positions, Rotary, Side,
};
use rayon::prelude::*;

use super::is_fully_masked;
use crate::checked::SizedInput;
use crate::dots::dots;
use crate::limits::Cancel;
use crate::position::{Place, bucket, position, sinusoid, table_row, used_buckets};
use crate::rotation::Rotations;
use crate::tensor::Kept;

/// One node's arithmetic.
pub(crate) struct Step<'a> {
    pub(crate) sized_input: &'a SizedInput<'a>,
    /// In the operation's order.
    pub(crate) weights: &'a [&'a [f32]],
    pub(crate) op: Op,
    pub(crate) shape: &'a [usize],
    pub(crate) inputs: &'a [Arc<Kept>],
    /// Leaves the rest of a long loop undone.
    pub(crate) cancel: &'a Cancel,
}

impl Step<'_> {
    pub(crate) fn compute(&self) -> Vec<f64> {
        match self.op {
            Op::Ids(side) => match self.sized_input.rows(side) {
                Some(rows) => rows.ids().iter().map(|&id| f64::from(id)).collect(),
                None => Vec::new(),
            },
            Op::TypeIds(_) => self.zeros(),
            Op::Features => match self.sized_input.input.features() {
                Some(f) => f.values.iter().map(|&x| f64::from(x)).collect(),
                None => Vec::new(),
            },
            Op::Embed { scale } => self.embed(self.factor(scale)),
            Op::Positions { kind, offset, count, side } => self.positions(kind, offset, count, side),
            Op::AddPositions => self.each(|i, x| {
                // Positions are the same for every row.
                let added = x[1..].iter().map(|term| term.values[i % term.values.len().max(1)]);
                x[0].values[i] + added.sum::<f64>()
            }),
            Op::Conv1d { kernel, stride, padding, .. } => self.conv(kernel, stride, padding),
            Op::Transpose => self.transpose(),
            Op::Same => self.inputs[0].values.clone(),
            Op::Norm { kind, eps, gain } => self.norm(kind, eps, gain),
            Op::Linear => self.linear(1.0),
            Op::Logits { scale } => self.linear(self.factor(scale)),
            Op::SplitHeads(_) => self.split_heads(),
            Op::Rotate { rotary, .. } => self.rotate(rotary),
            Op::SoftCap { cap, .. } => self.each(|i, x| cap * (x[0].values[i] / cap).tanh()),
            Op::MergeHeads(_) => self.merge_heads(),
            Op::Scores { scale, sharing } => self.scores(self.factor(scale), sharing),
            Op::RelativeBias { stack, buckets, max_distance } => {
                self.relative_bias(stack, buckets, max_distance)
            }
            Op::Mask(kind) => {
                let [batch, _, queries, keys] = self.four();
                let cell = |i: usize| {
                    self.cancel.is_cancelled()
                        || self.sized_input.is_visible(
                            kind,
                            i / (queries * keys),
                            i / keys % queries,
                            i % keys,
                        )
                };
                (0..batch * queries * keys).map(|i| if cell(i) { 0.0 } else { f64::NEG_INFINITY }).collect()
            }
            Op::AddMask { .. } => self.add_mask(),
            Op::Normalise(normaliser) => self.normalise(normaliser),
            Op::Context { sharing } => self.context(sharing),
            Op::Residual { gain } => self.each(|i, x| x[0].values[i] + f64::from(gain) * x[1].values[i]),
            Op::Activate(activation) => self.each(|i, x| activate(activation, x[0].values[i])),
            Op::Gate => self.each(|i, x| x[0].values[i] * x[1].values[i]),
            Op::Recur { cell, reverse } => self.recur(cell, reverse),
            Op::Hidden => {
                let half = self.inputs[0].width() / 2;
                self.inputs[0].values.chunks(2 * half.max(1)).flat_map(|row| &row[..half]).copied().collect()
            }
            Op::Beside => self.beside(),
            Op::LastState { reverse } => {
                let (length, width) = (self.inputs[0].dim(2), self.inputs[0].width());
                let at = if reverse { 0 } else { length.saturating_sub(1) };
                let rows = self.inputs[0].values.chunks((length * width).max(1));
                rows.flat_map(|row| &row[at * width..(at + 1) * width]).copied().collect()
            }
            Op::Pool { pooling, axis, padding_of } => self.pool(pooling, axis, padding_of),
            Op::Flatten { .. } | Op::Dropout { .. } => self.inputs[0].values.clone(),
        }
    }

    fn factor(&self, factor: attnscope_graph::Factor) -> f64 {
        factor.value(&self.sized_input.sizes).unwrap_or(1.0)
    }

    pub(super) fn weight(&self, i: usize) -> &[f32] {
        self.weights.get(i).copied().unwrap_or_default()
    }

    /// [batch, head, query, key] of the output.
    fn four(&self) -> [usize; 4] {
        let mut four = [1; 4];
        four.iter_mut().zip(self.shape).for_each(|(to, &n)| *to = n);
        four
    }

    pub(super) fn zeros(&self) -> Vec<f64> {
        vec![0.0; self.shape.iter().product()]
    }

    /// The output of an operation that makes a row of it from a row of its first input.
    fn each_row(&self, f: impl Fn(&[f64], &mut [f64]) + Sync) -> Vec<f64> {
        self.each_group(self.inputs[0].width(), f)
    }

    /// The same for groups of so many neighbouring values.
    fn each_group(&self, width: usize, f: impl Fn(&[f64], &mut [f64]) + Sync) -> Vec<f64> {
        let x = &self.inputs[0];
        let mut out = vec![0.0; x.values.len()];
        let rows = out.par_chunks_mut(width).zip(x.values.par_chunks(width));
        rows.filter(|_| !self.cancel.is_cancelled()).for_each(|(out, x)| f(x, out));
        out
    }

    pub(super) fn each(&self, f: impl Fn(usize, &[Arc<Kept>]) -> f64 + Sync) -> Vec<f64> {
        let cell = |i| if self.cancel.is_cancelled() { 0.0 } else { f(i, self.inputs) };
        (0..self.shape.iter().product()).into_par_iter().map(cell).collect()
    }

    /// E[id] · scale
    fn embed(&self, scale: f64) -> Vec<f64> {
        let width = self.shape[2];
        let table = self.weight(0);
        let row =
            |&id: &f64| table[id as usize * width..][..width].iter().map(move |&x| f64::from(x) * scale);
        self.inputs[0].values.iter().flat_map(row).collect()
    }

    fn positions(&self, kind: Positions, offset: usize, count: PositionCount, side: Side) -> Vec<f64> {
        let (length, width) = (self.shape[1], self.shape[2]);
        let table = self.weight(0);
        let value = |place: Place, i: usize| match (kind, place) {
            (Positions::Table, _) => {
                table_row(place, offset).map_or(0.0, |row| f64::from(table[row * width + i]))
            }
            (_, Some(place)) => sinusoid(kind, position(place, offset), i, width),
            (_, None) => 0.0,
        };
        let numbers: Vec<Place> = match self.sized_input.rows(side).filter(|_| count == PositionCount::Tokens)
        {
            Some(rows) => (0..rows.batch()).flat_map(|row| rows.token_numbers(row, offset)).collect(),
            None => (0..length).map(Some).collect(),
        };
        numbers.into_iter().flat_map(|place| (0..width).map(move |i| value(place, i))).collect()
    }

    /// out[b, o, t] = bias[o] + Σ over i, k of w[o, i, k] · x[b, i, t · stride + k − padding]
    fn conv(&self, kernel: usize, stride: usize, padding: usize) -> Vec<f64> {
        let (x, w, bias) = (&self.inputs[0], self.weight(0), self.weight(1));
        let (channels, frames) = (x.dim(2), x.dim(1));
        let (batch, outputs, steps) = (self.shape[0], self.shape[1], self.shape[2]);
        // What each step reads, [step, channel, offset]; zeros beyond the ends.
        let reads = |b: usize| {
            let read = move |n: usize| {
                let (t, i, k) = (n / (channels * kernel), n / kernel % channels, n % kernel);
                let at = (t * stride + k).checked_sub(padding).filter(|&at| at < frames);
                at.map_or(0.0, |at| x.values[(b * channels + i) * frames + at])
            };
            (0..steps * channels * kernel).into_par_iter().map(read).collect::<Vec<f64>>()
        };
        let fill = |o: usize, row: &mut [f64]| widen(&w[o * channels * kernel..], row);
        let row = |b: usize| {
            let mut sums = vec![0.0; steps * outputs]; // [step, output]
            let bias = |o: usize, sum: f64| sum + bias.get(o).map_or(0.0, |&b| f64::from(b));
            dots(self.cancel, &mut sums, &reads(b), [channels * kernel, outputs], &fill, bias);
            (0..outputs * steps).map(move |n| sums[n % steps * outputs + n / steps]).collect::<Vec<f64>>()
        };
        (0..batch).flat_map(row).collect()
    }

    fn transpose(&self) -> Vec<f64> {
        let (rows, columns) = (self.shape[1], self.shape[2]);
        self.each(|n, x| {
            let (b, r, c) = (n / (rows * columns), n / columns % rows, n % columns);
            x[0].values[(b * columns + c) * rows + r]
        })
    }

    /// (x − mean) / √(var + eps) · g + b, or x / √(mean x² + eps) · g, over groups of as many features as there are gains
    fn norm(&self, kind: NormKind, eps: f64, of_weight: NormGain) -> Vec<f64> {
        let (gain, bias) = (self.weight(0), self.weight(1));
        let width = gain.len().max(1);
        let offset = f64::from(of_weight.offset());
        self.each_group(width, |x, out| {
            let n = width as f64;
            let mean = if kind == NormKind::Layer { x.iter().sum::<f64>() / n } else { 0.0 };
            let spread = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n + eps).sqrt();
            for (i, (to, v)) in out.iter_mut().zip(x).enumerate() {
                let shift = bias.get(i).map_or(0.0, |&b| f64::from(b));
                *to = (v - mean) / spread * (offset + f64::from(gain[i])) + shift;
            }
        })
    }

    /// x · scale · Wᵀ + b
    fn linear(&self, scale: f64) -> Vec<f64> {
        let (w, bias) = (self.weight(0), self.weight(1));
        let width = self.inputs[0].width();
        let outputs = self.shape.last().copied().unwrap_or(0);
        let fill = |o: usize, row: &mut [f64]| widen(&w[o * width..], row);
        let finish = |o: usize, sum: f64| sum * scale + bias.get(o).map_or(0.0, |&b| f64::from(b));
        let mut out = self.zeros();
        dots(self.cancel, &mut out, &self.inputs[0].values, [width, outputs], &fill, finish);
        out
    }

    /// [b, l, h · k] → [b, h, l, k]
    fn split_heads(&self) -> Vec<f64> {
        let [_, heads, length, size] = self.four();
        self.each(|n, x| {
            let (b, h, l, k) =
                (n / (heads * length * size), n / (length * size) % heads, n / size % length, n % size);
            x[0].values[((b * length + l) * heads + h) * size + k]
        })
    }

    /// Each pair (x, y) of a head's features becomes (x · cos − y · sin, x · sin + y · cos) of the position's angle.
    fn rotate(&self, rotary: Rotary) -> Vec<f64> {
        let (length, size) = (self.inputs[0].dim(2), self.inputs[0].width());
        let rotations = Rotations { rotary, factors: self.weight(rotary.list_of(length)), size, length };
        self.each(|n, x| {
            let (place, i) = (n / size % length, n % size);
            rotations.at(place, i).apply(&x[0].values[n - i..][..size], i)
        })
    }

    /// [b, h, l, k] → [b, l, h · k]
    fn merge_heads(&self) -> Vec<f64> {
        let (heads, length, size) = (self.inputs[0].dim(3), self.inputs[0].dim(2), self.inputs[0].dim(1));
        self.each(|n, x| {
            let (b, l, h, k) =
                (n / (heads * length * size), n / (heads * size) % length, n / size % heads, n % size);
            x[0].values[((b * heads + h) * length + l) * size + k]
        })
    }

    /// The keys or values, [key, feature], that head `part` of batch and heads reads.
    fn shared_head(&self, part: usize, size: usize, sharing: KvSharing) -> &[f64] {
        let (heads, kv_heads) = (self.shape.get(1).copied().unwrap_or(1).max(1), self.inputs[1].dim(3));
        let kv_part = part / heads * kv_heads + sharing.head(part % heads, heads, kv_heads);
        self.inputs[1].values.get(kv_part * size..(kv_part + 1) * size).unwrap_or_default()
    }

    /// scores[b, h, t, s] = scale · Σ over k of q[b, h, t, k] · k[b, g, s, k], g the head of keys that h reads
    fn scores(&self, scale: f64, sharing: KvSharing) -> Vec<f64> {
        let [_, _, queries, keys] = self.four();
        let size = self.inputs[0].width();
        let mut out = self.zeros();
        let queries_of = self.inputs[0].values.chunks((queries * size).max(1));
        for (part, (out, q)) in out.chunks_mut((queries * keys).max(1)).zip(queries_of).enumerate() {
            let k = self.shared_head(part, keys * size, sharing);
            let fill = |s: usize, row: &mut [f64]| row.copy_from_slice(&k[s * size..][..size]);
            dots(self.cancel, out, q, [size, keys], &fill, |_, sum| sum * scale);
        }
        out
    }

    fn relative_bias(&self, stack: attnscope_graph::Stack, buckets: usize, max_distance: usize) -> Vec<f64> {
        let [_, heads, queries, keys] = self.four();
        let table = self.weight(0);
        let buckets = used_buckets(buckets, table.len() / heads.max(1));
        let cell = |n: usize| {
            let (h, t, s) = (n / (queries * keys), n / keys % queries, n % keys);
            f64::from(table[bucket(stack, t, s, buckets, max_distance) * heads + h])
        };
        (0..heads * queries * keys).map(cell).collect()
    }

    /// Scores plus what broadcasts over batch (a bias) or heads (a mask).
    fn add_mask(&self) -> Vec<f64> {
        let [_, heads, queries, keys] = self.four();
        self.each(|n, x| {
            let (b, h, cell) =
                (n / (heads * queries * keys), n / (queries * keys) % heads, n % (queries * keys));
            let added = |a: &Arc<Kept>| {
                let (b, h) = (b % a.shape[0], h % a.shape[1]);
                a.values[(b * a.shape[1] + h) * queries * keys + cell]
            };
            x[0].values[n] + x[1..].iter().map(added).sum::<f64>()
        })
    }

    /// A fully masked row has no weights: all are 0, and the report lists it.
    fn normalise(&self, normaliser: Normaliser) -> Vec<f64> {
        self.each_row(|x, out| {
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match normaliser {
                _ if is_fully_masked(x) => out.fill(0.0),
                Normaliser::Softmax => {
                    out.iter_mut().zip(x).for_each(|(e, v)| *e = (v - most).exp());
                    let sum: f64 = out.iter().sum();
                    out.iter_mut().for_each(|e| *e /= sum);
                }
                Normaliser::Sigmoid => out.iter_mut().zip(x).for_each(|(y, v)| *y = 1.0 / (1.0 + (-v).exp())),
            }
        })
    }

    /// context[b, h, t, k] = Σ over s of weights[b, h, t, s] · v[b, g, s, k], g the head of values that h reads
    fn context(&self, sharing: KvSharing) -> Vec<f64> {
        let [_, _, queries, size] = self.four();
        let keys = self.inputs[0].width();
        let mut out = self.zeros();
        let weights_of = self.inputs[0].values.chunks((queries * keys).max(1));
        for (part, (out, weights)) in out.chunks_mut((queries * size).max(1)).zip(weights_of).enumerate() {
            let v = self.shared_head(part, keys * size, sharing);
            let fill = |k: usize, column: &mut [f64]| {
                column.iter_mut().enumerate().for_each(|(s, x)| *x = v[s * size + k]);
            };
            dots(self.cancel, out, weights, [keys, size], &fill, |_, sum| sum);
        }
        out
    }
}

/// A row of a weight in f64.
fn widen(weight: &[f32], row: &mut [f64]) {
    row.iter_mut().zip(weight).for_each(|(x, &w)| *x = f64::from(w));
}

/// The activation of one element.
pub fn activate(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match activation {
        // `max` would drop a NaN; keep it.
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Swish => x * sigmoid(x),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Tanh => x.tanh(),
    }
}
