//! `trace`: run the model on an input and show, print or keep its tensors.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use attnscope_checkpoint::Stats;
use attnscope_graph::{Graph, NodeId, Selector, Side, Sizes, Snapshot, View, snapshot_numbers, snapshots};
use attnscope_render::trace::{
    CrossAttention, TensorRow, cross_attention, measures_json, shape_text, stats_json, tensor_table,
};
use attnscope_render::{Array, Heatmap, json, thousands};
use attnscope_run::trace::{Precision, TRACE_SCHEMA, TraceWriter};
use attnscope_run::{Input, Kept, Native, RunError, Sink, Source, Values, run_reference, sizes_of};
use clap::Args;
use serde_json::{Value, json};

use super::input::{SourceArgs, TargetArgs};
use super::{ModelArgs, Output, OutputArgs, TextOrJson};
use crate::attention::{Batch, cross_attentions};
use crate::failure::Failure;
use crate::near::nearest;
use crate::ready::{Ready, Token};

#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Only these nodes: a glob over node paths such as `cross_attn`, `decoder.*.ffn.act`
    #[arg(long, value_name = "SELECTOR")]
    layer: Option<String>,
    /// Only these snapshots of the walk: `10-12,34`
    #[arg(long, value_name = "NUMBERS", conflicts_with = "layer")]
    snapshots: Option<String>,
    /// The layer that the walk opens in each stack
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer_index: usize,
    /// The row of the batch whose attention is drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    row: usize,
    /// Print the values, abbreviated where there are many
    #[arg(long)]
    payload: bool,
    /// With --payload: every value
    #[arg(long, requires = "payload")]
    full: bool,
    /// Write the tensors to a folder while they are made: all, or those that --layer or --snapshots pick
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Compute in f64 with the plain loops that the fast executor is judged by
    #[arg(long)]
    reference: bool,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Trace {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output);
        let opened = self.source.open(&self.model, Some(&self.target))?;
        let model = opened.encoder_decoder()?;
        // What can be refused without reading a weight is.
        let picked = self.picked(&model.graph)?;
        let ready = self.source.ready(&opened)?;
        let given = self.source.read(&ready, &self.target)?;
        let (target, generated) = match given.target {
            Some(target) => (target, false),
            None => (ready.written(&given.source)?, true),
        };
        let input = Input { source: given.source, target };
        let sizes = sizes_of(model, &input)?;
        self.check_row(&input)?;
        let mut sink = self.sink(&ready, &picked, &sizes, &output)?;
        let blind = self.execute(&ready, &input, &mut sink)?;
        let ran = Ran {
            trace: self,
            ready: &ready,
            input: &input,
            picked: &picked,
            sizes: &sizes,
            generated,
            blind,
        };
        let text = match self.format {
            TextOrJson::Text => ran.text(&sink, &output),
            TextOrJson::Json => json::pretty(&ran.json(&sink)),
        };
        if let (Some(folder), Some(writer)) = (&self.save, sink.writer.take()) {
            writer.finish(&ran.about(&sink))?;
            output.note(&format!("trace written to {}", folder.display()));
        }
        output.write(&text)
    }

    /// The nodes that the user asked for, or the walk.
    fn picked(&self, graph: &Graph) -> Result<Picked, Failure> {
        if let Some(pattern) = &self.layer {
            let selector = Selector::new(pattern);
            let nodes: Vec<NodeId> =
                graph.iter().filter(|(_, n)| selector.matches(&n.path)).map(|(id, _)| id).collect();
            if nodes.is_empty() {
                let near = nearest(pattern, graph.nodes().iter().map(|n| n.path.as_str()));
                return Err(Failure::new(
                    format!("--layer {pattern:?} picks none of the {} nodes", graph.nodes().len()),
                    format!("the nearest names are {}; `*` stands for anything", near.join(", ")),
                ));
            }
            return Ok(Picked::Nodes(nodes));
        }
        let walk = snapshots(graph, self.layer_index);
        if walk.iter().filter(|s| matches!(s.view, View::Absent(_))).count() > MOST_ABSENT {
            let layers = attnscope_graph::Stack::ALL.map(|s| format!("{} {}", graph.layers(s), s.name()));
            return Err(Failure::new(
                format!("--layer-index {}: the model has {} layers", self.layer_index, layers.join(" and ")),
                "layers are counted from 0",
            ));
        }
        let Some(numbers) = &self.snapshots else { return Ok(Picked::Walk(walk)) };
        let numbers = parse_numbers(numbers)?;
        Ok(Picked::Walk(walk.into_iter().filter(|s| numbers.contains(&s.number)).collect()))
    }

    fn check_row(&self, input: &Input) -> Result<(), Failure> {
        if self.row < input.target.batch() {
            return Ok(());
        }
        Err(Failure::new(
            format!("--row {}: the batch has {} rows", self.row, input.target.batch()),
            "rows are counted from 0",
        ))
    }

    /// What becomes of each tensor.
    fn sink(
        &self,
        ready: &Ready<'_>,
        picked: &Picked,
        sizes: &Sizes,
        output: &Output<'_>,
    ) -> Result<Collect, Failure> {
        let graph = &ready.model.graph;
        let mut uses = HashMap::new();
        for id in picked.nodes() {
            uses.insert(id, if self.payload || picked.cuts(id) { Use::Keep } else { Use::Measure });
        }
        if self.draws_attention() {
            let drawn = graph.iter().filter(|(_, n)| is_cross_weights(n));
            uses.extend(drawn.map(|(id, _)| (id, Use::Keep)));
        }
        let mut sink = Collect { uses, stats: BTreeMap::new(), kept: BTreeMap::new(), writer: None };
        let Some(folder) = &self.save else { return Ok(sink) };
        let narrowed = self.layer.is_some() || self.snapshots.is_some();
        let nodes: Vec<NodeId> =
            if narrowed { picked.nodes() } else { graph.iter().map(|(id, _)| id).collect() };
        let planned: Vec<(NodeId, Vec<usize>)> =
            nodes.iter().filter_map(|&id| Some((id, sizes.shape(&graph.node(id).dims)?))).collect();
        let precision = if self.reference { Precision::F64 } else { Precision::F32 };
        let writer = TraceWriter::create(folder, graph, &planned, precision)?;
        let (count, bytes) = (planned.len(), thousands(writer.bytes()));
        output.note(&format!("{count} tensors, {bytes} bytes, to {}", folder.display()));
        sink.writer = Some(writer);
        Ok(sink)
    }

    /// Heatmaps belong to the whole walk; who picks, gets what was picked.
    fn draws_attention(&self) -> bool {
        self.layer.is_none() && self.snapshots.is_none()
    }

    /// The attentions with queries that see nothing, and how many.
    fn execute(
        &self,
        ready: &Ready<'_>,
        input: &Input,
        sink: &mut Collect,
    ) -> Result<Vec<(NodeId, usize)>, Failure> {
        if self.reference {
            run_reference(ready.model, &ready.weights, input, sink)?;
            return Ok(Vec::new());
        }
        Ok(Native::new().run(ready.model, &ready.weights, input, sink)?.blind)
    }
}

/// More rows than this are missing only from a layer that neither stack has: 14 are of the encoder's, 20 of the
/// decoder's.
const MOST_ABSENT: usize = 30;

/// What the user wants to see.
enum Picked {
    Nodes(Vec<NodeId>),
    Walk(Vec<Snapshot>),
}

impl Picked {
    fn nodes(&self) -> Vec<NodeId> {
        match self {
            Self::Nodes(nodes) => nodes.clone(),
            Self::Walk(walk) => {
                let mut nodes: Vec<NodeId> = walk.iter().flat_map(|s| s.view.nodes()).copied().collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        }
    }

    /// Whether a part of the node's tensor is shown on its own.
    fn cuts(&self, node: NodeId) -> bool {
        let cut = |s: &Snapshot| match s.view {
            View::Row(n) | View::FirstLogits(n) => n == node,
            _ => false,
        };
        matches!(self, Self::Walk(walk) if walk.iter().any(cut))
    }
}

fn is_cross_weights(node: &attnscope_graph::Node) -> bool {
    node.path.part() == "cross_attn" && node.path.leaf() == "weights"
}

/// `10-12,34` as numbers.
fn parse_numbers(text: &str) -> Result<Vec<usize>, Failure> {
    let most = attnscope_graph::SNAPSHOTS;
    let wrong = |part: &str| {
        Failure::new(
            format!("--snapshots: expected numbers from 1 to {most}, found {part:?}"),
            "write them as 10-12,34",
        )
    };
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| (1..=most).contains(n));
        match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => numbers.extend(from..=to),
            _ => return Err(wrong(part)),
        }
    }
    Ok(numbers)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Statistics are enough.
    Measure,
    /// The values themselves are shown.
    Keep,
}

/// Measures, keeps and writes tensors as they are made.
struct Collect {
    uses: HashMap<NodeId, Use>,
    stats: BTreeMap<NodeId, Stats>,
    kept: BTreeMap<NodeId, Kept>,
    writer: Option<TraceWriter>,
}

impl Sink for Collect {
    fn wants(&self, node: NodeId) -> bool {
        self.uses.contains_key(&node) || self.writer.as_ref().is_some_and(|w| w.wants(node))
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        let stats = match values {
            Values::F32(values) => Stats::of_f32(values),
            Values::F64(values) => Stats::of_f64(values),
        };
        self.stats.insert(node, stats);
        if self.uses.get(&node) == Some(&Use::Keep) {
            self.kept.insert(node, Kept { shape: shape.to_vec(), values: values.to_f64() });
        }
        self.writer.as_mut().map_or(Ok(()), |writer| writer.put(node, shape, values))
    }
}

/// A run that is over, and everything there is to say about it.
struct Ran<'a> {
    trace: &'a Trace,
    ready: &'a Ready<'a>,
    input: &'a Input,
    picked: &'a Picked,
    sizes: &'a Sizes,
    generated: bool,
    blind: Vec<(NodeId, usize)>,
}

impl Ran<'_> {
    fn text(&self, sink: &Collect, output: &Output<'_>) -> String {
        let mut sections =
            vec![self.heading(output), tokens_text(self.ready, self.input, self.generated, output.width())];
        if self.trace.payload {
            sections.extend(self.payloads(sink, output));
        } else {
            sections.push(tensor_table(&self.rows(sink), output.layout()));
        }
        if !self.blind.is_empty() {
            sections.push(self.blind_text());
        }
        if self.trace.draws_attention() {
            let legend = Heatmap::legend(output.glyphs());
            let batch = Batch { ready: self.ready, input: self.input, row: self.trace.row };
            let drawn = cross_attentions(&batch, &sink.kept);
            let draw = |cross: &CrossAttention| cross_attention(cross, output.layout(), output.style());
            if !drawn.is_empty() {
                sections.push(format!("Cross-attention: source across, target down.\n{legend}\n"));
            }
            sections.extend(drawn.iter().map(draw));
        }
        let text = sections.join("\n");
        output.glyphs_text(&text)
    }

    fn heading(&self, output: &Output<'_>) -> String {
        let model = self.ready.model;
        let precision = if self.trace.reference { "f64, reference" } else { "f32" };
        let line = format!("{}: {}, {precision}\n", self.ready.opened.name, model.title());
        output.glyphs_text(&line)
    }

    fn dims(&self, dims: &[attnscope_graph::Dim]) -> Vec<String> {
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
        let beside: Vec<String> = paths.iter().skip(1).map(|p| name(p)).collect();
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
        }
    }

    /// The shape, statistics and, where they are kept, values of a snapshot.
    fn snapshot_values(&self, sink: &Collect, snapshot: &Snapshot) -> Option<Shown> {
        let cut = |whole: &[usize], value: &dyn Fn(usize) -> Option<f64>| {
            let values: Vec<f64> = snapshot.view.places(whole).into_iter().filter_map(value).collect();
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

    fn node_json(&self, id: NodeId) -> Value {
        let graph = &self.ready.model.graph;
        let node = graph.node(id);
        let inputs: Vec<&str> = node.inputs.iter().map(|&i| graph.node(i).path.as_str()).collect();
        json!({
            "path": node.path.as_str(),
            "op": node.op.name(),
            "inputs": inputs,
            "dims": self.dims(&node.dims),
            "shape": self.sizes.shape(&node.dims),
            "snapshots": snapshot_numbers(graph, id),
        })
    }

    /// `trace.json`.
    fn about(&self, sink: &Collect) -> Value {
        let checkpoint = &self.ready.opened.checkpoint;
        let files: Vec<Value> = checkpoint
            .files()
            .zip(checkpoint.sha256())
            .map(|((path, bytes), sha256)| json!({ "name": path.display().to_string(), "bytes": bytes, "sha256": sha256 }))
            .collect();
        let saved = |id: &NodeId| match (&self.trace.layer, &self.trace.snapshots) {
            (None, None) => true,
            _ => self.picked.nodes().contains(id),
        };
        let node = |(id, _): (NodeId, &attnscope_graph::Node)| {
            let mut node = self.node_json(id);
            node["saved"] = json!(saved(&id) && sink.stats.contains_key(&id));
            node
        };
        json!({
            "schema": TRACE_SCHEMA,
            "model": self.ready.opened.name,
            "files": files,
            "family": self.ready.model.family.id,
            "precision": if self.trace.reference { "f64" } else { "f32" },
            "wiring": self.ready.model.wiring,
            "heads": attnscope_graph::Stack::ALL.map(|s| self.sizes.get(attnscope_graph::Dim::Heads(s))),
            "tokens": tokens_json(self.ready, self.input, self.generated),
            "nodes": self.ready.model.graph.iter().map(node).collect::<Vec<_>>(),
        })
    }

    fn json(&self, sink: &Collect) -> Value {
        let graph = &self.ready.model.graph;
        let nodes = |id: NodeId| {
            let mut node = self.node_json(id);
            node["stats"] = sink.stats.get(&id).map(stats_json).unwrap_or(Value::Null);
            if let (true, Some(kept)) = (self.trace.payload, sink.kept.get(&id)) {
                node["values"] = json!(kept.values);
            }
            node
        };
        let all: Vec<NodeId> = match self.picked {
            Picked::Nodes(nodes) => nodes.clone(),
            Picked::Walk(_) => graph.iter().map(|(id, _)| id).collect(),
        };
        let mut value = json!({
            "schema": json::SCHEMA,
            "model": self.ready.opened.name,
            "family": self.ready.model.family.id,
            "wiring": self.ready.model.wiring,
            "tokens": tokens_json(self.ready, self.input, self.generated),
            "nodes": all.into_iter().map(nodes).collect::<Vec<_>>(),
        });
        if let Picked::Walk(walk) = self.picked {
            value["snapshots"] = walk.iter().map(|s| self.snapshot_json(sink, s)).collect();
        }
        let blind =
            |(id, rows): &(NodeId, usize)| json!({ "node": graph.node(*id).path.as_str(), "rows": rows });
        value["blind"] = self.blind.iter().map(blind).collect();
        if self.trace.draws_attention() {
            let batch = Batch { ready: self.ready, input: self.input, row: self.trace.row };
            let cross = |c: &CrossAttention| {
                let heads: Vec<Value> =
                    c.heads.iter().enumerate().map(|(h, m)| measures_json(h, m)).collect();
                json!({ "node": c.path, "row": self.trace.row, "heads": heads })
            };
            value["cross_attention"] = cross_attentions(&batch, &sink.kept).iter().map(cross).collect();
        }
        value
    }

    fn snapshot_json(&self, sink: &Collect, snapshot: &Snapshot) -> Value {
        let graph = &self.ready.model.graph;
        let shown = self.snapshot_values(sink, snapshot);
        let beside: Vec<&str> =
            snapshot.view.nodes().iter().skip(1).map(|&id| graph.node(id).path.as_str()).collect();
        let mut value = json!({
            "number": snapshot.number,
            "node": snapshot.view.path(graph),
            "beside": beside,
            "what": snapshot.what,
            "dims": self.dims(&snapshot.view.dims(graph)),
            "shape": shown.as_ref().map(|s| s.shape.clone()),
            "stats": shown.as_ref().map(|s| stats_json(&s.stats)),
        });
        if let (true, Some(shown)) = (self.trace.payload, shown) {
            value["values"] = json!(shown.values);
        }
        value
    }
}

/// What a snapshot shows.
struct Shown {
    shape: Vec<usize>,
    stats: Stats,
    /// Empty where only statistics were asked for.
    values: Vec<f64>,
}

/// Every row of both sides, with ids.
pub(super) fn tokens_text(ready: &Ready<'_>, input: &Input, generated: bool, width: usize) -> String {
    let source = match &input.source {
        Source::Tokens(rows) => tokens_lines("source", &ready.tokens(Side::Source, rows), width),
        Source::Features(f) => format!("source  {} × {} mel bands × {} frames\n", f.batch, f.mels, f.frames),
    };
    let name = if generated { "target (generated)" } else { "target" };
    source + &tokens_lines(name, &ready.tokens(Side::Target, &input.target), width)
}

/// The same for programs.
pub(super) fn tokens_json(ready: &Ready<'_>, input: &Input, generated: bool) -> Value {
    let side = |tokens: Vec<Vec<Token>>| -> Value {
        let token = |t: &Token| json!({ "id": t.id, "piece": t.piece, "padding": t.padding });
        tokens.iter().map(|row| row.iter().map(token).collect::<Value>()).collect()
    };
    let source = match &input.source {
        Source::Tokens(rows) => side(ready.tokens(Side::Source, rows)),
        Source::Features(_) => Value::Null,
    };
    let target = side(ready.tokens(Side::Target, &input.target));
    json!({ "source": source, "target": target, "generated": generated })
}

fn tokens_lines(name: &str, rows: &[Vec<Token>], width: usize) -> String {
    let mut out = String::new();
    for (r, row) in rows.iter().enumerate() {
        let number = if rows.len() > 1 { format!(" {r}") } else { String::new() };
        let token = |t: &Token| match (&t.piece, t.padding) {
            (_, true) => "(pad)".to_owned(),
            (Some(piece), false) => format!("{} {}", attnscope_render::clean(piece), t.id),
            (None, false) => t.id.to_string(),
        };
        let tokens = row.iter().map(token).collect::<Vec<_>>().join(" · ");
        out += &attnscope_render::fill(&format!("{name}{number}  {tokens}"), width);
    }
    out
}
