//! Whether other features explain a convolution that reads them, where a side did not dump them. A convolution has more outputs
//! than features, so only some outputs can come from any features at all: other features give such outputs, a mistake in the
//! convolution does not.

use attnscope_graph::{Node, Op};

use super::judge::Local;

/// Neighbouring frames that are explained together, because they share features.
const WINDOW: usize = 16;
/// Windows that are checked in addition to the one that differs most.
const WINDOWS: usize = 6;
/// Steps of the conjugate gradient method. A few are enough where other features explain the difference.
const STEPS: usize = 60;
/// The part of a window's largest difference that may remain, in addition to rounding.
const LEFT: f64 = 0.02;

/// A convolution over frames, as a map from a change of its features to one of its outputs.
pub(super) struct Conv {
    /// For each output, what it multiplies the features with: those of the first frame that it reads, of the second, …
    rows: Vec<Vec<f64>>,
    mels: usize,
    kernel: usize,
    stride: usize,
    /// Frames that it reads and gives.
    frames: [usize; 2],
    batch: usize,
}

impl Conv {
    /// A node's convolution; `None` where the node is none, or shapes do not fit.
    pub(super) fn new(node: &Node, weight: &[f32], local: &Local, reads: &[usize]) -> Option<Self> {
        let Op::Conv1d { stride, .. } = node.op else { return None };
        let (&[batch, mels, read], &[_, outputs, given]) = (reads, local.expected.shape.as_slice()) else {
            return None;
        };
        let kernel = weight.len().checked_div(outputs.checked_mul(mels)?)?;
        if outputs <= mels || weight.len() != outputs * mels * kernel {
            return None;
        }
        let cell = |o: usize, i: usize| f64::from(weight[(o * mels + i % mels) * kernel + i / mels]);
        let rows = (0..outputs).map(|o| (0..kernel * mels).map(|i| cell(o, i)).collect()).collect();
        Some(Self { rows, mels, kernel, stride, frames: [read, given], batch })
    }

    /// Whether some other features would give this node's values, up to rounding.
    pub(super) fn explains(&self, local: &Local) -> bool {
        let difference: Vec<f64> =
            local.found.values.iter().zip(&local.expected.values).map(|(f, e)| f - e).collect();
        let given = self.frames[1];
        let all = self.batch * given;
        if difference.len() != all * self.rows.len() || difference.iter().any(|d| !d.is_finite()) {
            return false;
        }
        let at = |frame: usize, o: usize| (frame / given * self.rows.len() + o) * given + frame % given;
        let size =
            |&frame: &usize| (0..self.rows.len()).map(|o| difference[at(frame, o)].abs()).fold(0.0, f64::max);
        let Some(most) = (0..all).max_by(|a, b| size(a).total_cmp(&size(b))) else { return false };
        let spread = (0..all).step_by(all.div_ceil(WINDOWS).max(1));
        std::iter::once(most).chain(spread).all(|frame| {
            let from = (frame % given).saturating_sub(WINDOW / 2).min(given.saturating_sub(WINDOW));
            let first = frame - frame % given + from;
            let frames = first..(first + WINDOW).min(first - from + given);
            let cells: Vec<usize> =
                frames.flat_map(|frame| (0..self.rows.len()).map(move |o| at(frame, o))).collect();
            let pick = |values: &[f64]| cells.iter().map(|&i| values[i]).collect::<Vec<f64>>();
            self.gives(from, pick(&difference), &pick(&local.allowed))
        })
    }

    /// Whether some change of features gives these differences of neighbouring frames, up to rounding: least squares by
    /// conjugate gradients.
    fn gives(&self, from: usize, mut left: Vec<f64>, allowed: &[f64]) -> bool {
        let largest = left.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let is_left = |left: &[f64]| left.iter().zip(allowed).any(|(x, a)| x.abs() > a + LEFT * largest);
        let mut towards = self.back(from, &left);
        let mut slope = towards.clone();
        for _ in 0..STEPS {
            let steep = square(&slope);
            if !is_left(&left) || steep == 0.0 {
                break;
            }
            let moved = self.forth(&towards, left.len());
            let share = steep / square(&moved).max(f64::MIN_POSITIVE);
            left.iter_mut().zip(&moved).for_each(|(left, moved)| *left -= share * moved);
            slope = self.back(from, &left);
            let turn = square(&slope) / steep;
            towards.iter_mut().zip(&slope).for_each(|(towards, slope)| *towards = slope + turn * *towards);
        }
        !is_left(&left)
    }

    /// The change of the outputs for a change of the features.
    fn forth(&self, features: &[f64], cells: usize) -> Vec<f64> {
        let outputs = self.rows.len();
        let cell = |i: usize| {
            let read = &features[i / outputs * self.stride * self.mels..];
            self.rows[i % outputs].iter().zip(read).map(|(w, x)| w * x).sum()
        };
        (0..cells).map(cell).collect()
    }

    /// The transpose of that. Features before the first frame and after the last are padding, and do not change.
    fn back(&self, from: usize, cells: &[f64]) -> Vec<f64> {
        let outputs = self.rows.len();
        let frames = cells.len() / outputs;
        let columns = frames.saturating_sub(1) * self.stride + self.kernel;
        let mut features = vec![0.0; columns * self.mels];
        for (i, x) in cells.iter().enumerate() {
            let read = features[i / outputs * self.stride * self.mels..].iter_mut();
            self.rows[i % outputs].iter().zip(read).for_each(|(w, feature)| *feature += w * x);
        }
        for (column, features) in features.chunks_exact_mut(self.mels).enumerate() {
            let frame = (from * self.stride + column).checked_sub(self.kernel / 2);
            if frame.is_none_or(|frame| frame >= self.frames[0]) {
                features.fill(0.0);
            }
        }
        features
    }
}

fn square(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}
