//! Opens checkpoints by content, lists their tensors without reading them, and reads one tensor at a time.

mod checkpoint;
mod dtype;
mod error;
mod folder;
mod format;
mod listing;
mod read;
mod source;
mod tensor;

pub use checkpoint::{Checkpoint, Companion};
pub use dtype::DType;
pub use error::{Error, ErrorKind};
pub use format::Format;
pub use listing::{Check, CheckState, Config, Placeholder};
pub use tensor::TensorInfo;
