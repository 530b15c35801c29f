//! attnscope as a library: open a model, run it, ask what is wrong with it.
//!
//! ```
//! use attnscope::{GenerateOptions, Input};
//!
//! let model = attnscope::open("demo")?; // Or a file, or a folder. Owned, Send + Sync, cheap to clone.
//! let input = Input::text("Two dogs play in the snow.");
//! let trace = model.trace(&input, "decoder.*.cross_attn.weights")?;
//! assert_eq!(trace.tensor("decoder.1.cross_attn.weights")?.dims, ["B", "H", "T", "S"]);
//! let written = model.generate(&input, &GenerateOptions::default())?;
//! assert!(written.outputs[0].best().is_some());
//! # Ok::<(), attnscope::Failure>(())
//! ```
//!
//! Answers ([`answer`]) are plain values; their JSON is that of `--format json`.

pub mod answer;
mod diff;
mod doctor;
mod failure;
mod generate;
mod given;
mod inspect;
mod judged;
mod masks;
mod model;
mod note;
mod open;
mod ready;
mod summary;
pub mod toy;
mod trace;
mod traced;
mod writing;

pub use attnscope_checkpoint as checkpoint;
pub use attnscope_diagnose as diagnose;
pub use attnscope_graph as graph;
pub use attnscope_run as run;
pub use diff::{DiffOptions, Difference, Party, diff, diff_noting, diff_weights};
pub use doctor::DoctorOptions;
pub use failure::Failure;
pub use generate::GenerateOptions;
pub use given::{DEMO_SOURCE, Given, Input, Reading, Writing};
pub use inspect::Detail;
pub use judged::{Judged, PairLines};
pub use masks::{MaskOptions, PROVED_ROWS};
pub use model::{Model, open};
pub use note::{Note, notes_of_input};
pub use open::Opened;
pub use ready::{Ready, Token};
pub use summary::Lengths;
pub use trace::{Tensor, Trace};
pub use traced::Traced;
pub use writing::{Aligned, Written};
