//! Opens checkpoints by content, lists their tensors without reading them, and reads one tensor at a time.
//!
//! Checkpoints are untrusted: every size, offset and count is checked before it is used, a pickle is interpreted by a machine
//! that builds values and calls nothing, and the memory that a header may take is bounded.

mod blocks;
mod checkpoint;
mod contents;
mod disk;
mod dtype;
mod dump;
mod error;
mod folder;
mod format;
mod held;
mod hub;
mod inputs;
mod json;
mod list;
mod listing;
mod memory;
mod outputs;
mod pread;
mod quant;
mod read;
mod reader;
mod remedy;
mod source;
mod stats;
mod tensor;
mod unfinished;
mod values;
mod write;

pub use blocks::Blocks;
pub use checkpoint::{Checkpoint, Companion};
pub use dtype::DType;
pub use dump::{Dump, DumpKind, DumpTensor, Elements, base64};
pub use error::{Error, ErrorKind, limit_help};
pub use format::Format;
pub use held::HeldTensor;
pub use inputs::open_input;
pub use json::{MAX_JSON_VALUES, check_json_values};
pub use list::List;
pub use listing::{Check, CheckState, Config, Placeholder};
pub use memory::{Limit, Shortage, allow_memory, check_memory, check_memory_assuming, check_memory_within};
pub use outputs::{Replace, check_output};
pub use reader::{StoredValues, TensorReader};
pub use remedy::Remedy;
pub use source::SharedBytes;
pub use stats::Stats;
pub use tensor::{Identity, TensorInfo};
pub use unfinished::{Abandoned, Purpose, Unfinished, abandon_all};
pub use values::Sink;
pub use write::{Entry, Provider, Target, write, write_file};
