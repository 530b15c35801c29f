//! What a checkpoint is.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Answer;

/// What a checkpoint holds, what it was recognised as, the source of each fact, and what is missing.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Inspection {
    /// 1
    pub schema: u32,
    /// The model as it was named.
    pub model: String,
    /// The format of its files.
    pub format: String,
    /// Its files.
    pub files: Vec<FileSize>,
    /// How many tensors it holds.
    pub tensor_count: usize,
    /// Checksums that the format has.
    pub checks: Vec<Check>,
    /// Pickled objects that were not built.
    pub placeholders: Vec<PickledObject>,
    /// Names of the files of the tokenizer.
    pub tokenizer: Vec<String>,
    /// Groups of tensors that share bytes.
    pub shared: Vec<Vec<String>>,
    /// What the tensors are.
    #[serde(flatten)]
    pub recognition: Recognition,
    /// With `--tensors` or `--stats`: every tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<TensorEntry>>,
    /// How many tensors there are of each type, the most first.
    #[serde(skip)]
    pub types: Vec<TypeCount>,
    /// Files beside the weights that were not opened.
    #[serde(skip)]
    pub ignored: Vec<PathBuf>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileSize {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// What is summed.
    pub what: String,
    /// Whether it is right.
    pub state: CheckState,
}

/// The state of a checksum; a wrong one is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Computed, and right.
    Verified,
    /// The file has none.
    Absent,
    /// Not computed, because it would read the whole of a large file.
    NotComputed,
}

/// A pickled object that was not built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PickledObject {
    /// What it would be.
    pub global: String,
    /// Where it is.
    pub place: String,
    /// Whether the pickle asks to call it on loading.
    pub called: bool,
}

/// How many tensors are of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeCount {
    /// The type.
    pub dtype: String,
    /// How many.
    pub count: usize,
}

/// What a checkpoint was recognised as.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Recognition {
    /// A model that can be drawn, and run if there are no obstacles.
    Model(Box<RecognisedModel>),
    /// Something else.
    Other(OtherModel),
}

/// Something that cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OtherModel {
    /// `decoder-only`, `encoder-only`, `encoder-decoder` (of an unknown family), `adapter` (LoRA), `unknown`.
    pub kind: String,
    /// A family that is known by name; the reason says what it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The reason; nothing below is known then.
    pub because: String,
}

/// A model of a known family.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RecognisedModel {
    /// `encoder-decoder`, `decoder-only` or `encoder-only`.
    pub kind: String,
    /// The family's id.
    pub family: String,
    /// The family to a reader.
    #[serde(skip)]
    pub title: String,
    /// The naming scheme of its tensors.
    pub names: String,
    /// The prefix of those names.
    pub prefix: String,
    /// Each tied weight once.
    pub parameters: u64,
    /// Values in constants of the file, which are not parameters.
    pub buffers: u64,
    /// Every degree of freedom of the family by its name.
    pub wiring: Map<String, Value>,
    /// Every fact and its source.
    pub facts: Vec<FactSaid>,
    /// Which tensor each weight is.
    pub binding: Binding,
    /// Why the model cannot be run; empty when it can.
    pub obstacles: Vec<String>,
    /// A head for another task, which is not run.
    #[serde(skip)]
    pub head: Option<Head>,
}

/// A fact about a model.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FactSaid {
    /// Which part of the report it belongs to.
    pub topic: String,
    /// What it is about.
    pub name: String,
    /// What holds.
    pub value: Value,
    /// The source of the fact.
    pub source: String,
    /// Sources that say something else.
    pub disagree: Vec<Disagreement>,
}

/// What another source says.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Disagreement {
    /// Who.
    pub source: String,
    /// What.
    pub value: Value,
}

/// Which tensors the weights of the graph are.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Binding {
    /// How many weights have their tensor.
    pub bound: usize,
    /// How many weights there are.
    #[serde(skip)]
    pub weights: usize,
    /// Weights that the file does not have.
    pub missing: Vec<BoundWeight>,
    /// Weights whose tensor has another shape.
    pub mismatched: Vec<BoundWeight>,
    /// Tensors that are another name of a weight.
    pub aliases: Vec<Alias>,
    /// Tensors that no node uses.
    pub unused: Vec<String>,
    /// The same with their shapes, without those of a head.
    #[serde(skip)]
    pub unused_shapes: Vec<NamedShape>,
}

/// A weight of the graph and the tensor that it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BoundWeight {
    /// Its path in the graph.
    pub path: String,
    /// Its tensor.
    #[serde(flatten)]
    pub state: WeightState,
}

/// The tensor of a weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum WeightState {
    /// It is there.
    Bound {
        /// Its name in the file.
        tensor: String,
        /// First and end row of a packed tensor.
        rows: Option<[usize; 2]>,
        /// Its type.
        dtype: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The file does not have it.
    Missing {
        /// What it would be called.
        tensor: String,
    },
    /// It has another shape.
    Mismatched {
        /// Its name in the file.
        tensor: String,
        /// The shape that the graph has.
        expected: Vec<usize>,
        /// The shape in the file.
        shape: Vec<usize>,
    },
}

/// A tensor that is another name of a weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Alias {
    /// The tensor.
    pub tensor: String,
    /// The weight's path.
    pub weight: String,
}

/// A tensor by its name and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedShape {
    /// Its name in the file.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A head for another task than generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its tensors.
    pub tensors: Vec<NamedShape>,
    /// A sentence about it.
    pub sentence: String,
}

/// A tensor.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TensorEntry {
    /// Its name in the file.
    pub name: String,
    /// Its type.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its size.
    pub bytes: u64,
    /// Statistics of its values, on request; `null` for a type that is not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<Option<TensorStats>>,
}

/// Statistics of a tensor's values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct TensorStats {
    /// The least of the finite values; `null` where there is none.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// Their mean.
    pub mean: Option<f64>,
    /// Their standard deviation.
    pub std: Option<f64>,
    /// How many are 0.
    pub zeros: u64,
    /// How many are NaN.
    pub nan: u64,
    /// How many are infinite.
    pub inf: u64,
}

impl Answer for Inspection {
    const NAME: &'static str = "inspect";
}

impl Inspection {
    /// The size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}
