//! Opens checkpoints by content, lists their tensors without reading them, and reads one tensor at a time.

// Until `Checkpoint` is merged, which is what calls the readers.
#![allow(dead_code)]

mod dtype;
mod error;
mod format;
mod listing;
mod pread;
mod quant;
mod read;
mod source;
mod stats;
mod tensor;
mod values;
pub mod write;

pub use dtype::DType;
pub use error::{Error, ErrorKind};
pub use format::Format;
pub use listing::{Check, CheckState, Config, Placeholder};
pub use stats::Stats;
pub use tensor::TensorInfo;
pub use values::Sink;
