//! Dynamic time warping: the cheapest way through a matrix from its first cell to its last.

/// For each row the first column that the cheapest monotonic path has in it. The path steps down, right, or both.
/// `cost` is [row, column] with `columns` columns, at least one of each.
pub(super) fn first_columns(cost: &[f64], columns: usize) -> Vec<usize> {
    let rows = cost.len() / columns.max(1);
    if rows == 0 {
        return Vec::new();
    }
    // Infinity before the first row and column, except in the corner.
    let mut above = vec![f64::INFINITY; columns + 1];
    above[0] = 0.0;
    let mut steps = vec![Step::Right; rows * columns];
    for (costs, steps) in cost.chunks_exact(columns).zip(steps.chunks_exact_mut(columns)) {
        let mut row = vec![f64::INFINITY; columns + 1];
        for (j, (cost, step)) in costs.iter().zip(steps).enumerate() {
            let (both, down, right) = (above[j], above[j + 1], row[j]);
            let best = if both < down && both < right {
                (both, Step::Both)
            } else if down < both && down < right {
                (down, Step::Down)
            } else {
                (right, Step::Right)
            };
            row[j + 1] = cost + best.0;
            *step = best.1;
        }
        above = row;
    }
    let (mut i, mut j) = (rows - 1, columns - 1);
    let mut first = vec![0; rows];
    loop {
        first[i] = j;
        let step = match (i, j) {
            (0, 0) => return first,
            (0, _) => Step::Right,
            (_, 0) => Step::Down,
            _ => steps[i * columns + j],
        };
        i -= usize::from(step != Step::Right);
        j -= usize::from(step != Step::Down);
    }
}

/// How the path came to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Down,
    Right,
    Both,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bright_diagonal_is_followed() {
        // What dtw_cpu of OpenAI's whisper/timing.py gives; between paths of equal cost it takes the longer one.
        for (elsewhere, expected) in [(1.0, [0, 2, 3]), (0.0, [0, 1, 2])] {
            let mut cost = [elsewhere; 15];
            [0, 1, 7, 13, 14].into_iter().for_each(|bright| cost[bright] = -9.0);
            assert_eq!(first_columns(&cost, 5), expected);
        }
        assert_eq!(first_columns(&[1.0], 1), [0]);
        assert_eq!(first_columns(&[1.0, 2.0, 3.0], 1), [0, 0, 0]);
        assert_eq!(first_columns(&[], 3), [0; 0]);
    }

    /// Tries every path.
    fn cheapest(cost: &[f64], columns: usize, i: usize, j: usize) -> f64 {
        let rows = cost.len() / columns;
        let here = cost[i * columns + j];
        if (i + 1, j + 1) == (rows, columns) {
            return here;
        }
        let next =
            [(i + 1, j), (i, j + 1), (i + 1, j + 1)].into_iter().filter(|&(i, j)| i < rows && j < columns);
        here + next.map(|(i, j)| cheapest(cost, columns, i, j)).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_path_is_cheaper(columns in 1..5usize, cells in proptest::collection::vec(-1.0..1.0f64, 16)) {
            let cost = &cells[..cells.len() / columns * columns];
            let first = first_columns(cost, columns);
            // From one row's first column to the next row's, by either of the two steps.
            let mut total = f64::INFINITY;
            for choice in 0..1u32 << (first.len() - 1) {
                let mut sum = 0.0;
                let mut valid = true;
                for (i, &from) in first.iter().enumerate() {
                    let to = match first.get(i + 1) {
                        None => columns - 1,
                        Some(&next) if choice >> i & 1 == 1 => next,
                        Some(&next) => next.wrapping_sub(1),
                    };
                    valid &= to != usize::MAX && to >= from;
                    sum += if valid { cost[i * columns + from..=i * columns + to].iter().sum() } else { 0.0 };
                }
                total = if valid { total.min(sum) } else { total };
            }
            prop_assert!((total - cheapest(cost, columns, 0, 0)).abs() < 1e-9);
        }
    }
}
