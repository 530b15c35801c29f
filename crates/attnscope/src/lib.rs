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
mod attention_map;
mod audit;
mod collect;
mod convert;
mod device;
mod diff;
mod doctor;
mod explain;
mod failure;
mod flow;
mod generate;
mod generated_row;
mod gradients;
mod input;
mod inspect;
mod judged;
mod kept_run;
mod layers;
mod loaded;
mod masks;
mod model;
mod near;
mod note;
mod open;
mod outcome;
mod picked;
mod ready;
mod report;
mod summary;
mod text_file;
mod token_count;
mod torch_summary;
pub mod toy;
mod trace;
mod traced;
mod traced_nodes;
mod train;
mod worked;

pub use attention_map::{AttentionMap, DrawnHeads};
pub use attnscope_checkpoint as checkpoint;
pub use attnscope_checkpoint::Remedy;
pub use attnscope_corpus as corpus;
pub use attnscope_diagnose as diagnose;
pub use attnscope_graph as graph;
pub use attnscope_graph::figures;
pub use attnscope_run as run;
pub use attnscope_run::{Cancel, Counted, Limits, Progress, Step, Values};
pub use attnscope_train as training;
pub use audit::{AuditCorpus, AuditOptions, compare_audits, merge_audits, read_audit};
pub use convert::{ConvertOptions, Loss, convert};
pub use device::Device;
pub use diff::{DiffOptions, Run, diff, diff_noting, diff_weights};
pub use doctor::{DoctorOptions, rules_named};
pub use explain::{ExplainOptions, topics};
pub use failure::{Argument, Failure, FailureKind};
pub use flow::{Component, FlowOptions, flow_of};
pub use generate::{GenerateOptions, MOST_TOKENS};
pub use generated_row::{Aligned, GeneratedRow};
pub use gradients::Gradients;
pub use input::{DEMO_SOURCE, Input, ResolvedInput, SourceInput, TargetInput};
pub use inspect::Detail;
pub use judged::{Judged, PairLines};
pub use layers::{LayerGroup, layer_groups};
pub use masks::{MaskOptions, PROVED_ROWS};
pub use model::{Model, open};
pub use near::nearest;
pub use note::Note;
pub use open::Opened;
pub use outcome::Outcome;
pub use picked::Pick;
pub use ready::{Ready, Token};
pub use report::{ReportOptions, RunOptions};
pub use summary::Lengths;
pub use text_file::read_text;
pub use token_count::TokenCount;
pub use trace::{Maps, TraceOptions};
pub use traced::check_trace;
pub use train::{TrainOptions, evaluate, plan_training, predict, recipe, train};
pub use worked::check_example;
