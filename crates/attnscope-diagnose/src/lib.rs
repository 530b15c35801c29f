//! Finds what is wrong with a model or an example, and why: worked examples, leak proofs, findings, differences.

mod attention;
mod bootstrap;
pub mod cell;
mod contribution;
mod corpus;
pub mod diff;
mod doctor;
mod finding;
mod fit;
mod heads;
mod kinds;
pub mod masks;
mod measure;
mod misconversion;
mod mistakes;
mod observe;
mod pair_edit;
pub mod recompute;
pub mod rounding;
mod rule;
mod rule_context;
mod rules;
mod score;
mod student;
mod thresholds;
mod unravel;
mod watched;
mod wiring;
pub mod worked;

pub use attention::{HeadMeasures, Weights, head_measures};
pub use bootstrap::{Estimate, bootstrap};
pub use contribution::{Contributions, contributions, contributions_need};
pub use corpus::{Corpus, CorpusKind, Decoded, LEAST_PAIRS, PairSource, PairText, decoded, swap_partners};
pub use doctor::{Diagnosis, examine};
pub use finding::{Finding, Severity};
pub use fit::{Fit, Generated, Misfit};
pub use measure::Measure;
pub use misconversion::{
    BesideWiring, Loss, Refused, Repair, RepairSearch, RowOrder, WeightEdit, search_repairs,
};
pub use mistakes::{CATALOGUE, UsualMistake};
pub use observe::stream_norm;
pub use pair_edit::{EditedPairs, PairEdit, PairSides, Rival, Slip};
pub use rule::{NotChecked, Rule};
pub use rule_context::{RuleInput, Sample, TooLong};
pub use rules::rules;
pub use score::{Clip, Padding, Progress, encoder_output, nll_of_labels};
pub use thresholds::{Thresholds, ThresholdsError};
pub use unravel::unravel;
pub use watched::{WatchedAttention, WatchedHead, watch_attention};
pub use wiring::{Better, Search, Singled, Trial, WiringEdit, search};
