//! The confidence of a mean over sentences: the paired bootstrap (Koehn 2004), which resamples whole sentences.

use attnscope_run::SplitMix;

/// A mean per token over resampled sentences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean over the given sentences.
    pub mean: f64,
    /// 2.5 % of the resamples lie below.
    pub low: f64,
    /// 2.5 % lie above.
    pub high: f64,
    /// The share of resamples whose mean is not above 0: the one-sided p. At least 2⁻ⁿ for n sentences, the chance that a coin
    /// falls n times on the same side: resampling cannot make few sentences more certain.
    pub p: f64,
}

/// The mean per token of a sum per sentence. The same numbers give the same estimate.
pub fn bootstrap(sums: &[f64], tokens: &[usize], resamples: usize) -> Estimate {
    let n = sums.len().min(tokens.len());
    let all: f64 = sums.iter().take(n).sum();
    let count: usize = tokens.iter().take(n).sum();
    if n == 0 || count == 0 {
        return Estimate { mean: f64::NAN, low: f64::NAN, high: f64::NAN, p: 1.0 };
    }
    let mut random = SplitMix::new(0x5EED);
    let mut means: Vec<f64> = (0..resamples.max(1))
        .map(|_| {
            let (mut sum, mut length) = (0.0, 0);
            for _ in 0..n {
                let i = random.below(n);
                sum += sums[i];
                length += tokens[i];
            }
            sum / length.max(1) as f64
        })
        .collect();
    let none = means.iter().filter(|mean| mean.is_nan() || **mean <= 0.0).count();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((means.len() - 1) as f64 * share).round() as usize];
    Estimate {
        mean: all / count as f64,
        low: at(0.025),
        high: at(0.975),
        p: ((none + 1) as f64 / (means.len() + 1) as f64).max(0.5f64.powf(n as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_effect_is_sure_and_noise_is_not() {
        let steady: Vec<f64> = (0..100).map(|i| 1.0 + f64::from(i % 7) * 0.1).collect();
        let tokens = vec![10; 100];
        let estimate = bootstrap(&steady, &tokens, 2000);
        assert!((estimate.mean - 0.1295).abs() < 1e-9 && estimate.p < 0.001, "{estimate:?}");
        assert!(estimate.low > 0.12 && estimate.high < 0.14, "{estimate:?}");
        let noise: Vec<f64> = (0..100).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let estimate = bootstrap(&noise, &tokens, 2000);
        assert!(estimate.p > 0.2 && estimate.low < 0.0 && estimate.high > 0.0, "{estimate:?}");
    }

    /// The interval of a mean of n values has the width that theory gives it: 2 · 1.96 · s / √n.
    #[test]
    fn the_interval_is_as_wide_as_theory_says() {
        let mut random = SplitMix::new(7);
        let values: Vec<f64> = (0..400).map(|_| random.below(1000) as f64 / 1000.0).collect();
        let estimate = bootstrap(&values, &vec![1; 400], 4000);
        let expected = 2.0 * 1.96 * (1.0 / 12f64).sqrt() / 20.0;
        assert!(((estimate.high - estimate.low) / expected - 1.0).abs() < 0.15, "{estimate:?}");
    }

    /// However large an effect is, few sentences do not prove it.
    #[test]
    fn few_sentences_are_never_sure() {
        for (n, least) in [(1, 0.5), (2, 0.25), (5, 0.03125)] {
            let estimate = bootstrap(&vec![9.0; n], &vec![1; n], 10_000);
            assert_eq!(estimate.p, least, "{n} sentences");
        }
    }

    #[test]
    fn nothing_gives_no_certainty() {
        assert_eq!(bootstrap(&[], &[], 10).p, 1.0);
    }
}
