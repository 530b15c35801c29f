//! Measures of a model over a corpus: how well it explains every sentence, with its own source and with another's, and what
//! every head and layer does there. The kernel is a function from an Arrow batch to an Arrow batch; around it are a plan, parts
//! in Parquet, and summaries.

mod compare;
mod distribution;
mod error;
mod folder;
mod kernel;
mod measure;
mod merge;
mod model;
mod plan;
mod reading;
mod run;
mod schema;
mod summary;

pub use compare::{ComparedHead, ComparedMeasure, Comparison, PairedNll, compare};
pub use distribution::{Distribution, RANK_ERROR};
pub use error::AuditError;
pub use folder::{AuditFolder, Manifest, RunIdentity, Shard};
pub use kernel::{KernelOptions, audit_batch, audited_schema};
pub use measure::{HeadMeasure, JoinMeasure, SentenceMeasure};
pub use merge::merge;
pub use model::{AuditModel, Task};
pub use plan::{Plan, with_swaps};
pub use reading::{ColumnNames, CorpusRead, CorpusRow, Reject, read_corpus};
pub use run::{AuditOptions, Finished, audit};
pub use schema::{INPUT_COLUMNS, SCHEMA_VERSION, input_schema, output_schema};
pub use summary::{
    CorpusSummary, ExtremeSentence, GroupSummary, HeadSummary, JoinSummary, MeasureSummary, SampledSentence,
    summarise,
};
