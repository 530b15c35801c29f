//! The gradient of a convolution along time, row by row of the batch, with frames side by side as in the forward pass.
#![allow(unsafe_code)] // `Packed::fill` asks that each chunk writes cells of its own.

use attnscope_graph::Node;

use super::super::conv::Windows;
use super::super::kernels;
use super::super::ops::{transpose, transpose_one};
use super::super::product::{Packed, packed_len};
use super::super::tile::{OutputMatrix, Rows, panel_width};
use super::Backward;
use crate::error::RunError;

impl Backward<'_> {
    /// y[b, o, t] = bias[o] + Σₖ w[o, k] · window[t, k]: the gradient of the weight is dyᵀ · windows, that of a window dy · w, and
    /// a frame's is the sum over the windows that it is in.
    /// `frames` is what the forward pass kept.
    pub(super) fn conv(
        &mut self,
        node: &Node,
        sizes: [usize; 3],
        shape: &[usize],
        frames: &[f32],
        dy: &[f32],
    ) -> Result<(), RunError> {
        let (Some(&input), outputs, steps) = (node.inputs.first(), shape[1], shape[2]) else { return Ok(()) };
        let windows = Windows::new(sizes, &self.shape(input)?, steps);
        let mut by_step = self.machine.pool.take(dy.len());
        transpose(self.machine, dy, &[shape[0], steps, outputs], &mut by_step);
        self.conv_weight(node, windows, outputs, frames, &by_step);
        self.conv_input(node, windows, outputs, &by_step);
        Ok(())
    }

    /// dy lies as [row, step, output].
    fn conv_weight(&mut self, node: &Node, windows: Windows, outputs: usize, frames: &[f32], dy: &[f32]) {
        let Some((at, mut gradient)) = self.take_parameter(node, 0) else { return };
        let mut bias = self.take_parameter(node, 1);
        let (machine, depth, steps) = (self.machine, windows.depth(), windows.steps);
        // In panels, as a linear map's weight: [panel, k, output].
        let mut panels = machine.pool.take_zeroed(packed_len(machine.arch, depth, outputs));
        let rows = frames.chunks(windows.laid_len().max(1)).zip(dy.chunks((steps * outputs).max(1)));
        for (frames, dy) in rows {
            let bias = bias.as_mut().map_or(&mut [][..], |(_, bias)| bias);
            let dy = Rows::dense(dy, steps, outputs);
            machine.weight_gradient(windows.of(frames), dy, 1.0, &mut panels, bias);
        }
        let width = panel_width(machine.arch);
        for (panel, values) in panels.chunks((depth * width).max(1)).enumerate() {
            for (k, values) in values.chunks(width).enumerate() {
                let outputs = panel * width..outputs.min((panel + 1) * width);
                outputs.zip(values).for_each(|(o, d)| gradient[windows.weight_at(o, k)] += d);
            }
        }
        self.parameters[at] = gradient;
        if let Some((at, bias)) = bias {
            self.parameters[at] = bias;
        }
    }

    /// dy lies as [row, step, output].
    fn conv_input(&mut self, node: &Node, windows: Windows, outputs: usize, dy: &[f32]) {
        let Windows { channels, frames, taps, steps, .. } = windows;
        let weights = self.weights;
        let w = node.weights.first().and_then(|&id| weights.plain(id)).unwrap_or_default();
        let len = dy.len() / (steps * outputs).max(1) * channels * frames;
        self.give_computed(node, 0, len, |this, dx, add| {
            let (arch, pool) = (this.machine.arch, this.machine.pool);
            // Of each tap, [output, channel] as the right side of a product.
            let by_tap = windows.weight_by_tap(w);
            let size = packed_len(arch, outputs, channels);
            let mut panels = pool.take(taps * size);
            for (tap, panels) in panels.chunks_mut(size.max(1)).enumerate() {
                let from = by_tap.get(tap * channels..).unwrap_or_default();
                Packed::straight(arch, Rows::new(from, outputs, channels, windows.depth()), panels);
            }
            let mut rows: Vec<_> = dx.chunks_mut((channels * frames).max(1)).collect();
            this.machine.team.each_of(&mut rows, |b, dx| {
                let dy = Rows::dense(&dy[b * steps * outputs..], steps, outputs);
                let mut laid = pool.take_zeroed(windows.laid_len());
                for (tap, panels) in panels.chunks(size.max(1)).enumerate() {
                    let output =
                        OutputMatrix::within(&mut laid[tap * channels..], steps, channels, windows.step());
                    // SAFETY: the buffer is this thread's.
                    unsafe { Packed::again(panels, outputs).fill(arch, dy.into(), &output, 1.0, true) };
                }
                let laid = &laid[windows.inner()];
                if add {
                    let mut own = pool.take(laid.len());
                    transpose_one(laid, channels, &mut own);
                    kernels::add(arch, dx, &own);
                } else {
                    transpose_one(laid, channels, dx);
                }
            });
        });
    }
}
