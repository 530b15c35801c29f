//! Were weights lost, or put in the wrong place, when the file was made? Lost weights are seen in the file itself. Every other
//! usual mistake of converters and ports is undone in turn, and judged by how well it explains the pairs.

mod balance;
mod control;
mod edit;
mod factors;
mod hypotheses;
mod judge;
mod lossy;
mod refine;
mod rounds;
mod search;
mod sites;
mod words;

pub use edit::{RowOrder, WeightEdit};
pub use lossy::Loss;
pub(crate) use lossy::{copied_layers, dropped_biases, missing_layers};
pub use search::search_repairs;

use std::time::Duration;

use crate::corpus::CorpusKind;
use crate::score::Scores;

/// The repair that the evidence supports.
#[derive(Debug, Clone)]
pub struct Repair {
    /// What to do with the weights.
    pub edit: WeightEdit,
    /// Other repairs that are not significantly worse.
    pub as_good: Vec<WeightEdit>,
    /// NLL per token with the weights as they are, over all pairs.
    pub nll_declared: f64,
    /// NLL per token with the repair.
    pub nll_best: f64,
    /// Nats per token that the repair gains, each at its best temperature.
    pub gain: f64,
    /// How likely so large a gain is by chance on the pairs that the search has not seen, corrected for every repair that was
    /// tried on them.
    pub p: f64,
    /// What it was judged on.
    pub kind: CorpusKind,
    /// Distinct pairs.
    pub pairs: usize,
    /// Those among them that the search has not seen.
    pub unseen: usize,
    /// How it compares with the better wiring.
    pub beside_wiring: BesideWiring,
    /// How it did on every pair.
    pub(crate) scores: Scores,
    /// The pairs, by their numbers, that the search has not seen.
    pub(crate) unseen_pairs: Vec<usize>,
}

/// How a repair of the weights compares with another wiring of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideWiring {
    /// No other wiring is better than the declared one, or the repair is significantly better than it.
    Better,
    /// Neither is significantly better.
    AsGood,
}

/// The result of the search.
#[derive(Debug)]
pub struct RepairSearch {
    /// What it was judged on.
    pub kind: CorpusKind,
    /// Repairs that make sense for the model.
    pub hypotheses: usize,
    /// Those that there was time to try.
    pub tried: usize,
    /// The time that it had.
    pub time: Duration,
    /// Whether the time was over before the search had come to its end.
    pub is_cut: bool,
    /// Nats per token that the best of them gains, or loses if negative; absent where none was tried.
    pub best_gain: Option<f64>,
    /// The best repair, if it is accepted.
    pub repair: Option<Repair>,
    /// The best repair, if it is not.
    pub refused: Option<Refused>,
}

/// A repair that gains on the search pairs but is not accepted.
#[derive(Debug, Clone)]
pub struct Refused {
    /// What it does with the weights.
    pub edit: WeightEdit,
    /// Why it is not accepted.
    pub why: String,
    /// NLL per token with it, over all pairs.
    pub nll: f64,
    /// Whether the repaired model works and is better than the better wiring, though not significantly better than the declared
    /// one or than chance: then the pairs prove neither of the two.
    pub outdoes_wiring: bool,
}
