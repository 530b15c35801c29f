//! Runs a graph on an input and hands every tensor to whoever asked for it.

pub mod audio;
mod input;

pub use input::{Features, Input, Rows, Source};
