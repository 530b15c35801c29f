//! Scores to weights, and how far the weights may be off where the scores are rounded.

use super::matrix::Matrix;
use super::recipe::WorkedNormaliser;
use super::rounded::Rounded;

/// Scores to weights. A row in which nothing may be seen has no weights: all are 0.
pub(super) fn normalise(how: WorkedNormaliser, scores: &Rounded) -> Option<Rounded> {
    let all = |m: &Matrix| Matrix::new(1, m.rows() * m.columns(), m.values().to_vec());
    Some(match how {
        WorkedNormaliser::Softmax => by_rows(scores, softmax, softmax_reach),
        WorkedNormaliser::Columns => by_rows(&scores.transposed(), softmax, softmax_reach).transposed(),
        WorkedNormaliser::Everything => {
            let reach = match &scores.reach {
                Some(reach) => Some(all(reach)?),
                None => None,
            };
            let one_row = by_rows(&Rounded::new(all(&scores.middle)?, reach), softmax, softmax_reach);
            let [rows, columns] = scores.middle.shape();
            let shaped = |m: Matrix| Matrix::new(rows, columns, m.values().to_vec());
            Rounded::new(shaped(one_row.middle)?, one_row.reach.and_then(shaped))
        }
        WorkedNormaliser::Shares => by_rows(scores, shares, shares_reach),
        WorkedNormaliser::Sigmoid => rising(scores, |x| 1.0 / (1.0 + (-x).exp())),
        WorkedNormaliser::Exponentials => rising(scores, f64::exp),
        WorkedNormaliser::Skipped => scores.clone(),
    })
}

fn by_rows(
    scores: &Rounded,
    of: impl Fn(&[f64]) -> Vec<f64>,
    reach_of: impl Fn(&[f64], &[f64]) -> Vec<f64>,
) -> Rounded {
    let middle = scores.middle.map_rows(of);
    let reach = scores.reach.as_ref().and_then(|reach| {
        let rows = scores.middle.each_row().zip(reach.each_row());
        Matrix::new(middle.rows(), middle.columns(), rows.flat_map(|(x, r)| reach_of(x, r)).collect())
    });
    Rounded::new(middle, reach)
}

/// Each cell by a function that rises.
fn rising(scores: &Rounded, f: impl Fn(f64) -> f64) -> Rounded {
    let reach = |x: f64, r: f64| (f(x + r) - f(x)).max(f(x) - f(x - r));
    let reach = scores.reach.as_ref().and_then(|reaches| scores.middle.zip(reaches, reach));
    Rounded::new(scores.middle.map(&f), reach)
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return vec![0.0; row.len()];
    }
    let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / sum).collect()
}

/// A weight is least where its own score is least and all others are most, and the other way round.
fn softmax_reach(row: &[f64], reach: &[f64]) -> Vec<f64> {
    let most = row.iter().zip(reach).map(|(x, r)| x + r).fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return vec![0.0; row.len()];
    }
    let power =
        |sign: f64| -> Vec<f64> { row.iter().zip(reach).map(|(x, r)| (x + sign * r - most).exp()).collect() };
    let (low, high) = (power(-1.0), power(1.0));
    let (low_others, high_others) = (sums_of_others(&low), sums_of_others(&high));
    // 0/0 only where everything underflows: nothing is known then.
    let share =
        |own: f64, others: f64, unknown: f64| if own + others > 0.0 { own / (own + others) } else { unknown };
    let cell = |(i, weight): (usize, &f64)| {
        let (least, largest) = (share(low[i], high_others[i], 0.0), share(high[i], low_others[i], 1.0));
        (largest - weight).max(weight - least).max(0.0)
    };
    softmax(row).iter().enumerate().map(cell).collect()
}

/// For each number the sum of all others, without a difference that would cancel.
fn sums_of_others(numbers: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; numbers.len()];
    let (mut before, mut after) = (0.0, 0.0);
    for (i, x) in numbers.iter().enumerate() {
        sums[i] += before;
        before += x;
    }
    for (i, x) in numbers.iter().enumerate().rev() {
        sums[i] += after;
        after += x;
    }
    sums
}

fn shares(row: &[f64]) -> Vec<f64> {
    let sum: f64 = row.iter().filter(|x| x.is_finite()).sum();
    row.iter().map(|&x| if x.is_finite() { x / sum } else { 0.0 }).collect()
}

/// |x/s − x'/s'| is at most (r + |x/s|·R) / (|s| − R). A sum that may be 0 says nothing of its shares.
fn shares_reach(row: &[f64], reach: &[f64]) -> Vec<f64> {
    let finite = || row.iter().zip(reach).filter(|(x, _)| x.is_finite());
    let (sum, sum_reach): (f64, f64) = finite().fold((0.0, 0.0), |(s, t), (x, r)| (s + x, t + r));
    let left = sum.abs() - sum_reach;
    let cell = |(&x, &r): (&f64, &f64)| match x.is_finite() && left > 0.0 {
        true => (r + (x / sum).abs() * sum_reach) / left,
        false => 0.0,
    };
    row.iter().zip(reach).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the scores were before they were rounded, their weights are within reach, and some reach it.
        #[test]
        fn weights_of_unrounded_scores_are_within_reach(
            scores in prop::collection::vec(-3.0..3.0f64, 4), moved in prop::collection::vec(-1.0..=1.0f64, 4),
        ) {
            let r = 0.05;
            let rounded = Rounded::new(Matrix::new(1, 4, scores.clone()).unwrap(), Matrix::new(1, 4, vec![r; 4]));
            let unrounded = scores.iter().zip(&moved).map(|(x, m)| x + m * r).collect();
            let unrounded = Rounded::exact(Matrix::new(1, 4, unrounded).unwrap());
            for how in [WorkedNormaliser::Softmax, WorkedNormaliser::Everything, WorkedNormaliser::Sigmoid, WorkedNormaliser::Exponentials, WorkedNormaliser::Columns] {
                let (near, exact) = (normalise(how, &rounded).unwrap(), normalise(how, &unrounded).unwrap());
                let cells = near.middle.row(0).iter().zip(exact.middle.row(0)).zip(near.reach_of(0));
                for ((x, y), reach) in cells {
                    prop_assert!((x - y).abs() <= reach + 1e-12, "{how:?}: {x} {y} {reach}");
                    prop_assert!(*reach < 0.06 * x.max(1.0) , "{how:?}: {reach} is no use");
                }
            }
        }
    }

    #[test]
    fn hidden_keys_and_rows_that_see_nothing_are_certain() {
        let hidden = f64::NEG_INFINITY;
        let scores = Matrix::new(2, 2, vec![0.3, hidden, hidden, hidden]).unwrap();
        let reach = Matrix::new(2, 2, vec![0.05, 0.0, 0.0, 0.0]);
        let weights = normalise(WorkedNormaliser::Softmax, &Rounded::new(scores, reach)).unwrap();
        assert_eq!(weights.middle.values(), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(weights.reach.unwrap().values(), [0.0; 4]);
    }
}
