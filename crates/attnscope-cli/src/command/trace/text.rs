//! A run in print.

use attnscope::answer::InputTokens;
use attnscope_checkpoint::Stats;
use attnscope_graph::{
    AttentionKind, AttentionStep, Cut, Dim, Node, NodeId, Op, Snapshot, View, computed_before, order_note,
};
use attnscope_render::trace::{AttentionMap, TensorRow, attention_text, shape_text, tensor_table};
use attnscope_render::{Array, Heatmap, attention_svg, clean, tokens};

use super::super::Output;
use super::Ran;
use super::collect::Collect;
use super::picked::Picked;
use crate::attention::{Batch, DrawnHeads};

impl Ran<'_> {
    pub(super) fn text(&self, sink: &Collect, output: &Output<'_>) -> String {
        let mut sections = vec![
            self.heading(output),
            tokens::text(&InputTokens::of(self.ready, self.input, self.generated), output.width()),
        ];
        if self.trace.payload {
            sections.extend(self.payloads(sink, output));
        } else {
            sections.push(tensor_table(&self.rows(sink), output.layout()));
            sections.extend(self.order_text(output));
        }
        if !self.blind.is_empty() {
            sections.push(self.blind_text());
        }
        let maps = self.maps(sink);
        if !maps.is_empty() {
            let legend = Heatmap::legend(output.glyphs());
            let lines = attnscope_render::wrap_plain(&self.axes(&legend), output.width());
            sections.push(lines.join("\n") + "\n");
        }
        sections.extend(maps.iter().map(|map| attention_text(map, output.layout(), output.style())));
        let text = sections.join("\n");
        output.glyphs_text(&text)
    }

    /// The attentions that are drawn.
    pub(super) fn maps(&self, sink: &Collect) -> Vec<AttentionMap> {
        let batch = Batch { ready: self.ready, input: self.input, row: self.trace.row };
        batch.maps(self.drawn, &sink.kept, self.trace.head.unwrap_or(DrawnHeads::Mean))
    }

    /// As a picture.
    pub(super) fn svg(&self, sink: &Collect) -> String {
        let title = format!("{}: {}", self.ready.opened.name, self.ready.model.title());
        attention_svg(&title, &self.maps(sink))
    }

    /// What stands across and down in heatmaps.
    fn axes(&self, legend: &str) -> String {
        let graph = &self.ready.model.graph;
        let node = |id: &NodeId| graph.node(*id);
        let all = |is: &dyn Fn(&Node) -> bool| self.drawn.iter().map(node).all(is);
        let reads_source = !all(&|n| !n.dims.contains(&Dim::Source));
        let seconds = match (self.input.features(), reads_source) {
            (Some(_), true) => ", the source in seconds",
            _ => "",
        };
        let (name, across) = match all(&|n| n.role.is(AttentionKind::CrossAttention, AttentionStep::Weights))
        {
            true => ("Cross-attention", "source"),
            false => ("Attention", "keys"),
        };
        let of_decoder = |n: &Node| n.dims.get(2) == Some(&Dim::Target);
        let down = match (all(&of_decoder), all(&|n| !of_decoder(n))) {
            (true, _) => "the token that is read ⇒ the one to be written",
            (_, true) => "queries",
            _ => "queries, of a decoder as the token that is read ⇒ the one to be written",
        };
        format!("{name}: {across} across{seconds}; down, {down}. {legend}")
    }

    /// The smaller numbers that are computed from a snapshot.
    pub(super) fn computed_before(&self, snapshot: &Snapshot) -> Vec<usize> {
        match self.picked {
            Picked::Walk(walk) => computed_before(&self.ready.model.graph, walk, snapshot),
            Picked::Nodes(_) => Vec::new(),
        }
    }

    /// Where the walk is not in the order of computation.
    fn order_text(&self, output: &Output<'_>) -> Option<String> {
        let Picked::Walk(walk) = self.picked else { return None };
        let note = order_note(&self.ready.model.graph, walk)?;
        Some(attnscope_render::wrap_plain(&note, output.width()).join("\n") + "\n")
    }

    fn heading(&self, output: &Output<'_>) -> String {
        let model = self.ready.model;
        let precision = if self.trace.reference { "f64, reference" } else { "f32" };
        let line = format!("{}: {}, {precision}\n", clean(&self.ready.opened.name), model.title());
        output.glyphs_text(&line)
    }

    pub(super) fn dims(&self, dims: &[attnscope_graph::Dim]) -> Vec<String> {
        dims.iter().map(|d| d.symbol(&self.ready.model.sizes)).collect()
    }

    /// The lines of the table.
    fn rows(&self, sink: &Collect) -> Vec<TensorRow> {
        let graph = &self.ready.model.graph;
        match self.picked {
            Picked::Nodes(nodes) => nodes.iter().map(|&id| self.node_row(sink, id)).collect(),
            Picked::Walk(walk) => walk
                .iter()
                .map(|snapshot| {
                    let shown = self.snapshot_values(sink, snapshot);
                    TensorRow {
                        number: Some(snapshot.number),
                        path: snapshot.view.path(graph).to_owned(),
                        what: self.what(snapshot),
                        dims: self.dims(&snapshot.view.dims(graph)),
                        shape: shown.as_ref().map(|s| s.shape.clone()).unwrap_or_default(),
                        stats: shown.map(|s| s.stats),
                        masks: snapshot.view.nodes().first().is_some_and(|&id| masks(graph.node(id))),
                    }
                })
                .collect(),
        }
    }

    /// What a snapshot is, with the nodes that belong to it.
    fn what(&self, snapshot: &Snapshot) -> String {
        let graph = &self.ready.model.graph;
        let paths: Vec<_> = snapshot.view.nodes().iter().map(|&id| &graph.node(id).path).collect();
        let name = |path: &&attnscope_graph::NodePath| match paths.first() {
            Some(first) if first.part() == path.part() => path.leaf().to_owned(),
            _ => path.within_layer().to_owned(),
        };
        let beside: Vec<String> = paths.iter().skip(1).map(name).collect();
        match beside.is_empty() {
            true => snapshot.what.to_owned(),
            false => format!("{}, with {}", snapshot.what, beside.join(", ")),
        }
    }

    fn node_row(&self, sink: &Collect, id: NodeId) -> TensorRow {
        let node = self.ready.model.graph.node(id);
        TensorRow {
            number: None,
            path: node.path.as_str().to_owned(),
            what: attnscope_graph::words::sentence(node).to_owned(),
            dims: self.dims(&node.dims),
            shape: self.sizes.shape(&node.dims).unwrap_or_default(),
            stats: sink.stats.get(&id).copied(),
            masks: masks(node),
        }
    }

    /// The shape, statistics and, where they are kept, values of a snapshot.
    pub(super) fn snapshot_values(&self, sink: &Collect, snapshot: &Snapshot) -> Option<Shown> {
        let cut = |whole: &[usize], value: &dyn Fn(usize) -> Option<f64>| {
            let values: Vec<f64> =
                snapshot.view.places(whole, self.cut()).into_iter().filter_map(value).collect();
            Shown { shape: snapshot.view.shape(whole), stats: Stats::of_f64(&values), values }
        };
        match &snapshot.view {
            View::Absent(_) => None,
            View::Corner(weight) => {
                let whole = self.ready.model.sizes.shape(&self.ready.model.graph.weight(*weight).dims)?;
                let values = self.ready.weights.get(*weight);
                Some(cut(&whole, &|i| values.get(i).copied().map(f64::from)))
            }
            View::Row(node) | View::FirstLogits(node) => {
                let kept = sink.kept.get(node)?;
                Some(cut(&kept.shape, &|i| kept.values.get(i).copied()))
            }
            View::Nodes(nodes) => {
                let first = *nodes.first()?;
                let values = sink.kept.get(&first).map(|k| k.values.clone()).unwrap_or_default();
                let shape = self.sizes.shape(&self.ready.model.graph.node(first).dims)?;
                Some(Shown { shape, stats: *sink.stats.get(&first)?, values })
            }
        }
    }

    /// The row that the user asked for, and where its sentence ends.
    fn cut(&self) -> Cut {
        let row = self.trace.row;
        let last = self.input.tokens().last().map(|(_, rows)| rows);
        let open = last.and_then(|rows| rows.open().get(row * rows.length()..(row + 1) * rows.length()));
        let open = open.unwrap_or_default();
        Cut { row, last: open.iter().rposition(|&open| open).unwrap_or(0) }
    }

    /// The values of everything that was picked, each under its name.
    fn payloads(&self, sink: &Collect, output: &Output<'_>) -> Vec<String> {
        let graph = &self.ready.model.graph;
        let print = |title: String, shape: &[usize], values: &[f64], whole: bool| {
            let array = Array { shape, values, whole };
            format!("{title} {}\n{}", shape_text(shape), array.text(output.width(), self.trace.full))
        };
        let is_ids = |id: &NodeId| matches!(graph.node(*id).op, attnscope_graph::Op::Ids(_));
        let node = |id: &NodeId, number: &str| {
            let kept = sink.kept.get(id)?;
            let title = format!("{number}{}", graph.node(*id).path);
            Some(print(title, &kept.shape, &kept.values, is_ids(id)))
        };
        match self.picked {
            Picked::Nodes(nodes) => nodes.iter().filter_map(|id| node(id, "")).collect(),
            Picked::Walk(walk) => walk
                .iter()
                .flat_map(|snapshot| match &snapshot.view {
                    View::Nodes(nodes) => {
                        nodes.iter().filter_map(|id| node(id, &format!("#{} ", snapshot.number))).collect()
                    }
                    View::Absent(path) => vec![format!("#{} {path}: absent\n", snapshot.number)],
                    view => {
                        let title = format!("#{} {}, {}", snapshot.number, view.path(graph), snapshot.what);
                        let whole = matches!(view, View::Row(_));
                        let shown = self.snapshot_values(sink, snapshot);
                        shown.map(|s| print(title, &s.shape, &s.values, whole)).into_iter().collect()
                    }
                })
                .collect(),
        }
    }

    fn blind_text(&self) -> String {
        let line = |(id, rows): &(NodeId, usize)| {
            format!(
                "! {}: {rows} rows have nothing to see; their weights are 0\n",
                self.ready.model.graph.node(*id).path
            )
        };
        self.blind.iter().map(line).collect()
    }
}

/// Whether a node's infinite values are a mask's.
fn masks(node: &attnscope_graph::Node) -> bool {
    matches!(node.op, Op::Mask(_) | Op::AddMask { .. })
}

/// What a snapshot shows.
pub(super) struct Shown {
    pub(super) shape: Vec<usize>,
    pub(super) stats: Stats,
    /// Empty where only statistics were asked for.
    pub(super) values: Vec<f64>,
}
