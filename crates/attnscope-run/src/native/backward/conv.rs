//! The gradient of a convolution along time, row by row of the batch, as products with the windows that it read.

use attnscope_graph::Node;

use super::super::kernels;
use super::super::tile::{Epilogue, Left, OutputMatrix, Rows, pack_columns};
use super::Backward;

/// The sizes of a convolution.
#[derive(Clone, Copy)]
struct Windows {
    channels: usize,
    frames: usize,
    taps: usize,
    stride: usize,
    /// Frames of zeros at each end.
    padding: usize,
}

impl Windows {
    /// Elements of a window, [channel, tap].
    fn depth(&self) -> usize {
        self.channels * self.taps
    }

    /// The frame that a tap of a step reads; none in the padding.
    fn frame(&self, step: usize, tap: usize) -> Option<usize> {
        (step * self.stride + tap).checked_sub(self.padding).filter(|&frame| frame < self.frames)
    }

    /// What one step reads of x, [channel, frame].
    fn read(&self, x: &[f32], step: usize, window: &mut [f32]) {
        for (k, cell) in window.iter_mut().enumerate() {
            let frame = self.frame(step, k % self.taps);
            *cell = frame.map_or(0.0, |frame| x[k / self.taps * self.frames + frame]);
        }
    }

    /// Adds the gradients of windows, [step, channel, tap], to that of one channel, [frame].
    fn add_back(&self, windows: &[f32], channel: usize, dx: &mut [f32]) {
        for (step, window) in windows.chunks(self.depth().max(1)).enumerate() {
            for (tap, d) in window[channel * self.taps..][..self.taps].iter().enumerate() {
                if let Some(frame) = self.frame(step, tap) {
                    dx[frame] += d;
                }
            }
        }
    }
}

impl Backward<'_> {
    /// y[b, o, t] = bias[o] + Σ over windows of w[o, k] · x's window at t.
    pub(super) fn conv(
        &mut self,
        node: &Node,
        [taps, stride, padding]: [usize; 3],
        shape: &[usize],
        dy: &[f32],
    ) {
        let weights = self.weights;
        let w = node.weights.first().and_then(|&id| weights.plain(id)).unwrap_or_default();
        let (x, machine) = (self.input(node, 0), self.machine);
        let (batch, outputs, steps) = (shape[0], shape[1], shape[2]);
        let channels = w.len() / (outputs * taps).max(1);
        let frames = x.len() / (batch * channels).max(1);
        let windows = Windows { channels, frames, taps, stride, padding };
        let depth = windows.depth();
        if let Some((at, mut bias)) = self.take_parameter(node, 1) {
            for dy in dy.chunks((outputs * steps).max(1)) {
                bias.iter_mut().zip(dy.chunks(steps)).for_each(|(to, dy)| *to += kernels::sum(dy, |d| d));
            }
            self.parameters[at] = bias;
        }
        let rows = || x.chunks((channels * frames).max(1)).zip(dy.chunks((outputs * steps).max(1)));
        if let Some((at, mut gradient)) = self.take_parameter(node, 0) {
            let mut read = machine.pool.take(steps * depth);
            for (x, dy) in rows() {
                machine.share(&mut read, depth, |from, read| {
                    let reads = read.chunks_mut(depth).enumerate();
                    reads.for_each(|(i, window)| windows.read(x, from / depth + i, window));
                });
                let (dy, read) = (Rows::dense(dy, outputs, steps), Rows::dense(&read, steps, depth));
                let output = OutputMatrix::new(&mut gradient, outputs, depth);
                let epilogue = Epilogue { add: true, ..Epilogue::PLAIN };
                machine.multiply(dy.into(), steps, output, epilogue, |column, width, panel| {
                    pack_columns(read, column, panel, width);
                });
            }
            self.parameters[at] = gradient;
        }
        let w = Rows::dense(w, outputs, depth);
        self.give_computed(node, 0, x.len(), |_, dx, add| {
            if !add {
                dx.fill(0.0);
            }
            let mut d_windows = machine.pool.take(steps * depth);
            for (dx, (_, dy)) in dx.chunks_mut((channels * frames).max(1)).zip(rows()) {
                let left = Left::transposed(Rows::dense(dy, outputs, steps));
                let output = OutputMatrix::new(&mut d_windows, steps, depth);
                machine.multiply(left, outputs, output, Epilogue::PLAIN, |column, width, panel| {
                    pack_columns(w, column, panel, width);
                });
                let mut channels: Vec<_> = dx.chunks_mut(frames.max(1)).collect();
                machine.team.each_of(&mut channels, |channel, dx| windows.add_back(&d_windows, channel, dx));
            }
        });
    }
}
