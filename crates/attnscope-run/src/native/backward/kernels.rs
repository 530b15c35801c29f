//! Row kernels of gradients: plain loops that the compiler vectorises, as those of the forward pass.

use attnscope_graph::{Activation, NormKind};
use pulp::{Arch, Simd, WithSimd};

use super::super::kernels::{LANES, erf, exp, greatest, kernel, sigmoid, sum, tanh};

/// The derivative of an activation at one value.
#[inline(always)]
fn slope(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Relu => {
            if x > 0.0 {
                1.0
            } else {
                0.0
            }
        }
        Activation::Gelu => {
            let density = 0.398_942_3 * exp(-0.5 * x * x);
            0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)) + x * density
        }
        Activation::GeluTanh => {
            let t = tanh(0.797_884_6 * (x + 0.044_715 * x * x * x));
            let inner = 0.797_884_6 * (1.0 + 3.0 * 0.044_715 * x * x);
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
        }
        Activation::Swish => {
            let s = sigmoid(x);
            s + x * s * (1.0 - s)
        }
        Activation::QuickGelu => {
            let s = sigmoid(1.702 * x);
            s + 1.702 * x * s * (1.0 - s)
        }
        Activation::Tanh => {
            let t = tanh(x);
            1.0 - t * t
        }
    }
}

/// dy · activation′(x), in place of dy.
pub(super) fn activate_back(arch: Arch, activation: Activation, x: &[f32], dy: &mut [f32]) {
    macro_rules! each {
        ($($kind:ident),*) => {
            // One loop per kind: a match inside the loop would prevent vectorisation.
            match activation {
                $(Activation::$kind => arch.dispatch(kernel!(Each { x: &'a [f32], dy: &'a mut [f32] } -> () {
                    for (dy, &x) in dy.iter_mut().zip(x) {
                        *dy *= slope(Activation::$kind, x);
                    }
                }))),*
            }
        };
    }
    each!(Relu, Gelu, GeluTanh, Swish, QuickGelu, Tanh)
}

/// The gradient of one row of a norm, in place of dy; those of gain and bias are added to what is there.
#[allow(clippy::too_many_arguments)] // A row of each of its tensors.
pub(super) fn norm_back(
    arch: Arch,
    kind: NormKind,
    eps: f64,
    x: &[f32],
    gain: &[f32],
    dy: &mut [f32],
    d_gain: &mut [f32],
    d_bias: &mut [f32],
) {
    arch.dispatch(kernel!(NormBack {
        kind: NormKind, eps: f64, x: &'a [f32], gain: &'a [f32], dy: &'a mut [f32],
        d_gain: &'a mut [f32], d_bias: &'a mut [f32]
    } -> () {
        let n = x.len() as f32;
        let mean = if kind == NormKind::Layer { sum(x, |x| x) / n } else { 0.0 };
        let scale = 1.0 / (sum(x, |x| (x - mean) * (x - mean)) / n + eps as f32).sqrt();
        for (to, dy) in d_bias.iter_mut().zip(dy.iter()) {
            *to += dy;
        }
        // With h the normalised row and dh its gradient: dx = (dh − mean dh − h · mean(dh · h)) · scale.
        let (mut sums, mut products) = ([0f32; LANES], [0f32; LANES]);
        let rows = x.chunks(LANES).zip(gain.chunks(LANES)).zip(dy.chunks_mut(LANES)).zip(d_gain.chunks_mut(LANES));
        for (((x, gain), dy), d_gain) in rows {
            for (lane, (((x, gain), dy), d_gain)) in x.iter().zip(gain).zip(dy).zip(d_gain).enumerate() {
                let h = (x - mean) * scale;
                *d_gain += *dy * h;
                *dy *= gain;
                sums[lane] += *dy;
                products[lane] += *dy * h;
            }
        }
        let shift = if kind == NormKind::Layer { sums.iter().sum::<f32>() / n } else { 0.0 };
        let along = products.iter().sum::<f32>() / n;
        for (dy, x) in dy.iter_mut().zip(x) {
            *dy = (*dy - shift - (x - mean) * scale * along) * scale;
        }
    }));
}

/// weights · (d − Σ weights · d) of one row, in place of d: from the gradient of a softmax to that of its scores.
pub(super) fn softmax_back(arch: Arch, weights: &[f32], d: &mut [f32]) {
    arch.dispatch(kernel!(SoftmaxBack { weights: &'a [f32], d: &'a mut [f32] } -> () {
        let mut parts = [0f32; LANES];
        for (w, d) in weights.chunks(LANES).zip(d.chunks(LANES)) {
            for (part, (w, d)) in parts.iter_mut().zip(w.iter().zip(d)) {
                *part += w * d;
            }
        }
        let along: f32 = parts.iter().sum();
        for (d, w) in d.iter_mut().zip(weights) {
            *d = w * (*d - along);
        }
    }));
}

/// weights · (1 − weights) · d, in place of d: the same for a sigmoid.
pub(super) fn sigmoid_back(arch: Arch, weights: &[f32], d: &mut [f32]) {
    arch.dispatch(kernel!(SigmoidBack { weights: &'a [f32], d: &'a mut [f32] } -> () {
        for (d, w) in d.iter_mut().zip(weights) {
            *d *= w * (1.0 - w);
        }
    }));
}

/// to += scale · from
pub(super) fn add_times(arch: Arch, to: &mut [f32], scale: f32, from: &[f32]) {
    arch.dispatch(kernel!(AddTimes { to: &'a mut [f32], scale: f32, from: &'a [f32] } -> () {
        for (to, from) in to.iter_mut().zip(from) {
            *to += scale * from;
        }
    }));
}

/// What a row of scores says about its class.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowScores {
    /// ln Σ exp(x).
    pub(super) log_sum: f64,
    /// Σ x.
    pub(super) total: f64,
    /// The largest score.
    pub(super) most: f32,
}

/// Reads a row of scores.
pub(super) fn row_scores(arch: Arch, row: &[f32]) -> RowScores {
    let (most, powers, total) = arch.dispatch(kernel!(Read { row: &'a [f32] } -> (f32, f32, f32) {
        let most = greatest(row);
        (most, sum(row, |x| exp(x - most)), sum(row, |x| x))
    }));
    RowScores { log_sum: f64::from(most) + f64::from(powers).ln(), total: f64::from(total), most }
}

/// Reads a row of scores and puts softmax(x) − shift in its place.
pub(super) fn row_softmax(arch: Arch, row: &mut [f32], shift: f32) -> RowScores {
    let (most, powers, total) =
        arch.dispatch(kernel!(Write { row: &'a mut [f32], shift: f32 } -> (f32, f32, f32) {
            let most = greatest(row);
            let total = sum(row, |x| x);
            for x in row.iter_mut() {
                *x = exp(*x - most);
            }
            let powers = sum(row, |x| x);
            let scale = 1.0 / powers;
            for x in row.iter_mut() {
                *x = *x * scale - shift;
            }
            (most, powers, total)
        }));
    RowScores { log_sum: f64::from(most) + f64::from(powers).ln(), total: f64::from(total), most }
}

/// Below this a gradient that goes back through positions is 0. It shrinks at each of them, and after some hundred would be
/// subnormal, on which many processors compute a hundred times more slowly. f32 sums keep nothing that small beside any other
/// term, and a step of AdamW nothing beside its epsilon.
const VANISHED: f32 = 1e-30;

/// 0 for what has vanished; NaN stays.
#[inline(always)]
fn unless_vanished(x: f32) -> f32 {
    if x.abs() < VANISHED { 0.0 } else { x }
}

/// One position of a tanh cell: from the gradient of h, its own and that of the positions after it, to that of what it was
/// given.
pub(super) fn rnn_back(arch: Arch, h: &[f32], dy: &[f32], d_h: &[f32], out: &mut [f32]) {
    arch.dispatch(
        kernel!(RnnBack { h: &'a [f32], dy: &'a [f32], d_h: &'a [f32], out: &'a mut [f32] } -> () {
            for (((out, h), dy), d_h) in out.iter_mut().zip(h).zip(dy).zip(d_h) {
                *out = unless_vanished((dy + d_h) * (1.0 - h * h));
            }
        }),
    );
}

/// One position of an LSTM: `gates` is what its gates said and becomes the gradient of what they were given, in torch's order
/// (input, forget, cell, output); `d_c` becomes the gradient of c before the position. States and their gradients are h, then c;
/// the first position has no c before it.
pub(super) fn lstm_back(
    arch: Arch,
    [state, c_before, dy]: [&[f32]; 3],
    d_h: &[f32],
    d_c: &mut [f32],
    gates: &mut [f32],
) {
    let hidden = d_h.len();
    arch.dispatch(kernel!(LstmBack {
        hidden: usize, state: &'a [f32], c_before: &'a [f32], dy: &'a [f32], d_h: &'a [f32], d_c: &'a mut [f32],
        gates: &'a mut [f32]
    } -> () {
        let (dy_h, dy_c) = (&dy[..hidden], &dy[hidden..][..hidden]);
        let (c, d_h, d_c) = (&state[hidden..][..hidden], &d_h[..hidden], &mut d_c[..hidden]);
        let (first, last) = gates.split_at_mut(2 * hidden);
        let ((input, forget), (new, output)) = (first.split_at_mut(hidden), last.split_at_mut(hidden));
        let (new, output) = (&mut new[..hidden], &mut output[..hidden]);
        for k in 0..hidden {
            let (h, t, o) = (unless_vanished(dy_h[k] + d_h[k]), tanh(c[k]), output[k]);
            d_c[k] = unless_vanished(d_c[k] + dy_c[k] + h * o * (1.0 - t * t));
            output[k] = unless_vanished(h * t * o * (1.0 - o));
        }
        for k in 0..hidden {
            let (i, g) = (input[k], new[k]);
            input[k] = unless_vanished(d_c[k] * g * i * (1.0 - i));
            new[k] = unless_vanished(d_c[k] * i * (1.0 - g * g));
        }
        let d_c = d_c.iter_mut().zip(forget.iter_mut());
        if c_before.is_empty() {
            d_c.for_each(|(d, f)| (*d, *f) = (*d * *f, 0.0));
        } else {
            d_c.zip(c_before)
                .for_each(|((d, f), c)| (*d, *f) = (*d * *f, unless_vanished(*d * *f * (1.0 - *f) * c)));
        }
    }));
}

/// From the gradient of cap · tanh(x / cap) to that of x, in place; `y` is what was computed.
pub(super) fn soft_cap_back(cap: f32, y: &[f32], dy: &mut [f32]) {
    dy.iter_mut().zip(y).for_each(|(dy, y)| *dy *= 1.0 - (y / cap) * (y / cap));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each position halves the gradient: after some 130 of them f32 could hold it only as a subnormal.
    #[test]
    fn gradients_that_vanish_are_zero_and_never_subnormal() {
        const HIDDEN: usize = 4;
        let (state, dy) = ([0.5; 2 * HIDDEN], [0.0; 2 * HIDDEN]);
        let (mut d_h, mut d_c) = ([1.0; HIDDEN], [1.0; HIDDEN]);
        for _ in 0..400 {
            let mut gates = [0.5; 4 * HIDDEN];
            lstm_back(Arch::new(), [&state, &state[HIDDEN..], &dy], &d_h, &mut d_c, &mut gates);
            d_h.copy_from_slice(&gates[..HIDDEN]);
            assert!(gates.iter().chain(&d_c).all(|x| !x.is_subnormal()), "{gates:?} {d_c:?}");
        }
        assert_eq!((d_h, d_c), ([0.0; HIDDEN], [0.0; HIDDEN]));
        let mut out = [1.0; HIDDEN];
        for _ in 0..400 {
            let d_h = out;
            rnn_back(Arch::new(), &[0.7; HIDDEN], &[0.0; HIDDEN], &d_h, &mut out);
            assert!(out.iter().all(|x| !x.is_subnormal()), "{out:?}");
        }
        assert_eq!(out, [0.0; HIDDEN]);
        assert!(unless_vanished(f32::NAN).is_nan());
    }
}
