//! Everything about a model and a run of it, for one page.

use std::collections::BTreeMap;

use attnscope_train::Metric;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Answer, Diagnosis, Difference, Flow, Generation, Inspection, MaskProof, Trace};

/// What is known of a model, of a run of it, of its difference from another run and of its training.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// 1
    pub schema: u32,
    /// The program that made it, with its version.
    pub made_by: String,
    /// The model as it was named.
    pub model: String,
    /// Its title for a reader.
    pub title: String,
    /// As `inspect --format json` has it.
    #[schemars(with = "Map<String, Value>")]
    pub inspection: Inspection,
    /// As `flow --format json` has it.
    #[schemars(with = "Map<String, Value>")]
    pub flow: Flow,
    /// As `doctor --format json` has it; `null` where it was not asked for.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub doctor: Option<Diagnosis>,
    /// What is remarkable about heads, by the doctor's measures.
    pub badges: Vec<HeadBadge>,
    /// The run; `null` for a model that cannot be run.
    pub run: Option<RunReport>,
    /// As `diff --format json` has it, where another run was given.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub diff: Option<Difference>,
    /// Where the folder of a training run was given, or the model is one.
    pub training: Option<TrainingRun>,
    /// What is not in it, and why.
    pub left_out: Vec<LeftOut>,
}

impl Answer for Report {
    const NAME: &'static str = "report";
}

/// A run with everything that a page shows of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RunReport {
    /// The row of the batch that pictures show.
    pub row: usize,
    /// The text that was read in that row, as it was given; `null` for ids and recordings.
    pub source_text: Option<String>,
    /// The target's, as it was given; `null` for ids, and where the model generated one.
    pub target_text: Option<String>,
    /// As `trace --format json` has it.
    #[schemars(with = "Map<String, Value>")]
    pub trace: Trace,
    /// As `generate --align --format json` has it, without alignments of very many words; `null` where the model generates
    /// nothing, or a target was given.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub generation: Option<Generation>,
    /// As `masks --format json` has it; `null` where there is none, or the input is too long for the proofs.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub masks: Option<MaskProof>,
    /// Where the input is too long for the proofs: the masks, in runs.
    pub mask_runs: Vec<MaskRuns>,
    /// What a classifier answers: its classes, the most probable first; `null` for other models.
    pub classes: Option<Vec<ClassScore>>,
    /// Every attention of the model, in the order of computation.
    pub attentions: Vec<ReportAttention>,
    /// Histograms of tensors, by node.
    pub histograms: BTreeMap<String, Histogram>,
    /// Exact values of tensors, by node, as far as there is room for them.
    pub values: BTreeMap<String, ExactValues>,
    /// The arithmetic of the cells of an attention's weights, by the weights' node, as far as there is room for it.
    pub cells: BTreeMap<String, CellPages>,
    /// What an audio model's encoder reads.
    pub spectrogram: Option<Spectrogram>,
    /// What is not in it, and why.
    pub left_out: Vec<LeftOut>,
}

impl Answer for RunReport {
    const NAME: &'static str = "run";
}

/// A class that a classifier knows.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClassScore {
    /// From 0.
    pub class: usize,
    /// Its name, where the model's documents have one.
    pub name: Option<String>,
    /// Its logit.
    #[schemars(with = "Option<f32>")]
    pub score: f32,
    /// The softmax of the logits; `null` where a value is not finite, or there is only one class.
    pub probability: Option<f64>,
}

/// A mask, with cells that follow each other and have the same reason in one run. No cell is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MaskRuns {
    /// `M_e`, `M_d` or `M_x`.
    pub name: &'static str,
    /// Whose it is.
    pub attention: &'static str,
    /// Heads that share it.
    pub heads: usize,
    /// Layers that share it.
    pub layers: usize,
    /// Their numbers, where other layers of the stack have another mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_layers: Option<Vec<usize>>,
    /// One sentence per rule.
    pub reasons: Vec<String>,
    /// How many queries.
    pub queries: usize,
    /// How many keys.
    pub keys: usize,
    /// Queries that see the same keys and follow each other, together.
    pub rows: Vec<MaskRow>,
    /// The queries without a visible key; their weights are 0 by definition.
    #[serde(rename = "blind")]
    pub fully_masked: Vec<usize>,
}

/// Queries that see the same keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MaskRow {
    /// How many queries, one after the other.
    pub queries: usize,
    /// What they see of each key: the letter of `masks --format json`, and for how many keys it holds.
    pub keys: Vec<(char, usize)>,
}

/// A part that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// `run`, `doctor`, `training`, `masks`, `proofs`, `generation`, `alignment`, `pictures`, `contribution`, `values` or `cells`.
    pub part: &'static str,
    /// Why, in a sentence.
    pub why: String,
}

/// Something remarkable about a head.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HeadBadge {
    /// `decoder.0.cross_attn`
    pub attention: String,
    /// From 0.
    pub head: usize,
    /// Which.
    pub badge: Badge,
    /// What was measured.
    #[schemars(with = "Option<f64>")]
    pub number: f64,
    /// The threshold that it is past.
    pub threshold: f64,
    /// Of duplicates: the other head.
    pub other: Option<usize>,
}

/// What is remarkable about a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Badge {
    /// Much of its weight is on one position: the largest mean weight on a position.
    Sink,
    /// It adds next to nothing: the norm of what it adds, of the mean of its attention's heads.
    Dead,
    /// Another head does the same: the divergence of their weights in nats.
    Duplicate,
    /// Its weights are nearly uniform: their normalised entropy.
    NearUniform,
}

/// An attention and its pictures.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReportAttention {
    /// `decoder.0.cross_attn`
    pub path: String,
    /// `encoder` or `decoder`.
    pub stack: &'static str,
    /// From 0.
    pub layer: usize,
    /// `self_attn` or `cross_attn`.
    pub kind: &'static str,
    /// Whose positions the queries are: `source` or `target`.
    pub query_side: &'static str,
    /// Whose positions the keys are.
    pub key_side: &'static str,
    /// How many heads.
    pub heads: usize,
    /// How many queries.
    pub queries: usize,
    /// How many keys.
    pub keys: usize,
    /// Keys at which a source's sentence ends.
    pub ends: Vec<usize>,
    /// What each head does; empty where the weights are too large to keep.
    pub measures: Vec<HeadSummary>,
    /// Its pictures; one that is missing could not be made.
    pub pictures: Vec<Picture>,
    /// Of weights whose picture is reduced: the largest weight of each query.
    pub largest: Option<RowMaxima>,
    /// Where padding is left out of the pictures: the mean weight of a query on it, over heads.
    pub on_padding: Option<f64>,
    /// In cross-attention: the share of the stream in the contributions of each query.
    pub stream_share: Option<F32Array>,
}

/// What a head does, the mean over queries; S is the number of keys that a query sees.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HeadSummary {
    /// Entropy / ln S; `null` below 4 keys.
    pub entropy: Option<f64>,
    /// The largest weight × S.
    #[schemars(with = "Option<f64>")]
    pub peak: f64,
    /// The weight on the end token; `null` without one.
    pub end_share: Option<f64>,
}

/// Matrices of an attention in 8 bits.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Picture {
    /// What it shows.
    pub of: PictureOf,
    /// Matrices: one per head, or one for all.
    pub heads: usize,
    /// Rows of a matrix: queries, or groups of them.
    pub rows: usize,
    /// Columns of a matrix: keys, or groups of them.
    pub columns: usize,
    /// The query that the first row begins with: padding before the first token and after the last is left out.
    pub first_query: usize,
    /// The key that the first column begins with.
    pub first_key: usize,
    /// Queries that a row stands for; the largest value of a group is shown.
    pub queries_a_row: usize,
    /// Keys that a column stands for.
    pub keys_a_column: usize,
    /// The value of code 0, for each matrix.
    pub low: Vec<f32>,
    /// The value of code 254, for each matrix; between them codes are spaced evenly.
    pub high: Vec<f32>,
    /// A byte per cell, [matrix, row, column]: 0 to 254, or 255 for a value that is not finite. In base64.
    pub codes: Base64,
    /// Of a reduced picture: which cell of each group is the largest, in the order of `codes`. A place is a number of
    /// ⌈log2(queries_a_row × keys_a_column)⌉ bits, the lowest first, without gaps: query of the group × keys_a_column + key of
    /// the group. In base64.
    pub places: Option<Base64>,
}

/// What a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PictureOf {
    /// The weights after the softmax.
    Weights,
    /// The scores before bias and mask.
    Scores,
    /// Each weight times the norm of its value vector: ‖A·V‖.
    WeightedValues,
    /// What each key contributes to the sum with the stream, of all heads together (ALTI).
    Contribution,
}

/// The largest weight of each query, for each head.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RowMaxima {
    /// The weights, [head, query].
    pub weights: F32Array,
    /// Their keys, [head, query], as numbers of 32 bits, little-endian, in base64.
    pub keys: Base64,
}

/// How many values of a tensor lie where.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Histogram {
    /// The least finite value: where the first bin begins.
    pub low: f64,
    /// The greatest finite value: where the last bin ends.
    pub high: f64,
    /// Values in each of equally wide bins.
    pub counts: Vec<u64>,
}

/// The values of a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExactValues {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: F32Array,
}

/// Pages as `explain NODE --at CELL` shows them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CellPages {
    /// The first index of every cell: the row of the batch.
    pub row: usize,
    /// Heads, queries, keys: the cells in row-major order.
    pub shape: [usize; 3],
    /// The JSON of every page, packed: an object with `groups` (texts with the same signs `between` their words, and `columns`: the
    /// word that all of them have, or their words with line breaks between) and `places` (of each cell its group, and its place
    /// there). Compressed (zlib), in base64.
    pub pages: Base64,
}

/// Log-mel features.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Spectrogram {
    /// Mel bands, from low to high.
    pub mels: usize,
    /// Columns, each as long as a position of the encoder.
    pub columns: usize,
    /// Seconds from one column to the next.
    pub seconds_a_column: f64,
    /// The value of code 0.
    pub low: f32,
    /// The value of code 254.
    pub high: f32,
    /// A byte per cell, [mel, column], in base64.
    pub codes: Base64,
}

/// What was measured while a model learned.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrainingRun {
    /// The run's folder.
    pub folder: String,
    /// Whether the weights of the report's model are those that the run keeps, its best or its latest.
    pub is_of_model: bool,
    /// As metrics.jsonl has it.
    pub metrics: Vec<Metric>,
}

/// Bytes, written in base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

/// Numbers, written as f32, little-endian, in base64: NaN and infinities stay what they are.
#[derive(Debug, Clone, PartialEq)]
pub struct F32Array(pub Vec<f32>);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl Serialize for F32Array {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|x| x.to_le_bytes()).collect();
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

/// In a schema both are texts.
macro_rules! text_schema {
    ($name:ident, $words:literal) => {
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "contentEncoding": "base64", "description": $words })
            }
        }
    };
}
text_schema!(Base64, "Bytes in base64.");
text_schema!(F32Array, "Numbers as f32, little-endian, in base64: NaN and infinities stay what they are.");
