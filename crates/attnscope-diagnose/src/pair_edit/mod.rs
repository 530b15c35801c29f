//! Are the pairs themselves wrong? Usual mistakes of pairs are undone in turn, and the declared model is run on the result.
//! Such an edit competes with other wirings and with repairs of the weights before any of them is accepted: a model with
//! exchanged q and k reads a reversed source about as well as the right model reads a normal one.

mod contest;
mod edit;

use crate::fit::Fit;
pub(crate) use contest::PairEdits;
pub use edit::{PairEdit, PairSides, Slip};

/// Pairs on which the declared model works, made from those given, on which it does not.
#[derive(Debug)]
pub struct EditedPairs {
    /// What was done with the pairs.
    pub edit: PairEdit,
    /// Other edits that are not significantly worse.
    pub as_good: Vec<PairEdit>,
    /// NLL per token on the pairs as they are.
    pub nll_declared: f64,
    /// NLL per token on the edited pairs.
    pub nll_best: f64,
    /// How likely so large a gain is by chance, corrected for every edit that was tried.
    pub p: f64,
    /// How well the edited pairs fit the declared model.
    pub fit: Fit,
    /// Another wiring, and a repair of the weights, that are not significantly worse.
    pub rivals: Vec<Rival>,
}

/// Another explanation of the pairs, which is not accepted because the edit is as good.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    /// The rule that would have reported it.
    pub rule: &'static str,
    /// In words.
    pub what: String,
    /// Nats a token with it.
    pub nll: f64,
}

impl EditedPairs {
    /// "the model as declared costs 1.80 nats per token on the sources with their words in reverse order, and 3.36 on the pairs
    /// as they are"
    pub fn words(&self) -> String {
        format!(
            "the model as declared costs {:.2} nats per token on {}, and {:.2} on the {} as they are",
            self.nll_best,
            self.edit.words(),
            self.nll_declared,
            self.fit.kind.many()
        )
    }
}
