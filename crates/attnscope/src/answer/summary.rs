//! A table of layers.

use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;
use crate::note::Note;

/// The layers of a model with their shapes and costs, in torchinfo's manner.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// 1
    pub schema: u32,
    /// The model as it was named.
    pub model: String,
    /// Its title for a reader.
    #[serde(skip)]
    pub title: String,
    /// The sizes of the input that costs are of.
    pub input: SummaryInput,
    /// Layers, each after the module that contains it.
    pub layers: Vec<Layer>,
    /// Of the whole model.
    pub totals: Totals,
    /// What torch-summary prints of a classifier; `null` for other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_summary: Option<TorchSummary>,
    /// What a user may not expect.
    pub notes: Vec<Note>,
}

/// The sizes of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SummaryInput {
    /// Rows.
    pub batch: usize,
    /// Source positions; `null` for a model without an encoder.
    pub source: Option<usize>,
    /// Target positions; `null` for a model without a decoder.
    pub target: Option<usize>,
}

/// One line of the table: a layer, or a module that holds others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Layer {
    /// The node, or what the paths of a module's nodes begin with.
    pub path: String,
    /// What PyTorch would call it.
    #[serde(rename = "type")]
    pub kind: String,
    /// How deep it is nested, from 1.
    pub depth: usize,
    /// Its number among those of its depth, from 1.
    pub index: usize,
    /// Of its output; `null` for a module.
    pub shape: Option<Vec<usize>>,
    /// Own parameters; for a module, those of everything in it. A tied weight counts where it occurs first.
    pub parameters: u64,
    /// Whether all its weights were counted before.
    pub tied: bool,
    /// Multiply-adds as torchinfo counts them.
    pub mult_adds: u64,
    /// The actual multiply-adds.
    pub macs: u64,
    /// Of its output in f32.
    pub bytes: u64,
}

/// Sums over all layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Each tied weight once.
    pub parameters: u64,
    /// Constants in the file, which are not parameters.
    pub buffers: u64,
    /// Multiply-adds as torchinfo counts them: the sequence length is left out, but for convolutions.
    pub mult_adds: u64,
    /// Multiply-adds of all positions and attention products.
    pub macs: u64,
    /// Ids at 8 bytes, features at 4.
    pub input_bytes: u64,
    /// torchinfo's estimate: twice the outputs of layers with parameters.
    pub forward_backward_bytes: u64,
    /// In f32.
    pub parameter_bytes: u64,
    /// Every tensor of a traced run kept, in f32.
    pub forward_bytes: u64,
}

/// The totals that torch-summary prints: of one row of the batch, but for the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TorchSummary {
    /// The parameters of each layer once, those of a convolution (without biases) once for every position.
    pub mult_adds: u64,
    /// The ids of the batch, at 8 bytes.
    pub input_bytes: u64,
    /// Twice the outputs of layers with parameters.
    pub forward_backward_bytes: u64,
    /// In f32.
    pub parameter_bytes: u64,
}

impl TorchSummary {
    /// Input, outputs and parameters.
    pub fn estimated_bytes(&self) -> u64 {
        self.input_bytes.saturating_add(self.forward_backward_bytes).saturating_add(self.parameter_bytes)
    }
}

impl Answer for Summary {
    const NAME: &'static str = "summary";
}

impl Layer {
    /// The last part of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

impl Totals {
    /// torchinfo's estimate of everything: input, outputs and parameters.
    pub fn estimated_bytes(&self) -> u64 {
        self.input_bytes.saturating_add(self.forward_backward_bytes).saturating_add(self.parameter_bytes)
    }
}
