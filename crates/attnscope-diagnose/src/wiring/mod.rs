//! Which wiring fits the weights? Every other plausible wiring of the same weights is judged by how well it explains sentence
//! pairs. A model gives its training targets a high likelihood only with the wiring of its training.

mod edit;
mod hypothesis;
mod language_model;
mod round;
mod search;
mod setup;

use serde_json::{Map, Value};

use crate::fit::{Fit, Generated};
use crate::score::{Candidate, Scores};
pub use edit::WiringEdit;
pub(crate) use edit::{heads_of, plain};
pub use search::search;

/// One hypothesis and its scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What was changed.
    pub edit: WiringEdit,
    /// NLL per token as declared, on the same rows.
    pub nll_declared: f64,
    /// NLL per token with the edit.
    pub nll: f64,
    /// Nats per token that it gains, each at its best temperature; trials are sorted by this.
    pub gain: f64,
    /// The share of labels that are then the model's first choice.
    pub right: f64,
    /// How likely so large a gain is by chance; not corrected for the number of hypotheses.
    pub p: f64,
    /// Pairs that it was run on: an edit that clearly loses on a few is not run on all.
    pub pairs: usize,
}

/// One field whose declared value is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Singled {
    /// The value that does best.
    pub edit: WiringEdit,
    /// Other values that are not significantly worse.
    pub as_good: Vec<WiringEdit>,
    /// Values that are significantly worse, in addition to the declared one.
    pub excluded: Vec<WiringEdit>,
}

/// The edits that explain the weights better than what is declared.
#[derive(Debug)]
pub struct Better {
    /// What was changed, the most important first.
    pub changes: Vec<Singled>,
    /// The changed fields as they are declared.
    pub declared: Map<String, Value>,
    /// And as the weights were trained.
    pub best: Map<String, Value>,
    /// NLL per token as declared.
    pub nll_declared: f64,
    /// NLL per token with the changes.
    pub nll_best: f64,
    /// Distinct pairs that both are of.
    pub pairs: usize,
    /// How likely so large a gain is by chance, corrected for every hypothesis that was tried.
    pub p: f64,
    /// How well the pairs fit the better wiring.
    pub fit: Fit,
    /// What the model generates under it.
    pub generated: Option<Generated>,
    /// The model under the better wiring.
    pub(crate) candidate: Candidate,
    /// How it did on every pair.
    pub(crate) scores: Scores,
}

impl Better {
    /// What was changed, in words.
    pub(crate) fn words(&self) -> String {
        self.changes.iter().map(|change| change.edit.words()).collect::<Vec<_>>().join(" and ")
    }
}

/// The result of the search.
#[derive(Debug)]
pub struct Search {
    /// Distinct sentence pairs.
    pub pairs: usize,
    /// Those with a finite NLL as declared. The others cannot show a gain.
    pub finite: usize,
    /// NLL per token as declared, over those.
    pub nll: f64,
    /// How well the pairs fit the declared model.
    pub fit: Fit,
    /// Every single edit, the best first.
    pub trials: Vec<Trial>,
    /// Every hypothesis that was tried, further rounds included: what p-values are corrected for.
    pub hypotheses: usize,
    /// Single edits that there was no time to run on all pairs.
    pub untried: usize,
    /// The better wiring, if the evidence supports one.
    pub better: Option<Better>,
    /// The best wiring that was not accepted: in words, and its NLL.
    pub refused: Option<(String, f64)>,
    /// How the declared model did on every pair.
    pub(crate) declared: Scores,
    /// The same with other pairs' sources.
    pub(crate) swapped: Option<Scores>,
}

impl Search {
    /// Whether the pairs say anything about the wiring: they fit the model as it is declared, or under the better wiring.
    pub fn is_decided(&self) -> bool {
        self.better.is_some() || self.fit.works().is_ok()
    }
}
