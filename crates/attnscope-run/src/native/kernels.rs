//! Row kernels: plain loops that the compiler vectorises for the machine at hand, chosen at run time by `pulp`.

use attnscope_graph::{Activation, NormKind};
use pulp::{Arch, Simd, WithSimd};

use super::tile::Rows;

/// Sums are kept in this many parts, so that additions can run in parallel.
pub(super) const LANES: usize = 16;

/// eˣ to about two units in the last place; exactly 0 below the smallest normal number, so that a masked key has weight 0.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts: the first has few bits, so that its products with small whole numbers are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding it leaves a rounded whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.0, 88.5);
    // 2¹²⁸ overflows f32, although its product with a number below 1 may not.
    let shifted = (clamped * LOG2_E + ROUND).min(ROUND + 127.0);
    let n = shifted - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 5.000_000_3e-1;
    let value = p * r * r + r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.0 { 0.0 } else { value * power }
}

/// erf to 1.5e-7, by Abramowitz and Stegun 7.1.26.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let p = 1.061_405_4;
    let p = p * t - 1.453_152;
    let p = p * t + 1.421_413_8;
    let p = p * t - 0.284_496_74;
    let p = p * t + 0.254_829_6;
    (1.0 - p * t * exp(-x * x)).copysign(x)
}

#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    // Written so that large arguments end at ±1.
    (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x)
}

#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// One value of an activation.
#[inline(always)]
fn one(activation: Activation, x: f32) -> f32 {
    match activation {
        // `max` would drop a NaN; keep it.
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => 0.5 * x * (1.0 + tanh(0.797_884_6 * (x + 0.044_715 * x * x * x))),
        Activation::Swish => x * sigmoid(x),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Tanh => tanh(x),
    }
}

/// A loop that is compiled once for each kind of machine. The body must be inlined into `pulp`'s function for that kind,
/// which a closure is not when it is long: hence a type with an inlined method for each kernel.
macro_rules! kernel {
    ($name:ident { $($field:ident: $type:ty),* } -> $output:ty $body:block) => {{
        struct $name<'a> { $($field: $type),*, _life: std::marker::PhantomData<&'a ()> }
        impl WithSimd for $name<'_> {
            type Output = $output;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> $output {
                let Self { $($field),*, .. } = self;
                $body
            }
        }
        $name { $($field),*, _life: std::marker::PhantomData }
    }};
}

pub(super) use kernel;

/// out = activation(x), element by element.
pub(crate) fn activate(arch: Arch, activation: Activation, x: &[f32], out: &mut [f32]) {
    macro_rules! each {
        ($($kind:ident),*) => {
            // One loop per kind: a match inside the loop would prevent vectorisation.
            match activation {
                $(Activation::$kind => arch.dispatch(kernel!(Each { x: &'a [f32], out: &'a mut [f32] } -> () {
                    for (o, &x) in out.iter_mut().zip(x) {
                        *o = one(Activation::$kind, x);
                    }
                }))),*
            }
        };
    }
    each!(Relu, Gelu, GeluTanh, Swish, QuickGelu, Tanh)
}

#[inline(always)]
pub(super) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut parts = [0f32; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|&x| f(x)).sum();
    for chunk in chunks {
        for (part, &x) in parts.iter_mut().zip(chunk) {
            *part += f(x);
        }
    }
    parts.iter().sum::<f32>() + rest
}

#[inline(always)]
pub(super) fn greatest(x: &[f32]) -> f32 {
    let mut parts = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for chunk in chunks {
        for (part, &x) in parts.iter_mut().zip(chunk) {
            *part = part.max(x);
        }
    }
    parts.iter().copied().fold(rest, f32::max)
}

/// A norm of one row.
pub(crate) fn norm(
    arch: Arch,
    kind: NormKind,
    eps: f64,
    x: &[f32],
    gain: &[f32],
    bias: &[f32],
    out: &mut [f32],
) {
    arch.dispatch(kernel!(Norm {
        kind: NormKind, eps: f64, x: &'a [f32], gain: &'a [f32], bias: &'a [f32], out: &'a mut [f32]
    } -> () {
        let n = x.len() as f32;
        let mean = if kind == NormKind::Layer { sum(x, |x| x) / n } else { 0.0 };
        let variance = sum(x, |x| (x - mean) * (x - mean)) / n;
        let scale = 1.0 / (variance + eps as f32).sqrt();
        if bias.is_empty() {
            for ((o, &x), &g) in out.iter_mut().zip(x).zip(gain) {
                *o = (x - mean) * scale * g;
            }
        } else {
            for (((o, &x), &g), &b) in out.iter_mut().zip(x).zip(gain).zip(bias) {
                *o = (x - mean) * scale * g + b;
            }
        }
    }));
}

/// The softmax of one row, in place. False where the row is fully masked: then all weights are 0.
pub(crate) fn softmax(arch: Arch, row: &mut [f32]) -> bool {
    arch.dispatch(kernel!(Softmax { row: &'a mut [f32] } -> bool {
        let most = greatest(row);
        // `greatest` skips NaN; a row of NaN is not fully masked.
        if most == f32::NEG_INFINITY && row.iter().all(|&x| x == f32::NEG_INFINITY) {
            row.fill(0.0);
            return false;
        }
        for x in row.iter_mut() {
            *x = exp(*x - most);
        }
        let scale = 1.0 / sum(row, |x| x);
        for x in row.iter_mut() {
            *x *= scale;
        }
        true
    }))
}

/// Inverse temperatures at which a row of logits is summed: quarters, so that one exponential serves them all.
pub(crate) const BETAS: [f64; 7] = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0];
/// The index of 1 among them.
const AS_IT_IS: usize = 2;

/// ln Σ exp(β·x) of one row for every β of [`BETAS`], and the mean of x under softmax(x).
pub(crate) fn log_sum_exps(arch: Arch, row: &[f32]) -> ([f64; BETAS.len()], f64) {
    type Sums = (f32, [f32; BETAS.len()], f32);
    let (most, totals, weighted) = arch.dispatch(kernel!(LogSumExps { row: &'a [f32] } -> Sums {
        let most = greatest(row);
        let mut parts = [[0f32; LANES]; BETAS.len()];
        let mut weighted = [0f32; LANES];
        let (whole, rest) = row.as_chunks::<LANES>();
        whole.iter().for_each(|chunk| add_powers(chunk, most, &mut parts, &mut weighted));
        if !rest.is_empty() {
            // exp(−∞) is 0 and adds nothing.
            let mut chunk = [f32::NEG_INFINITY; LANES];
            chunk[..rest.len()].copy_from_slice(rest);
            add_powers(&chunk, most, &mut parts, &mut weighted);
        }
        (most, parts.map(|part| part.iter().sum()), weighted.iter().sum())
    }));
    let mut out = [0.0; BETAS.len()];
    for ((out, beta), total) in out.iter_mut().zip(BETAS).zip(totals) {
        *out = beta * f64::from(most) + f64::from(total).ln();
    }
    (out, f64::from(most) + f64::from(weighted) / f64::from(totals[AS_IT_IS]))
}

/// Adds exp(β·(x − most)) of as many values as there are lanes, for every β, and x − most under softmax(x). A loop of fixed
/// length, so that the compiler vectorises it.
#[inline(always)]
fn add_powers(
    chunk: &[f32; LANES],
    most: f32,
    parts: &mut [[f32; LANES]; BETAS.len()],
    weighted: &mut [f32; LANES],
) {
    let below: [f32; LANES] = std::array::from_fn(|lane| chunk[lane] - most);
    let q: [f32; LANES] = std::array::from_fn(|lane| exp(below[lane] * 0.25));
    for lane in 0..LANES {
        let q = q[lane];
        let (q2, q3) = (q * q, q * q * q);
        let (q4, q6) = (q2 * q2, q3 * q3);
        let powers = [q2, q3, q4, q4 * q, q6, q4 * q4, q6 * q6];
        for (part, power) in parts.iter_mut().zip(powers) {
            part[lane] += power;
        }
        // A logit of −∞ has no share in the mean; its product with 0 would be NaN.
        weighted[lane] += if q4 > 0.0 { q4 * below[lane] } else { 0.0 };
    }
}

/// The next state of a tanh cell; what it is given is the sum of three terms.
pub(crate) fn next_rnn_state(arch: Arch, [a, b, c]: [&[f32]; 3], h: &mut [f32]) {
    arch.dispatch(kernel!(NextState { a: &'a [f32], b: &'a [f32], c: &'a [f32], h: &'a mut [f32] } -> () {
        for (((h, a), b), c) in h.iter_mut().zip(a).zip(b).zip(c) {
            *h = tanh(a + b + c);
        }
    }));
}

/// The next state of an LSTM; what its gates are given is the sum of three terms. What they say, in torch's order (input,
/// forget, cell, output), is written to `gates`.
pub(crate) fn next_lstm_state(
    arch: Arch,
    terms: [&[f32]; 3],
    gates: &mut [f32],
    h: &mut [f32],
    c: &mut [f32],
) {
    arch.dispatch(kernel!(NextState {
        terms: [&'a [f32]; 3], gates: &'a mut [f32], h: &'a mut [f32], c: &'a mut [f32]
    } -> () {
        let hidden = h.len();
        let c = &mut c[..hidden];
        let part = |gate: usize| terms.map(|term| &term[gate * hidden..][..hidden]);
        let (first, last) = gates.split_at_mut(2 * hidden);
        let ((input, forget), (new, output)) = (first.split_at_mut(hidden), last.split_at_mut(hidden));
        let output = &mut output[..hidden];
        // A loop for each gate: one loop over all of them has more streams than the compiler vectorises.
        for (gate, to) in [(0, &mut *input), (1, &mut *forget), (3, &mut *output)] {
            let [x, y, z] = part(gate);
            for (((to, x), y), z) in to.iter_mut().zip(x).zip(y).zip(z) {
                *to = sigmoid(x + y + z);
            }
        }
        let [x, y, z] = part(2);
        for (((to, x), y), z) in new.iter_mut().zip(x).zip(y).zip(z) {
            *to = tanh(x + y + z);
        }
        for ((c, f), (i, g)) in c.iter_mut().zip(forget.iter()).zip(input.iter().zip(new.iter())) {
            *c = f * *c + i * g;
        }
        for ((h, c), o) in h.iter_mut().zip(c.iter()).zip(output.iter()) {
            *h = o * tanh(*c);
        }
    }));
}

/// The larger of two; a NaN stays.
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a > b { a } else { b }
}

/// The largest of all; a NaN stays, and of nothing it is 0.
pub(crate) fn largest(x: &[f32]) -> f32 {
    x.iter().copied().reduce(larger).unwrap_or(0.0)
}

/// The logistic function of one row, in place; 0 where the score is −∞.
/// False where every key is masked.
pub(crate) fn logistic(arch: Arch, row: &mut [f32]) -> bool {
    arch.dispatch(kernel!(Logistic { row: &'a mut [f32] } -> bool {
        let mut sees = false;
        for x in row.iter_mut() {
            sees |= *x != f32::NEG_INFINITY;
            *x = if *x == f32::NEG_INFINITY { 0.0 } else { sigmoid(*x) };
        }
        sees
    }))
}

/// to += from
pub(crate) fn add(arch: Arch, to: &mut [f32], from: &[f32]) {
    arch.dispatch(kernel!(Add { to: &'a mut [f32], from: &'a [f32] } -> () {
        for (to, from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }));
}

/// out = x + gain · y
pub(crate) fn add_scaled(arch: Arch, x: &[f32], gain: f32, y: &[f32], out: &mut [f32]) {
    arch.dispatch(kernel!(AddScaled { x: &'a [f32], gain: f32, y: &'a [f32], out: &'a mut [f32] } -> () {
        for ((o, x), y) in out.iter_mut().zip(x).zip(y) {
            *o = x + gain * y;
        }
    }));
}

/// out = x · y, element by element.
pub(crate) fn times(arch: Arch, x: &[f32], y: &[f32], out: &mut [f32]) {
    arch.dispatch(kernel!(Times { x: &'a [f32], y: &'a [f32], out: &'a mut [f32] } -> () {
        for ((o, x), y) in out.iter_mut().zip(x).zip(y) {
            *o = x * y;
        }
    }));
}

/// out = Σₖ weights[k] · values[k]
pub(crate) fn blend(arch: Arch, weights: &[f32], values: Rows<'_>, out: &mut [f32]) {
    /// Columns whose sums stay in registers.
    const SOME: usize = 64;
    arch.dispatch(kernel!(Blend { weights: &'a [f32], values: Rows<'a>, out: &'a mut [f32] } -> () {
        let mut parts = out.chunks_exact_mut(SOME);
        let mut from = 0;
        for part in &mut parts {
            let mut sums = [0f32; SOME];
            for (k, &weight) in weights.iter().enumerate() {
                for (sum, &x) in sums.iter_mut().zip(&values.row(k)[from..from + SOME]) {
                    *sum += weight * x;
                }
            }
            part.copy_from_slice(&sums);
            from += SOME;
        }
        let rest = parts.into_remainder();
        rest.fill(0.0);
        for (k, &weight) in weights.iter().enumerate() {
            for (sum, &x) in rest.iter_mut().zip(&values.row(k)[from..]) {
                *sum += weight * x;
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reference's formulas in f64.
    fn judge(activation: Activation, x: f32) -> f64 {
        crate::reference::activate(activation, f64::from(x))
    }

    proptest! {
        #[test]
        fn exp_is_within_a_few_units(x in -90f32..88.5) {
            let (ours, theirs) = (f64::from(exp(x)), f64::from(x).exp());
            if x < -87.0 {
                prop_assert_eq!(ours, 0.0);
            } else {
                prop_assert!((ours - theirs).abs() <= 4.0 * f64::from(f32::EPSILON) * theirs, "{x}: {ours} {theirs}");
            }
        }

        #[test]
        fn activations_keep_what_is_not_a_number(place in 0usize..40) {
            let mut x = [0.5f32; 40];
            x[place] = f32::NAN;
            for activation in Activation::ALL {
                let mut out = [0.0; 40];
                activate(Arch::new(), activation, &x, &mut out);
                prop_assert!(out[place].is_nan(), "{activation:?}");
                prop_assert!(judge(activation, f32::NAN).is_nan());
            }
        }

        #[test]
        fn activations_agree(x in prop::collection::vec(-30f32..30.0, 0..70)) {
            for activation in Activation::ALL {
                let mut out = vec![0.0; x.len()];
                activate(Arch::new(), activation, &x, &mut out);
                for (&x, &o) in x.iter().zip(&out) {
                    let theirs = judge(activation, x);
                    prop_assert!((f64::from(o) - theirs).abs() <= 1e-6 * f64::from(x.abs()).max(1.0), "{activation:?} {x}");
                }
            }
        }

        #[test]
        fn softmax_rows_sum_to_one(mut x in prop::collection::vec(-50f32..50.0, 1..70), hidden in 0usize..70) {
            for x in x.iter_mut().skip(1).take(hidden) {
                *x = f32::NEG_INFINITY;
            }
            let before: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            prop_assert!(softmax(Arch::new(), &mut x));
            let most = before.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = before.iter().map(|b| (b - most).exp()).sum();
            for (&x, b) in x.iter().zip(&before) {
                prop_assert!((f64::from(x) - (b - most).exp() / total).abs() <= 1e-6);
            }
        }

        #[test]
        fn log_sums_agree(x in prop::collection::vec(-50f32..50.0, 1..300)) {
            let (sums, mean) = log_sum_exps(Arch::new(), &x);
            for (beta, ours) in BETAS.into_iter().zip(sums) {
                let total: f64 = x.iter().map(|&x| (beta * f64::from(x)).exp()).sum();
                prop_assert!((ours - total.ln()).abs() <= 5e-6 * total.ln().abs().max(1.0), "{beta}: {ours} {}", total.ln());
            }
            let total: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
            let expected: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x).exp() / total).sum();
            prop_assert!((mean - expected).abs() <= 5e-6 * 50.0, "{mean} {expected}");
        }

        #[test]
        fn blends_are_sums(keys in 0usize..9, size in 1usize..140, gap in 0usize..3) {
            let data: Vec<f32> = (0..keys * (size + gap)).map(|i| (i % 23) as f32 / 5.0 - 2.0).collect();
            let weights: Vec<f32> = (0..keys).map(|k| 0.5 - k as f32 / 4.0).collect();
            let values = Rows::new(&data, keys, size, size + gap);
            for arch in [Arch::new(), Arch::Scalar] {
                let mut out = vec![f32::NAN; size];
                blend(arch, &weights, values, &mut out);
                for (i, &o) in out.iter().enumerate() {
                    let sum: f64 = (0..keys).map(|k| f64::from(weights[k]) * f64::from(values.row(k)[i])).sum();
                    prop_assert!((f64::from(o) - sum).abs() <= 1e-5, "{i}: {o} {sum}");
                }
            }
        }

        #[test]
        fn norms_agree(x in prop::collection::vec(-5f32..5.0, 1..70)) {
            let (gain, bias) = (vec![1.5; x.len()], vec![0.25; x.len()]);
            for kind in [NormKind::Layer, NormKind::Rms] {
                let mut out = vec![0.0; x.len()];
                norm(Arch::new(), kind, 1e-5, &x, &gain, &bias, &mut out);
                let n = x.len() as f64;
                let mean = if kind == NormKind::Layer { x.iter().map(|&x| f64::from(x)).sum::<f64>() / n } else { 0.0 };
                let spread = (x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
                for (&x, &o) in x.iter().zip(&out) {
                    let theirs = (f64::from(x) - mean) / spread * 1.5 + 0.25;
                    prop_assert!((f64::from(o) - theirs).abs() <= 2e-4, "{kind:?}: {o} {theirs}");
                }
            }
        }
    }

    #[test]
    fn exp_is_finite_up_to_its_end() {
        for x in [88.376_27, 88.417_09, 88.5] {
            let (ours, theirs) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours - theirs).abs() <= 4.0 * f64::from(f32::EPSILON) * theirs, "{x}: {ours} {theirs}");
        }
    }

    #[test]
    fn a_row_with_nothing_to_see_is_zero_and_says_so() {
        let mut row = [f32::NEG_INFINITY; 5];
        assert!(!softmax(Arch::new(), &mut row));
        assert_eq!(row, [0.0; 5]);
        let mut empty = [0f32; 0];
        assert!(!softmax(Arch::new(), &mut empty));
    }
}
