//! The operations that are one loop over their output, and the tables that layers share.

use attnscope_graph::{Factor, MaskKind, Node, NodeId, Op, Positions, Side, Stack};
use gemm::Parallelism;
use rayon::prelude::*;

use super::kernels;
use super::matmul::{Layout, View, multiply};
use super::pass::Pass;
use crate::input::Source;
use crate::position::{Place, bucket, sinusoid, table_row};

/// Elements that one task of an element-wise loop handles.
const CHUNK: usize = 1 << 14;

impl Pass<'_> {
    pub(super) fn factor(&self, factor: Factor) -> f32 {
        factor.value(self.window.sizes).unwrap_or(1.0) as f32
    }

    /// Everything that is one loop over its output.
    pub(super) fn compute(&self, node: &Node, shape: &[usize], out: &mut [f32]) {
        let width = shape.last().copied().unwrap_or(1).max(1);
        let arch = self.arch;
        match node.op {
            Op::Ids(side) => {
                let ids = match (side, self.window.source) {
                    (Side::Target, _) => self.window.target,
                    (Side::Source, Some(Source::Tokens(rows))) => rows.ids(),
                    (Side::Source, _) => &[],
                };
                out.iter_mut().zip(ids).for_each(|(o, &id)| *o = id as f32);
            }
            Op::Features => {
                if let Some(Source::Features(f)) = self.window.source {
                    out.copy_from_slice(&f.values);
                }
            }
            Op::Embed { scale } => self.embed(node, self.factor(scale), width, out),
            Op::Positions { kind, offset, count, side } => {
                let places = self.window.places(side, count, shape);
                self.positions(node, kind, offset, &places, out);
            }
            Op::AddPositions => {
                out.copy_from_slice(self.input(node, 0));
                let positions = self.input(node, 1);
                out.chunks_mut(positions.len().max(1)).for_each(|row| kernels::add(arch, row, positions));
            }
            Op::Conv1d { stride } => self.conv(node, stride, shape, out),
            Op::Transpose => transpose(self.input(node, 0), shape, out),
            Op::Norm { kind, eps } => {
                let (x, gain, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
                let rows = out.par_chunks_mut(width).zip(x.par_chunks(width)).with_min_len(16);
                rows.for_each(|(out, x)| kernels::norm(arch, kind, eps, x, gain, bias, out));
            }
            Op::Linear => self.linear(self.input(node, 0), node, 1.0, width, out),
            Op::Logits { scale } => self.linear(self.input(node, 0), node, self.factor(scale), width, out),
            Op::Residual { gain } => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                out.iter_mut().zip(x).zip(y).for_each(|((o, x), y)| *o = x + gain * y);
            }
            Op::Activate(activation) => {
                let x = self.input(node, 0);
                let parts = out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK));
                parts.for_each(|(out, x)| kernels::activate(arch, activation, x, out));
            }
            Op::Gate => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                out.iter_mut().zip(x).zip(y).for_each(|((o, x), y)| *o = x * y);
            }
            // Handled before: they make no tensor of their own, or one that is kept elsewhere.
            Op::Same
            | Op::SplitHeads(_)
            | Op::Scores { .. }
            | Op::RelativeBias { .. }
            | Op::Mask(_)
            | Op::AddMask { .. }
            | Op::Squash(_)
            | Op::Context
            | Op::MergeHeads(_) => {}
        }
    }

    fn embed(&self, node: &Node, scale: f32, width: usize, out: &mut [f32]) {
        let (ids, table) = (self.input(node, 0), self.weight(node, 0));
        for (out, &id) in out.chunks_mut(width).zip(ids) {
            let row = &table[id as usize * width..][..width];
            out.iter_mut().zip(row).for_each(|(o, x)| *o = x * scale);
        }
    }

    fn positions(&self, node: &Node, kind: Positions, offset: usize, places: &[Place], out: &mut [f32]) {
        let table = self.weight(node, 0);
        let width = out.len() / places.len().max(1);
        for (row, &place) in out.chunks_mut(width.max(1)).zip(places) {
            match (kind, place, table_row(place, offset)) {
                (Positions::Table, _, Some(at)) => row.copy_from_slice(&table[at * width..][..width]),
                (Positions::Table, _, None) | (_, None, _) => row.fill(0.0),
                (_, Some(place), _) => {
                    let cells = row.iter_mut().enumerate();
                    cells.for_each(|(i, o)| *o = sinusoid(kind, place + offset, i, width) as f32);
                }
            }
        }
    }

    /// x · scale · Wᵀ + b
    pub(super) fn linear(&self, x: &[f32], node: &Node, scale: f32, outputs: usize, out: &mut [f32]) {
        let (w, bias) = (self.weight(node, 0), self.weight(node, 1));
        let rows = out.len() / outputs;
        let inputs = w.len() / outputs;
        if !bias.is_empty() {
            out.chunks_mut(outputs).for_each(|row| row.copy_from_slice(bias));
        }
        let x = View::new(x, Layout::dense(rows, inputs));
        let w = View::new(w, Layout::dense(outputs, inputs).transposed());
        multiply(out, Layout::dense(rows, outputs), x, w, scale, !bias.is_empty(), Parallelism::Rayon(0));
    }

    /// The convolution as a product: every window of three frames is a row.
    fn conv(&self, node: &Node, stride: usize, shape: &[usize], out: &mut [f32]) {
        let (x, w, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
        let (outputs, steps) = (shape[1], shape[2]);
        let channels = w.len() / outputs / 3;
        let frames = x.len() / shape[0] / channels;
        let mut windows = vec![0.0; steps * channels * 3];
        for (x, out) in x.chunks(channels * frames).zip(out.chunks_mut(outputs * steps)) {
            windows.par_chunks_mut(channels * 3).enumerate().for_each(|(t, window)| {
                for (cell, at) in
                    window.iter_mut().enumerate().map(|(c, cell)| (cell, (c / 3, t * stride + c % 3)))
                {
                    let (channel, frame) = at;
                    // One frame of zeros at each end.
                    let inside = (1..=frames).contains(&frame);
                    *cell = if inside { x[channel * frames + frame - 1] } else { 0.0 };
                }
            });
            out.chunks_mut(steps).zip(bias).for_each(|(row, &b)| row.fill(b));
            let w = View::new(w, Layout::dense(outputs, channels * 3));
            let windows = View::new(&windows, Layout::dense(steps, channels * 3).transposed());
            multiply(out, Layout::dense(outputs, steps), w, windows, 1.0, true, Parallelism::Rayon(0));
        }
    }

    /// [b, l, h · k] → [b, h, l, k], for whoever wants to see it: attention reads the heads where they lie.
    pub(super) fn split(&mut self, id: NodeId, shape: &[usize]) -> Vec<f32> {
        let (heads, length, size) = (shape[1], shape[2], shape[3]);
        let mut out = self.pool.take(shape.iter().product());
        let x = &self.values[self.plan.root[id.index()]];
        for (n, row) in out.chunks_mut(size.max(1)).enumerate() {
            let (b, h, l) = (n / (heads * length), n / length % heads, n % length);
            row.copy_from_slice(&x[((b * length + l) * heads + h) * size..][..size]);
        }
        out
    }

    /// One mask a kind, shared by all layers.
    pub(super) fn mask(&mut self, kind: MaskKind, shape: &[usize]) {
        if self.masks.contains_key(&mask_key(kind)) {
            return;
        }
        let (queries, keys) = (shape[2], shape[3]);
        let mut mask = self.pool.take_zeroed(shape.iter().product());
        for (n, cell) in mask.iter_mut().enumerate() {
            if !self.window.is_open(kind, n / (queries * keys), n / keys % queries, n % keys) {
                *cell = f32::NEG_INFINITY;
            }
        }
        self.masks.insert(mask_key(kind), mask);
    }

    /// One bias a stack, shared by all layers.
    pub(super) fn relative_bias(&mut self, node: &Node, stack: Stack, max_distance: usize, shape: &[usize]) {
        if self.biases.contains_key(&stack) {
            return;
        }
        let (heads, queries, keys) = (shape[1], shape[2], shape[3]);
        let mut bias = self.pool.take(shape.iter().product());
        let table = self.weight(node, 0);
        let buckets = table.len() / heads.max(1);
        let first = self.window.first(stack.side());
        for (n, cell) in bias.iter_mut().enumerate() {
            let (h, t, s) = (n / (queries * keys), n / keys % queries, n % keys);
            *cell = table[bucket(stack, first + t, s, buckets, max_distance) * heads + h];
        }
        self.biases.insert(stack, bias);
    }
}

pub(super) fn mask_key(kind: MaskKind) -> (bool, bool, bool, bool) {
    let source = Side::Source;
    (kind.queries == source, kind.keys == source, kind.causal, kind.padding)
}

/// [b, c, r] → [b, r, c]
fn transpose(x: &[f32], shape: &[usize], out: &mut [f32]) {
    let (rows, columns) = (shape[1], shape[2]);
    for (x, out) in x.chunks(rows * columns).zip(out.chunks_mut(rows * columns)) {
        out.par_chunks_mut(columns).enumerate().for_each(|(r, out)| {
            out.iter_mut().enumerate().for_each(|(c, o)| *o = x[c * rows + r]);
        });
    }
}
