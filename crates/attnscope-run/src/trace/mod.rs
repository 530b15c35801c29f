//! Traces: the result of a run, in a folder. `trace.safetensors` holds the tensors under the names of
//! their nodes, `trace.json` what the run was.

mod error;
mod given;
mod read;
mod write;

pub use error::TraceError;
pub use read::{Trace, TraceNode};
pub use write::{Precision, TraceWriter};

/// The number of the layout of `trace.json`.
pub const TRACE_SCHEMA: u32 = 1;

/// What stands before a tensor's name in that of its gradient.
pub const GRADIENT: &str = "grad:";

/// The name of a tensor's gradient.
pub fn gradient_name(path: &str) -> String {
    format!("{GRADIENT}{path}")
}

/// The files of a trace.
pub(crate) const TENSORS: &str = "trace.safetensors";
pub(crate) const ABOUT: &str = "trace.json";
