//! Opens checkpoints by content, lists their tensors without reading them, and reads one tensor at a time.

mod dtype;
mod error;
mod format;
mod listing;
mod source;
mod tensor;

pub use dtype::DType;
pub use error::{Error, ErrorKind};
pub use format::Format;
pub use listing::{Check, CheckState, Config, Placeholder};
pub use tensor::TensorInfo;
