//! The columns of what the kernel reads and writes. Integers have signs, because Spark knows no others.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

use crate::measure::{HeadMeasure, JoinMeasure};

/// The version of the columns. It rises when one changes its meaning or goes; a column that is added leaves it.
pub const SCHEMA_VERSION: u32 = 1;

/// The columns that the kernel reads; others are kept as they are. Only `target` must be there; a model that reads a source
/// needs `source`, and a swapped NLL needs `swap_source`.
pub const INPUT_COLUMNS: [&str; 6] = ["row", "line", "source", "target", "swap_row", "swap_source"];

/// The columns that a plan makes of a corpus, without those that are kept.
pub fn input_schema() -> Schema {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let number = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
    Schema::new(vec![
        number("row", false),
        number("line", true),
        text("source"),
        text("target"),
        number("swap_row", true),
        text("swap_source"),
    ])
}

/// One head on one sentence.
pub(crate) fn head_fields() -> Fields {
    let names = [("attention", DataType::Utf8), ("layer", DataType::Int32), ("head", DataType::Int32)];
    let places = names.map(|(name, kind)| Field::new(name, kind, false));
    let measures = HeadMeasure::ALL.map(|measure| Field::new(measure.name(), DataType::Float32, true));
    places.into_iter().chain(measures).collect()
}

/// One sublayer on one sentence.
pub(crate) fn join_fields() -> Fields {
    let place = Field::new("sublayer", DataType::Utf8, false);
    let layer = Field::new("layer", DataType::Int32, false);
    let measures = JoinMeasure::ALL.map(|measure| Field::new(measure.name(), DataType::Float32, true));
    [place, layer].into_iter().chain(measures).collect()
}

/// A target token, the source token that it looked at most, and how much.
pub(crate) fn alignment_fields() -> Fields {
    let token = |name: &str| Field::new(name, DataType::Int32, false);
    [token("source"), token("target"), Field::new("weight", DataType::Float32, false)].into_iter().collect()
}

/// A list of structs.
pub(crate) fn list(name: &str, fields: Fields) -> Field {
    let item = Field::new("item", DataType::Struct(fields), false);
    Field::new(name, DataType::List(Arc::new(item)), true)
}

/// The columns that the kernel writes, then the kept ones.
pub fn output_schema(with_alignments: bool, kept: &[Arc<Field>]) -> SchemaRef {
    let field = |name: &str, kind: DataType, nullable| Field::new(name, kind, nullable);
    let mut fields = vec![
        field("row", DataType::Int64, false),
        field("line", DataType::Int64, true),
        field("source", DataType::Utf8, true),
        field("target", DataType::Utf8, true),
        field("swap_row", DataType::Int64, true),
        field("source_tokens", DataType::Int32, true),
        field("target_tokens", DataType::Int32, true),
        field("source_characters", DataType::Int32, true),
        field("target_characters", DataType::Int32, true),
        field("nll", DataType::Float64, true),
        field("nll_swapped", DataType::Float64, true),
        field("delta_nll", DataType::Float64, true),
        field("truncated", DataType::Boolean, false),
        field("unknown", DataType::Boolean, false),
        field("non_finite", DataType::Boolean, false),
        field("over_positions", DataType::Boolean, false),
        field("rejected", DataType::Utf8, true),
        list("heads", head_fields()),
        list("layers", join_fields()),
    ];
    if with_alignments {
        fields.push(list("alignments", alignment_fields()));
    }
    let own: Vec<Arc<Field>> = fields.into_iter().map(Arc::new).collect();
    let all: Vec<Arc<Field>> = own.into_iter().chain(kept.iter().cloned()).collect();
    let version = [("attnscope.schema".to_owned(), SCHEMA_VERSION.to_string())];
    Arc::new(Schema::new(all).with_metadata(HashMap::from(version)))
}
