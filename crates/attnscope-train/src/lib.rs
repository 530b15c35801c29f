//! Training: recipes, data, tokens, batches, the loop, and what is watched on the way.

mod batch_input;
mod batches;
mod bleu;
mod classifier;
pub mod data;
mod dry_run;
mod error;
mod evaluate;
mod exact;
mod examples;
mod first_weights;
mod generate;
mod marian;
mod metrics;
mod monitor;
mod planned;
mod progress;
pub mod recipe;
mod saved;
mod schedule;
mod start;
pub mod tokens;
mod training;

pub use batches::{BatchSize, Stream};
pub use bleu::{Bleu, BleuCounts, bleu};
pub use dry_run::{DryRun, dry_run};
pub use error::TrainError;
pub use evaluate::{Evaluated, Predicted, Trained};
pub use examples::{Examples, HeldOut, TooLong, TrainingData, learn_tokenizer, test_rows, training_data};
pub use metrics::{Metric, TrainMetric, ValidationMetric};
pub use monitor::{AttentionMetric, Fault, MonitorMetric, Warning};
pub use planned::Planned;
pub use recipe::{Recipe, RecipeError};
pub use saved::{CURVES, RunFolder};
pub use start::Start;
pub use training::{Divergence, Ended, RunOptions, Setup, StepReport, TrainWatcher, TrainingRun, train};
