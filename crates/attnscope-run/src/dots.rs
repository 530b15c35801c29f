//! Many dot products at once, in f64: every row of one matrix with every row of another. These are the sums of the formulas,
//! blocked so that checking a whole model takes seconds.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::limits::Cancel;

/// Rows of the result that are computed by one task, at most: what they read stays in the cache.
const ROWS: usize = 64;
/// Rows that share the loaded values of the other matrix. A task has a multiple of them, so that sums do not depend on the
/// number
/// of threads.
const TOGETHER: usize = 4;
/// Sums are kept in this many parts, so that additions can run in parallel.
const LANES: usize = 8;

/// The rows of the right matrix, one at a time.
pub(crate) type Fill<'a> = dyn Fn(usize, &mut [f64]) + Sync + 'a;

/// `out[i, j]` is the dot product of row `i` of `left`, which has rows of `width`, and row `j` of the right matrix, which
/// `fill` writes out; `finish(j, sum)` is applied to each sum. `out` has rows of `columns`. What is cancelled is left undone.
pub(crate) fn dots(
    cancel: &Cancel,
    out: &mut [f64],
    left: &[f64],
    [width, columns]: [usize; 2],
    fill: &Fill<'_>,
    finish: impl Fn(usize, f64) -> f64 + Sync,
) {
    let rows = left.len() / width.max(1);
    let share = rows.div_ceil(rayon::current_num_threads()).next_multiple_of(TOGETHER);
    let high = share.clamp(TOGETHER, ROWS);
    let arch = Arch::new();
    let task = |(out, left): (&mut [f64], &[f64])| {
        let mut right = vec![0.0; width];
        for j in (0..columns).take_while(|_| !cancel.is_cancelled()) {
            fill(j, &mut right);
            arch.dispatch(Column { left, right: &right, out: &mut out[j..], stride: columns });
        }
        for row in out.chunks_exact_mut(columns) {
            row.iter_mut().enumerate().for_each(|(j, sum)| *sum = finish(j, *sum));
        }
    };
    if width * columns > 0 {
        out.par_chunks_mut(high * columns).zip(left.par_chunks(high * width)).for_each(task);
    }
}

/// Some rows with one: a column of the result.
struct Column<'a> {
    left: &'a [f64],
    right: &'a [f64],
    out: &'a mut [f64],
    stride: usize,
}

impl WithSimd for Column<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { left, right, out, stride } = self;
        let width = right.len().max(1);
        let mut rows = left.chunks_exact(width * TOGETHER);
        let mut at = 0;
        for four in rows.by_ref() {
            let mut parts = [[0.0; LANES]; TOGETHER];
            let whole = width / LANES * LANES;
            let mut i = 0;
            while i < whole {
                let w = &right[i..i + LANES];
                for (r, parts) in parts.iter_mut().enumerate() {
                    let x = &four[r * width + i..][..LANES];
                    for lane in 0..LANES {
                        parts[lane] += x[lane] * w[lane];
                    }
                }
                i += LANES;
            }
            for (r, parts) in parts.iter().enumerate() {
                let rest = &four[r * width + whole..(r + 1) * width];
                let rest: f64 = rest.iter().zip(&right[whole..]).map(|(x, w)| x * w).sum();
                out[at * stride] = parts.iter().sum::<f64>() + rest;
                at += 1;
            }
        }
        for row in rows.remainder().chunks_exact(width) {
            out[at * stride] = row.iter().zip(right).map(|(x, w)| x * w).sum();
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;

    #[test]
    fn every_pair_of_rows_is_multiplied() {
        let mut random = SplitMix::new(5);
        let mut some = |n: usize| (0..n).map(|_| f64::from(random.unit())).collect::<Vec<f64>>();
        for (rows, columns, width) in
            [(1, 1, 1), (5, 3, 7), (130, 257, 19), (64, 128, 8), (3, 0, 4), (0, 3, 4)]
        {
            let (left, right) = (some(rows * width), some(columns * width));
            let fill = |j: usize, row: &mut [f64]| row.copy_from_slice(&right[j * width..][..width]);
            let mut found = vec![0.0; rows * columns];
            dots(&Cancel::default(), &mut found, &left, [width, columns], &fill, |j, sum| sum + j as f64);
            for i in 0..rows {
                for j in 0..columns {
                    let (x, w) = (&left[i * width..][..width], &right[j * width..][..width]);
                    let plain = x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() + j as f64;
                    assert!((found[i * columns + j] - plain).abs() < 1e-12, "{rows} {columns} {width}");
                }
            }
        }
    }
}
