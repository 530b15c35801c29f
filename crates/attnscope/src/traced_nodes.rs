//! What an answer shows of the nodes and snapshots of a run.

use std::collections::BTreeMap;

use attnscope_checkpoint::Stats;
use attnscope_graph::{
    Cut, Dim, Model, Node, NodeId, NodePath, Op, Sizes, Snapshot, View, computed_before, order_note,
    snapshot_numbers, words,
};
use attnscope_run::{Input, RunError};

use crate::answer::{SnapshotValues, TracedNode, TracedSnapshot, Walk};
use crate::collect::Collect;
use crate::picked::Picked;
use crate::ready::Ready;

/// Shape and statistics of what a snapshot shows, where there is any, and its values.
type Shown = (Option<(Vec<usize>, Stats)>, SnapshotValues);

/// A finished run, from which an answer is made.
pub(crate) struct FinishedRun<'a> {
    pub(crate) ready: &'a Ready<'a>,
    pub(crate) input: &'a Input,
    /// With the lengths of the input.
    pub(crate) sizes: &'a Sizes,
    pub(crate) picked: &'a Picked,
    pub(crate) collected: &'a Collect,
    /// The gradients that were measured.
    pub(crate) gradients: &'a BTreeMap<NodeId, Stats>,
    /// The row of the batch that is cut out where not all are shown.
    pub(crate) row: usize,
}

impl FinishedRun<'_> {
    /// Every node, or those that were picked as nodes.
    pub(crate) fn nodes(&self) -> Vec<TracedNode> {
        match self.picked {
            Picked::Nodes(nodes) => nodes.iter().map(|&id| self.node(id)).collect(),
            Picked::Walk { .. } => self.ready.model.graph.iter().map(|(id, _)| self.node(id)).collect(),
        }
    }

    fn node(&self, id: NodeId) -> TracedNode {
        TracedNode {
            stats: self.collected.stats.get(&id).copied(),
            gradient: self.gradients.get(&id).copied(),
            ..TracedNode::of(self.ready.model, self.sizes, id)
        }
    }

    /// The walk, where that was picked.
    pub(crate) fn walk(&self) -> Result<Option<Walk>, RunError> {
        let Picked::Walk { walk, is_whole } = self.picked else { return Ok(None) };
        let model = self.ready.model;
        let stops = walk.iter().map(|snapshot| self.snapshot(walk, snapshot));
        Ok(Some(Walk {
            stops: stops.collect::<Result<_, _>>()?,
            is_whole: *is_whole,
            order: order_note(&model.graph, walk),
            has_cross_attention: model.architecture.has_cross_attention(),
        }))
    }

    fn snapshot(&self, walk: &[Snapshot], snapshot: &Snapshot) -> Result<TracedSnapshot, RunError> {
        let graph = &self.ready.model.graph;
        let view = &snapshot.view;
        let paths: Vec<&NodePath> = view.nodes().iter().map(|&id| &graph.node(id).path).collect();
        let name = |path: &&NodePath| match paths.first() {
            Some(first) if first.part() == path.part() => path.leaf().to_owned(),
            _ => path.within_layer().to_owned(),
        };
        let (shown, values) = self.shown(view)?;
        Ok(TracedSnapshot {
            number: snapshot.number,
            node: view.path(graph).to_owned(),
            beside: paths.iter().skip(1).map(|path| path.to_string()).collect(),
            beside_names: paths.iter().skip(1).map(name).collect(),
            what: snapshot.what,
            dims: self.dims(&view.dims(graph)),
            computed_before: computed_before(graph, walk, snapshot),
            is_mask: view.nodes().first().is_some_and(|&id| is_mask(graph.node(id))),
            shown,
            values,
        })
    }

    /// Shape, statistics and values of a snapshot.
    fn shown(&self, view: &View) -> Result<Shown, RunError> {
        let model = self.ready.model;
        let cut = |whole: &[usize], value: &dyn Fn(usize) -> Option<f64>| {
            let values: Vec<f64> = view.places(whole, self.cut()).into_iter().filter_map(value).collect();
            let shown = (view.shape(whole), Stats::of_f64(&values));
            (Some(shown), SnapshotValues::Cut { values, print_all: matches!(view, View::Row(_)) })
        };
        let nothing = (None, SnapshotValues::Cut { values: Vec::new(), print_all: false });
        Ok(match view {
            View::Absent(_) => (None, SnapshotValues::Absent),
            View::Corner(weight) => match model.sizes.shape(&model.graph.weight(*weight).dims) {
                Some(whole) => {
                    // Only the rows of the corner are read.
                    let last = view.places(&whole, self.cut()).into_iter().max().unwrap_or(0);
                    let width = whole.last().copied().unwrap_or(1).max(1);
                    let values = self.ready.weights().first_rows(*weight, last / width + 1, width)?;
                    cut(&whole, &|i| values.get(i).copied().map(f64::from))
                }
                None => nothing,
            },
            View::Row(node) | View::FirstLogits(node) => match self.collected.kept.get(node) {
                Some(kept) => cut(kept.shape(), &|i| kept.values().get(i)),
                None => nothing,
            },
            View::Nodes(nodes) => {
                let measured = |&first: &NodeId| {
                    let shape = self.sizes.shape(&model.graph.node(first).dims)?;
                    Some((shape, *self.collected.stats.get(&first)?))
                };
                (nodes.first().and_then(measured), SnapshotValues::Nodes(nodes.clone()))
            }
        })
    }

    /// The row that was asked for, and where its sentence ends.
    fn cut(&self) -> Cut {
        let row = self.row;
        let last = self.input.tokens().last().map(|(_, rows)| rows);
        let open = last.and_then(|rows| rows.open().get(row * rows.length()..(row + 1) * rows.length()));
        let open = open.unwrap_or_default();
        Cut { row, last: open.iter().rposition(|&open| open).unwrap_or(0) }
    }

    fn dims(&self, dims: &[Dim]) -> Vec<String> {
        letters(self.ready.model, dims)
    }
}

impl TracedNode {
    /// A node that was not measured; `sizes` have the lengths of an input.
    pub(crate) fn of(model: &Model, sizes: &Sizes, id: NodeId) -> Self {
        let graph = &model.graph;
        let node = graph.node(id);
        Self {
            id,
            path: node.path.to_string(),
            op: node.op.facets().name,
            what: words::sentence(node),
            inputs: node.inputs.iter().map(|&input| graph.node(input).path.to_string()).collect(),
            dims: letters(model, &node.dims),
            shape: sizes.shape(&node.dims),
            snapshots: snapshot_numbers(graph, id),
            stats: None,
            gradient: None,
            is_mask: is_mask(node),
            is_ids: matches!(node.op, Op::Ids(_)),
        }
    }
}

fn letters(model: &Model, dims: &[Dim]) -> Vec<String> {
    dims.iter().map(|dim| dim.symbol(&model.sizes)).collect()
}

/// Whether a node's infinite values are a mask's.
fn is_mask(node: &Node) -> bool {
    matches!(node.op, Op::Mask(_) | Op::AddMask { .. })
}
