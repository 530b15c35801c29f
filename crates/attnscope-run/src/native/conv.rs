//! A convolution along time. Frames lie side by side, [frame, channel], while it is computed: then a window is one stretch of
//! memory, neighbours overlap where they lie, and every product reads them in place.

use attnscope_graph::Node;

use super::ops::transpose;
use super::pass::Pass;
use super::product::Machine;
use super::tile::{Rows, panel_width};
use crate::panels::{Elements, Panels};

/// The sizes of a convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) channels: usize,
    pub(super) frames: usize,
    pub(super) taps: usize,
    pub(super) stride: usize,
    /// Frames of zeros at each end.
    pub(super) padding: usize,
    /// How many windows there are.
    pub(super) steps: usize,
}

impl Windows {
    /// Of the shape of what it reads, [row, channel, frame], and of how many steps it makes.
    pub(super) fn new([taps, stride, padding]: [usize; 3], input: &[usize], steps: usize) -> Self {
        Self { channels: input[1], frames: input[2], taps, stride, padding, steps }
    }

    /// Elements of a window, [tap, channel].
    pub(super) fn depth(&self) -> usize {
        self.taps * self.channels
    }

    /// Elements from one window to the next.
    pub(super) fn step(&self) -> usize {
        self.stride * self.channels
    }

    /// Elements of a row's frames, with the padding at both ends.
    pub(super) fn laid_len(&self) -> usize {
        (self.frames + 2 * self.padding) * self.channels
    }

    /// The frames themselves among them.
    pub(super) fn inner(&self) -> std::ops::Range<usize> {
        self.padding * self.channels..(self.padding + self.frames) * self.channels
    }

    /// x of one row, [channel, frame], as [frame, channel] with its padding.
    pub(super) fn lay(&self, machine: Machine<'_>, x: &[f32], laid: &mut [f32]) {
        let inner = self.inner();
        laid[..inner.start].fill(0.0);
        laid[inner.end..].fill(0.0);
        transpose(machine, x, &[1, self.frames, self.channels], &mut laid[inner]);
    }

    /// The windows of what was laid out.
    pub(super) fn of<'a>(&self, laid: &'a [f32]) -> Rows<'a> {
        Rows::new(laid, self.steps, self.depth(), self.step())
    }

    /// The index in a weight, [output, channel, tap], of an output's element of a window, [tap, channel].
    pub(super) fn weight_at(&self, output: usize, k: usize) -> usize {
        (output * self.channels + k % self.channels) * self.taps + k / self.channels
    }

    /// A weight with rows as windows lie, [output, tap, channel].
    pub(super) fn weight_by_tap(&self, w: &[f32]) -> Vec<f32> {
        let mut by_tap = Vec::with_capacity(w.len());
        for w in w.chunks_exact(self.depth().max(1)) {
            for tap in 0..self.taps {
                by_tap.extend(w.iter().skip(tap).step_by(self.taps));
            }
        }
        by_tap
    }
}

impl Pass<'_> {
    /// y[b, o, t] = bias[o] + Σₖ w[o, k] · window[t, k]. The frames are left in `kept`, unless that is empty.
    pub(super) fn conv(
        &self,
        node: &Node,
        windows: Windows,
        outputs: usize,
        kept: &mut [f32],
        out: &mut [f32],
    ) {
        let (x, w, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
        let (machine, steps) = (self.machine, windows.steps);
        let by_tap = Elements::F32(windows.weight_by_tap(w));
        let w = Panels::pack(&by_tap, 0, w.len(), windows.depth(), panel_width(machine.arch));
        // [step, output]
        let mut by_step = machine.pool.take(steps * outputs);
        let mut passing = machine.pool.take(if kept.is_empty() { windows.laid_len() } else { 0 });
        let mut kept = kept.chunks_mut(windows.laid_len().max(1));
        let row = (windows.channels * windows.frames).max(1);
        for (x, out) in x.chunks(row).zip(out.chunks_mut((outputs * steps).max(1))) {
            let laid = kept.next().unwrap_or(&mut passing);
            windows.lay(machine, x, laid);
            machine.linear(windows.of(laid), w.right_side(), 1.0, bias, &mut by_step);
            transpose(machine, &by_step, &[1, outputs, steps], out);
        }
    }
}
