//! Matrix products on strided views, through the `gemm` crate.
//!
//! The one place of the executor with `unsafe`: `gemm` takes pointers, so that a head of a projection can be multiplied
//! where it lies. Every view is checked against its slice before the call.
#![allow(unsafe_code)]

use gemm::Parallelism;

/// A matrix inside a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    data: &'a [f32],
    layout: Layout,
}

/// Where the cells of a matrix are, from the start of its slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Elements from one row to the next.
    pub(crate) row_step: usize,
    /// Elements from one column to the next.
    pub(crate) column_step: usize,
}

impl Layout {
    /// Rows one after the other.
    pub(crate) fn dense(rows: usize, columns: usize) -> Self {
        Self { rows, columns, row_step: columns, column_step: 1 }
    }

    /// The same cells with rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        let Self { rows, columns, row_step, column_step } = self;
        Self { rows: columns, columns: rows, row_step: column_step, column_step: row_step }
    }

    /// One past the last cell.
    fn end(self) -> usize {
        match (self.rows, self.columns) {
            (0, _) | (_, 0) => 0,
            (rows, columns) => (rows - 1) * self.row_step + (columns - 1) * self.column_step + 1,
        }
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(data: &'a [f32], layout: Layout) -> Self {
        Self { data, layout }
    }
}

/// out = scale · a · b, plus what is in `out` where `add` says so.
///
/// # Panics
/// When a view leaves its slice or the shapes do not multiply: a defect of the caller, never of an input.
pub(crate) fn multiply(
    out: &mut [f32],
    layout: Layout,
    a: View<'_>,
    b: View<'_>,
    scale: f32,
    add: bool,
    threads: Parallelism,
) {
    assert!(layout.end() <= out.len() && a.layout.end() <= a.data.len() && b.layout.end() <= b.data.len());
    assert!(
        a.layout.rows == layout.rows
            && b.layout.columns == layout.columns
            && a.layout.columns == b.layout.rows
    );
    let step = |n: usize| n as isize;
    // SAFETY: every cell of the three matrices is inside its slice, by the assertion above; `out` is borrowed mutably,
    // so that it overlaps neither `a` nor `b`.
    unsafe {
        gemm::gemm(
            layout.rows,
            layout.columns,
            a.layout.columns,
            out.as_mut_ptr(),
            step(layout.column_step),
            step(layout.row_step),
            add,
            a.data.as_ptr(),
            step(a.layout.column_step),
            step(a.layout.row_step),
            b.data.as_ptr(),
            step(b.layout.column_step),
            step(b.layout.row_step),
            1.0,
            scale,
            false,
            false,
            false,
            threads,
        );
    }
}
