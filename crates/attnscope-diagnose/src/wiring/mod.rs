//! Under which wiring do the weights make sense? Every other plausible wiring of the same weights, judged by how well it
//! explains sentence pairs. A model finds its own training targets likely only when it is joined as it was trained.

mod edit;
mod hypothesis;
mod round;
mod search;

use serde_json::{Map, Value};

use crate::fit::{Fit, Generated};
use crate::score::{Candidate, Scores};
pub use edit::WiringEdit;
pub(crate) use edit::plain;
pub use search::search;

/// One hypothesis and how it did.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What was changed.
    pub edit: WiringEdit,
    /// Nats a token as declared, on the same rows.
    pub nll_declared: f64,
    /// Nats a token with the edit.
    pub nll: f64,
    /// Nats a token that it gains, each at the temperature that suits it best: what trials are ordered by.
    pub gain: f64,
    /// The share of labels that are then the model's first choice.
    pub right: f64,
    /// Pairs that it was run on: what surely loses on a few is not run on all.
    pub pairs: usize,
}

/// One field whose declared value is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Singled {
    /// The value that does best.
    pub edit: WiringEdit,
    /// Other values that do not do surely worse.
    pub as_good: Vec<WiringEdit>,
    /// Values that do surely worse, beside the declared one.
    pub excluded: Vec<WiringEdit>,
}

/// The edits that explain the weights better than what is declared.
#[derive(Debug)]
pub struct Better {
    /// What was changed, the most telling first.
    pub changes: Vec<Singled>,
    /// The changed fields as they are declared.
    pub declared: Map<String, Value>,
    /// And as the weights were trained.
    pub best: Map<String, Value>,
    /// Nats a token as declared.
    pub nll_declared: f64,
    /// Nats a token with the changes.
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

/// What came of the search.
#[derive(Debug)]
pub struct Search {
    /// Distinct sentence pairs.
    pub pairs: usize,
    /// Those that cost a finite number as declared. The rest say nothing of a gain.
    pub finite: usize,
    /// Nats a token as declared, over those.
    pub nll: f64,
    /// How well the pairs fit the declared model.
    pub fit: Fit,
    /// Every single edit, the best first.
    pub trials: Vec<Trial>,
    /// Every hypothesis that was tried, further rounds included: what p-values are corrected for.
    pub hypotheses: usize,
    /// The better wiring, if one is singled out.
    pub better: Option<Better>,
    /// The best that was found and not believed: in words, and what it costs.
    pub refused: Option<(String, f64)>,
    /// How the declared model did on every pair.
    pub(crate) declared: Scores,
}

impl Search {
    /// Whether the pairs say anything about the wiring: they fit the model as it is declared, or under the better wiring.
    pub fn is_decided(&self) -> bool {
        self.better.is_some() || self.fit.works().is_ok()
    }
}
