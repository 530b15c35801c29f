//! The bounds against sums and functions in f32, in orders and blocks of any kind.

use std::sync::Arc;

use attnscope_graph::{Activation, Architecture, Dim, Sizes, Stack, Wiring, build};
use attnscope_run::{Formula, Input, Kept, Rows, Sequence, SplitMix};

use super::{BoundedInput, Computed, Errors, Precision, Rounding};

const U: f64 = f32::EPSILON as f64 / 2.0;

/// Numbers of both signs, or of one, over some orders of magnitude.
fn numbers(random: &mut SplitMix, n: usize, positive: bool) -> Vec<f32> {
    let one = |_| {
        let x = random.unit() * (4.0 * random.unit()).exp();
        if positive { x.abs() } else { x }
    };
    (0..n).map(one).collect()
}

/// The sum of products in f32: blocks of some size, each in order, with fused multiply-add or without, the blocks' sums
/// added in turn or in pairs.
fn summed(a: &[f32], b: &[f32], block: usize, fused: bool, pairs: bool) -> f32 {
    let add = |sum: f32, (x, y): (&f32, &f32)| if fused { x.mul_add(*y, sum) } else { sum + x * y };
    let mut parts: Vec<f32> =
        a.chunks(block).zip(b.chunks(block)).map(|(a, b)| a.iter().zip(b).fold(0.0, add)).collect();
    while pairs && parts.len() > 1 {
        parts = parts.chunks(2).map(|pair| pair.iter().sum()).collect();
    }
    parts.iter().sum()
}

/// The bound of a bare sum of products.
fn bound(rounding: &Rounding, a: &[f32], b: &[f32]) -> (f64, f64) {
    let terms = || a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y));
    let (sum, magnitudes) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
    (sum, rounding.precision.sum * (rounding.sum(a.len(), magnitudes, sum) + magnitudes))
}

#[test]
fn sums_in_any_order_lie_inside_the_bound() {
    let mut random = SplitMix::new(7);
    let (mut worst, mut cells) = (0.0f64, 0);
    for n in [1, 2, 3, 16, 64, 257, 1536, 4096] {
        for round in 0..60 {
            let (a, b) = (numbers(&mut random, n, round % 3 == 0), numbers(&mut random, n, round % 3 == 0));
            let rounding = Rounding::new(Precision::F32, 1_000_000);
            let (exact, bound) = bound(&rounding, &a, &b);
            for (block, fused, pairs) in
                [(n, false, false), (n, true, false), (1, false, true), (8, true, true), (32, false, false)]
            {
                let share = (f64::from(summed(&a, &b, block, fused, pairs)) - exact).abs() / bound;
                assert!(share <= 1.0, "{n} in blocks of {block}: {share}");
                worst = worst.max(share);
                cells += 1;
            }
        }
    }
    // A bound far above all errors would hide bugs.
    assert!(worst > 1.0 / 50.0, "{worst} of {cells}");
}

/// Adding the same small number to a growing sum many times: errors of one sign, which do not cancel.
#[test]
fn terms_of_one_sign_may_err_to_one_side() {
    for (n, x) in [(1500, 0.1f32), (1536, 1.0 / 3.0), (65_536, 0.1), (1 << 20, 0.1)] {
        let (a, b) = (vec![x; n], vec![1.0; n]);
        let rounding = Rounding::new(Precision::F32, 1);
        let (exact, bound) = bound(&rounding, &a, &b);
        let error = (f64::from(summed(&a, &b, n, false, false)) - exact).abs();
        assert!(error <= bound, "{n}: {error} and {bound}");
        let by_chance = U * 8.0 * (n as f64).sqrt() * exact;
        assert!(n < 1 << 20 || error > by_chance, "{error} is what chance explains: {by_chance}");
    }
}

#[test]
fn the_bound_is_never_above_the_worst_case() {
    let rounding = Rounding::new(Precision::F32, usize::MAX);
    for n in [1, 10, 1000, 100_000] {
        for share in [0.0, 0.5, 1.0] {
            let units = rounding.sum(n, 1.0, share);
            assert!(units <= n as f64 * (1.0 + 1e-12) && units >= (n as f64 * share) * (1.0 - 1e-12), "{n}");
        }
    }
}

#[test]
fn more_cells_need_more_confidence() {
    let of = |cells| Rounding::new(Precision::F32, cells).confidence;
    assert!(of(1) > 5.0 && of(1) < of(1_000_000) && of(1_000_000_000) < 9.0);
}

/// A node of a small model, with random inputs and weights, and how it was computed in f32: each cell's share of its bound.
fn shares(
    path: &str,
    inputs: &[(&[f64], &Errors)],
    weights: &[&[f32]],
    short: impl Fn(&[Vec<f32>]) -> Vec<f32>,
) -> Vec<f64> {
    let wiring = Wiring { activation: Activation::Gelu, ..Wiring::VASWANI };
    let graph = build(&Architecture::encoder_decoder(1, 1), &wiring);
    let mut sizes = Sizes::default();
    let stack = Stack::Encoder;
    for (dim, n) in [
        (Dim::Batch, 1),
        (Dim::Source, LENGTH),
        (Dim::Target, 2),
        (Dim::Model, WIDTH),
        (Dim::Heads(stack), 1),
        (Dim::Head(stack), WIDTH),
        (Dim::Inner(stack), WIDTH),
        (Dim::FeedForward(stack), WIDTH),
    ] {
        sizes.set(dim, n);
    }
    let rows = |n: usize| Rows::new(&[vec![1; n]], 0);
    let input = Input::pair(Sequence::Tokens(rows(LENGTH)), rows(2));
    let formula = Formula::new(&graph, sizes.clone(), &input).unwrap();
    let node = graph.node(graph.find(path).unwrap());
    let kept = |(i, (values, _)): (usize, &(&[f64], &Errors))| {
        let shape = sizes.shape(&graph.node(node.inputs[i]).dims).unwrap();
        Arc::new(Kept { shape, values: values.to_vec() })
    };
    let kepts: Vec<Arc<Kept>> = inputs.iter().enumerate().map(kept).collect();
    let output = formula.compute(node, &kepts, weights).unwrap();
    let readings: Vec<BoundedInput<'_>> = kepts
        .iter()
        .zip(inputs)
        .map(|(kept, (_, error))| BoundedInput { kept: kept.as_ref(), error })
        .collect();
    let rounding = Rounding::new(Precision::F32, 1_000_000);
    let computed = || Computed { formula: &formula, node, inputs: &readings, weights, output: &output };
    let bounds = rounding.bounds(computed());
    let all = rounding.bounds(computed()).all();
    let found = short(&inputs.iter().map(|(x, _)| x.iter().map(|&x| x as f32).collect()).collect::<Vec<_>>());
    let share = |(i, (exact, found)): (usize, (&f64, &f32))| {
        let bound = bounds.at(i);
        assert!(bounds.floor(i) <= bound * (1.0 + 1e-9), "{path}: a floor above the bound");
        assert!(
            bound <= all[i] * (1.0 + 1e-9),
            "{path}: {bound} is wider than that of all cells, {}",
            all[i]
        );
        (exact - f64::from(*found)).abs() / bound
    };
    output.values.iter().zip(&found).enumerate().map(share).collect()
}

const LENGTH: usize = 24;
const WIDTH: usize = 96;

fn random_values(seed: u64, n: usize, size: f32, shift: f32) -> Vec<f64> {
    let mut random = SplitMix::new(seed);
    (0..n).map(|_| f64::from(random.unit() * size + shift)).collect()
}

/// Inside the bound, and not far below it.
fn are_rounding(shares: &[f64], least: f64) {
    let worst = shares.iter().copied().fold(0.0, f64::max);
    assert!(worst <= 1.0, "{worst} of the bound");
    assert!(worst >= least, "{worst} of the bound: it hides too much");
}

#[test]
fn a_norm_in_one_pass_lies_inside_its_bound() {
    for shift in [0.0, 3.0] {
        let x = random_values(1, LENGTH * WIDTH, 2.0, shift);
        let (gain, bias) = (vec![1.5f32; WIDTH], vec![-0.25f32; WIDTH]);
        let one_pass = |inputs: &[Vec<f32>]| -> Vec<f32> {
            let row = |x: &[f32]| {
                let n = x.len() as f32;
                let (sum, squares) = x.iter().fold((0.0f32, 0.0f32), |(s, q), v| (s + v, q + v * v));
                let mean = sum / n;
                let root = 1.0 / (squares / n - mean * mean + 1e-5).sqrt();
                x.iter().map(|v| (v - mean) * root * 1.5 - 0.25).collect::<Vec<f32>>()
            };
            inputs[0].chunks(WIDTH).flat_map(row).collect()
        };
        let found = shares("encoder.0.ffn.norm", &[(&x, &Errors::None)], &[&gain, &bias], one_pass);
        are_rounding(&found, 1e-3);
    }
}

#[test]
fn a_softmax_of_large_scores_lies_inside_its_bound() {
    let scores = random_values(2, LENGTH * LENGTH, 40.0, 10.0);
    let softmax = |inputs: &[Vec<f32>]| -> Vec<f32> {
        let row = |x: &[f32]| {
            // By powers of two, with the factor in the exponent.
            let log2 = std::f32::consts::LOG2_E;
            let most = x.iter().copied().fold(f32::MIN, f32::max) * log2;
            let e: Vec<f32> = x.iter().map(|v| (v * log2 - most).exp2()).collect();
            let sum: f32 = e.iter().sum();
            e.iter().map(|v| v / sum).collect::<Vec<f32>>()
        };
        inputs[0].chunks(LENGTH).flat_map(row).collect()
    };
    are_rounding(&shares("encoder.0.self_attn.weights", &[(&scores, &Errors::None)], &[], softmax), 0.05);
}

#[test]
fn projections_and_activations_lie_inside_their_bounds() {
    let x = random_values(3, LENGTH * WIDTH, 3.0, 0.0);
    let w: Vec<f32> = random_values(4, WIDTH * WIDTH, 0.2, 0.0).iter().map(|&w| w as f32).collect();
    let bias = vec![0.125f32; WIDTH];
    let product = |inputs: &[Vec<f32>]| -> Vec<f32> {
        let row = |x: &[f32]| {
            let one = |w: &[f32]| summed(x, w, WIDTH, false, false) + 0.125;
            w.chunks(WIDTH).map(one).collect::<Vec<f32>>()
        };
        inputs[0].chunks(WIDTH).flat_map(row).collect()
    };
    are_rounding(&shares("encoder.0.ffn.hidden", &[(&x, &Errors::None)], &[&w, &bias], product), 0.005);
    let gelu = |inputs: &[Vec<f32>]| -> Vec<f32> {
        let one = |&x: &f32| {
            let erf = libm::erff(x * std::f32::consts::FRAC_1_SQRT_2);
            0.5 * x * (1.0 + erf)
        };
        inputs[0].iter().map(one).collect()
    };
    are_rounding(&shares("encoder.0.ffn.act", &[(&x, &Errors::None)], &[], gelu), 0.02);
}

/// Errors of inputs, as large as they may be and of any sign, stay inside what the bounds make of them.
#[test]
fn errors_of_inputs_are_carried_on() {
    let n = LENGTH * WIDTH;
    let errors = &Errors::Each(vec![1e-3; n]);
    let moved = |x: &[f64]| -> Vec<f64> {
        let mut random = SplitMix::new(9);
        x.iter().map(|x| x + if random.unit() < 0.0 { -1e-3 } else { 1e-3 }).collect()
    };
    let x = random_values(5, n, 2.0, 0.5);
    let (gain, bias) = (vec![1.0f32; WIDTH], vec![0.0f32; WIDTH]);
    let norm = |x: &[f64]| -> Vec<f32> {
        let row = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / WIDTH as f64;
            let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / WIDTH as f64;
            x.iter().map(|v| ((v - mean) / (var + 1e-5).sqrt()) as f32).collect::<Vec<f32>>()
        };
        x.chunks(WIDTH).flat_map(row).collect()
    };
    are_rounding(&shares("encoder.0.ffn.norm", &[(&x, errors)], &[&gain, &bias], |_| norm(&moved(&x))), 0.2);
    let scores = random_values(6, LENGTH * LENGTH, 5.0, 0.0);
    let softmax = |x: &[f64]| -> Vec<f32> {
        let row = |x: &[f64]| {
            let sum: f64 = x.iter().map(|v| v.exp()).sum();
            x.iter().map(|v| (v.exp() / sum) as f32).collect::<Vec<f32>>()
        };
        x.chunks(LENGTH).flat_map(row).collect()
    };
    let found =
        shares("encoder.0.self_attn.weights", &[(&scores, errors)], &[], |_| softmax(&moved(&scores)));
    are_rounding(&found, 0.2);
}
