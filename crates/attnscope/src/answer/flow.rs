//! How data flows through a model.

use attnscope_checkpoint::Format;
use attnscope_graph::{LayerPart, Model, Node, Stack, words};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::inspection::BoundWeight;
use super::{SCHEMA, answer_by_document};
use crate::flow::FlowOptions;
use crate::inspect::{bound_weight, wiring};
use crate::layers::LayerGroup;
use crate::note::Note;

/// A model and the parts of it that are drawn.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The model as it was named.
    pub name: String,
    /// The format of its file.
    pub format: Format,
    /// What it was recognised as.
    pub model: Model,
    /// What was asked for.
    pub options: FlowOptions,
    /// The stacks that are shown at a glance.
    pub overview: &'static [Stack],
    /// The parts of layers that are drawn, in reading order.
    pub parts: Vec<DrawnPart>,
    /// Whether the selector picks nodes outside of all layers.
    pub loose: bool,
    /// Notes: what a user may not expect.
    pub notes: Vec<Note>,
}

/// A part of layers that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnPart {
    /// The layers.
    pub layers: LayerGroup,
    /// Which part.
    pub part: LayerPart,
}

answer_by_document!(Flow, Document, "flow");

/// The nodes of a model and their inputs.
#[derive(Serialize, JsonSchema)]
struct Document {
    /// 1
    schema: u32,
    /// The model as it was named.
    model: String,
    /// The family's id.
    family: &'static str,
    /// Every degree of freedom by its name, as in `inspect`.
    wiring: Map<String, Value>,
    /// Every node in the order of computation, those of `--component`, or those that `--layer` picks.
    nodes: Vec<FlowNode>,
    /// What a user may not expect.
    notes: Vec<Note>,
}

/// A node.
#[derive(Serialize, JsonSchema)]
struct FlowNode {
    /// Its name everywhere.
    path: String,
    /// The stack that it is a step of, or leads to: `encoder` or `decoder`; `null` after the last stack.
    stack: Option<&'static str>,
    /// Its layer, from 0; `null` outside of layers.
    layer: Option<usize>,
    /// In a layer `self_attn`, `cross_attn`, `ffn`, or `stream` for what the layer reads and gives; outside of layers `entry`,
    /// `audio`, `out` (of a stack), `head`, `classifier` or `logits`.
    part: &'static str,
    /// Its name there, the last word of its path: `scores`.
    step: String,
    /// Its operation.
    op: &'static str,
    /// The paths of what it reads.
    inputs: Vec<String>,
    /// Its dimensions by their letters: `["B", "H", "T", "S"]`; `H·K` is heads side by side.
    dims: Vec<String>,
    /// Their sizes; `null` where they depend on the input, or the head count is not known.
    shape: Vec<Option<usize>>,
    /// Its formula.
    formula: String,
    /// What it is, in a sentence.
    what: &'static str,
    /// Its weights.
    weights: Vec<BoundWeight>,
}

impl Document {
    fn of(flow: &Flow) -> Self {
        let Flow { model, options, .. } = flow;
        let picked = |node: &&Node| {
            options.component.holds(model, node)
                && options.layer.as_ref().is_none_or(|s| s.matches(&node.path))
        };
        Self {
            schema: SCHEMA,
            model: flow.name.clone(),
            family: model.family.id,
            wiring: wiring(model),
            nodes: model.graph.nodes().iter().filter(picked).map(|node| FlowNode::of(model, node)).collect(),
            notes: flow.notes.clone(),
        }
    }
}

impl FlowNode {
    fn of(model: &Model, node: &Node) -> Self {
        Self {
            path: node.path.to_string(),
            stack: node.role.stack().map(Stack::name),
            layer: node.role.layer().map(|(_, layer)| layer),
            part: node.role.part_name(),
            step: node.path.leaf().to_owned(),
            op: node.op.facets().name,
            inputs: node.inputs.iter().map(|&id| model.graph.node(id).path.to_string()).collect(),
            dims: node.dims.iter().map(|dim| dim.symbol(&model.sizes)).collect(),
            shape: node.dims.iter().map(|&dim| model.sizes.get(dim)).collect(),
            formula: words::formula(node, &model.sizes, false),
            what: words::sentence(node),
            weights: node.weights.iter().map(|&id| bound_weight(model, id)).collect(),
        }
    }
}
