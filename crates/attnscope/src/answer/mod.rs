//! What the library answers: plain owned values, and the JSON of `--format json` is theirs.
//!
//! A field that is left out of the JSON is there for readers of text.

mod diagnosis;
mod generation;
mod inspection;
mod masks;
mod summary;
mod tokens;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

pub use diagnosis::{Diagnosis, FindingDocument};
pub use generation::{
    AlignedWord, AlignmentHeads, EndedBy, From, Generation, HeardWindow, Link, Output, Piece, Prompt,
    Recorded, Search, Sentence, TimedSegment, TimedWord, WordAlignment, WrittenToken,
};
pub use inspection::{
    Alias, Binding, BoundWeight, Check, CheckState, Disagreement, FactSaid, FileSize, Head, Inspection,
    NamedShape, OtherModel, PickledObject, RecognisedModel, Recognition, TensorEntry, TensorStats, TypeCount,
    WeightState,
};
pub use masks::{MaskProof, ShownMistake};
pub use summary::{Layer, Summary, SummaryInput, Totals};
pub use tokens::{FeatureShape, InputTokens, ReadRecording};

/// The number of the schema that docs/json.md describes.
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
    /// Where a map has a key that is no text; answers have none.
    fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// The schema of every answer, by its name.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        schema::<Diagnosis>(),
        schema::<Generation>(),
        schema::<Inspection>(),
        schema::<MaskProof>(),
        schema::<Summary>(),
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
