//! How far a run is: everything besides weights and moments that the next step follows from.

use attnscope_run::BatchLoss;
use serde::{Deserialize, Serialize};

use crate::monitor::MonitorMemory;

/// How far a run is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// What follows from the examples: a run goes on with the same ones.
    pub(crate) digest: String,
    /// Steps that were made.
    pub(crate) step: u64,
    /// The epoch of the next step.
    pub(crate) epoch: u64,
    /// Its batch within the epoch.
    pub(crate) batch: usize,
    /// The best validation.
    pub(crate) best: Option<Best>,
    /// Validations since then.
    pub(crate) since_best: u64,
    /// What was learned since the last line of metrics.
    pub(crate) window: Window,
    /// What monitors remember.
    pub(crate) monitors: MonitorMemory,
    /// Seconds of learning, over all processes that worked on it.
    #[serde(with = "crate::exact")]
    pub(crate) seconds: f64,
    /// Whether the run has come to its end.
    pub(crate) ended: bool,
}

/// The best validation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Best {
    pub(crate) step: u64,
    /// Nats a target.
    #[serde(with = "crate::exact")]
    pub(crate) nll: f64,
    #[serde(with = "crate::exact")]
    pub(crate) accuracy: f64,
}

/// Sums over some steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Window {
    #[serde(with = "crate::exact")]
    pub(crate) nats: f64,
    #[serde(with = "crate::exact")]
    pub(crate) nll: f64,
    pub(crate) count: usize,
    pub(crate) correct: usize,
    pub(crate) cells: usize,
    pub(crate) tokens: usize,
    #[serde(with = "crate::exact")]
    pub(crate) seconds: f64,
}

impl Window {
    pub(crate) fn add(&mut self, loss: &BatchLoss, cells: usize, tokens: usize, seconds: f64) {
        self.nats += loss.nats;
        self.nll += loss.nll;
        self.count += loss.count;
        self.correct += loss.correct;
        self.cells += cells;
        self.tokens += tokens;
        self.seconds += seconds;
    }

    /// The share of positions that are padding.
    pub(crate) fn padding(&self) -> f64 {
        1.0 - self.tokens as f64 / self.cells.max(1) as f64
    }
}
