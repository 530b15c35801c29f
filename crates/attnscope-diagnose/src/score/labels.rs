//! The NLL of a row's labels, from its logits.

use attnscope_run::{BETAS, log_sum_exps};

use super::AS_IT_IS;
use crate::corpus::Decoded;

/// The score of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Score {
    pub(super) nll: [f64; BETAS.len()],
    pub(super) expected: f64,
    pub(super) right: usize,
}

/// −Σ ln p(label) over the labels of a row, what the model expects of it, and how many labels come first; `logits` are
/// [position, vocabulary].
pub(super) fn judge(logits: &[f32], width: usize, decoded: &Decoded) -> Score {
    let rows = logits.chunks(width.max(1)).skip(decoded.first).zip(&decoded.labels);
    let mut score = Score::default();
    for (row, &label) in rows {
        let of_label = surprise(row, label);
        score.nll.iter_mut().zip(of_label.nll).for_each(|(sum, nll)| *sum += nll);
        score.expected += of_label.expected;
        score.right += of_label.right;
    }
    score
}

/// −Σ ln p(label) over a row's labels in nats: `logits` are [position, vocabulary], and those of `first` predict the first label.
pub fn nll_of_labels(logits: &[f32], width: usize, first: usize, labels: &[u32]) -> f64 {
    let rows = logits.chunks(width.max(1)).skip(first).zip(labels);
    rows.map(|(row, &label)| surprise(row, label).nll[AS_IT_IS]).sum()
}

/// −ln softmax(β·row)[label] for every β, the entropy of softmax(row), and whether nothing in the row is larger.
fn surprise(row: &[f32], label: u32) -> Score {
    let (mut nll, mean) = log_sum_exps(row);
    let expected = nll[AS_IT_IS] - mean;
    let Some(&own) = row.get(label as usize) else {
        return Score { nll: [f64::INFINITY; BETAS.len()], expected, right: 0 };
    };
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    nll.iter_mut().zip(BETAS).for_each(|(nll, beta)| *nll -= beta * f64::from(own));
    Score { nll, expected, right: usize::from(own >= most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_that_of_a_softmax() {
        let row: Vec<f32> = (0..37).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for label in [0, 16, 36] {
            let expected = sum.ln() - f64::from(row[label]);
            assert!((surprise(&row, label as u32).nll[AS_IT_IS] - expected).abs() < 1e-5);
        }
        // The entropy is the mean of −ln p under p.
        let entropy: f64 = row.iter().map(|&x| f64::from(x).exp() / sum * (sum.ln() - f64::from(x))).sum();
        assert!((surprise(&row, 0).expected - entropy).abs() < 1e-5);
        let beyond = surprise(&row, 37);
        assert_eq!((beyond.nll, beyond.right), ([f64::INFINITY; BETAS.len()], 0));
        assert_eq!([1, 0].map(|label| surprise(&[0.5, 2.0, -1.0], label).right), [1, 0]);
    }

    #[test]
    fn only_labels_are_counted() {
        // A prompt of two tokens, then one label; two positions, a vocabulary of two.
        let decoded = Decoded { input: vec![0, 1], labels: vec![1], first: 1 };
        let even = judge(&[9.0, 0.0, 1.0, 1.0], 2, &decoded);
        assert!((even.nll[AS_IT_IS] - 2f64.ln()).abs() < 1e-6 && even.right == 1);
    }
}
