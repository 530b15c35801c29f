//! Says what is wrong with a model or an example, and why: worked examples, leak proofs, findings, differences.

mod attention;
pub mod audit;
mod bootstrap;
pub mod cell;
mod contribution;
mod corpus;
pub mod diff;
mod doctor;
mod exam;
mod finding;
mod fit;
mod heads;
pub mod masks;
mod measure;
mod misconversion;
mod observe;
mod place;
pub mod rounding;
mod rule;
mod rules;
mod score;
mod student;
mod thresholds;
mod wiring;
pub mod worked;

pub use attention::{HeadMeasures, Weights, head_measures};
pub use bootstrap::{Estimate, bootstrap};
pub use corpus::{Corpus, PairSource};
pub use doctor::{Diagnosis, examine};
pub use exam::{Patient, Sample, TooLong};
pub use finding::{Finding, Severity};
pub use fit::{Fit, Generated, Misfit};
pub use measure::Measure;
pub use misconversion::{
    BesideWiring, Loss, Refused, Repair, RepairSearch, RowOrder, WeightEdit, search_repairs,
};
pub use rule::{NotChecked, Rule};
pub use rules::rules;
pub use score::{Padding, Progress};
pub use thresholds::{Thresholds, ThresholdsError};
pub use wiring::{Better, Search, Singled, Trial, WiringEdit, search};
