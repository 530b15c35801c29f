//! Runs a graph on an input and hands every tensor to whoever asked for it.

mod input;
mod token;

pub use input::{
    Features, Input, InputError, Pair, Rows, Shift, ShiftError, Source, check_rows, pad_token, parse_ids,
    parse_pairs, read_pairs,
};
pub use token::{TokenError, Tokenizer};
