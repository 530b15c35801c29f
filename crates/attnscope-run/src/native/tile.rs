//! The innermost loops of matrix products: tiles whose sums stay in registers, and rows multiplied with rows.
//!
//! The right side of a tile is a panel: as many columns as a tile is wide, side by side, so that it is read in order.
//! The left side is read in place, so that a head of a projection is multiplied without a copy.
//!
//! `unsafe`, because several threads fill one matrix, each its own columns, which slices cannot express. All accesses are
//! checked against the slices before the first tile.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Iterators are not always inlined here, which costs a factor of ten.

use std::marker::PhantomData;

use pulp::{Arch, Simd, WithSimd};

use super::column::{ACROSS, Column, across, load};
use crate::panels::Panel;

/// Columns of a panel on this machine.
pub(super) fn panel_width(arch: Arch) -> usize {
    arch.dispatch(Vectors).0
}

/// Width of a panel, and vector registers.
struct Vectors;

impl WithSimd for Vectors {
    type Output = (usize, usize);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (usize, usize) {
        (ACROSS * S::F32_LANES, S::REGISTER_COUNT)
    }
}

/// Rows of a matrix inside a slice, each in one piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    data: &'a [f32],
    /// How many.
    pub(super) count: usize,
    /// Elements of each.
    pub(super) width: usize,
    /// Elements from one to the next.
    step: usize,
}

impl<'a> Rows<'a> {
    /// # Panics
    /// When the rows exceed the slice: a defect of the caller, never of an input.
    pub(super) fn new(data: &'a [f32], count: usize, width: usize, step: usize) -> Self {
        let end = count.checked_sub(1).map_or(Some(0), |last| last.checked_mul(step)?.checked_add(width));
        assert!(end.is_some_and(|end| end <= data.len()), "{count} rows of {width} every {step}");
        Self { data, count, width, step }
    }

    /// Rows one after the other.
    pub(super) fn dense(data: &'a [f32], count: usize, width: usize) -> Self {
        Self::new(data, count, width, width)
    }

    /// One of them.
    pub(super) fn row(&self, i: usize) -> &'a [f32] {
        &self.data[i * self.step..][..self.width]
    }

    /// Some of them.
    pub(super) fn slice(&self, from: usize, count: usize) -> Self {
        assert!(from + count <= self.count);
        Self { data: self.data.get(from * self.step..).unwrap_or_default(), count, ..*self }
    }
}

/// The left side of a product: a matrix inside a slice, as it lies or transposed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left<'a> {
    data: &'a [f32],
    /// Its rows.
    pub(super) count: usize,
    /// Elements of each.
    depth: usize,
    /// Elements from one row to the next.
    step: usize,
    /// Elements from one column to the next.
    stride: usize,
}

impl<'a> From<Rows<'a>> for Left<'a> {
    fn from(rows: Rows<'a>) -> Self {
        Self { data: rows.data, count: rows.count, depth: rows.width, step: rows.step, stride: 1 }
    }
}

impl<'a> Left<'a> {
    /// The columns of a matrix as rows, where they lie.
    pub(super) fn transposed(rows: Rows<'a>) -> Self {
        Self { data: rows.data, count: rows.width, depth: rows.count, step: 1, stride: rows.step }
    }

    /// Some of its rows.
    pub(super) fn slice(&self, from: usize, count: usize) -> Self {
        assert!(from + count <= self.count);
        Self { data: self.data.get(from * self.step..).unwrap_or_default(), count, ..*self }
    }
}

/// A matrix that several threads fill, each its own cells.
#[derive(Debug)]
pub(super) struct OutputMatrix<'a> {
    start: *mut f32,
    rows: usize,
    columns: usize,
    /// Elements from one row to the next.
    step: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: cells are only written, through `fill` and `dot`, whose callers give each thread cells of its own.
unsafe impl Sync for OutputMatrix<'_> {}

impl<'a> OutputMatrix<'a> {
    /// Rows one after the other.
    ///
    /// # Panics
    /// When the matrix exceeds the slice: a defect of the caller.
    pub(super) fn new(data: &'a mut [f32], rows: usize, columns: usize) -> Self {
        Self::within(data, rows, columns, columns)
    }

    /// Rows that begin every `step` elements: a head of a projection.
    ///
    /// # Panics
    /// As [`OutputMatrix::new`].
    pub(super) fn within(data: &'a mut [f32], rows: usize, columns: usize, step: usize) -> Self {
        let end = rows.checked_sub(1).map_or(Some(0), |last| last.checked_mul(step)?.checked_add(columns));
        let fits = columns <= step && end.is_some_and(|end| end <= data.len());
        assert!(fits, "{rows} × {columns} every {step} in {}", data.len());
        let start = data.as_mut_ptr();
        Self { start, rows, columns, step, life: PhantomData }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Some columns of some of its rows, as a matrix of their own.
    ///
    /// # Panics
    /// When they leave the matrix: a defect of the caller.
    pub(super) fn part(&self, [row, rows]: [usize; 2], [column, columns]: [usize; 2]) -> Self {
        assert!(row + rows <= self.rows && column + columns <= self.columns);
        // Inside or at the end of the slice that this one was made of.
        let start = self.start.wrapping_add(row * self.step + column);
        Self { start, rows, columns, step: self.step, life: PhantomData }
    }

    /// # Safety
    /// The cell is inside, and no other thread accesses it meanwhile.
    #[inline(always)]
    unsafe fn at(&self, row: usize, column: usize) -> *mut f32 {
        // SAFETY: the caller's.
        unsafe { self.start.add(row * self.step + column) }
    }
}

/// Where a product is written, and what is applied to it first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Epilogue<'a> {
    /// The first row that is written.
    pub(super) row: usize,
    /// The first column that is written.
    pub(super) column: usize,
    /// Factor.
    pub(super) scale: f32,
    /// Added last, a number for each column; nothing where it is empty.
    pub(super) bias: &'a [f32],
    /// The cells are added to what is there.
    pub(super) add: bool,
}

impl Epilogue<'_> {
    fn check(&self, output: &OutputMatrix<'_>) {
        assert!(self.bias.is_empty() || self.bias.len() >= output.columns);
    }

    /// The whole output, with nothing added.
    pub(super) const PLAIN: Self = Self { row: 0, column: 0, scale: 1.0, bias: &[], add: false };
}

/// output[row + r, column + c] = scale · Σₖ left[r, k] · panel[k, c] + bias, for the columns that the output has.
///
/// # Safety
/// No other thread accesses these cells meanwhile.
pub(super) unsafe fn fill(
    arch: Arch,
    output: &OutputMatrix<'_>,
    left: Left<'_>,
    panel: Panel<'_>,
    epilogue: Epilogue<'_>,
) {
    match panel {
        // SAFETY: the caller's.
        Panel::F32(panel) => unsafe { fill_with(arch, output, left, panel, epilogue) },
        // SAFETY: the caller's.
        Panel::Bf16(pairs) => unsafe { fill_with(arch, output, left, pairs, epilogue) },
    }
}

/// # Safety
/// As [`fill`].
unsafe fn fill_with<C: Column>(
    arch: Arch,
    output: &OutputMatrix<'_>,
    left: Left<'_>,
    panel: &[C],
    epilogue: Epilogue<'_>,
) {
    let (width, registers) = arch.dispatch(Vectors);
    let (wanted, end) = (left.depth.checked_mul(across::<C>(arch)), epilogue.row.checked_add(left.count));
    assert!(wanted.is_some_and(|n| n <= panel.len()) && end.is_some_and(|end| end <= output.rows));
    epilogue.check(output);
    let columns = width.min(output.columns.saturating_sub(epilogue.column));
    if columns == 0 {
        return;
    }
    // As many rows at a time as there are registers for their sums, then fewer. One function for each number: the compiler does
    // not optimise a larger one.
    let mut row = 0;
    macro_rules! tiles {
        ($($rows:literal)*) => {
            $(if left.count - row >= $rows {
                row = arch.dispatch(Tiles::<$rows, C> { output, left, panel, epilogue, columns, row });
            })*
        };
    }
    if registers >= 32 {
        tiles!(12 8 4 2 1);
    } else {
        tiles!(6 4 2 1);
    }
    debug_assert_eq!(row, left.count);
}

/// Tiles of R rows, from a row on.
struct Tiles<'a, const R: usize, C> {
    output: &'a OutputMatrix<'a>,
    left: Left<'a>,
    panel: &'a [C],
    epilogue: Epilogue<'a>,
    columns: usize,
    row: usize,
}

impl<const R: usize, C: Column> WithSimd for Tiles<'_, R, C> {
    type Output = usize;

    /// Returns the first row that is left.
    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> usize {
        while self.row + R <= self.left.count {
            self.tile(simd);
            self.row += R;
        }
        self.row
    }
}

impl<const R: usize, C: Column> Tiles<'_, R, C> {
    /// R rows of the left side with the panel.
    #[inline(always)]
    fn tile<S: Simd>(&self, simd: S) {
        let Left { data, depth, step, stride, .. } = self.left;
        let mut sums = [[simd.splat_f32s(0.0); ACROSS]; R];
        // SAFETY: row + R <= count, so that a row's `depth` elements are inside the slice, as it lies or transposed; the panel
        // has `depth` rows of ACROSS vectors. Both were checked by `Rows::new` and `fill`.
        unsafe {
            let left = data.as_ptr().add(self.row * step);
            let mut panel = self.panel.as_ptr();
            for k in 0..depth {
                let [first, second] = C::load(simd, panel);
                for r in 0..R {
                    let x = simd.splat_f32s(*left.add(r * step + k * stride));
                    sums[r][0] = simd.mul_add_e_f32s(x, first, sums[r][0]);
                    sums[r][1] = simd.mul_add_e_f32s(x, second, sums[r][1]);
                }
                panel = panel.add(C::across::<S>());
            }
        }
        let scale = simd.splat_f32s(self.epilogue.scale);
        let mut add = [simd.splat_f32s(0.0); ACROSS];
        if !self.epilogue.bias.is_empty() {
            let values = &self.epilogue.bias[self.epilogue.column..];
            add[0] = simd.partial_load_f32s(values);
            add[1] = simd.partial_load_f32s(values.get(S::F32_LANES..).unwrap_or_default());
        }
        for r in 0..R {
            sums[r][0] = simd.mul_add_e_f32s(sums[r][0], scale, add[0]);
            sums[r][1] = simd.mul_add_e_f32s(sums[r][1], scale, add[1]);
        }
        self.write(simd, sums);
    }

    #[inline(always)]
    fn write<S: Simd>(&self, simd: S, sums: [[S::f32s; ACROSS]; R]) {
        if self.columns == ACROSS * S::F32_LANES {
            // SAFETY: the rows and the columns are the output's, checked by `fill`; the cells are this thread's.
            unsafe {
                let to = self.output.at(self.epilogue.row + self.row, self.epilogue.column);
                for r in 0..R {
                    let to = to.add(r * self.output.step);
                    let mut sums = sums[r];
                    if self.epilogue.add {
                        sums[0] = simd.add_f32s(load::<S>(to, 0), sums[0]);
                        sums[1] = simd.add_f32s(load::<S>(to, S::F32_LANES), sums[1]);
                    }
                    to.cast::<S::f32s>().write_unaligned(sums[0]);
                    to.add(S::F32_LANES).cast::<S::f32s>().write_unaligned(sums[1]);
                }
            }
        } else {
            // Copied element by element, so that the sums stay in registers.
            let mut copy = [[simd.splat_f32s(0.0); ACROSS]; R];
            for r in 0..R {
                copy[r][0] = sums[r][0];
                copy[r][1] = sums[r][1];
            }
            self.scatter(pulp::bytemuck::cast_slice(copy.as_flattened()));
        }
    }

    /// Writes a tile that is narrower than a panel.
    #[inline(never)]
    fn scatter(&self, tile: &[f32]) {
        let width = tile.len() / R;
        // SAFETY: as above.
        unsafe {
            let to = self.output.at(self.epilogue.row + self.row, self.epilogue.column);
            for r in 0..R {
                for c in 0..self.columns {
                    let to = to.add(r * self.output.step + c);
                    *to = tile[r * width + c] + if self.epilogue.add { *to } else { 0.0 };
                }
            }
        }
    }
}

/// output[r, from + c] = scale · Σₖ left[r, k] · right[c, k] + bias, for a few rows on the left: each row of the right side is
/// read once, in place.
///
/// # Safety
/// No other thread accesses these cells meanwhile.
pub(super) unsafe fn dot(
    arch: Arch,
    output: &OutputMatrix<'_>,
    left: Rows<'_>,
    right: Rows<'_>,
    epilogue: Epilogue<'_>,
) {
    let within = |from: usize, count: usize, end: usize| from.checked_add(count).is_some_and(|to| to <= end);
    assert!(left.width == right.width && within(epilogue.row, left.count, output.rows));
    assert!(within(epilogue.column, right.count, output.columns));
    epilogue.check(output);
    let (_, registers) = arch.dispatch(Vectors);
    // Rows on the left together as far as there are registers for the sums; one alone with more on the right.
    let mut row = 0;
    if registers >= 32 {
        while row + 4 <= left.count {
            dot_rows::<4, 4>(arch, output, left.slice(row, 4), right, epilogue, row);
            row += 4;
        }
    }
    while row < left.count {
        dot_rows::<1, 8>(arch, output, left.slice(row, 1), right, epilogue, row);
        row += 1;
    }
}

fn dot_rows<const R: usize, const C: usize>(
    arch: Arch,
    output: &OutputMatrix<'_>,
    left: Rows<'_>,
    right: Rows<'_>,
    epilogue: Epilogue<'_>,
    row: usize,
) {
    let epilogue = Epilogue { row: epilogue.row + row, ..epilogue };
    let column = arch.dispatch(Dots::<R, C> { output, left, right, epilogue, column: 0 });
    arch.dispatch(Dots::<R, 1> { output, left, right, epilogue, column });
}

/// R rows of the left side with C rows of the right side at a time, from one of these on.
struct Dots<'a, const R: usize, const C: usize> {
    output: &'a OutputMatrix<'a>,
    left: Rows<'a>,
    right: Rows<'a>,
    epilogue: Epilogue<'a>,
    column: usize,
}

impl<const R: usize, const C: usize> WithSimd for Dots<'_, R, C> {
    type Output = usize;

    /// Returns the first column that is left.
    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> usize {
        while self.column + C <= self.right.count {
            self.tile(simd);
            self.column += C;
        }
        self.column
    }
}

impl<const R: usize, const C: usize> Dots<'_, R, C> {
    #[inline(always)]
    fn tile<S: Simd>(&self, simd: S) {
        let depth = self.left.width;
        let whole = depth - depth % S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); C]; R];
        // SAFETY: R rows on the left and C from `column` on the right are inside their slices, each of `depth` elements.
        unsafe {
            let left = self.left.data.as_ptr();
            let right = self.right.data.as_ptr().add(self.column * self.right.step);
            for k in (0..whole).step_by(S::F32_LANES) {
                let mut x = [simd.splat_f32s(0.0); R];
                for r in 0..R {
                    x[r] = load::<S>(left, r * self.left.step + k);
                }
                for c in 0..C {
                    let y = load::<S>(right, c * self.right.step + k);
                    for r in 0..R {
                        sums[r][c] = simd.mul_add_e_f32s(x[r], y, sums[r][c]);
                    }
                }
            }
        }
        if whole < depth {
            for r in 0..R {
                let x = simd.partial_load_f32s(&self.left.row(r)[whole..]);
                for c in 0..C {
                    let y = simd.partial_load_f32s(&self.right.row(self.column + c)[whole..]);
                    sums[r][c] = simd.mul_add_e_f32s(x, y, sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                let (row, column) = (self.epilogue.row + r, self.epilogue.column + self.column + c);
                let add = self.epilogue.bias.get(column).copied().unwrap_or(0.0);
                // SAFETY: the cell is the output's, checked by `dot`, and this thread's.
                unsafe {
                    let to = self.output.at(row, column);
                    let add = if self.epilogue.add { add + *to } else { add };
                    *to = simd.reduce_sum_f32s(sums[r][c]) * self.epilogue.scale + add;
                };
            }
        }
    }
}

/// Packs rows as the columns of a panel: [row, k] → [k, column]. Missing columns are 0.
pub(super) fn pack_rows(rows: Rows<'_>, panel: &mut [f32], width: usize) {
    let depth = rows.width;
    let panel = &mut panel[..depth * width];
    if rows.count < width {
        panel.fill(0.0);
    }
    let count = rows.count.min(width);
    let mut column = 0;
    // Several at a time, so that more than one number is written at once.
    while column + 8 <= count {
        let some: [&[f32]; 8] = std::array::from_fn(|i| &rows.row(column + i)[..depth]);
        for k in 0..depth {
            let to = &mut panel[k * width + column..][..8];
            for i in 0..8 {
                to[i] = some[i][k];
            }
        }
        column += 8;
    }
    for column in column..count {
        let row = rows.row(column);
        for k in 0..depth {
            panel[k * width + column] = row[k];
        }
    }
}

/// Packs columns of a matrix as a panel, [k, column] → [k, column]. Missing columns are 0.
pub(super) fn pack_columns(rows: Rows<'_>, from: usize, panel: &mut [f32], width: usize) {
    /// Elements of a vector or two: copied without a call.
    const SOME: usize = 8;
    let columns = width.min(rows.width - from);
    if columns == width && width.is_multiple_of(SOME) {
        for (k, to) in panel.chunks_exact_mut(width).take(rows.count).enumerate() {
            let from = rows.row(k)[from..][..width].as_chunks::<SOME>().0;
            to.as_chunks_mut::<SOME>().0.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
        return;
    }
    for (k, to) in panel.chunks_exact_mut(width).take(rows.count).enumerate() {
        to[..columns].copy_from_slice(&rows.row(k)[from..][..columns]);
        to[columns..].fill(0.0);
    }
}
