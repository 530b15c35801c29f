//! attnscope as a library: open a model, know it, draw it.
//!
//! ```
//! use attnscope::Opened;
//!
//! let demo = Opened::open("demo", None)?;
//! let model = demo.model()?;
//! assert_eq!(model.parameters().0, 1_174_528);
//! # Ok::<(), attnscope::Failure>(())
//! ```

pub mod answer;
mod failure;
mod inspect;
mod judged;
mod model;
mod note;
mod open;
mod ready;
mod summary;
pub mod toy;
mod traced;
mod writing;

pub use attnscope_checkpoint as checkpoint;
pub use attnscope_diagnose as diagnose;
pub use attnscope_graph as graph;
pub use attnscope_run as run;
pub use failure::Failure;
pub use inspect::Detail;
pub use judged::{Judged, PairLines};
pub use model::{Model, open};
pub use note::Note;
pub use open::Opened;
pub use ready::{Ready, Token};
pub use summary::Lengths;
pub use traced::{Traced, open_model, same_files};
pub use writing::{Aligned, Written};
