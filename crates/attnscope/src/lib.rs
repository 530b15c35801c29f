//! attnscope as a library: open a model, know it, draw it.
//!
//! ```
//! use attnscope::Opened;
//!
//! let demo = Opened::open("demo", None)?;
//! let model = demo.encoder_decoder()?;
//! assert_eq!(model.parameters().0, 1_174_528);
//! # Ok::<(), attnscope::Failure>(())
//! ```

mod attention;
pub mod cli;
mod explain;
mod failure;
mod judged;
mod near;
mod open;
mod ready;
mod text_file;
mod thresholds_file;
mod toy;
mod traced;
mod writing;

pub use attnscope_checkpoint as checkpoint;
pub use attnscope_diagnose as diagnose;
pub use attnscope_graph as graph;
pub use attnscope_render as render;
pub use attnscope_run as run;
pub use failure::Failure;
pub use open::Opened;
pub use ready::{Ready, Token};
pub use writing::{Aligned, Written};
