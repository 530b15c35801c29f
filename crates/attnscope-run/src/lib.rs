//! Runs a graph on an input and hands every tensor to whoever asked for it.
//!
//! Tokenizers and recordings are read by other crates, which may panic on a damaged file. Such a panic becomes an error and
//! is not printed: the first read puts a panic hook before the process's own, which all other panics still reach.

pub mod align;
pub mod audio;
mod caught;
mod change;
mod dots;
mod error;
mod formula;
pub mod generate;
mod input;
mod native;
mod position;
mod prepare;
mod random;
mod reference;
mod sink;
mod token;
pub mod trace;
mod weights;

pub use change::Change;
pub use error::RunError;
pub use formula::Formula;
pub use input::{
    Features, Input, InputError, PadSide, Pair, Rows, Sequence, Shift, ShiftError, check_rows,
    computed_positions, pad_token, parse_ids, parse_pairs, position_room, read_pairs,
};
pub use native::{BETAS, Decoding, Instructions, Native, Report, log_sum_exps};
pub use position::{Turn, bucket as relative_bucket, used_buckets};
pub use prepare::{Shut, shut, sizes_of};
pub use random::SplitMix;
pub use reference::{activate, run_reference, run_reference_changed, sees_nothing};
pub use sink::{Hold, Keep, Kept, Shared, Sink, Values};
pub use token::{TokenError, Tokenizer};
pub use weights::{Weights, tensor_specs};
