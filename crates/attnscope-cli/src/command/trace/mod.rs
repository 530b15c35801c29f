//! `trace`: run the model on an input and show, print or keep its tensors.

mod collect;
mod json;
mod picked;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use attnscope_graph::{Model, NodeId, Op, Sizes};
use attnscope_render::{counted, thousands};
use attnscope_run::trace::{Precision, TraceWriter};
use attnscope_run::{Input, Native, run_reference, sizes_of};
use clap::{Args, ValueEnum};

use super::input::{SourceArgs, TargetArgs};
use super::{ModelArgs, Output, OutputArgs};
use crate::attention::{DrawnHeads, cross_weights};
use attnscope::Ready;
use attnscope::{Failure, notes_of_input};
use collect::{Collect, Use};
use picked::Picked;
pub(super) use picked::check_layer_index;

#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Only these nodes: a glob over node paths such as `cross_attn`, `decoder.*.ffn.act`; the weights of an attention among
    /// them are drawn, as in `encoder.0.self_attn.weights`
    #[arg(long, value_name = "SELECTOR")]
    layer: Option<String>,
    /// Only these snapshots of the walk: `10-12,34`
    #[arg(long, value_name = "NUMBERS", conflicts_with = "layer")]
    snapshots: Option<String>,
    /// The layer that the walk opens in each stack
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer_index: usize,
    /// The row of the batch whose attention, ids and last logits are shown
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
    /// Draw one head of each attention, or `all`, a picture each [default: their mean]
    #[arg(long, value_name = "N", value_parser = parse_head)]
    head: Option<DrawnHeads>,
    /// Text for people, JSON for programs, SVG of the attentions alone
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    format: Form,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
    Svg,
}

/// `--head 2` or `--head all`.
fn parse_head(text: &str) -> Result<DrawnHeads, String> {
    match text.parse() {
        Ok(head) => Ok(DrawnHeads::One(head)),
        Err(_) if text == "all" => Ok(DrawnHeads::All),
        Err(_) => Err("expected a number from 0, or all".to_owned()),
    }
}

impl Trace {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output);
        let opened = self.source.open(&self.model, Some(&self.target))?;
        let model = opened.model()?;
        // What can be refused without reading a weight is.
        let picked = self.picked(&model.graph)?;
        let drawn = self.drawn(model, &picked)?;
        let given = self.source.input(Some(&self.target))?;
        let ready = given.ready(&opened)?;
        let (input, generated) = given.read(&ready)?.input(&ready)?;
        output.notes(&notes_of_input(&ready, &input, generated));
        let sizes = sizes_of(model, &input)?;
        self.check_row(&input)?;
        let mut sink = self.sink(&ready, &picked, &drawn, &sizes, &output)?;
        let blind = self.execute(&ready, &input, &mut sink)?;
        let ran = Ran {
            trace: self,
            ready: &ready,
            input: &input,
            picked: &picked,
            drawn: &drawn,
            sizes: &sizes,
            generated,
            blind,
        };
        let text = match self.format {
            Form::Text => ran.text(&sink, &output),
            Form::Json => attnscope_render::json::pretty(&ran.json(&sink)),
            Form::Svg => ran.svg(&sink),
        };
        if let (Some(folder), Some(writer)) = (&self.save, sink.writer.take()) {
            writer.finish(&ran.about(&sink)?)?;
            output.note(&format!("trace written to {}", folder.display()));
        }
        output.write(&text)
    }

    fn check_row(&self, input: &Input) -> Result<(), Failure> {
        if self.row < input.batch() {
            return Ok(());
        }
        Err(Failure::new(
            format!("--row {}: the batch has {}", self.row, counted(input.batch(), "row")),
            "rows are counted from 0",
        ))
    }

    /// What becomes of each tensor.
    fn sink(
        &self,
        ready: &Ready<'_>,
        picked: &Picked,
        drawn: &[NodeId],
        sizes: &Sizes,
        output: &Output<'_>,
    ) -> Result<Collect, Failure> {
        let graph = &ready.model.graph;
        let mut uses = HashMap::new();
        for id in picked.nodes() {
            uses.insert(id, if self.payload || picked.cuts(id) { Use::Keep } else { Use::Measure });
        }
        if self.format == Form::Json && self.is_whole_walk() {
            // Programs get every node's numbers; people get the walk's.
            for (id, _) in graph.iter() {
                uses.entry(id).or_insert(Use::Measure);
            }
        }
        uses.extend(drawn.iter().map(|&id| (id, Use::Keep)));
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

    fn is_whole_walk(&self) -> bool {
        self.layer.is_none() && self.snapshots.is_none()
    }

    /// The attentions that are drawn: with the whole walk every cross-attention, else those that were picked. Who asks for
    /// their values gets those instead.
    fn drawn(&self, model: &Model, picked: &Picked) -> Result<Vec<NodeId>, Failure> {
        let graph = &model.graph;
        let is_weights = |id: &NodeId| matches!(graph.node(*id).op, Op::Squash(_));
        let drawn: Vec<NodeId> = match self.is_whole_walk() {
            true if model.architecture.has_cross_attention() => cross_weights(graph),
            // A model of one stack has no cross-attention to show: the self-attention of the layer that is walked through.
            true => picked.nodes().into_iter().filter(is_weights).collect(),
            false if self.payload && self.format != Form::Svg => Vec::new(),
            false => picked.nodes().into_iter().filter(is_weights).collect(),
        };
        if drawn.is_empty() && (self.format == Form::Svg || self.head.is_some()) {
            return Err(Failure::new(
                "no attention is picked, so there is nothing to draw",
                "pick the weights of one: --layer encoder.0.self_attn.weights",
            ));
        }
        if let Some(DrawnHeads::One(head)) = self.head {
            let heads = |id: &NodeId| model.sizes.get(*graph.node(*id).dims.get(1)?);
            if let Some((id, heads)) =
                drawn.iter().find_map(|id| Some((id, heads(id)?)).filter(|h| head >= h.1))
            {
                return Err(Failure::new(
                    format!("--head {head}: {} has {heads} heads", graph.node(*id).path),
                    "heads are counted from 0",
                ));
            }
        }
        Ok(drawn)
    }

    /// The attentions with queries that see nothing, and how many.
    fn execute(
        &self,
        ready: &Ready<'_>,
        input: &Input,
        sink: &mut Collect,
    ) -> Result<Vec<(NodeId, usize)>, Failure> {
        let report = match self.reference {
            true => run_reference(ready.model, &ready.weights, input, sink)?,
            false => Native::new().run(ready.model, &ready.weights, input, sink)?,
        };
        Ok(report.blind)
    }
}

/// A run that is over, and everything there is to say about it.
struct Ran<'a> {
    trace: &'a Trace,
    ready: &'a Ready<'a>,
    input: &'a Input,
    picked: &'a Picked,
    /// The attentions that are drawn, by their weights.
    drawn: &'a [NodeId],
    sizes: &'a Sizes,
    generated: bool,
    blind: Vec<(NodeId, usize)>,
}
