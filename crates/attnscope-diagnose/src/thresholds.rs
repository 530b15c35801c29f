//! The numbers that rules decide by. A TOML file may set any of them.

use serde::{Deserialize, Serialize};

/// What is measured is compared with these. The names are the keys of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// wiring-mismatch: nats a token that another wiring must gain.
    pub wiring_gain: f64,
    /// wiring-mismatch: the largest p, corrected for the number of hypotheses.
    pub wiring_p: f64,
    /// source-ignored: nats a token that a foreign source must cost.
    pub source_cost: f64,
    /// dead-head: output norm, of the mean over the heads beside it.
    pub dead_norm: f64,
    /// dead-head: nats a token that its absence may change.
    pub dead_cost: f64,
    /// duplicate-heads: Jensen-Shannon divergence of their weights, in nats.
    pub duplicate_divergence: f64,
    /// duplicate-heads: cosine of their outputs.
    pub duplicate_cosine: f64,
    /// attention-sink: mean weight on one position.
    pub sink: f64,
    /// entropy-collapse: normalised entropy, the mean over the heads of an attention.
    pub collapsed_entropy: f64,
    /// uniform-attention: the same, from above.
    pub uniform_entropy: f64,
    /// drowned-branch: norm of a sublayer's output, of the stream's that it joins.
    pub drowned_branch: f64,
    /// drowning-branch: the same, from above.
    pub drowning_branch: f64,
    /// position-ignored: how far logits move when words change places, of their spread.
    pub position_effect: f64,
}

impl Thresholds {
    /// The first key whose value nothing can be measured against: NaN, an infinity, or less than 0.
    pub fn unusable(&self) -> Option<String> {
        let values = serde_json::to_value(self).ok()?;
        let fits = |value: &serde_json::Value| value.as_f64().is_some_and(|x| x.is_finite() && x >= 0.0);
        values.as_object()?.iter().find(|(_, value)| !fits(value)).map(|(key, _)| key.clone())
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            wiring_gain: 0.01,
            wiring_p: 0.01,
            source_cost: 0.05,
            dead_norm: 0.1,
            dead_cost: 0.001,
            duplicate_divergence: 0.01,
            duplicate_cosine: 0.99,
            sink: 0.3,
            collapsed_entropy: 0.05,
            uniform_entropy: 0.98,
            drowned_branch: 0.003,
            drowning_branch: 100.0,
            position_effect: 1e-4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compared_with_is_named() {
        assert_eq!(Thresholds::default().unusable(), None);
        for bad in [f64::NAN, f64::INFINITY, -0.1] {
            let thresholds = Thresholds { wiring_p: bad, ..Thresholds::default() };
            assert_eq!(thresholds.unusable().as_deref(), Some("wiring_p"), "{bad}");
        }
    }
}
