//! Matrices in 8 bits, reduced where they are large.

use crate::answer::{Base64, Picture, PictureOf};

/// The code of a value that is not finite.
const NOT_FINITE: u8 = 255;
/// The code of the largest value.
const LARGEST: f32 = 254.0;

/// Equal matrices, [matrix, row, column].
#[derive(Clone, Copy)]
pub(super) struct Matrices<'a> {
    pub(super) values: &'a [f32],
    pub(super) count: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Matrices<'_> {
    /// A picture with at most so many cells. Of cells that are drawn as one, the largest is kept, so that no peak is lost.
    pub(super) fn picture(self, of: PictureOf, most_cells: usize) -> Picture {
        let each = self.cells_in_one(most_cells);
        // A short side stays whole while the long one is reduced.
        let (row_step, column_step) = (each.0.min(self.rows.max(1)), each.1.min(self.columns.max(1)));
        let (rows, columns) = (self.rows.div_ceil(row_step), self.columns.div_ceil(column_step));
        let (mut low, mut high) = (Vec::new(), Vec::new());
        let mut codes = Vec::with_capacity(self.count * rows * columns);
        for matrix in self.values.chunks((self.rows * self.columns).max(1)).take(self.count) {
            let reduced = reduce(matrix, self.columns, (row_step, column_step), (rows, columns));
            let finite = || reduced.iter().copied().filter(|x| x.is_finite());
            let largest = finite().fold(f32::NEG_INFINITY, f32::max);
            let mut least = finite().fold(f32::INFINITY, f32::min);
            // Weights and norms begin at 0, so that colours of two heads can be compared.
            if of != PictureOf::Scores {
                least = least.min(0.0);
            }
            let (least, largest) = if largest < least { (0.0, 0.0) } else { (least, largest) };
            codes.extend(reduced.iter().map(|&x| code(x, least, largest)));
            low.push(least);
            high.push(largest);
        }
        Picture {
            of,
            heads: self.count,
            rows,
            columns,
            queries_a_row: row_step,
            keys_a_column: column_step,
            low,
            high,
            codes: Base64(codes),
        }
    }

    /// Rows and columns that are drawn as one. The longer side is reduced first.
    fn cells_in_one(self, most_cells: usize) -> (usize, usize) {
        let (mut row, mut column) = (1, 1);
        let cells =
            |row: usize, column: usize| self.count * self.rows.div_ceil(row) * self.columns.div_ceil(column);
        while cells(row, column) > most_cells.max(self.count) {
            match self.rows.div_ceil(row) > self.columns.div_ceil(column) {
                true => row += 1,
                false => column += 1,
            }
        }
        (row, column)
    }
}

/// The largest value of each group; a NaN stays one.
fn reduce(
    matrix: &[f32],
    width: usize,
    (row_step, column_step): (usize, usize),
    (rows, columns): (usize, usize),
) -> Vec<f32> {
    if (row_step, column_step) == (1, 1) {
        return matrix.to_vec();
    }
    let mut out = vec![f32::NEG_INFINITY; rows * columns];
    for (r, row) in matrix.chunks(width.max(1)).enumerate() {
        let line = &mut out[r / row_step * columns..][..columns];
        for (cell, group) in line.iter_mut().zip(row.chunks(column_step)) {
            for &x in group {
                // `f32::max` would drop a NaN; keep it.
                *cell = if x.is_nan() || cell.is_nan() { f32::NAN } else { cell.max(x) };
            }
        }
    }
    out
}

/// The code of a value between two others.
pub(super) fn code(x: f32, low: f32, high: f32) -> u8 {
    match x.is_finite() {
        true if high > low => ((x - low) / (high - low) * LARGEST).round().clamp(0.0, LARGEST) as u8,
        true => 0,
        false => NOT_FINITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_matrix_is_whole_and_its_ends_are_exact() {
        let values = [0.0, 0.25, 0.5, 1.0];
        let picture =
            Matrices { values: &values, count: 1, rows: 2, columns: 2 }.picture(PictureOf::Weights, 100);
        assert_eq!((picture.rows, picture.columns, picture.queries_a_row), (2, 2, 1));
        assert_eq!((picture.low[0], picture.high[0]), (0.0, 1.0));
        assert_eq!(picture.codes.0, [0, 64, 127, 254]);
    }

    #[test]
    fn a_reduced_matrix_keeps_the_largest_of_every_group() {
        let (rows, columns) = (40, 90);
        let values: Vec<f32> = (0..rows * columns).map(|i| ((i * 7919) % 1000) as f32).collect();
        let picture = Matrices { values: &values, count: 1, rows, columns }.picture(PictureOf::Weights, 400);
        assert!(picture.rows * picture.columns <= 400, "{} × {}", picture.rows, picture.columns);
        for (r, row) in picture.codes.0.chunks(picture.columns).enumerate() {
            let (from, to) = (r * picture.queries_a_row, ((r + 1) * picture.queries_a_row).min(rows));
            let largest = values[from * columns..to * columns].iter().copied().fold(0.0, f32::max);
            let shown = f32::from(*row.iter().max().unwrap()) / LARGEST * picture.high[0];
            assert!((shown - largest).abs() <= picture.high[0] / LARGEST, "{shown} for {largest}");
        }
    }

    #[test]
    fn what_is_not_finite_has_its_own_code() {
        let values = [f32::NEG_INFINITY, -1.0, 2.0, f32::NAN];
        let picture =
            Matrices { values: &values, count: 1, rows: 2, columns: 2 }.picture(PictureOf::Scores, 100);
        assert_eq!(picture.codes.0, [255, 0, 254, 255]);
        let empty = Matrices { values: &[], count: 1, rows: 0, columns: 0 };
        assert!(empty.picture(PictureOf::Weights, 100).codes.0.is_empty());
    }
}
