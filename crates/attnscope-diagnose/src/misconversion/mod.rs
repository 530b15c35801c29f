//! Mistakes that converters and ports make with weights.

mod lossy;
mod words;

pub use lossy::Loss;
pub(crate) use lossy::{copied_layers, dropped_biases, missing_layers};
