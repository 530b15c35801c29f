//! The two products of a linear map's gradient.
#![allow(unsafe_code)] // `fill` asks that each chunk writes cells of its own.

use pulp::Arch;

use super::super::kernels;
use super::super::product::{Machine, Packed, packed_len};
use super::super::tile::{Epilogue, Left, OutputMatrix, Rows, fill, pack_columns, panel_width};
use crate::pool::Pool;
use crate::right_side::RightSide;

/// Rows whose products are summed before they are added to the gradient: their panel stays in the nearer caches.
const DEPTH: usize = 512;
/// Columns of x that a chunk handles at least, so that packing a panel pays.
const COLUMNS: usize = 96;

/// A part of a weight's gradient: columns of one panel.
struct Piece<'a> {
    panel: usize,
    /// The first column of x.
    from: usize,
    /// [column of x, column of the panel]
    gradient: &'a mut [f32],
    /// The gradient of the bias, where this piece makes it.
    bias: &'a mut [f32],
}

impl Machine<'_> {
    /// dx (+)= scale · dy · W
    pub(super) fn input_gradient(
        &self,
        dy: Rows<'_>,
        w: RightSide<'_>,
        scale: f32,
        dx: &mut [f32],
        add: bool,
    ) {
        let size = w.rows() * w.width();
        let mut panels = self.pool.take(packed_len(self.arch, w.rows(), w.depth()));
        let mut pieces: Vec<_> = panels.chunks_mut(size.max(1)).collect();
        self.team.each_of(&mut pieces, |i, panel| w.columns(i * w.width(), panel));
        let output = OutputMatrix::new(dx, dy.count, w.depth());
        let epilogue = Epilogue { scale, add, ..Epilogue::PLAIN };
        self.multiply(dy.into(), Packed::again(&panels, w.rows()), output, epilogue);
    }

    /// dW += scale · dyᵀ · x in the weight's own panels, and db += Σ dy.
    pub(super) fn weight_gradient(
        &self,
        x: Rows<'_>,
        dy: Rows<'_>,
        scale: f32,
        gradient: &mut [f32],
        bias: &mut [f32],
    ) {
        let width = panel_width(self.arch);
        let depth = x.width;
        // Few panels are shared by several chunks, each with some of the columns.
        let panels = dy.width.div_ceil(width).max(1);
        let parts = (2 * self.team.size()).div_ceil(panels).min(depth / COLUMNS).max(1);
        let step = depth.div_ceil(parts).next_multiple_of(12);
        let mut biases = bias.chunks_mut(width);
        let mut pieces = Vec::new();
        for (panel, gradient) in gradient.chunks_mut((depth * width).max(1)).enumerate() {
            for (part, gradient) in gradient.chunks_mut((step * width).max(1)).enumerate() {
                let bias = if part == 0 { biases.next().unwrap_or_default() } else { &mut [] };
                pieces.push(Piece { panel, from: part * step, gradient, bias });
            }
        }
        let Machine { arch, team, pool } = *self;
        // All pieces read the same rows while these are in the nearer caches.
        for row in (0..dy.count).step_by(DEPTH) {
            let rows = DEPTH.min(dy.count - row);
            let (x, dy) = (x.slice(row, rows), dy.slice(row, rows));
            team.each_of(&mut pieces, |_, piece| piece.compute(arch, pool, x, dy, scale));
        }
    }
}

impl Piece<'_> {
    fn compute(&mut self, arch: Arch, pool: &Pool, x: Rows<'_>, dy: Rows<'_>, scale: f32) {
        let width = panel_width(arch);
        let columns = self.gradient.len() / width;
        let mut panel = pool.take(dy.count * width);
        let output = OutputMatrix::new(self.gradient, columns, width);
        pack_columns(dy, self.panel * width, &mut panel, width);
        if !self.bias.is_empty() {
            panel.chunks_exact(width).take(dy.count).for_each(|dy| kernels::add(arch, self.bias, dy));
        }
        let left = Left::transposed(x).slice(self.from, columns);
        // SAFETY: a piece is borrowed by one thread alone.
        unsafe {
            fill(arch, &output, left, (&*panel).into(), Epilogue { scale, add: true, ..Epilogue::PLAIN })
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Instructions::{Avx2, Best, Scalar};
    use super::super::super::thread_team::ThreadTeam;
    use super::*;
    use crate::limits::Limits;
    use crate::panels::{Elements, Panels};

    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 31 + seed * 17) % 29) as f32 / 7.0 - 2.0).collect()
    }

    fn agree(ours: &[f32], theirs: impl Fn(usize) -> f64) {
        for (i, &a) in ours.iter().enumerate() {
            let b = theirs(i);
            assert!((f64::from(a) - b).abs() <= 2e-5 * (10.0 + b.abs()), "{i}: {a} and {b}");
        }
    }

    /// Both sides of every border: of blocks of rows, of panels, of what is shared out.
    #[test]
    fn both_products_are_their_formulas() {
        let (team, pool) = (ThreadTeam::new(&Limits::default()), Pool::default());
        for (rows, depth, outputs) in
            [(1, 1, 1), (7, 33, 5), (DEPTH + 3, 40, 37), (2 * DEPTH, 230, 3), (50, 5, 130)]
        {
            let (x, dy, w) =
                (numbers(rows * depth, 1), numbers(rows * outputs, 2), numbers(outputs * depth, 3));
            for arch in [Best, Avx2, Scalar].into_iter().filter_map(|instructions| instructions.arch()) {
                let machine = Machine { arch, team: &team, pool: &pool };
                let panels = Panels::pack(&Elements::F32(w.clone()), 0, w.len(), depth, panel_width(arch));
                let (x_rows, dy_rows) = (Rows::dense(&x, rows, depth), Rows::dense(&dy, rows, outputs));
                let of = |values: &[f32], i: usize| f64::from(values[i]);
                let mut stored = vec![0.0; outputs.next_multiple_of(panels.width()) * depth];
                let mut bias = vec![1.0; outputs];
                machine.weight_gradient(x_rows, dy_rows, 0.5, &mut stored, &mut bias);
                agree(&panels.unpacked(&stored), |i| {
                    let (o, k) = (i / depth, i % depth);
                    0.5 * (0..rows).map(|r| of(&x, r * depth + k) * of(&dy, r * outputs + o)).sum::<f64>()
                });
                agree(&bias, |o| 1.0 + (0..rows).map(|r| of(&dy, r * outputs + o)).sum::<f64>());
                let mut dx = vec![2.0; rows * depth];
                for (add, before) in [(true, 2.0), (false, 0.0)] {
                    machine.input_gradient(dy_rows, panels.right_side(), 0.5, &mut dx, add);
                    agree(&dx, |i| {
                        let (r, k) = (i / depth, i % depth);
                        let sum = (0..outputs).map(|o| of(&dy, r * outputs + o) * of(&w, o * depth + k));
                        before + 0.5 * sum.sum::<f64>()
                    });
                }
            }
        }
    }
}
