//! The errors of library functions, in units of rounding. Each is twice the largest error that `bench/diff/functions.py` found
//! in torch, numpy, onnxruntime and ggml, rounded up, for machines and versions that were not measured; the table is in
//! `docs/diff.md`.

use attnscope_graph::Activation;

/// Of e^x, relative to the result, in addition to the error of x.
pub(super) const EXP: f64 = 8.0;
/// Of a sine or cosine, absolute, in addition to the error of the angle.
pub(super) const SINE: f64 = 4.0;
/// Of a reciprocal root, or a root and a quotient, relative to the result.
pub(super) const RSQRT: f64 = 4.0;

/// Of a rotary frequency that is scaled for longer texts, relative to it: a blend of two frequencies by a share that is a
/// difference, each rounded, and divided by factors up to 32. Not measured, but an upper limit of those roundings.
pub(super) const SCALED_FREQUENCY: f64 = 64.0;

/// The error of an activation in terms of its input: near 0 and for negative numbers `1 + erf` and the like cancel, and the
/// rest has the error of the input.
pub(super) fn of_input(activation: Activation) -> f64 {
    match activation {
        Activation::Relu => 0.0,
        Activation::Gelu => 12.0,
        Activation::Tanh => 10.0,
        Activation::GeluTanh | Activation::Swish | Activation::QuickGelu => 8.0,
    }
}

/// The steepest slope of an activation, rounded up.
pub(super) fn slope(activation: Activation) -> f64 {
    match activation {
        Activation::Relu | Activation::Tanh => 1.0,
        Activation::Gelu | Activation::GeluTanh => 1.13,
        Activation::Swish | Activation::QuickGelu => 1.1,
    }
}
