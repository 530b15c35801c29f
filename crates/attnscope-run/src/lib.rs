//! Runs a graph on an input and hands every tensor to whoever asked for it.

pub mod audio;
mod error;
pub mod generate;
mod input;
mod native;
mod position;
mod prepare;
mod reference;
mod sink;
mod token;
pub mod trace;
mod weights;

pub use error::RunError;
pub use input::{
    Features, Input, InputError, Pair, Rows, Shift, ShiftError, Source, check_rows, pad_token, parse_ids,
    parse_pairs, read_pairs,
};
pub use native::{Decoding, Native, Report};
pub use prepare::sizes_of;
pub use reference::run_reference;
pub use sink::{Hold, Keep, Kept, Shared, Sink, Values};
pub use token::{TokenError, Tokenizer};
pub use weights::Weights;
