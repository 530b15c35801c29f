//! Rotary positions: which features are a pair, and by which angle a pair is rotated at a position.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How queries and keys are rotated by their positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary {
    /// Pair i of n rotated features has the frequency base^(−2i/n), before it is scaled.
    pub base: f64,
    /// Which features are a pair.
    pub pairs: RotaryPairs,
    /// The share of a head's features that is rotated, the first ones; the others pass unchanged.
    pub share: f64,
    /// How the frequencies are changed for texts longer than those of the first training.
    pub scaling: Option<RotaryScaling>,
    /// By how many positions the rotation is off: 0, except in a known mistake.
    pub shift: i64,
}

/// Which features of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryPairs {
    /// Feature i and feature i + n/2 of n rotated ones, as Hugging Face stores Llama.
    Halves,
    /// Features 2i and 2i + 1, as Meta stores Llama.
    #[serde(rename = "interleaved", alias = "neighbours")]
    Neighbours,
}

/// A change of the frequencies for longer texts. The names are those of Hugging Face's `rope_type`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// All frequencies are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// The base grows with texts longer than `length`.
    Dynamic {
        /// How fast it grows.
        factor: f64,
        /// The longest text of the first training.
        length: usize,
    },
    /// Llama 3.1: low frequencies are divided by a factor, high ones are not, those between are blended.
    Llama3 {
        /// The factor.
        factor: f64,
        /// Pairs that turn fewer times than this over `length` positions have a low frequency.
        low: f64,
        /// Pairs that turn more often than this have a high one.
        high: f64,
        /// The longest text of the first training.
        length: usize,
    },
    /// YaRN: frequencies are divided by a factor as far as they turn slowly; queries and keys grow a little.
    Yarn {
        /// The factor.
        factor: f64,
        /// The longest text of the first training.
        length: usize,
        /// Pairs that turn more often than this over `length` positions keep their frequency.
        fast: f64,
        /// Pairs that turn less often than this have it divided by the whole factor.
        slow: f64,
        /// What cosines and sines are multiplied by.
        attention: f64,
        /// Whether the ends of the blend are whole pairs.
        truncate: bool,
    },
    /// LongRoPE: a divisor for each pair, one list for texts up to `length` and another for longer ones.
    Longrope {
        /// The divisors of short texts.
        short: RotaryFactors,
        /// The divisors of long ones.
        long: RotaryFactors,
        /// The longest text that is short.
        length: usize,
        /// What cosines and sines are multiplied by.
        attention: f64,
    },
    /// LongRoPE whose divisors are two tensors of the file, as llama.cpp keeps them.
    StoredLongrope {
        /// The longest text that is short.
        length: usize,
        /// What cosines and sines are multiplied by.
        attention: f64,
    },
}

impl RotaryScaling {
    /// Its name in configs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear",
            Self::Dynamic { .. } => "dynamic",
            Self::Llama3 { .. } => "llama3",
            Self::Yarn { .. } => "yarn",
            Self::Longrope { .. } | Self::StoredLongrope { .. } => "longrope",
        }
    }

    /// The length after which all frequencies of a text are other ones, so that keys of a cache no longer fit.
    pub fn changes_after(&self) -> Option<usize> {
        match *self {
            Self::Dynamic { length, .. }
            | Self::Longrope { length, .. }
            | Self::StoredLongrope { length, .. } => Some(length),
            Self::Linear { .. } | Self::Llama3 { .. } | Self::Yarn { .. } => None,
        }
    }
}

impl fmt::Display for RotaryScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linear { factor } => write!(f, "linear × {factor}"),
            Self::Dynamic { factor, length } => write!(f, "dynamic × {factor} after {length} positions"),
            Self::Llama3 { factor, length, .. } => write!(f, "llama3 × {factor} of {length} positions"),
            Self::Yarn { factor, length, .. } => write!(f, "yarn × {factor} of {length} positions"),
            Self::Longrope { length, .. } | Self::StoredLongrope { length, .. } => {
                write!(f, "longrope after {length} positions")
            }
        }
    }
}

impl Rotary {
    /// How many of a head's features are rotated: an even number.
    pub fn rotated(&self, size: usize) -> usize {
        // `as` saturates: a share is between 0 and 1.
        let rotated = (size as f64 * self.share) as usize;
        rotated.min(size) / 2 * 2
    }

    /// By how much a pair turns from one position to the next, in a head of `size` features and a text of `length` positions.
    pub fn frequency(&self, pair: usize, size: usize, length: usize) -> f64 {
        let n = self.rotated(size).max(1) as f64;
        let plain = |base: f64| base.powf(-2.0 * pair as f64 / n);
        let own = plain(self.base);
        match self.scaling {
            None | Some(RotaryScaling::StoredLongrope { .. }) => own,
            Some(RotaryScaling::Linear { factor }) => own / factor,
            Some(RotaryScaling::Dynamic { factor, length: trained }) => {
                let longer = length.max(trained) as f64 / trained as f64;
                plain(self.base * (factor * longer - (factor - 1.0)).powf(n / (n - 2.0)))
            }
            Some(RotaryScaling::Llama3 { factor, low, high, length }) => {
                let turns = length as f64 * own / std::f64::consts::TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                own / factor * (1.0 - kept) + own * kept
            }
            Some(RotaryScaling::Yarn { factor, length, fast, slow, truncate, .. }) => {
                // The pair that turns so many times over the trained length.
                let pair_of = |turns: f64| {
                    n * (length as f64 / (turns * std::f64::consts::TAU)).ln() / (2.0 * self.base.ln())
                };
                let (mut first, mut last) = (pair_of(fast), pair_of(slow));
                if truncate {
                    (first, last) = (first.floor(), last.ceil());
                }
                let (first, mut last) = (first.max(0.0), last.min(n - 1.0));
                if first == last {
                    // As Hugging Face does, so that nothing is divided by 0.
                    last += 0.001;
                }
                let divided = ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
                own / factor * divided + own * (1.0 - divided)
            }
            Some(RotaryScaling::Longrope { short, long, length: trained, .. }) => {
                let factors = if length > trained { long } else { short };
                own / factors.of(pair)
            }
        }
    }

    /// Which of a node's lists of stored divisors holds for a text of so many positions: the first, or that of long texts.
    pub fn list_of(&self, length: usize) -> usize {
        match self.scaling {
            Some(RotaryScaling::StoredLongrope { length: trained, .. }) => usize::from(length > trained),
            None
            | Some(
                RotaryScaling::Linear { .. }
                | RotaryScaling::Dynamic { .. }
                | RotaryScaling::Llama3 { .. }
                | RotaryScaling::Yarn { .. }
                | RotaryScaling::Longrope { .. },
            ) => 0,
        }
    }

    /// What cosines and sines are multiplied by.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            Some(
                RotaryScaling::Yarn { attention, .. }
                | RotaryScaling::Longrope { attention, .. }
                | RotaryScaling::StoredLongrope { attention, .. },
            ) => attention,
            None
            | Some(
                RotaryScaling::Linear { .. } | RotaryScaling::Dynamic { .. } | RotaryScaling::Llama3 { .. },
            ) => 1.0,
        }
    }
}

/// A divisor for each pair. A wiring is a plain value that is copied, so each different list is kept once, for good; a list of
/// more divisors than a head can have pairs is refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RotaryFactors(&'static [f64]);

impl RotaryFactors {
    /// More than a head has pairs.
    const MOST: usize = 1024;
    /// More lists than anybody opens models with.
    const MOST_LISTS: usize = 1024;

    /// These divisors; `None` where one is no positive number, or there are too many.
    pub fn of_list(list: &[f64]) -> Option<Self> {
        static LISTS: Mutex<Vec<&'static [f64]>> = Mutex::new(Vec::new());
        let are_positive = list.iter().all(|x| x.is_finite() && *x > 0.0);
        if list.is_empty() || list.len() > Self::MOST || !are_positive {
            return None;
        }
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = lists.iter().find(|held| **held == list) {
            return Some(Self(held));
        }
        if lists.len() >= Self::MOST_LISTS {
            return None;
        }
        let held: &'static [f64] = Box::leak(list.to_vec().into_boxed_slice());
        lists.push(held);
        Some(Self(held))
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.0.len()
    }

    /// The divisor of a pair. A model whose list is too short is not run.
    fn of(self, pair: usize) -> f64 {
        self.0.get(pair).copied().unwrap_or(1.0)
    }
}

impl Serialize for RotaryFactors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0)
    }
}

impl<'de> Deserialize<'de> for RotaryFactors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<f64>::deserialize(deserializer)?;
        let expected = || format!("expected at most {} positive numbers, found {}", Self::MOST, list.len());
        Self::of_list(&list).ok_or_else(|| serde::de::Error::custom(expected()))
    }
}
