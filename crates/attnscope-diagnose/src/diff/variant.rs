//! The ways in which a step differs, for relations that have several.

use attnscope_graph::RotaryPairs;
use serde_json::{Value, json};

/// How queries and keys are rotated in another way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OtherRotary {
    /// Other features are a pair.
    Layout(RotaryPairs),
    /// Another base.
    Theta(f64),
    /// Positions are off by so many.
    Shift(i64),
    /// Frequencies are not scaled.
    NoScaling,
    /// All features are rotated, where only a share should be.
    AllFeatures,
}

impl OtherRotary {
    pub(super) fn detail(self) -> Value {
        match self {
            Self::Layout(pairs) => json!({ "how": "layout", "layout": pairs }),
            Self::Theta(theta) => json!({ "how": "theta", "theta": theta }),
            Self::Shift(by) => json!({ "how": "position", "by": by }),
            Self::NoScaling => json!({ "how": "no_scaling" }),
            Self::AllFeatures => json!({ "how": "all_features" }),
        }
    }
}

/// How rows of a relative bias table are chosen in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherBucket {
    /// Earlier and later keys have rows of their own, where they should share them.
    BothDirections,
    /// They share them, where they should have their own.
    OneDirection,
    /// Earlier keys are taken for later ones and the other way round.
    Negated,
    /// The distance is off by so many.
    Distance(i64),
    /// The row is off by so many.
    Row(i64),
    /// Another distance from which on all share the last row.
    MaxDistance(usize),
}

impl OtherBucket {
    pub(super) fn detail(self) -> Value {
        match self {
            Self::BothDirections => json!({ "how": "both_directions" }),
            Self::OneDirection => json!({ "how": "one_direction" }),
            Self::Negated => json!({ "how": "negated" }),
            Self::Distance(by) => json!({ "how": "distance", "by": by }),
            Self::Row(by) => json!({ "how": "row", "by": by }),
            Self::MaxDistance(max) => json!({ "how": "max_distance", "max_distance": max }),
        }
    }
}

/// How positions are wrong from one on: those of a prompt are right, and those of tokens that are decoded with a cache are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachedPositions {
    /// One too many.
    Ahead,
    /// One too few: the first new token has the position of the last one of the prompt.
    Behind,
    /// They are counted from 0 again.
    Restarted,
    /// Every new token is at position 0.
    Zero,
}

impl CachedPositions {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::Ahead, Self::Behind, Self::Restarted, Self::Zero];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::Behind => "behind",
            Self::Restarted => "restarted",
            Self::Zero => "zero",
        }
    }

    /// By how many positions those from `from` on are off; `None` where that differs from one to the next.
    pub fn shift(self, from: usize) -> Option<i64> {
        match self {
            Self::Ahead => Some(1),
            Self::Behind => Some(-1),
            Self::Restarted => i64::try_from(from).ok().map(|from| -from),
            Self::Zero => None,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Ahead => "one too far",
            Self::Behind => "one too few",
            Self::Restarted => "counted from 0 again",
            Self::Zero => "0 for every new token",
        }
    }
}

/// How a causal mask is wrong from one query on: that of a prompt is right, and that of tokens that are decoded with a cache is
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachedMask {
    /// New queries are counted from 0, and see as many keys as there are new tokens up to them.
    TopLeft,
    /// Each new query is taken for the first, and sees the first key alone.
    FirstKey,
    /// The newest key is hidden.
    Behind,
    /// The keys of the cache are hidden.
    OnlyNew,
}

impl CachedMask {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::TopLeft, Self::FirstKey, Self::Behind, Self::OnlyNew];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::TopLeft => "top_left",
            Self::FirstKey => "first_key",
            Self::Behind => "behind",
            Self::OnlyNew => "only_new",
        }
    }

    /// Whether a query from `from` on sees a key.
    pub fn sees(self, from: usize, query: usize, key: usize) -> bool {
        match self {
            Self::TopLeft => key + from <= query,
            Self::FirstKey => key == 0,
            Self::Behind => key < query,
            Self::OnlyNew => key >= from && key <= query,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::TopLeft => {
                "new queries see as many keys as there are new tokens up to them, from the first key on"
            }
            Self::FirstKey => "each new query sees the first key alone",
            Self::Behind => "new queries do not see the newest key",
            Self::OnlyNew => "new queries do not see the keys of the cache",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt of 3 tokens, and the second token after it.
    #[test]
    fn each_mask_hides_other_keys() {
        let seen = |how: CachedMask| (0..5).filter(|&key| how.sees(3, 4, key)).collect::<Vec<_>>();
        assert_eq!(CachedMask::ALL.map(seen), [vec![0, 1], vec![0], vec![0, 1, 2, 3], vec![3, 4]]);
    }
}
