//! Matrix products on all cores: which loop a shape is given to, and how it is shared out.
#![allow(unsafe_code)] // `fill` and `dot` ask that each turn writes cells of its own.

use pulp::Arch;

use super::pool::Pool;
use super::team::Team;
use super::tile::{Bias, Canvas, Finish, Rows, dot, fill, pack_columns, pack_rows, panel_width};

/// Up to this many rows on the left, the right side is read as it lies.
const FEW: usize = 16;
/// Up to this many, the left side is packed instead of the right: there is less of it.
const SOME: usize = 128;
/// Multiply-adds below which waking another thread does not pay.
const SMALL: usize = 1 << 16;
/// Rows that a turn handles at least, so that packing a panel pays.
const ROWS: usize = 96;

/// What a product runs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine<'a> {
    pub(super) arch: Arch,
    pub(super) team: &'a Team,
    pub(super) pool: &'a Pool,
}

impl Machine<'_> {
    /// Whether other threads are worth waking for that many multiply-adds.
    pub(super) fn pays(&self, work: usize) -> bool {
        work >= SMALL
    }

    /// Turns of a loop with that many multiply-adds and that many pieces of which none can be divided.
    fn turns(&self, work: usize, pieces: usize) -> usize {
        if self.pays(work) { pieces.min(8 * self.team.size()).max(1) } else { 1 }
    }

    /// out[r, c] = scale · Σₖ x[r, k] · w[c, k] + bias[c]
    pub(super) fn linear(&self, x: Rows<'_>, w: Rows<'_>, scale: f32, bias: &[f32], out: &mut [f32]) {
        if x.count == 0 || w.count == 0 {
            // Nothing to write.
        } else if x.count <= FEW {
            self.linear_few(x, w, scale, bias, out);
        } else if x.count <= SOME {
            self.linear_some(x, w, scale, bias, out);
        } else {
            let finish = Finish { row: 0, column: 0, scale, bias: Bias::columns(bias) };
            let canvas = Canvas::new(out, x.count, w.count);
            self.multiply(x, w.width, canvas, finish, |column, width, panel| {
                pack_rows(w.slice(column, width.min(w.count - column)), panel, width);
            });
        }
    }

    /// Each row of `w` is read once: this is as fast as memory.
    fn linear_few(&self, x: Rows<'_>, w: Rows<'_>, scale: f32, bias: &[f32], out: &mut [f32]) {
        let arch = self.arch;
        let canvas = Canvas::new(out, x.count, w.count);
        let turns = self.turns(x.count * w.count * w.width, w.count.div_ceil(8));
        let step = w.count.div_ceil(turns).next_multiple_of(8);
        self.team.each(w.count.div_ceil(step), |turn| {
            let column = turn * step;
            let some = w.slice(column, step.min(w.count - column));
            let finish = Finish { row: 0, column, scale, bias: Bias::columns(bias) };
            // SAFETY: every turn has columns of its own.
            unsafe { dot(arch, &canvas, x, some, finish) };
        });
    }

    /// The product the other way round: out[c, r] = scale · Σₖ w[c, k] · x[r, k] + bias[c], written transposed.
    fn linear_some(&self, x: Rows<'_>, w: Rows<'_>, scale: f32, bias: &[f32], out: &mut [f32]) {
        let arch = self.arch;
        let width = panel_width(arch);
        let size = width * x.width;
        let mut panels = self.pool.take(x.count.div_ceil(width) * size);
        for (i, panel) in panels.chunks_mut(size.max(1)).enumerate() {
            pack_rows(x.slice(i * width, width.min(x.count - i * width)), panel, width);
        }
        let canvas = Canvas::new(out, x.count, w.count).transposed();
        let bias = if bias.is_empty() { Bias::None } else { Bias::Rows(bias) };
        let turns = self.turns(x.count * w.count * w.width, w.count.div_ceil(12));
        let step = w.count.div_ceil(turns).next_multiple_of(12).min(ROWS);
        self.team.each(w.count.div_ceil(step), |turn| {
            let row = turn * step;
            let some = w.slice(row, step.min(w.count - row));
            for column in (0..x.count).step_by(width) {
                let panel = &panels[column * x.width..][..size];
                // SAFETY: every turn has rows of its own.
                unsafe { fill(arch, &canvas, some, panel, Finish { row, column, scale, bias }) };
            }
        });
    }

    /// canvas = scale · left · right + bias. `pack(column, width, panel)` gives the right side's columns from one on, as
    /// [k, width].
    pub(super) fn multiply(
        &self,
        left: Rows<'_>,
        depth: usize,
        canvas: Canvas<'_>,
        finish: Finish<'_>,
        pack: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) {
        let Self { arch, pool, .. } = *self;
        if left.count == 0 {
            return;
        }
        let width = panel_width(arch);
        let panels = canvas.columns().div_ceil(width);
        // Few panels are shared by several turns, each with some of the rows.
        let turns = self.turns(left.count * canvas.columns() * depth, usize::MAX);
        let parts = turns.div_ceil(panels.max(1)).min(left.count / ROWS).max(1);
        let step = left.count.div_ceil(parts).next_multiple_of(12);
        self.team.each(panels * left.count.div_ceil(step), |turn| {
            let (column, row) = (turn % panels * width, turn / panels * step);
            let mut panel = pool.take(depth * width);
            pack(column, width, &mut panel);
            let some = left.slice(row, step.min(left.count - row));
            // SAFETY: every turn has a panel or rows of its own.
            unsafe { fill(arch, &canvas, some, &panel, Finish { row, column, ..finish }) };
        });
    }
}

/// A right side that is multiplied often, packed once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed<'a> {
    panels: &'a [f32],
    /// Its rows.
    depth: usize,
}

/// Elements of a packed right side of so many rows and columns.
pub(super) fn packed_len(arch: Arch, depth: usize, columns: usize) -> usize {
    let width = panel_width(arch);
    columns.div_ceil(width) * width * depth
}

impl<'a> Packed<'a> {
    /// rowsᵀ
    pub(super) fn transposed(arch: Arch, rows: Rows<'_>, panels: &'a mut [f32]) -> Self {
        let width = panel_width(arch);
        let depth = rows.width;
        for (i, panel) in panels.chunks_mut((width * depth).max(1)).enumerate() {
            pack_rows(rows.slice(i * width, width.min(rows.count - i * width)), panel, width);
        }
        Self { panels, depth }
    }

    /// rows
    pub(super) fn straight(arch: Arch, rows: Rows<'_>, panels: &'a mut [f32]) -> Self {
        let width = panel_width(arch);
        let depth = rows.count;
        for (i, panel) in panels.chunks_mut((width * depth).max(1)).enumerate() {
            pack_columns(rows, i * width, panel, width);
        }
        Self { panels, depth }
    }

    /// What was packed into `panels`.
    pub(super) fn again(panels: &'a [f32], depth: usize) -> Self {
        Self { panels, depth }
    }

    /// out[r, c] = scale · Σₖ left[r, k] · right[k, c], on this thread.
    pub(super) fn multiply(&self, arch: Arch, left: Rows<'_>, columns: usize, scale: f32, out: &mut [f32]) {
        let width = panel_width(arch);
        let canvas = Canvas::new(out, left.count, columns);
        for column in (0..columns).step_by(width) {
            let panel = &self.panels[column * self.depth..][..width * self.depth];
            // SAFETY: `out` is borrowed by this thread alone.
            unsafe { fill(arch, &canvas, left, panel, Finish { row: 0, column, scale, bias: Bias::None }) };
        }
    }
}

/// out[r, c] = scale · Σₖ left[r, k] · right[c, k], on this thread, for a few rows on the left.
pub(super) fn dots(arch: Arch, left: Rows<'_>, right: Rows<'_>, scale: f32, out: &mut [f32]) {
    let canvas = Canvas::new(out, left.count, right.count);
    // SAFETY: `out` is borrowed by this thread alone.
    unsafe { dot(arch, &canvas, left, right, Finish { row: 0, column: 0, scale, bias: Bias::None }) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every way to run: as the machine can, with AVX2 where it has more, and in plain code.
    fn machines() -> Vec<Arch> {
        use super::super::Instructions::{Avx2, Best, Scalar};
        [Best, Avx2, Scalar].into_iter().filter_map(|instructions| instructions.arch()).collect()
    }

    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 31 + seed * 17) % 29) as f32 / 7.0 - 2.0).collect()
    }

    /// In f64, as the formula says. `w(c, k)` is the right side.
    fn judge(
        x: Rows<'_>,
        columns: usize,
        w: impl Fn(usize, usize) -> f32,
        finish: impl Fn(usize, usize, f64) -> f64,
    ) -> Vec<f64> {
        let cell = |r: usize, c: usize| {
            let sum: f64 = x.row(r).iter().enumerate().map(|(k, &x)| f64::from(x) * f64::from(w(c, k))).sum();
            finish(r, c, sum)
        };
        (0..x.count).flat_map(|r| (0..columns).map(move |c| (r, c))).map(|(r, c)| cell(r, c)).collect()
    }

    fn agree(ours: &[f32], theirs: &[f64]) {
        assert_eq!(ours.len(), theirs.len());
        for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
            assert!((f64::from(*a) - b).abs() <= 2e-5 * (1.0 + b.abs()), "{i}: {a} and {b}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// All three ways of a linear layer, and both sides of every border between them and between blocks.
        #[test]
        fn linear_is_its_formula(
            rows in prop_oneof![0usize..20, 120usize..135, 190usize..200],
            columns in prop_oneof![0usize..70, 95usize..99],
            depth in prop_oneof![0usize..40, 63usize..66],
            gap in 0usize..3,
            with_bias: bool,
        ) {
            let (team, pool) = (Team::new(), Pool::default());
            let data = numbers(rows * (depth + gap), 1);
            let x = Rows::new(&data, rows, depth, depth + gap);
            let w = numbers(columns * depth, 2);
            let bias = if with_bias { numbers(columns, 3) } else { Vec::new() };
            let add = |c: usize| bias.get(c).copied().map_or(0.0, f64::from);
            let theirs = judge(x, columns, |c, k| w[c * depth + k], |_, c, sum| 0.5 * sum + add(c));
            for arch in machines() {
                let machine = Machine { arch, team: &team, pool: &pool };
                let mut ours = vec![f32::NAN; rows * columns];
                machine.linear(x, Rows::dense(&w, columns, depth), 0.5, &bias, &mut ours);
                agree(&ours, &theirs);
            }
        }

        #[test]
        fn packed_products_are_their_formulas(
            rows in 0usize..40,
            columns in 1usize..70,
            depth in 0usize..70,
            gap in 0usize..3,
        ) {
            let x = numbers(rows * depth, 1);
            let x = Rows::dense(&x, rows, depth);
            let (across, down) = (numbers(columns * (depth + gap), 2), numbers(depth * (columns + gap), 3));
            let across = Rows::new(&across, columns, depth, depth + gap);
            let down = Rows::new(&down, depth, columns, columns + gap);
            for arch in machines() {
                let mut panels = vec![f32::NAN; packed_len(arch, depth, columns)];
                let mut ours = vec![f32::NAN; rows * columns];
                Packed::transposed(arch, across, &mut panels).multiply(arch, x, columns, 0.25, &mut ours);
                agree(&ours, &judge(x, columns, |c, k| across.row(c)[k], |_, _, sum| 0.25 * sum));
                Packed::straight(arch, down, &mut panels).multiply(arch, x, columns, 1.0, &mut ours);
                agree(&ours, &judge(x, columns, |c, k| down.row(k)[c], |_, _, sum| sum));
                dots(arch, x, across, 2.0, &mut ours);
                agree(&ours, &judge(x, columns, |c, k| across.row(c)[k], |_, _, sum| 2.0 * sum));
            }
        }
    }

    #[test]
    fn nothing_times_something_is_nothing_or_the_bias() {
        let (team, pool) = (Team::new(), Pool::default());
        for (rows, columns, depth) in
            [0, 1, 20, 130].into_iter().flat_map(|r| [(r, 0, 3), (r, 1, 0), (r, 2, 1)])
        {
            let (x, w, bias) = (numbers(rows * depth, 1), numbers(columns * depth, 2), numbers(columns, 3));
            let x = Rows::dense(&x, rows, depth);
            let theirs = judge(x, columns, |c, k| w[c * depth + k], |_, c, sum| sum + f64::from(bias[c]));
            for arch in machines() {
                let machine = Machine { arch, team: &team, pool: &pool };
                let mut ours = vec![f32::NAN; rows * columns];
                machine.linear(x, Rows::dense(&w, columns, depth), 1.0, &bias, &mut ours);
                agree(&ours, &theirs);
            }
        }
    }

    #[test]
    #[should_panic = "rows of"]
    fn rows_that_leave_their_slice_are_a_defect() {
        Rows::new(&[0.0; 10], 3, 4, 4);
    }
}
