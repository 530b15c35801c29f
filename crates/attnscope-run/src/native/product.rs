//! Matrix products on all cores: which loop a shape uses, and how the work is divided.
#![allow(unsafe_code)] // `fill` and `dot` ask that each chunk writes cells of its own.

use pulp::Arch;

use super::thread_team::ThreadTeam;
use super::tile::{Epilogue, Left, OutputMatrix, Rows, dot, fill, pack_columns, pack_rows, panel_width};
use crate::pool::Pool;
use crate::right_side::RightSide;

/// Below this many multiply-adds, waking another thread costs more than it saves.
const SMALL: usize = 1 << 16;
/// The fewest rows of a chunk for which reading a panel pays off.
const ROWS: usize = 96;
/// Elements on the left that a chunk reads at most: they stay in the nearer caches while one panel after another comes by.
const NEAR: usize = 1 << 16;

/// Elements that one chunk of an element-wise loop handles.
const CHUNK: usize = 1 << 14;

/// What a product runs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine<'a> {
    pub(super) arch: Arch,
    pub(super) team: &'a ThreadTeam,
    pub(super) pool: &'a Pool,
}

impl Machine<'_> {
    /// Whether other threads are worth waking for that many multiply-adds.
    pub(super) fn pays(&self, work: usize) -> bool {
        work >= SMALL
    }

    /// Chunks of a loop with that many multiply-adds.
    fn chunks(&self, work: usize) -> usize {
        if self.pays(work) { 8 * self.team.size() } else { 1 }
    }

    /// Divides an output into pieces of whole rows; the body gets the index of its piece's first element.
    pub(super) fn share(&self, out: &mut [f32], width: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
        let step = CHUNK.next_multiple_of(width.max(1));
        let mut pieces: Vec<_> = out.chunks_mut(step).collect();
        self.team.each_of(&mut pieces, |i, piece| body(i * step, piece));
    }

    /// out[r, c] = scale · Σₖ x[r, k] · w[c, k] + bias[c]
    pub(super) fn linear(&self, x: Rows<'_>, w: RightSide<'_>, scale: f32, bias: &[f32], out: &mut [f32]) {
        let Self { arch, pool, .. } = *self;
        assert!(w.width() == panel_width(arch) && w.depth() == x.width && out.len() == x.count * w.rows());
        let panels = w.count();
        if x.count == 0 || panels == 0 {
            return;
        }
        let output = OutputMatrix::new(out, x.count, w.rows());
        let chunks = self.chunks(x.count * w.len());
        // Many panels: a chunk takes several, so that each reads a long stretch of memory. Few: each is shared by several
        // chunks.
        let together = (panels / chunks).max(1);
        let step = rows_of_a_chunk(x.count, x.width, chunks.div_ceil(panels));
        let groups = panels.div_ceil(together);
        self.team.each(groups * x.count.div_ceil(step), |chunk| {
            let (group, row) = (chunk % groups, chunk / groups * step);
            let some = x.slice(row, step.min(x.count - row));
            let mut scratch = pool.take(w.scratch());
            for i in group * together..panels.min((group + 1) * together) {
                let epilogue = Epilogue { row, column: i * w.width(), scale, bias, add: false };
                // SAFETY: no two chunks share both a column and a row.
                unsafe { fill(arch, &output, some.into(), w.panel(i, &mut scratch), epilogue) };
            }
        });
    }

    /// output = scale · left · right + bias
    pub(super) fn multiply(
        &self,
        left: Left<'_>,
        right: Packed<'_>,
        output: OutputMatrix<'_>,
        epilogue: Epilogue<'_>,
    ) {
        if left.count == 0 {
            return;
        }
        let arch = self.arch;
        let width = panel_width(arch);
        let panels = output.columns().div_ceil(width);
        // Few panels are shared by several chunks, each with some of the rows.
        let chunks = self.chunks(left.count * output.columns() * right.depth);
        let step = rows_of_a_chunk(left.count, right.depth, chunks.div_ceil(panels.max(1)));
        self.team.each(panels * left.count.div_ceil(step), |chunk| {
            let (column, row) = (chunk % panels * width, chunk / panels * step);
            let some = left.slice(row, step.min(left.count - row));
            let epilogue = Epilogue { row, column, ..epilogue };
            // SAFETY: no two chunks share both a panel and a row.
            unsafe { fill(arch, &output, some, right.panel(column, width).into(), epilogue) };
        });
    }
}

/// How many of the left side's rows, of `depth` elements each, a chunk takes, where each panel is shared by `parts` chunks or
/// more.
fn rows_of_a_chunk(rows: usize, depth: usize, parts: usize) -> usize {
    let parts = parts.max((rows * depth).div_ceil(NEAR)).min(rows / ROWS).max(1);
    rows.div_ceil(parts).next_multiple_of(12)
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

    /// Columns from one on, as many as a panel has.
    fn panel(&self, column: usize, width: usize) -> &'a [f32] {
        &self.panels[column * self.depth..][..width * self.depth]
    }

    /// What was packed into `panels`.
    pub(super) fn again(panels: &'a [f32], depth: usize) -> Self {
        Self { panels, depth }
    }

    /// out[r, c] = scale · Σₖ left[r, k] · right[k, c], on this thread.
    pub(super) fn multiply(&self, arch: Arch, left: Rows<'_>, columns: usize, scale: f32, out: &mut [f32]) {
        let output = OutputMatrix::new(out, left.count, columns);
        // SAFETY: `out` is borrowed by this thread alone.
        unsafe { self.fill(arch, left.into(), &output, scale, false) };
    }

    /// output (+)= scale · left · right, on this thread.
    ///
    /// # Safety
    /// No other thread touches the output meanwhile.
    pub(super) unsafe fn fill(
        &self,
        arch: Arch,
        left: Left<'_>,
        output: &OutputMatrix<'_>,
        scale: f32,
        add: bool,
    ) {
        let width = panel_width(arch);
        for column in (0..output.columns()).step_by(width) {
            let panel = self.panel(column, width);
            // SAFETY: the caller's.
            unsafe {
                fill(arch, output, left, panel.into(), Epilogue { column, scale, add, ..Epilogue::PLAIN })
            };
        }
    }
}

/// out[r, c] = scale · Σₖ left[r, k] · right[c, k], on this thread, for a few rows on the left.
pub(super) fn dots(arch: Arch, left: Rows<'_>, right: Rows<'_>, scale: f32, out: &mut [f32]) {
    let output = OutputMatrix::new(out, left.count, right.count);
    // SAFETY: `out` is borrowed by this thread alone.
    unsafe { dot(arch, &output, left, right, Epilogue { scale, ..Epilogue::PLAIN }) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::panels::{Elements, Panels};

    /// Every set of instructions: the machine's best, AVX2, and plain code.
    fn machines() -> Vec<Arch> {
        use super::super::Instructions::{Avx2, Best, Scalar};
        [Best, Avx2, Scalar].into_iter().filter_map(|instructions| instructions.arch()).collect()
    }

    /// A weight as a model that is ready to run holds it.
    fn panels(arch: Arch, w: &[f32], depth: usize) -> Panels {
        Panels::pack(&Elements::F32(w.to_vec()), 0, w.len(), depth, panel_width(arch))
    }

    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 31 + seed * 17) % 29) as f32 / 7.0 - 2.0).collect()
    }

    /// In f64, as the formula says. `w(c, k)` is the right side.
    fn judge(
        x: Rows<'_>,
        columns: usize,
        w: impl Fn(usize, usize) -> f32,
        epilogue: impl Fn(usize, usize, f64) -> f64,
    ) -> Vec<f64> {
        let cell = |r: usize, c: usize| {
            let sum: f64 = x.row(r).iter().enumerate().map(|(k, &x)| f64::from(x) * f64::from(w(c, k))).sum();
            epilogue(r, c, sum)
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

        /// Sizes just below and above every block size and every division of work.
        #[test]
        fn linear_is_its_formula(
            rows in prop_oneof![0usize..20, 120usize..135, 190usize..200],
            columns in prop_oneof![0usize..70, 95usize..99],
            depth in prop_oneof![1usize..40, 63usize..66],
            gap in 0usize..3,
            with_bias: bool,
        ) {
            let (team, pool) = (ThreadTeam::new(&crate::limits::Limits::default()), Pool::default());
            let data = numbers(rows * (depth + gap), 1);
            let x = Rows::new(&data, rows, depth, depth + gap);
            let w = numbers(columns * depth, 2);
            let bias = if with_bias { numbers(columns, 3) } else { Vec::new() };
            let add = |c: usize| bias.get(c).copied().map_or(0.0, f64::from);
            let theirs = judge(x, columns, |c, k| w[c * depth + k], |_, c, sum| 0.5 * sum + add(c));
            for arch in machines() {
                let machine = Machine { arch, team: &team, pool: &pool };
                let mut ours = vec![f32::NAN; rows * columns];
                machine.linear(x, panels(arch, &w, depth).right_side(), 0.5, &bias, &mut ours);
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
        let (team, pool) = (ThreadTeam::new(&crate::limits::Limits::default()), Pool::default());
        for (rows, columns, depth) in [0, 1, 20, 130].into_iter().flat_map(|r| [(r, 0, 3), (r, 2, 1)]) {
            let (x, w, bias) = (numbers(rows * depth, 1), numbers(columns * depth, 2), numbers(columns, 3));
            let x = Rows::dense(&x, rows, depth);
            let theirs = judge(x, columns, |c, k| w[c * depth + k], |_, c, sum| sum + f64::from(bias[c]));
            for arch in machines() {
                let machine = Machine { arch, team: &team, pool: &pool };
                let mut ours = vec![f32::NAN; rows * columns];
                machine.linear(x, panels(arch, &w, depth).right_side(), 1.0, &bias, &mut ours);
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
