//! What the library answers: plain owned values, and the JSON of `--format json` is theirs.
//!
//! A field that is left out of the JSON is there for readers of text.

mod audit;
mod conversion;
mod diagnosis;
mod difference;
mod flow;
mod generation;
mod inspection;
mod masks;
mod page;
mod report;
mod summary;
mod tokens;
mod trace;
mod trace_check;
mod trace_file;
mod training;
mod worked;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

pub use audit::{Audit, AuditComparison, AuditRun};
pub use conversion::{AcceptedLoss, Conversion};
pub use diagnosis::{Diagnosis, FindingDocument};
pub use difference::{Difference, Party, input_sentence};
pub use flow::{DrawnPart, Flow};
pub use generation::{
    AlignedWord, AlignmentHeads, EndedBy, From, Generation, Link, Output, Piece, Prompt, Recorded, Search,
    Sentence, SpeechWindow, TimedSegment, TimedWord, WordAlignment, WrittenToken,
};
pub use inspection::{
    Alias, Binding, BoundWeight, Check, CheckState, Disagreement, FactSaid, FileSize, Head, Inspection,
    NamedShape, OtherModel, PickledObject, RecognisedModel, Recognition, TensorEntry, TensorStats, TypeCount,
    WeightState,
};
pub(crate) use masks::letter;
pub use masks::{MaskProof, ShownMistake};
pub use page::{Explanation, Page, Part};
pub use report::{
    Badge, Base64, CellPages, ClassScore, ExactValues, F32Array, HeadBadge, HeadSummary, Histogram, LeftOut,
    MaskRow, MaskRuns, Picture, PictureOf, Report, ReportAttention, RowMaxima, RunReport, Spectrogram,
    TrainingRun,
};
pub use summary::{Layer, Summary, SummaryInput, TorchSummary, Totals};
pub use tokens::{FeatureShape, InputTokens, ReadRecording};
pub use trace::{
    ClassifiedRow, FullyMasked, SnapshotValues, TargetLoss, Tensor, Trace, TracedNode, TracedSnapshot, Walk,
};
pub use trace_check::{CheckedCell, CheckedTensor, TraceCheck, UncheckedReason, UncheckedTensor};
pub use trace_file::{SavedNode, TraceFile, TracedFile};
pub use training::{
    BestValidation, BleuScore, Evaluation, HeldOutFrom, LearnedFrom, PredictedRow, Prediction, RunEnd,
    Training, TrainingPlan,
};
pub use worked::{JudgedExample, WorkedExamples};

/// The version of the schema that docs/json.md describes.
pub const SCHEMA: u32 = 1;

/// What a command answers with, for programs.
pub trait Answer: Serialize + JsonSchema {
    /// The name of its schema: a file in `schema/`.
    const NAME: &'static str;

    /// The answer as it is written: indented, with a line break at the end.
    ///
    /// ```
    /// use attnscope::answer::Answer;
    ///
    /// let summary = attnscope::open("demo")?.summary(&attnscope::Lengths::default())?;
    /// assert!(summary.to_json()?.starts_with("{\n  \"schema\": 1,\n  \"model\": \"demo\""));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Where a map has a key that is not a text; answers have none.
    fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// A value that holds what renderers need, and whose JSON is another struct made from it: `Document::of(&value)`.
macro_rules! json_by_document {
    ($answer:ident, $document:ty) => {
        impl ::serde::Serialize for $answer {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$document>::of(self).serialize(serializer)
            }
        }

        impl ::schemars::JsonSchema for $answer {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($answer).into()
            }

            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                <$document>::json_schema(generator)
            }
        }
    };
}
pub(crate) use json_by_document;

/// An answer of that kind.
macro_rules! answer_by_document {
    ($answer:ident, $document:ty, $name:literal) => {
        impl $crate::answer::Answer for $answer {
            const NAME: &'static str = $name;
        }

        $crate::answer::json_by_document!($answer, $document);
    };
}
pub(crate) use answer_by_document;

/// The schema of every answer, by its name.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        schema::<Audit>(),
        schema::<AuditComparison>(),
        schema::<Conversion>(),
        schema::<Diagnosis>(),
        schema::<Difference>(),
        schema::<Evaluation>(),
        schema::<Explanation>(),
        schema::<Flow>(),
        schema::<Generation>(),
        schema::<Inspection>(),
        schema::<MaskProof>(),
        schema::<Prediction>(),
        schema::<Report>(),
        schema::<RunReport>(),
        schema::<Summary>(),
        schema::<Trace>(),
        schema::<TraceCheck>(),
        schema::<TraceFile>(),
        schema::<Training>(),
        schema::<TrainingPlan>(),
        schema::<WorkedExamples>(),
    ]
}

fn schema<A: Answer>() -> (&'static str, Schema) {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    (A::NAME, settings.into_generator().into_root_schema_for::<A>())
}

/// A number that JSON can hold: nothing for NaN and infinities.
pub(crate) fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}
