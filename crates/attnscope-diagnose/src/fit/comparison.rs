//! Compares a candidate with a baseline on the same pairs.

use super::{FitTest, paired_test};
use crate::score::Scores;
use crate::student::PairedTest;

/// Baseline and candidate on the pairs where the baseline's NLL is finite. If the candidate's is not, it loses.
#[derive(Debug)]
pub(crate) struct Comparison {
    baseline: Scores,
    candidate: Scores,
    tokens: Vec<usize>,
}

impl FitTest<'_> {
    pub(crate) fn compare(&self, baseline: &Scores, candidate: &Scores) -> Comparison {
        Comparison::new(baseline, candidate, &self.tokens)
    }
}

impl Comparison {
    fn new(baseline: &Scores, candidate: &Scores, tokens: &[usize]) -> Self {
        let nll = baseline.nll();
        let finite: Vec<usize> = (0..nll.len()).filter(|&pair| nll[pair].is_finite()).collect();
        let tokens = finite.iter().map(|&pair| tokens[pair]).collect();
        Self { baseline: baseline.only(&finite), candidate: candidate.only(&finite), tokens }
    }

    /// Pairs that are compared.
    pub(crate) fn pairs(&self) -> usize {
        self.tokens.len()
    }

    /// NLL per token of the baseline; NaN where no pair is left.
    pub(crate) fn before(&self) -> f64 {
        self.mean(&self.baseline.nll())
    }

    /// NLL per token of the candidate.
    pub(crate) fn after(&self) -> f64 {
        self.mean(&self.candidate.nll())
    }

    /// What the candidate gains, each at its best temperature: for a model that was trained with label smoothing, every change
    /// that makes it more confident would seem a gain.
    pub(crate) fn gain(&self) -> PairedTest {
        self.test(&self.baseline.calibrated(), &self.candidate.calibrated())
    }

    /// What the candidate gains at temperature 1.
    pub(crate) fn plain_gain(&self) -> PairedTest {
        self.test(&self.baseline.nll(), &self.candidate.nll())
    }

    /// The share of labels that are the candidate's first choice.
    pub(crate) fn right(&self) -> f64 {
        self.candidate.right.iter().sum::<usize>() as f64 / self.tokens.iter().sum::<usize>() as f64
    }

    /// How many more labels are the candidate's first choice.
    pub(crate) fn more_right(&self) -> isize {
        let right = |scores: &Scores| scores.right.iter().sum::<usize>() as isize;
        right(&self.candidate) - right(&self.baseline)
    }

    fn test(&self, before: &[f64], after: &[f64]) -> PairedTest {
        let gains: Vec<f64> = before.iter().zip(after).map(|(a, b)| a - b).collect();
        paired_test(&gains, &self.tokens)
    }

    fn mean(&self, sums: &[f64]) -> f64 {
        sums.iter().sum::<f64>() / self.tokens.iter().sum::<usize>() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_the_baseline_loses_is_left_out_and_one_that_the_candidate_loses_is_not() {
        let compared = |base: &[f64], scores: &[f64]| {
            Comparison::new(&Scores::even(base), &Scores::even(scores), &[2, 2, 4])
        };
        let cured = compared(&[4.0, f64::NAN, 8.0], &[2.0, 1.0, 4.0]);
        assert_eq!((cured.before(), cured.after(), cured.pairs()), (2.0, 1.0, 2));
        assert_eq!((cured.plain_gain().mean, cured.gain().mean), (1.0, 1.0));
        let lost = compared(&[4.0, 6.0, 8.0], &[2.0, f64::NAN, 4.0]);
        assert!(lost.before() == 2.25 && lost.after().is_nan() && lost.plain_gain().p == 1.0);
        assert!(compared(&[f64::NAN; 3], &[1.0; 3]).before().is_nan());
    }
}
