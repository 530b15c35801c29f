//! What is measured: names, and where each value comes from. The definitions are those of `attnscope-diagnose`.

use attnscope_diagnose::HeadMeasures;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A measure of a head on one sentence, the mean over queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadMeasure {
    /// Normalised entropy: 1 is uniform, 0 is one key.
    Entropy,
    /// exp of the entropy in nats: as many keys as would have that entropy with equal weights.
    EffectiveKeys,
    /// How many times the uniform weight the strongest key has.
    Peak,
    /// The weight on the tokens that end the sentence.
    EndMass,
    /// The weight on the first key.
    FirstMass,
    /// The weight on the key with the query's number.
    DiagonalMass,
    /// The weight on the key before that.
    PreviousMass,
    /// The largest weight beside the end tokens, of what they leave.
    Sharpness,
}

impl HeadMeasure {
    /// All of them, in the order of the columns.
    pub const ALL: [Self; 8] = [
        Self::Entropy,
        Self::EffectiveKeys,
        Self::Peak,
        Self::EndMass,
        Self::FirstMass,
        Self::DiagonalMass,
        Self::PreviousMass,
        Self::Sharpness,
    ];

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entropy => "entropy",
            Self::EffectiveKeys => "effective_keys",
            Self::Peak => "peak",
            Self::EndMass => "end_mass",
            Self::FirstMass => "first_mass",
            Self::DiagonalMass => "diagonal_mass",
            Self::PreviousMass => "previous_mass",
            Self::Sharpness => "sharpness",
        }
    }

    /// Its value for a head; `None` where it is not defined.
    pub fn of(self, head: &HeadMeasures) -> Option<f64> {
        match self {
            Self::Entropy => head.entropy,
            Self::EffectiveKeys => Some(head.effective_keys),
            Self::Peak => Some(head.peak),
            Self::EndMass => head.end_share,
            Self::FirstMass => Some(head.first_share),
            Self::DiagonalMass => head.diagonal_share,
            Self::PreviousMass => head.previous_share,
            Self::Sharpness => head.sharpness,
        }
    }
}

/// A measure of a sublayer's sum with its stream, on one sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinMeasure {
    /// The norm of the sublayer's output over that of the stream.
    OutputRatio,
    /// The root mean square, over positions, of the norm of their sum.
    ResidualNorm,
}

impl JoinMeasure {
    /// All of them, in the order of the columns.
    pub const ALL: [Self; 2] = [Self::OutputRatio, Self::ResidualNorm];

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutputRatio => "output_ratio",
            Self::ResidualNorm => "residual_norm",
        }
    }
}

/// A measure of a sentence, in nats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SentenceMeasure {
    /// The negative log-likelihood of the target, a token.
    Nll,
    /// The same with another sentence's source.
    NllSwapped,
    /// How much more a token costs with the other source.
    DeltaNll,
}

impl SentenceMeasure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nll, Self::NllSwapped, Self::DeltaNll];

    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nll => "nll",
            Self::NllSwapped => "nll_swapped",
            Self::DeltaNll => "delta_nll",
        }
    }
}
