//! Says what is wrong with a model or an example, and why: worked examples, leak proofs, findings, differences.

mod attention;
pub mod audit;
pub mod cell;
pub mod diff;
pub mod masks;
pub mod worked;

pub use attention::{HeadMeasures, Weights, head_measures};
