//! Runs a graph on an input and hands the wanted tensors to a sink.
//!
//! Tokenizers and recordings are read by other crates, which may panic on a damaged file. Such a panic becomes an error and
//! is not printed: the first read installs a panic hook, which passes all other panics on to the process's own hook.

pub mod align;
pub mod audio;
mod caught;
mod checked;
pub mod data;
mod dots;
mod error;
mod executor;
mod formula;
pub mod generate;
mod in_file;
mod input;
mod intervention;
mod learn;
mod limits;
mod mask;
mod native;
mod panels;
mod pool;
mod position;
mod random;
mod reference;
mod right_side;
mod rotation;
mod sink;
mod source;
mod tensor;
mod token;
pub mod trace;
mod uncached;
mod weights;

pub use caught::catch;
pub use checked::CheckedInput;
pub use error::RunError;
pub use executor::{Decode, Executor, Prepared, Report, Request, Session};
pub use formula::Formula;
pub use input::{
    Features, Input, InputError, PadSide, Pair, Rows, Sequence, Shift, ShiftError, check_rows,
    computed_positions, pad_token, parse_ids, parse_pairs, position_limit, read_pairs,
};
pub use intervention::Intervention;
pub use learn::{
    AdamW, BatchLoss, Learner, LearningBatch, LearningSink, OptimiserState, Targets, UpdateReport,
    have_gradients, learning_bytes,
};
pub use limits::{Cancel, Counted, Limits, Progress, Step, on_all_cores};
pub use mask::{MaskReason, masked_by};
pub use native::{BETAS, Instructions, Native, log_sum_exps};
pub use position::{bucket as relative_bucket, used_buckets};
pub use random::SplitMix;
pub use reference::{Reference, activate, is_fully_masked, next_state};
pub use rotation::{Rotation, Rotations};
pub use sink::{Capture, Nothing, Sink};
pub use source::SourceTensors;
pub use tensor::{Kept, Tensor, Values};
pub use token::{TokenError, Tokenizer};
pub use uncached::Uncached;
pub use weights::{Weights, tensor_specs};
