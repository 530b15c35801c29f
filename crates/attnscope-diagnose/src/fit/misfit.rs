//! Why pairs, or texts, do not fit a model, in words.

use super::{Fit, LEAST_CONTEXT_SHARE, LEAST_SOURCE_SHARE, SURPRISE};

/// Why pairs, or texts, do not fit a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// The cost is not finite.
    NotFinite,
    /// No better than the uniform distribution.
    NoBetterThanUniform,
    /// No better than the unigram distribution.
    NoBetterThanUnigram,
    /// The targets surprise the model more than it expects.
    Surprised,
    /// The source says too little about the target.
    SourceSaysLittle,
    /// The words before a token say too little about it.
    ContextSaysLittle,
}

impl Misfit {
    /// The number that the cost was compared with.
    pub(crate) fn limit(self, fit: &Fit) -> f64 {
        match self {
            Self::NotFinite => f64::INFINITY,
            Self::NoBetterThanUniform => fit.uniform,
            Self::NoBetterThanUnigram => fit.unigram,
            Self::Surprised => SURPRISE.1 * fit.expected + SURPRISE.0,
            Self::SourceSaysLittle => fit.swapped.unwrap_or(f64::INFINITY) * (1.0 - LEAST_SOURCE_SHARE),
            Self::ContextSaysLittle => fit.unigram * (1.0 - LEAST_CONTEXT_SHARE),
        }
    }

    /// What was measured, in a clause.
    pub fn words(self, fit: &Fit) -> String {
        let (nll, targets) = (format!("NLL {:.2} nats per token", fit.nll), fit.kind.targets());
        match self {
            Self::NotFinite => format!("the likelihood of the {targets} is not finite"),
            Self::NoBetterThanUniform => {
                format!("{nll}, worse than guessing all tokens with equal probability ({:.2})", fit.uniform)
            }
            Self::NoBetterThanUnigram => format!(
                "{nll}, worse than knowing only how often each token occurs in the {targets} ({:.2})",
                fit.unigram
            ),
            Self::Surprised => {
                format!(
                    "{nll}, far above the mean entropy of the model's own predictions ({:.2})",
                    fit.expected
                )
            }
            Self::SourceSaysLittle => match (fit.swapped, fit.source_share()) {
                (Some(swapped), Some(share)) => format!(
                    "{nll} with the right source and {swapped:.2} with another pair's: the right source lowers it by {:.0} %, and the wiring can be judged only where it lowers it by at least {:.0} %",
                    100.0 * share,
                    100.0 * LEAST_SOURCE_SHARE
                ),
                _ => "all pairs have the same source".into(),
            },
            Self::ContextSaysLittle => format!(
                "{nll}, and {:.2} by knowing only how often each token occurs in the texts: the words before lower it by {:.0} %, and the wiring can be judged only where they lower it by at least {:.0} %",
                fit.unigram,
                100.0 * fit.context_share(),
                100.0 * LEAST_CONTEXT_SHARE
            ),
        }
    }
}
