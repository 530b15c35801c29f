//! The numbers that rules decide by. A TOML file may set any of them.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

/// What is measured is compared with these. The names are the keys of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// wiring-mismatch: nats per token that another wiring must gain.
    pub wiring_gain: f64,
    /// wiring-mismatch: the largest p, corrected for the number of hypotheses.
    pub wiring_p: f64,
    /// misconverted-weight: nats per token that a repair of the weights must gain.
    pub repair_gain: f64,
    /// ill-fitting-pairs: nats per token that an edit of the pairs must gain.
    pub pairs_gain: f64,
    /// source-ignored: nats a token that swapping the sources must cost.
    pub source_cost: f64,
    /// dead-head: output norm, of the mean over the heads beside it.
    pub dead_norm: f64,
    /// dead-head: nats per token that its removal may change.
    pub dead_cost: f64,
    /// duplicate-heads: Jensen-Shannon divergence of their weights, in nats.
    pub duplicate_divergence: f64,
    /// duplicate-heads: cosine of their outputs.
    pub duplicate_cosine: f64,
    /// attention-sink: the share of what uniform attention gives to other positions that one position gathers.
    pub sink: f64,
    /// entropy-collapse: normalised entropy, the mean over the heads of an attention.
    pub collapsed_entropy: f64,
    /// uniform-attention: the same, from above.
    pub uniform_entropy: f64,
    /// drowned-branch: norm of a sublayer's output, of the stream's that it joins.
    pub drowned_branch: f64,
    /// drowning-branch: the same, from above.
    pub drowning_branch: f64,
    /// position-ignored: how far logits move when words are exchanged, as a share of their spread.
    pub position_effect: f64,
}

/// A text that is not a valid file of thresholds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", Place(*.place))]
pub struct ThresholdsError {
    /// Line and column, from 1, of what is wrong.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub why: String,
}

/// `3:14: `, or nothing.
struct Place(Option<(usize, usize)>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |(line, column)| write!(f, "{line}:{column}: "))
    }
}

impl ThresholdsError {
    fn at(text: &str, byte: Option<usize>, why: String) -> Self {
        let place = |at: usize| {
            let before = text.get(..at).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            (line, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
        };
        Self { place: byte.map(place), why }
    }
}

impl Thresholds {
    /// Reads a TOML file's text.
    ///
    /// # Errors
    /// When a key is unknown or a value is not a usable number; the error says where.
    pub fn parse(text: &str) -> Result<Self, ThresholdsError> {
        let thresholds: Self = toml::from_str(text).map_err(|e| {
            ThresholdsError::at(text, e.span().map(|span| span.start), e.message().replace('\n', " "))
        })?;
        let Some(key) = thresholds.unusable() else { return Ok(thresholds) };
        let span = value_of(text, &key);
        let found = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
        let why = format!("{key}: expected a finite number of 0 or more, found {found}");
        Err(ThresholdsError::at(text, span.map(|span| span.start), why))
    }

    /// The first key with an unusable value: NaN, infinite or negative.
    pub fn unusable(&self) -> Option<String> {
        let values = serde_json::to_value(self).ok()?;
        let fits = |value: &serde_json::Value| value.as_f64().is_some_and(|x| x.is_finite() && x >= 0.0);
        values.as_object()?.iter().find(|(_, value)| !fits(value)).map(|(key, _)| key.clone())
    }
}

/// Where the value of a key stands.
fn value_of(text: &str, key: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    table.get_ref().iter().find(|(name, _)| &**name.get_ref() == key).map(|(_, value)| value.span())
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            wiring_gain: 0.01,
            wiring_p: 0.01,
            repair_gain: 0.02,
            pairs_gain: 0.1,
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
    fn errors_have_the_line_and_column_of_what_is_wrong() {
        for (text, at, what) in [
            ("sink = 0.2\n# one\nsinc = 1.0\n", (3, 1), "unknown field `sinc`"),
            ("sink = 0.2\nwiring_p = \"a\"\n", (2, 12), "string \"a\""),
            (
                "sink = 0.2\n\n dead_cost = -0.1\n",
                (3, 14),
                "dead_cost: expected a finite number of 0 or more, found -0.1",
            ),
            ("sink = 0.2\nsink = 0.3\n", (2, 1), "duplicate"),
            ("sink = \n", (1, 8), ""),
        ] {
            let error = Thresholds::parse(text).unwrap_err();
            assert_eq!(error.place, Some(at), "{text}: {error}");
            assert!(error.why.contains(what), "{error}");
            assert!(error.to_string().starts_with(&format!("{}:{}: ", at.0, at.1)), "{error}");
        }
        assert_eq!(Thresholds::parse("sink = 0.5\n").unwrap().sink, 0.5);
    }

    #[test]
    fn what_cannot_be_compared_with_is_named() {
        assert_eq!(Thresholds::default().unusable(), None);
        for bad in [f64::NAN, f64::INFINITY, -0.1] {
            let thresholds = Thresholds { wiring_p: bad, ..Thresholds::default() };
            assert_eq!(thresholds.unusable().as_deref(), Some("wiring_p"), "{bad}");
        }
    }
}
