//! AdamW, element by element wherever the weights lie: gradients and moments lie as they do.

use pulp::{Arch, Simd, WithSimd};

use super::kernels::{LANES, kernel};
use super::product::Machine;
use crate::learn::AdamW;

/// Elements that one chunk handles: fixed, so that sums over all elements do not depend on the number of threads.
const CHUNK: usize = 1 << 14;

/// A first moment that shrinks below this is 0: it would become subnormal, on which many processors compute a hundred times more
/// slowly, for every weight that gets no gradient for some hundred steps (a rare word's).
const VANISHED: f32 = 1e-30;

/// The same elements of a weight and of all that belongs to it.
struct Chunk<'a> {
    weight: &'a mut [f32],
    gradient: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

/// What one update multiplies with.
#[derive(Debug, Clone, Copy)]
struct Factors {
    /// Of the gradient.
    gradient: f32,
    /// Of the weight: 1 − learning rate · decay.
    keep: f32,
    beta1: f32,
    beta2: f32,
    /// The learning rate, corrected for a first moment that began with 0.
    step: f32,
    /// The root of what a second moment that began with 0 is short of.
    correction: f32,
    epsilon: f32,
}

impl Factors {
    /// Of update number `step`, counted from 1.
    fn new(rule: &AdamW, step: u64, gradient: f64) -> Self {
        let power = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
        Self {
            gradient: gradient as f32,
            keep: (1.0 - f64::from(rule.learning_rate) * f64::from(rule.weight_decay)) as f32,
            beta1: rule.beta1,
            beta2: rule.beta2,
            step: (f64::from(rule.learning_rate) / power(rule.beta1)) as f32,
            correction: power(rule.beta2).sqrt() as f32,
            epsilon: rule.epsilon,
        }
    }
}

/// Updates every weight; `gradient` is what the gradients are multiplied by. They are 0 afterwards.
pub(super) fn update<'a>(
    machine: Machine<'_>,
    rule: &AdamW,
    step: u64,
    gradient: f64,
    weights: impl Iterator<Item = &'a mut [f32]>,
    [gradients, first, second]: [&'a mut [Vec<f32>]; 3],
) {
    let factors = Factors::new(rule, step, gradient);
    let mut chunks = Vec::new();
    for (((weight, gradient), first), second) in weights.zip(gradients).zip(first).zip(second) {
        let pieces = weight.chunks_mut(CHUNK).zip(gradient.chunks_mut(CHUNK));
        let moments = first.chunks_mut(CHUNK).zip(second.chunks_mut(CHUNK));
        chunks.extend(pieces.zip(moments).map(|((weight, gradient), (first, second))| Chunk {
            weight,
            gradient,
            first,
            second,
        }));
    }
    machine.team.each_of(&mut chunks, |_, chunk| chunk.update(machine.arch, factors));
}

impl Chunk<'_> {
    fn update(&mut self, arch: Arch, factors: Factors) {
        let Self { weight, gradient, first, second } = self;
        let (weight, gradient, first, second) = (&mut **weight, &mut **gradient, &mut **first, &mut **second);
        arch.dispatch(kernel!(Update {
            weight: &'a mut [f32], gradient: &'a mut [f32], first: &'a mut [f32], second: &'a mut [f32],
            factors: Factors
        } -> () {
            let Factors { gradient: scale, keep, beta1, beta2, step, correction, epsilon } = factors;
            let moments = first.iter_mut().zip(second.iter_mut());
            for ((w, g), (m, v)) in weight.iter_mut().zip(gradient.iter_mut()).zip(moments) {
                let d = *g * scale;
                *g = 0.0;
                let (first, second) = (*m + (d - *m) * (1.0 - beta1), *v * beta2 + (1.0 - beta2) * d * d);
                *m = if first.abs() < VANISHED { 0.0 } else { first };
                *v = if second < f32::MIN_POSITIVE { 0.0 } else { second };
                *w = *w * keep - step * (*m / (v.sqrt() / correction + epsilon));
            }
        }));
    }
}

/// The sum of squares of each gradient.
pub(super) fn squares(machine: Machine<'_>, gradients: &[Vec<f32>]) -> Vec<f64> {
    let chunks = gradients
        .iter()
        .enumerate()
        .flat_map(|(i, gradient)| gradient.chunks(CHUNK).map(move |chunk| (i, chunk)));
    let mut sums: Vec<(usize, &[f32], f64)> = chunks.map(|(i, chunk)| (i, chunk, 0.0)).collect();
    machine.team.each_of(&mut sums, |_, (_, chunk, sum)| *sum = sum_of_squares(machine.arch, chunk));
    let mut squares = vec![0.0; gradients.len()];
    sums.iter().for_each(|&(i, _, sum)| squares[i] += sum);
    squares
}

fn sum_of_squares(arch: Arch, x: &[f32]) -> f64 {
    arch.dispatch(kernel!(Squares { x: &'a [f32] } -> f64 {
        let mut parts = [0f64; LANES];
        for chunk in x.chunks(LANES) {
            for (part, &x) in parts.iter_mut().zip(chunk) {
                *part += f64::from(x) * f64::from(x);
            }
        }
        parts.iter().sum()
    }))
}
