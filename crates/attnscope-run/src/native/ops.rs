//! The operations that are one loop over their output, and the tables that layers share.

use std::borrow::Cow;

use attnscope_graph::{Factor, MaskKind, Node, NormGain, Op, Positions, Side, Stack, WeightId};

use super::kernels;
use super::pass::Pass;
use super::product::Machine;
use super::tile::Rows;
use crate::error::RunError;
use crate::input::Sequence;
use crate::pool::{Buffer, Shared};
use crate::position::{Place, bucket, position, sinusoid, table_row, used_buckets};

impl Pass<'_> {
    pub(super) fn factor(&self, factor: Factor) -> f32 {
        factor.value(self.window.sizes).unwrap_or(1.0) as f32
    }

    /// Everything that is one loop over its output.
    pub(super) fn compute(&self, node: &Node, shape: &[usize], out: &mut [f32]) -> Result<(), RunError> {
        let width = shape.last().copied().unwrap_or(1).max(1);
        let arch = self.machine.arch;
        match node.op {
            Op::Ids(side) => {
                let ids = match (side, self.window.source) {
                    (Side::Target, _) => self.window.target,
                    (Side::Source, Some(Sequence::Tokens(rows))) => rows.ids(),
                    (Side::Source, _) => &[],
                };
                out.iter_mut().zip(ids).for_each(|(o, &id)| *o = id as f32);
            }
            Op::TypeIds(_) => out.fill(0.0),
            Op::Features => {
                if let Some(Sequence::Features(f)) = self.window.source {
                    out.copy_from_slice(&f.values);
                }
            }
            Op::Embed { scale } => self.embed(node, self.factor(scale), width, out)?,
            Op::Positions { kind, offset, count, side } => {
                let places = self.window.places(side, count, offset, shape);
                self.positions(node, kind, offset, &places, out)?;
            }
            Op::AddPositions => {
                out.copy_from_slice(self.input(node, 0));
                for term in 1..node.inputs.len() {
                    // Positions are the same for every row.
                    let added = self.input(node, term);
                    out.chunks_mut(added.len().max(1)).for_each(|row| kernels::add(arch, row, added));
                }
            }
            Op::Transpose => transpose(self.machine, self.input(node, 0), shape, out),
            Op::Norm { kind, eps, gain: of_weight } => {
                let (x, bias) = (self.input(node, 0), self.weight(node, 1));
                let gain = gains(self.weight(node, 0), of_weight);
                let width = gain.len().max(1);
                self.machine.share(out, width, |from, out| {
                    for (x, out) in x[from..].chunks(width).zip(out.chunks_mut(width)) {
                        kernels::norm(arch, kind, eps, x, &gain, bias, out);
                    }
                });
            }
            Op::Linear => self.linear(self.input(node, 0), node, 1.0, width, out),
            Op::Logits { scale } => self.linear(self.input(node, 0), node, self.factor(scale), width, out),
            Op::Residual { gain } => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                self.machine
                    .share(out, 1, |from, out| kernels::add_scaled(arch, &x[from..], gain, &y[from..], out));
            }
            Op::Activate(activation) => {
                let x = self.input(node, 0);
                self.machine.share(out, 1, |from, out| kernels::activate(arch, activation, &x[from..], out));
            }
            Op::SoftCap { cap, .. } => {
                let x = self.input(node, 0);
                self.machine.share(out, 1, |from, out| soft_cap(cap as f32, &x[from..], out));
            }
            Op::Gate => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                self.machine.share(out, 1, |from, out| kernels::times(arch, &x[from..], &y[from..], out));
            }
            Op::Hidden => self.hidden(node, width, out),
            Op::Beside => self.beside(node, width, out),
            Op::LastState { reverse } => self.last_state(node, reverse, width, out),
            Op::Pool { pooling, axis, padding_of } => self.pool(node, pooling, axis, padding_of, out),
            // Handled elsewhere: they make no tensor, or one that is stored elsewhere.
            Op::Same
            | Op::Flatten { .. }
            | Op::Dropout { .. }
            | Op::Conv1d { .. }
            | Op::Recur { .. }
            | Op::SplitHeads(_)
            | Op::Rotate { .. }
            | Op::Scores { .. }
            | Op::RelativeBias { .. }
            | Op::Mask(_)
            | Op::AddMask { .. }
            | Op::Normalise(_)
            | Op::Context { .. }
            | Op::MergeHeads(_) => {}
        }
        Ok(())
    }

    fn embed(&self, node: &Node, scale: f32, width: usize, out: &mut [f32]) -> Result<(), RunError> {
        let Some(&table) = node.weights.first() else { return Ok(()) };
        for (out, &id) in out.chunks_mut(width).zip(self.input(node, 0)) {
            self.weights.row(table, id as usize, out)?;
            out.iter_mut().for_each(|o| *o *= scale);
        }
        Ok(())
    }

    fn positions(
        &self,
        node: &Node,
        kind: Positions,
        offset: usize,
        places: &[Place],
        out: &mut [f32],
    ) -> Result<(), RunError> {
        let table = node.weights.first();
        let width = out.len() / places.len().max(1);
        for (row, &place) in out.chunks_mut(width.max(1)).zip(places) {
            match (kind, place, table_row(place, offset).zip(table)) {
                (Positions::Table, _, Some((at, &table))) => self.weights.row(table, at, row)?,
                (Positions::Table, _, None) | (_, None, _) => row.fill(0.0),
                (_, Some(place), _) => {
                    let cells = row.iter_mut().enumerate();
                    cells.for_each(|(i, o)| *o = sinusoid(kind, position(place, offset), i, width) as f32);
                }
            }
        }
        Ok(())
    }

    /// x · scale · Wᵀ + b
    pub(super) fn linear(&self, x: &[f32], node: &Node, scale: f32, outputs: usize, out: &mut [f32]) {
        let Some(w) = node.weights.first().and_then(|&id| self.weights.right_side(id)) else { return };
        let x = Rows::dense(x, out.len() / outputs.max(1), w.depth());
        self.machine.linear(x, w, scale, self.weight(node, 1), out);
    }

    /// [b, h, l, k] → [b, l, h · k]
    pub(super) fn merge(&self, context: &[f32], shape: &[usize], mut out: Buffer) -> Buffer {
        let (heads, length, size) = (shape[1], shape[2], shape[3]);
        self.machine.share(&mut out, size, |from, out| {
            for (n, row) in out.chunks_mut(size.max(1)).enumerate() {
                let n = from / size.max(1) + n;
                let (b, l, h) = (n / (heads * length), n / heads % length, n % heads);
                row.copy_from_slice(&context[((b * heads + h) * length + l) * size..][..size]);
            }
        });
        out
    }

    /// One mask per kind, shared by all layers.
    pub(super) fn mask(&mut self, kind: MaskKind, shape: &[usize]) {
        if self.masks.contains_key(&kind) {
            return;
        }
        let (queries, keys) = (shape[2], shape[3]);
        let mut mask = self.machine.pool.take_zeroed(shape.iter().product());
        for (n, cell) in mask.iter_mut().enumerate() {
            if !self.window.is_visible(kind, n / (queries * keys), n / keys % queries, n % keys) {
                *cell = f32::NEG_INFINITY;
            }
        }
        self.masks.insert(kind, Shared::new(mask));
    }

    /// One bias per table, shared by all layers that look it up.
    pub(super) fn relative_bias(
        &mut self,
        node: &Node,
        table_id: WeightId,
        stack: Stack,
        [buckets, max_distance]: [usize; 2],
        shape: &[usize],
    ) {
        if self.biases.contains_key(&table_id) {
            return;
        }
        let (heads, queries, keys) = (shape[1], shape[2], shape[3]);
        let mut bias = self.machine.pool.take(shape.iter().product());
        let table = self.weight(node, 0);
        let buckets = used_buckets(buckets, table.len() / heads.max(1));
        let first = self.window.first(stack.side());
        for (n, cell) in bias.iter_mut().enumerate() {
            let (h, t, s) = (n / (queries * keys), n / keys % queries, n % keys);
            *cell = table[bucket(stack, first + t, s, buckets, max_distance) * heads + h];
        }
        self.biases.insert(table_id, Shared::new(bias));
    }
}

/// What normed features are multiplied by.
pub(super) fn gains(weight: &[f32], of_weight: NormGain) -> Cow<'_, [f32]> {
    match of_weight {
        NormGain::Weight => Cow::Borrowed(weight),
        NormGain::OnePlusWeight => weight.iter().map(|w| of_weight.offset() + w).collect(),
    }
}

/// cap · tanh(x / cap)
fn soft_cap(cap: f32, x: &[f32], out: &mut [f32]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = cap * (x / cap).tanh());
}

/// The same in place.
pub(super) fn soft_cap_in_place(cap: f64, cells: &mut [f32]) {
    let cap = cap as f32;
    cells.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
}

/// [b, l, h · k] → [b, h, l, k], only for a sink: attention reads the heads where they are.
pub(super) fn split_heads(machine: Machine<'_>, x: &[f32], shape: &[usize], mut out: Buffer) -> Buffer {
    let (heads, length, size) = (shape[1], shape[2], shape[3]);
    machine.share(&mut out, size, |from, out| {
        for (n, row) in out.chunks_mut(size.max(1)).enumerate() {
            let n = from / size.max(1) + n;
            let (b, h, l) = (n / (heads * length), n / length % heads, n % length);
            row.copy_from_slice(&x[((b * length + l) * heads + h) * size..][..size]);
        }
    });
    out
}

/// [b, c, r] → [b, r, c]
pub(super) fn transpose(machine: Machine<'_>, x: &[f32], shape: &[usize], out: &mut [f32]) {
    let (rows, columns) = (shape[1], shape[2]);
    let size = (rows * columns).max(1);
    for (x, out) in x.chunks(size).zip(out.chunks_mut(size)) {
        let mut pieces: Vec<_> = out.chunks_mut(STRIP * columns).collect();
        machine.team.each_of(&mut pieces, |i, piece| transpose_strip(x, rows, i * STRIP, piece));
    }
}

/// [c, r] → [r, c], on this thread.
pub(super) fn transpose_one(x: &[f32], rows: usize, out: &mut [f32]) {
    let columns = x.len() / rows.max(1);
    let strips = out.chunks_mut((STRIP * columns).max(1)).enumerate();
    strips.for_each(|(i, strip)| transpose_strip(x, rows, i * STRIP, strip));
}

/// Rows of a transposed matrix that are written together, so that no line of the input is fetched twice.
const STRIP: usize = 16;

/// Rows `from` on, at most [`STRIP`], of [r, c] from [c, r].
fn transpose_strip(x: &[f32], rows: usize, from: usize, strip: &mut [f32]) {
    let columns = x.len() / rows.max(1);
    let whole = if rows - from >= STRIP { columns - columns % STRIP } else { 0 };
    for c in (0..whole).step_by(STRIP) {
        // All lines are fetched before the first is used.
        let block: [[f32; STRIP]; STRIP] =
            std::array::from_fn(|i| *x[(c + i) * rows + from..].first_chunk().unwrap_or(&[0.0; STRIP]));
        for (r, to) in strip.chunks_exact_mut(columns).enumerate().take(STRIP) {
            let to = to[c..c + STRIP].as_chunks_mut::<4>().0;
            for (i, to) in to.iter_mut().enumerate() {
                *to = std::array::from_fn(|j| block[4 * i + j][r]);
            }
        }
    }
    for c in whole..columns {
        let from = &x[c * rows + from..];
        strip.iter_mut().skip(c).step_by(columns).zip(from).for_each(|(o, x)| *o = *x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of every border of a strip and of a block.
    #[test]
    fn a_transposed_matrix_has_every_cell_in_its_place() {
        for (rows, columns) in [(1, 1), (1, 40), (15, 17), (16, 16), (17, 15), (40, 1), (50, 35), (64, 48)] {
            let x: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let mut out = vec![f32::NAN; rows * columns];
            transpose_one(&x, rows, &mut out);
            for (i, &cell) in out.iter().enumerate() {
                assert_eq!(cell, x[i % columns * rows + i / columns], "{rows} × {columns}: {i}");
            }
        }
    }
}
