//! Were weights lost, or put in the wrong place, on the way into the file? What is lost shows in the file itself. Every other
//! mistake that converters and ports make is undone in turn, and judged by how well the pairs are explained.

mod balance;
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

/// The repair that the evidence singles out.
#[derive(Debug, Clone)]
pub struct Repair {
    /// What to do with the weights.
    pub edit: WeightEdit,
    /// Other repairs that do not do surely worse.
    pub as_good: Vec<WeightEdit>,
    /// Nats a token with the weights as they are, over all pairs.
    pub nll_declared: f64,
    /// Nats a token with the repair.
    pub nll_best: f64,
    /// Nats a token that the repair gains, both at the temperature that suits them best.
    pub gain: f64,
    /// How likely so large a gain is by chance on the pairs that the search has not seen, corrected for every repair that was
    /// tried on them.
    pub p: f64,
    /// Distinct pairs.
    pub pairs: usize,
    /// Those among them that the search has not seen.
    pub unseen: usize,
    /// How it does beside the better wiring.
    pub beside_wiring: BesideWiring,
}

/// How a repair of the weights does beside another wiring of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideWiring {
    /// No other wiring is better than the declared one, or the repair does surely better than it.
    Better,
    /// Neither does surely better.
    AsGood,
}

/// What came of the search.
#[derive(Debug)]
pub struct RepairSearch {
    /// Repairs that make sense for the model.
    pub hypotheses: usize,
    /// Those that there was time to try.
    pub tried: usize,
    /// Whether the time was over before the search had come to its end.
    pub is_cut: bool,
    /// Nats a token that the best of them gains, or loses where it is negative; absent where none was tried.
    pub best_gain: Option<f64>,
    /// The best repair, if it is believed.
    pub repair: Option<Repair>,
    /// The best repair, if it is not.
    pub refused: Option<Refused>,
}

/// A repair that gains on the pairs that were searched, and is not believed.
#[derive(Debug, Clone)]
pub struct Refused {
    /// What it does with the weights.
    pub edit: WeightEdit,
    /// Why it is not believed.
    pub why: String,
}
