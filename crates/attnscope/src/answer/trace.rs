//! One run of a model: its measurements, and the tensors that were kept.

use std::collections::BTreeMap;

use attnscope_checkpoint::Stats;
use attnscope_diagnose::HeadMeasures;
use attnscope_graph::NodeId;
use attnscope_run::trace::{Precision, gradient_name};
use attnscope_run::{Tensor as RunTensor, Values};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::tokens::InputTokens;
use super::{SCHEMA, answer_by_document};
use crate::attention_map::AttentionMap;
use crate::model::Model;
use crate::note::Note;

/// The tensors of one run.
///
/// ```
/// use attnscope::Input;
///
/// let trace = attnscope::open("demo")?.trace(&Input::text("Two dogs play."), "cross_attn")?;
/// let weights = trace.tensor("decoder.1.cross_attn.weights")?;
/// assert_eq!(weights.dims, ["B", "H", "T", "S"]);
/// let first_query: f64 = weights.values.iter().take(weights.shape[3]).sum();
/// assert!((first_query - 1.0).abs() < 1e-6); // A softmax.
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Debug, Clone)]
pub struct Trace {
    /// The model as it was named.
    pub name: String,
    /// Its title for a reader.
    pub title: String,
    /// The family's id.
    pub family: &'static str,
    /// Every degree of freedom by its name.
    pub wiring: Map<String, Value>,
    /// f64 where the reference executor ran.
    pub precision: Precision,
    /// What it read.
    pub tokens: InputTokens,
    /// Every node in the order of computation, or those that were picked.
    pub nodes: Vec<TracedNode>,
    /// The walk, or the stops of it that were picked.
    pub walk: Option<Walk>,
    /// Attentions with fully masked queries.
    pub fully_masked: Vec<FullyMasked>,
    /// The attentions that are drawn.
    pub maps: Vec<AttentionMap>,
    /// The row of the batch that maps and excerpts show.
    pub row: usize,
    /// Whether the values of what was picked are part of the answer.
    pub with_values: bool,
    /// Notes: what a user may not expect.
    pub notes: Vec<Note>,
    /// The model that ran.
    pub(crate) model: Model,
    /// What it read, as it read it.
    pub(crate) input: attnscope_run::CheckedInput,
    /// Kept once, here, in the run's own memory: everything else refers to it by node.
    pub(crate) kept: BTreeMap<NodeId, RunTensor>,
    /// The gradients of tensors, likewise.
    pub(crate) gradients: BTreeMap<NodeId, RunTensor>,
    /// What gradients are the slope of, where they were asked for.
    pub loss: Option<TargetLoss>,
    /// Of a classifier whose scores are among what is looked at: what it says of each row.
    pub classified: Vec<ClassifiedRow>,
}

/// What a classifier says of a row.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClassifiedRow {
    /// The class with the largest score, by its number.
    pub class: usize,
    /// Its name, where the model's config gives it one.
    pub name: Option<String>,
    /// The softmax of the scores, by class; `null` where a score is NaN.
    #[schemars(with = "Vec<Option<f64>>")]
    pub probabilities: Vec<f64>,
    /// The names of the classes, where the config gives them; else their numbers.
    pub classes: Vec<String>,
}

/// What gradients are the slope of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct TargetLoss {
    /// The mean NLL of the targets, in nats; `null` where it is not finite.
    #[schemars(with = "Option<f64>")]
    pub nll: f64,
    /// How many targets: tokens of all rows, or a classifier's rows.
    pub targets: usize,
}

/// A node of a run.
#[derive(Debug, Clone)]
pub struct TracedNode {
    /// Its place in the graph.
    pub id: NodeId,
    /// Its name everywhere.
    pub path: String,
    /// Its operation.
    pub op: &'static str,
    /// What it is, in a sentence.
    pub what: &'static str,
    /// The paths of what it reads.
    pub inputs: Vec<String>,
    /// Its dimensions by their letters.
    pub dims: Vec<String>,
    /// Their sizes.
    pub shape: Option<Vec<usize>>,
    /// Its numbers in the walk.
    pub snapshots: Vec<usize>,
    /// Statistics of its values, where it was measured.
    pub stats: Option<Stats>,
    /// Statistics of its gradient's values, where that was measured.
    pub gradient: Option<Stats>,
    /// Whether its infinite values are a mask's.
    pub is_mask: bool,
    /// Whether its values are token ids.
    pub is_ids: bool,
}

/// Stops of the walk through a run.
#[derive(Debug, Clone)]
pub struct Walk {
    /// The stops.
    pub stops: Vec<TracedSnapshot>,
    /// Whether they are all.
    pub is_whole: bool,
    /// Where their numbers are not in the order of computation, in words.
    pub order: Option<String>,
    /// Of the whole walk: whether its attentions are cross-attentions; a model of one stack has none.
    pub has_cross_attention: bool,
}

/// A stop of the walk.
#[derive(Debug, Clone)]
pub struct TracedSnapshot {
    /// From 1.
    pub number: usize,
    /// The path of the node or weight.
    pub node: String,
    /// Nodes that belong with it.
    pub beside: Vec<String>,
    /// The same, as short as possible without being ambiguous.
    pub beside_names: Vec<String>,
    /// What it is, in a few words.
    pub what: &'static str,
    /// Its dimensions by their letters.
    pub dims: Vec<String>,
    /// The smaller numbers that are computed from it.
    pub computed_before: Vec<usize>,
    /// Whether its infinite values are a mask's.
    pub is_mask: bool,
    /// Shape and statistics; `None` where the model does not have it.
    pub shown: Option<(Vec<usize>, Stats)>,
    /// Its values.
    pub values: SnapshotValues,
}

/// The values of a snapshot.
#[derive(Debug, Clone)]
pub enum SnapshotValues {
    /// The model does not have it.
    Absent,
    /// Those of whole tensors, where they were kept; the first is the one that is measured.
    Nodes(Vec<NodeId>),
    /// A part that was cut out.
    Cut {
        /// The values.
        values: Vec<f64>,
        /// Whether all of them are to be printed, however many.
        print_all: bool,
    },
}

/// An attention with fully masked queries: their weights are 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FullyMasked {
    /// Its weights.
    pub node: String,
    /// How many queries.
    pub rows: usize,
}

/// A tensor of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'a> {
    /// Its dimensions by their letters: `B`, `H`, `T`, `S`.
    pub dims: Vec<String>,
    /// Their sizes.
    pub shape: &'a [usize],
    /// Its values, row-major, in the precision of the run: no copy of them is made.
    pub values: Values<'a>,
}

answer_by_document!(Trace, Document<'_>, "trace");

/// One run of a model.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    /// 1
    schema: u32,
    /// The model as it was named.
    model: &'a str,
    /// The family's id.
    family: &'static str,
    /// Every degree of freedom by its name, as in `inspect`.
    wiring: &'a Map<String, Value>,
    /// What it read.
    tokens: &'a InputTokens,
    /// With `--gradients`: what they are the slope of.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<TargetLoss>,
    /// Of a classifier whose scores are among the nodes: what it says of each row.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    classified: &'a [ClassifiedRow],
    /// Every node, or those that `--layer` picks.
    nodes: Vec<NodeDocument<'a>>,
    /// The stops of the walk; not with `--layer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshots: Option<Vec<SnapshotDocument<'a>>>,
    /// Attentions with fully masked queries; their weights are 0.
    #[serde(rename = "blind")]
    fully_masked: &'a [FullyMasked],
    /// Of the whole walk: what each head of each cross-attention does.
    #[serde(skip_serializing_if = "Option::is_none")]
    cross_attention: Option<Vec<AttentionDocument<'a>>>,
    /// The same of a model of one stack: of the layer that is walked through.
    #[serde(skip_serializing_if = "Option::is_none")]
    self_attention: Option<Vec<AttentionDocument<'a>>>,
    /// What a user may not expect.
    notes: &'a [Note],
}

/// A node of a run.
#[derive(Serialize, JsonSchema)]
struct NodeDocument<'a> {
    /// Its name everywhere.
    path: &'a str,
    /// Its operation.
    op: &'static str,
    /// The paths of what it reads.
    inputs: &'a [String],
    /// Its dimensions by their letters.
    dims: &'a [String],
    /// Their sizes.
    shape: Option<&'a [usize]>,
    /// Its numbers in the walk.
    snapshots: &'a [usize],
    /// Statistics of its values; `null` where it was not measured.
    stats: Option<StatsDocument>,
    /// With `--payload`: its values, row-major. −∞ (a masked cell of a mask), ∞ and NaN are all `null`; `stats` counts them
    /// apart, and a saved trace holds them as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Option<f64>>>")]
    values: Option<Numbers<'a>>,
    /// With `--gradients`: the gradient of the loss by its tensor, of the same shape. Ids and masks have none, nor has a tensor
    /// that the output does not depend on.
    #[serde(skip_serializing_if = "Option::is_none")]
    gradient: Option<GradientDocument<'a>>,
}

/// The gradient of the loss by a tensor.
#[derive(Serialize, JsonSchema)]
struct GradientDocument<'a> {
    /// `grad:` and the tensor's path.
    name: String,
    /// Statistics of its values.
    stats: StatsDocument,
    /// With `--payload`: its values, row-major.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Option<f64>>>")]
    values: Option<Numbers<'a>>,
}

/// A stop of the walk.
#[derive(Serialize, JsonSchema)]
struct SnapshotDocument<'a> {
    /// From 1.
    number: usize,
    /// The path of the node or weight.
    node: &'a str,
    /// Nodes that belong with it.
    beside: &'a [String],
    /// What it is, in a few words.
    what: &'static str,
    /// Its dimensions by their letters.
    dims: &'a [String],
    /// Their sizes; `null` where the model does not have it.
    shape: Option<&'a [usize]>,
    /// Statistics of its values; `null` where the model does not have it.
    stats: Option<StatsDocument>,
    /// The smaller numbers that are computed from it: numbers are fixed, and not everywhere in the order of computation.
    computed_before: &'a [usize],
    /// With `--payload`: its values, row-major.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Option<f64>>>")]
    values: Option<Numbers<'a>>,
}

/// Values as a list of numbers, without a copy of them.
struct Numbers<'a>(Values<'a>);

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

/// Statistics of a tensor's values. Numbers are of its finite values, and `null` where there are none.
#[derive(Serialize, JsonSchema)]
struct StatsDocument {
    /// The least.
    #[schemars(with = "Option<f64>")]
    min: f64,
    /// Their mean.
    #[schemars(with = "Option<f64>")]
    mean: f64,
    /// The greatest.
    #[schemars(with = "Option<f64>")]
    max: f64,
    /// The square root of their mean squared distance from the mean.
    #[schemars(with = "Option<f64>")]
    std: f64,
    /// How many are zero.
    zeros: u64,
    /// How many are NaN.
    nan: u64,
    /// How many are infinite.
    inf: u64,
}

/// What the heads of an attention do.
#[derive(Serialize, JsonSchema)]
struct AttentionDocument<'a> {
    /// Its weights.
    node: &'a str,
    /// The row of the batch.
    row: usize,
    /// Every head.
    heads: Vec<HeadDocument>,
}

/// What a head does, the mean over queries; S is the number of keys that a query sees.
#[derive(Serialize, JsonSchema)]
struct HeadDocument {
    /// From 0.
    head: usize,
    /// Entropy / ln S; `null` below 4 keys.
    entropy: Option<f64>,
    /// The largest weight × S.
    #[schemars(with = "Option<f64>")]
    peak: f64,
    /// The weight on the end token; `null` without one.
    end_share: Option<f64>,
}

impl<'a> Document<'a> {
    fn of(trace: &'a Trace) -> Self {
        let whole = trace.walk.as_ref().filter(|walk| walk.is_whole);
        let attentions = |cross: bool| {
            let walk = whole.filter(|walk| walk.has_cross_attention == cross);
            walk.map(|_| trace.maps.iter().map(|map| AttentionDocument::of(map, trace.row)).collect())
        };
        let stops =
            |walk: &'a Walk| walk.stops.iter().map(|stop| SnapshotDocument::of(trace, stop)).collect();
        Self {
            schema: SCHEMA,
            model: &trace.name,
            family: trace.family,
            wiring: &trace.wiring,
            tokens: &trace.tokens,
            loss: trace.loss,
            classified: &trace.classified,
            nodes: trace.nodes.iter().map(|node| NodeDocument::of(trace, node)).collect(),
            snapshots: trace.walk.as_ref().map(stops),
            fully_masked: &trace.fully_masked,
            cross_attention: attentions(true),
            self_attention: attentions(false),
            notes: &trace.notes,
        }
    }
}

impl<'a> NodeDocument<'a> {
    fn of(trace: &'a Trace, node: &'a TracedNode) -> Self {
        let numbers = |kept: Option<&'a RunTensor>| {
            kept.filter(|_| trace.with_values).map(|kept| Numbers(kept.values()))
        };
        let gradient = |stats: &Stats| GradientDocument {
            name: gradient_name(&node.path),
            stats: StatsDocument::of(stats),
            values: numbers(trace.gradients.get(&node.id)),
        };
        Self {
            path: &node.path,
            op: node.op,
            inputs: &node.inputs,
            dims: &node.dims,
            shape: node.shape.as_deref(),
            snapshots: &node.snapshots,
            stats: node.stats.as_ref().map(StatsDocument::of),
            values: numbers(trace.kept.get(&node.id)),
            gradient: node.gradient.as_ref().map(gradient),
        }
    }
}

impl<'a> SnapshotDocument<'a> {
    fn of(trace: &'a Trace, stop: &'a TracedSnapshot) -> Self {
        let values = match &stop.values {
            SnapshotValues::Absent => None,
            SnapshotValues::Cut { values, .. } => Some(Values::F64(values)),
            SnapshotValues::Nodes(nodes) => {
                let kept = nodes.first().and_then(|id| trace.kept.get(id));
                Some(kept.map_or(Values::F64(&[]), RunTensor::values))
            }
        };
        Self {
            number: stop.number,
            node: &stop.node,
            beside: &stop.beside,
            what: stop.what,
            dims: &stop.dims,
            shape: stop.shown.as_ref().map(|(shape, _)| shape.as_slice()),
            stats: stop.shown.as_ref().map(|(_, stats)| StatsDocument::of(stats)),
            computed_before: &stop.computed_before,
            values: values.filter(|_| trace.with_values && stop.shown.is_some()).map(Numbers),
        }
    }
}

impl StatsDocument {
    fn of(stats: &Stats) -> Self {
        let Stats { min, max, mean, std, zeros, nan, inf, .. } = *stats;
        Self { min, mean, max, std, zeros, nan, inf }
    }
}

impl<'a> AttentionDocument<'a> {
    fn of(map: &'a AttentionMap, row: usize) -> Self {
        let head = |(head, &HeadMeasures { entropy, peak, end_share, .. }): (usize, &HeadMeasures)| {
            HeadDocument { head, entropy, peak, end_share }
        };
        Self { node: &map.path, row, heads: map.heads.iter().enumerate().map(head).collect() }
    }
}
