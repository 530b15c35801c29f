//! The tail of Student's t, so that a p-value can be as small as a correction for many hypotheses needs: resampling cannot
//! show less than one in the number of resamples.

/// The gain of each pair, per token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PairedTest {
    /// Mean gain in nats per token.
    pub(crate) mean: f64,
    /// How likely so large a mean is by chance if there is no gain. Not corrected for the number of hypotheses.
    pub(crate) p: f64,
    /// The standard error of the mean; infinite where nothing can be said.
    pub(crate) error: f64,
}

/// A one-sided test of a ratio of sums (gains over tokens) with its standard error by the delta method. `p` is 1 where nothing
/// can be said, and at least 2⁻ⁿ for n pairs, the chance that a coin falls n times on the same side.
pub(crate) fn paired_test(gains: &[f64], tokens: &[usize]) -> PairedTest {
    let n = gains.len().min(tokens.len());
    let count: usize = tokens.iter().take(n).sum();
    let sum: f64 = gains.iter().take(n).sum();
    let mean = sum / count as f64;
    if n < 2 || !mean.is_finite() {
        return PairedTest { mean, p: 1.0, error: f64::INFINITY };
    }
    let squares: f64 = gains.iter().zip(tokens).map(|(gain, &t)| (gain - mean * t as f64).powi(2)).sum();
    let freedom = (n - 1) as f64;
    let error = (squares * n as f64 / freedom).sqrt() / count as f64;
    let p = if error > 0.0 { upper_tail(mean / error, freedom) } else { f64::from(u8::from(mean <= 0.0)) };
    PairedTest { mean, p: p.max(0.5f64.powf(n as f64)), error }
}

/// P(T > t) for Student's t with so many degrees of freedom.
fn upper_tail(t: f64, freedom: f64) -> f64 {
    if t.is_nan() {
        return 1.0;
    }
    let half = 0.5 * regular_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t > 0.0 { half } else { 1.0 - half }
}

/// The regularised incomplete beta function I_x(a, b), by the continued fraction of DLMF 8.17.22.
fn regular_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean of the distribution only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - regular_beta(1.0 - x, b, a);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp() / a;
    front * beta_fraction(x, a, b)
}

/// The continued fraction, by the modified Lentz method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const LEAST: f64 = 1e-300;
    let guarded = |value: f64| if value.abs() < LEAST { LEAST } else { value };
    let (mut c, mut d) = (1.0, 1.0 / guarded(1.0 - (a + b) * x / (a + 1.0)));
    let mut result = d;
    for m in 1..=300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = result;
        for term in [even, odd] {
            d = 1.0 / guarded(1.0 + term * d);
            c = guarded(1.0 + term / c);
            result *= c * d;
        }
        if (result - before).abs() <= 1e-14 * result.abs() {
            break;
        }
    }
    result
}

/// ln Γ(x) for x > 0, by Lanczos's approximation (g = 7, nine terms).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum =
        TERMS.iter().zip(1..).fold(0.999_999_999_999_809_9, |sum, (term, i)| sum + term / (x + f64::from(i)));
    let base = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * base.ln() - base + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of scipy.stats.t.sf.
    #[test]
    fn the_tail_is_that_of_tables() {
        let cases = [
            (0.0, 5.0, 0.5),
            (2.093_024_05, 19.0, 0.025),
            (-2.093_024_05, 19.0, 0.975),
            (3.0, 3.0, 0.028_834_442_811_219),
            (6.0, 19.0, 4.489_617_736e-6),
            (8.0, 199.0, 5.030_730_029e-14),
        ];
        for (t, freedom, expected) in cases {
            let ours = upper_tail(t, freedom);
            assert!((ours / expected - 1.0).abs() < 1e-7, "{t}, {freedom}: {ours:e} for {expected:e}");
        }
    }

    #[test]
    fn a_steady_gain_is_sure_and_noise_is_not() {
        let tokens = vec![10; 60];
        let steady: Vec<f64> = (0..60).map(|i| 1.0 + f64::from(i % 7) * 0.1).collect();
        let sure = paired_test(&steady, &tokens);
        assert!((sure.mean - 0.129).abs() < 1e-9 && sure.p < 1e-12, "{sure:?}");
        let noise: Vec<f64> = (0..60).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        assert!(paired_test(&noise, &tokens).p > 0.4);
        let lost: Vec<f64> = steady.iter().map(|gain| -gain).collect();
        assert!(paired_test(&lost, &tokens).p > 0.999);
    }

    /// However large a gain is, few pairs do not prove it; a NaN counts as no gain.
    #[test]
    fn few_pairs_and_no_numbers_are_never_sure() {
        assert_eq!(paired_test(&[9.0; 5], &[1; 5]).p, 0.03125);
        assert_eq!(paired_test(&[9.0], &[1]).p, 1.0);
        assert_eq!(paired_test(&[], &[]).p, 1.0);
        assert_eq!(paired_test(&[1.0, f64::NAN, 1.0], &[1; 3]).p, 1.0);
        assert_eq!(paired_test(&[0.0; 30], &[1; 30]).p, 1.0);
    }
}
