//! How a measure is distributed over a corpus: count, mean, variance, and a t-digest for the quantiles. Two of them can be
//! merged, so that parts are summarised side by side.

use datasketches::tdigest::TDigestMut;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The centroids of a digest, as a compression; with it, a quantile's rank is off by less than [`RANK_ERROR`].
const COMPRESSION: u16 = 200;

/// How far the rank of a quantile may be from the one that was asked for. The tests hold digests that were merged from many
/// parts against sorted values.
pub const RANK_ERROR: f64 = 0.005;

/// The ranks of a distribution's quantiles.
const RANKS: [f64; 7] = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99];
/// The bins of a histogram.
const BINS: usize = 32;

/// How a measure is distributed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// How many values are finite.
    pub count: u64,
    /// How many are NaN or infinite; they are in none of the numbers here.
    pub non_finite: u64,
    /// The mean; absent where there are no values.
    pub mean: Option<f64>,
    /// The variance over n − 1; absent where there are fewer than two values.
    pub variance: Option<f64>,
    /// The smallest.
    pub min: Option<f64>,
    /// Quantiles at 0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99, from a t-digest: their ranks are off by less than 0.005.
    pub quantiles: Vec<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The shares of 32 equal bins between the 0.01 and the 0.99 quantile, from the same digest.
    pub histogram: Vec<f64>,
}

/// Collects values.
#[derive(Debug, Clone)]
pub(crate) struct Collected {
    count: u64,
    non_finite: u64,
    mean: f64,
    /// Σ (x − mean)²
    squares: f64,
    /// Absent only if the compression were refused.
    digest: Option<TDigestMut>,
}

impl Default for Collected {
    fn default() -> Self {
        Self { count: 0, non_finite: 0, mean: 0.0, squares: 0.0, digest: TDigestMut::new(COMPRESSION).ok() }
    }
}

impl Collected {
    pub(crate) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.non_finite += 1;
            return;
        }
        // Welford's update, so that large means do not swallow small variances.
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
        if let Some(digest) = &mut self.digest {
            digest.update(value);
        }
    }

    /// Chan's formula for the moments; a digest merges by itself.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.non_finite += other.non_finite;
        if other.count == 0 {
            return;
        }
        let (own, others) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.count += other.count;
        self.mean += apart * others / (own + others);
        self.squares += other.squares + apart * apart * own * others / (own + others);
        if let (Some(digest), Some(others)) = (&mut self.digest, &other.digest) {
            digest.merge(others);
        }
    }

    pub(crate) fn distribution(&mut self) -> Distribution {
        let digest = self.digest.as_mut();
        let (mut quantiles, mut histogram, mut ends) = (Vec::new(), Vec::new(), [None; 2]);
        if let Some(digest) = digest {
            quantiles = digest.quantiles(&RANKS).ok().flatten().unwrap_or_default();
            ends = [digest.min_value(), digest.max_value()];
            if let (Some(&low), Some(&high)) = (quantiles.first(), quantiles.last())
                && low < high
            {
                let step = (high - low) / BINS as f64;
                let edges: Vec<f64> = (0..=BINS).map(|i| low + step * i as f64).collect();
                let ranks = digest.cdf(&edges).ok().flatten().unwrap_or_default();
                histogram = ranks.windows(2).take(BINS).map(|pair| pair[1] - pair[0]).collect();
            }
        }
        Distribution {
            count: self.count,
            non_finite: self.non_finite,
            mean: (self.count > 0).then_some(self.mean),
            variance: (self.count > 1).then(|| self.squares / (self.count - 1) as f64),
            min: ends[0],
            quantiles,
            max: ends[1],
            histogram,
        }
    }
}

impl Distribution {
    /// The median, where there are values.
    pub fn median(&self) -> Option<f64> {
        self.quantiles.get(3).copied()
    }
}

#[cfg(test)]
mod tests {
    use attnscope_run::SplitMix;

    use super::*;

    fn collected(values: &[f64]) -> Collected {
        let mut collected = Collected::default();
        values.iter().for_each(|&value| collected.add(value));
        collected
    }

    /// Uniform values, values that are mostly 0, and values with a long tail; in one piece and in forty.
    #[test]
    fn quantiles_are_within_their_rank_error_however_parts_are_merged() {
        let mut dice = SplitMix::new(7);
        let mut unit = || dice.below(1 << 30) as f64 / f64::from(1u32 << 30);
        let kinds: [Vec<f64>; 3] = [
            (0..40_000).map(|_| unit()).collect(),
            (0..40_000).map(|_| (unit() - 0.7).max(0.0)).collect(),
            (0..40_000).map(|_| -unit().max(1e-9).ln()).collect(),
        ];
        for values in kinds {
            let mut merged = Collected::default();
            // Parts in the order of length are far from alike.
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            sorted.chunks(997).for_each(|part| merged.merge(&collected(part)));
            for mut found in [collected(&values), merged] {
                let distribution = found.distribution();
                for (rank, quantile) in RANKS.into_iter().zip(&distribution.quantiles) {
                    let share = |n: usize| n as f64 / values.len() as f64;
                    let below = share(sorted.partition_point(|x| x < quantile));
                    let up_to = share(sorted.partition_point(|x| x <= quantile));
                    assert!(
                        below - RANK_ERROR < rank && rank < up_to + RANK_ERROR,
                        "{rank}: {below} to {up_to}"
                    );
                }
                assert_eq!(distribution.count, 40_000);
            }
        }
    }

    #[test]
    fn moments_are_those_of_all_values() {
        let values: Vec<f64> = (0..1000).map(|i| 1e9 + f64::from(i % 10)).collect();
        let mut merged = Collected::default();
        values.chunks(7).for_each(|part| merged.merge(&collected(part)));
        merged.add(f64::NAN);
        let found = merged.distribution();
        assert!((found.mean.unwrap() - 1e9 - 4.5).abs() < 1e-6);
        // 10 values from 0 to 9: 8.25 over n, times n over n − 1.
        assert!((found.variance.unwrap() - 8.25 * 1000.0 / 999.0).abs() < 1e-6);
        assert_eq!((found.count, found.non_finite), (1000, 1));
        assert_eq!((found.min, found.max), (Some(1e9), Some(1e9 + 9.0)));
        assert!((found.histogram.iter().sum::<f64>() - 1.0).abs() < 0.12, "{:?}", found.histogram);
    }

    #[test]
    fn nothing_has_no_distribution() {
        let found = Collected::default().distribution();
        assert_eq!((found.count, found.mean, found.variance, found.min), (0, None, None, None));
        assert!(found.quantiles.is_empty() && found.histogram.is_empty());
    }
}
