//! Runs a graph on an input and hands every tensor to whoever asked for it.

mod error;
mod input;
mod position;
mod prepare;
mod reference;
mod sink;
mod weights;

pub use error::RunError;
pub use input::{Features, Input, Rows, Source};
pub use reference::run_reference;
pub use sink::{Keep, Kept, Sink, Values};
pub use weights::Weights;
