//! Runs a graph on an input and hands every tensor to whoever asked for it.

pub mod audio;
mod change;
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

pub use change::Change;
pub use error::RunError;
pub use input::{
    Features, Input, InputError, PadSide, Pair, Rows, Shift, ShiftError, Source, check_rows, pad_token,
    parse_ids, parse_pairs, position_room, read_pairs,
};
pub use native::{BETAS, Decoding, Native, Report, log_sum_exps};
pub use position::{bucket as relative_bucket, used_buckets};
pub use prepare::{Shut, shut, sizes_of};
pub use reference::{activate, run_reference, run_reference_changed};
pub use sink::{Keep, Kept, Sink, Values};
pub use token::{TokenError, Tokenizer};
pub use weights::Weights;
