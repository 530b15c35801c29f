//! Matrices in 8 bits, reduced where they are large.

use std::ops::Range;

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
    /// A picture of some queries and keys: padding around them is left out.
    pub(super) fn picture_of(
        self,
        [queries, keys]: &[Range<usize>; 2],
        of: PictureOf,
        most_bytes: usize,
    ) -> Picture {
        if (queries.len(), keys.len()) == (self.rows, self.columns) {
            return self.picture(of, most_bytes);
        }
        let matrices = self.values.chunks((self.rows * self.columns).max(1)).take(self.count);
        let rows = matrices
            .flat_map(|matrix| matrix.chunks(self.columns.max(1)).take(queries.end).skip(queries.start));
        let values: Vec<f32> = rows.flat_map(|row| row[keys.clone()].iter().copied()).collect();
        let part = Matrices { values: &values, count: self.count, rows: queries.len(), columns: keys.len() };
        Picture { first_query: queries.start, first_key: keys.start, ..part.picture(of, most_bytes) }
    }

    /// A picture of at most so many bytes. Of cells that are drawn as one, the largest is kept with its place, so that no peak
    /// is lost.
    pub(super) fn picture(self, of: PictureOf, most_bytes: usize) -> Picture {
        let each = self.cells_in_one(most_bytes);
        // A short side stays whole while the long one is reduced.
        let (row_step, column_step) = (each.0.min(self.rows.max(1)), each.1.min(self.columns.max(1)));
        let (rows, columns) = (self.rows.div_ceil(row_step), self.columns.div_ceil(column_step));
        let (mut low, mut high) = (Vec::new(), Vec::new());
        let mut codes = Vec::with_capacity(self.count * rows * columns);
        let mut places = Vec::new();
        for matrix in self.values.chunks((self.rows * self.columns).max(1)).take(self.count) {
            let (reduced, of_largest) =
                reduce(matrix, self.columns, (row_step, column_step), (rows, columns));
            places.extend(of_largest);
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
            first_query: 0,
            first_key: 0,
            queries_a_row: row_step,
            keys_a_column: column_step,
            low,
            high,
            codes: Base64(codes),
            places: (row_step * column_step > 1)
                .then(|| Base64(packed(&places, place_bits(row_step * column_step)))),
        }
    }

    /// Rows and columns that are drawn as one. The longer side is reduced first.
    fn cells_in_one(self, most_bytes: usize) -> (usize, usize) {
        let (mut row, mut column) = (1, 1);
        let cells = |row: usize, column: usize| self.rows.div_ceil(row) * self.columns.div_ceil(column);
        let bytes = |row: usize, column: usize| {
            let bits = self.count * cells(row, column) * (8 + place_bits(row * column));
            bits.div_ceil(8)
        };
        while bytes(row, column) > most_bytes && cells(row, column) > 1 {
            match self.rows.div_ceil(row) > self.columns.div_ceil(column) {
                true => row += 1,
                false => column += 1,
            }
        }
        (row, column)
    }
}

/// Bits that tell the cells of a group apart.
fn place_bits(group: usize) -> usize {
    (usize::BITS - group.saturating_sub(1).leading_zeros()) as usize
}

/// Numbers of so many bits, one after the other, the lowest bit first.
fn packed(numbers: &[usize], bits: usize) -> Vec<u8> {
    let mut out = vec![0; (numbers.len() * bits).div_ceil(8)];
    for (i, number) in numbers.iter().enumerate() {
        for bit in (0..bits).filter(|bit| number >> bit & 1 == 1) {
            let at = i * bits + bit;
            out[at / 8] |= 1 << (at % 8);
        }
    }
    out
}

/// The largest value of each group, and its place in the group, row by row. A NaN counts as the largest.
fn reduce(
    matrix: &[f32],
    width: usize,
    (row_step, column_step): (usize, usize),
    (rows, columns): (usize, usize),
) -> (Vec<f32>, Vec<usize>) {
    if (row_step, column_step) == (1, 1) {
        return (matrix.to_vec(), Vec::new());
    }
    let mut out = vec![f32::NEG_INFINITY; rows * columns];
    let mut places = vec![0; rows * columns];
    for (r, row) in matrix.chunks(width.max(1)).enumerate() {
        let line = r / row_step * columns;
        for (c, group) in row.chunks(column_step).enumerate() {
            let (cell, place) = (&mut out[line + c], &mut places[line + c]);
            for (i, &x) in group.iter().enumerate() {
                if !cell.is_nan() && (x.is_nan() || x > *cell) {
                    (*cell, *place) = (x, r % row_step * column_step + i);
                }
            }
        }
    }
    (out, places)
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
        assert_eq!(picture.places, None);
    }

    /// The numbers in bits that follow each other.
    fn unpacked(bytes: &[u8], bits: usize) -> Vec<usize> {
        let bit = |at: usize| usize::from(bytes[at / 8] >> (at % 8) & 1);
        let number = |i: usize| (0..bits).map(|b| bit(i * bits + b) << b).sum();
        (0..bytes.len() * 8 / bits).map(number).collect()
    }

    #[test]
    fn the_place_of_a_groups_largest_cell_is_kept() {
        let (rows, columns) = (41, 93);
        let values: Vec<f32> = (0..2 * rows * columns).map(|i| ((i * 7919) % 4001) as f32 / 4001.0).collect();
        let picture = Matrices { values: &values, count: 2, rows, columns }.picture(PictureOf::Weights, 900);
        let (down, across) = (picture.queries_a_row, picture.keys_a_column);
        let places = picture.places.as_ref().map(|places| places.0.as_slice()).unwrap();
        assert!(picture.codes.0.len() + places.len() <= 900, "{} + {}", picture.codes.0.len(), places.len());
        let places = unpacked(places, place_bits(down * across));
        for (i, &code) in picture.codes.0.iter().enumerate() {
            let (head, cell) = (i / (picture.rows * picture.columns), i % (picture.rows * picture.columns));
            let query = cell / picture.columns * down + places[i] / across;
            let key = cell % picture.columns * across + places[i] % across;
            let value = values[(head * rows + query) * columns + key];
            let shown = f32::from(code) / LARGEST * picture.high[head];
            assert!((shown - value).abs() <= picture.high[head] / LARGEST, "{shown} for {value}");
        }
    }

    #[test]
    fn a_part_of_a_matrix_is_drawn_with_its_place() {
        let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let all = Matrices { values: &values, count: 2, rows: 3, columns: 4 };
        let picture = all.picture_of(&[1..3, 1..3], PictureOf::Scores, 100);
        assert_eq!((picture.rows, picture.columns, picture.first_query, picture.first_key), (2, 2, 1, 1));
        // Cells 5, 6, 9 and 10 of each matrix of 12.
        assert_eq!((picture.low, picture.high), (vec![5.0, 17.0], vec![10.0, 22.0]));
        assert_eq!(picture.codes.0, [0, 51, 203, 254, 0, 51, 203, 254]);
        assert_eq!(
            all.picture_of(&[0..3, 0..4], PictureOf::Scores, 100),
            all.picture(PictureOf::Scores, 100)
        );
    }

    #[test]
    fn a_group_of_one_cell_needs_no_place() {
        assert_eq!([1, 2, 3, 4, 5, 256, 257].map(place_bits), [0, 1, 2, 2, 3, 8, 9]);
        assert_eq!(packed(&[1, 2, 3, 0, 7], 3), [0b1101_0001, 0b0111_0000]);
        // However little room there is, something is shown.
        let picture =
            Matrices { values: &[1.0; 12], count: 3, rows: 2, columns: 2 }.picture(PictureOf::Weights, 1);
        assert_eq!((picture.rows, picture.columns), (1, 1));
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
