//! `summary`: a table of layers in torchinfo's manner, with what torchinfo leaves out.

use std::collections::{BTreeMap, HashSet};

use attnscope_graph::{
    Dim, Front, Model, Node, NormKind, Op, Positions, Side, Sizes, Stack, multiply_adds, output_bytes,
    torchinfo_multiply_adds,
};
use attnscope_render::{Column, Table, json, thousands};
use clap::Args;
use serde_json::{Value, json as value};

use super::{ModelArgs, Output, OutputArgs, TextOrJson};
use attnscope::Failure;

#[derive(Debug, Args)]
pub(super) struct Summary {
    #[command(flatten)]
    model: ModelArgs,
    /// Sentences in the batch
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Source positions [default: 128, or the audio model's full window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    src_len: Option<u32>,
    /// Target positions
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    tgt_len: u32,
    /// The form of the result
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Summary {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let opened = self.model.open()?;
        let model = opened.encoder_decoder()?;
        let window = || match model.wiring.front {
            Front::Audio => model.sizes.get(Dim::Positions(Side::Source)),
            Front::Tokens => None,
        };
        let source = self.src_len.map(|n| n as usize).or_else(window).unwrap_or(128);
        let sizes = model.sizes.with_lengths(self.batch as usize, source, self.tgt_len as usize);
        if sizes.get(Dim::Head(Stack::Decoder)).is_none() || sizes.get(Dim::Head(Stack::Encoder)).is_none() {
            let why = model.obstacles.first().cloned().unwrap_or_default();
            return Err(Failure::new(
                format!("{}: {why}", opened.name),
                "give the number of heads with --heads: shapes and costs of attention depend on it",
            ));
        }
        let summary = Rows::of(model, &sizes).ok_or_else(|| {
            Failure::new(
                format!("{}: a shape at this size does not fit in 64 bits", opened.name),
                "give smaller --batch, --src-len or --tgt-len",
            )
        })?;
        let output = Output::new(&self.output);
        for (side, length) in [(Side::Source, source), (Side::Target, self.tgt_len as usize)] {
            let table = model
                .sizes
                .get(Dim::Positions(side))
                .filter(|_| model.wiring.positions(side) == Positions::Table);
            if let Some(rows) =
                table.map(|n| n.saturating_sub(model.wiring.position_offset)).filter(|&n| n < length)
            {
                let side = side.word();
                output.note(&format!("the model has {rows} {side} positions: it does not run on {length}"));
            }
        }
        let lengths = [self.batch as usize, source, self.tgt_len as usize];
        output.write(&match self.format {
            TextOrJson::Text => summary.text(&output, &opened.name, model, lengths),
            TextOrJson::Json => summary.json(&opened.name, model, lengths),
        })
    }
}

/// One line of the table: a node, or a module that holds others.
struct Row {
    depth: usize,
    index: usize,
    path: String,
    kind: &'static str,
    shape: Vec<usize>,
    /// Own parameters; for a module, of everything in it. Tied weights count where they first stand.
    parameters: u64,
    tied: bool,
    torchinfo: u64,
    multiply_adds: u64,
    bytes: u64,
    leaf: bool,
    has_weights: bool,
}

struct Rows {
    rows: Vec<Row>,
    input_bytes: u64,
    /// Of every node, also of those that are no layer to a reader.
    forward_bytes: u64,
}

impl Rows {
    /// The nodes that a reader takes for layers, under the modules that their paths name.
    fn of(model: &Model, sizes: &Sizes) -> Option<Self> {
        let mut rows: Vec<Row> = Vec::new();
        let mut index: BTreeMap<usize, usize> = BTreeMap::new();
        let mut open: Vec<(String, usize)> = Vec::new();
        let mut counted: HashSet<String> = HashSet::new();
        let mut input_bytes = 0u64;
        let mut next = |depth: usize| {
            let n = index.entry(depth).or_insert(0);
            *n += 1;
            *n
        };
        for node in model.graph.nodes() {
            if let Op::Ids(_) | Op::Features = node.op {
                let width: u64 = if matches!(node.op, Op::Features) { 4 } else { 8 };
                let shape = sizes.shape(&node.dims)?;
                let bytes = shape.iter().try_fold(width, |n, &d| n.checked_mul(d as u64))?;
                input_bytes = bytes.checked_add(input_bytes)?;
            }
            let Some(kind) = kind(&node.op) else { continue };
            let segments: Vec<&str> = node.path.as_str().split('.').collect();
            let modules = segments.len() - 1;
            let shared = open.iter().zip(&segments).take_while(|((name, _), s)| name == *s).count();
            open.truncate(shared.min(modules));
            for depth in open.len()..modules {
                open.push((segments[depth].to_owned(), rows.len()));
                let path = segments[..=depth].join(".");
                rows.push(Row::module(depth + 1, next(depth + 1), path, segments[depth]));
            }
            let row = Row::node(model, node, sizes, kind, modules + 1, next(modules + 1), &mut counted)?;
            for &(_, at) in &open {
                rows[at].add(&row)?;
            }
            rows.push(row);
        }
        let bytes = |n: &Node| output_bytes(n, sizes);
        let forward_bytes = model.graph.nodes().iter().try_fold(0u64, |sum, n| sum.checked_add(bytes(n)?))?;
        let rows = Self { rows, input_bytes, forward_bytes };
        rows.fits().then_some(rows)
    }

    /// Checked when the rows were made: their sums fit.
    fn total(&self, of: impl Fn(&Row) -> u64) -> u64 {
        self.rows.iter().filter(|r| r.leaf).map(of).fold(0, u64::saturating_add)
    }

    /// Whether every total fits in 64 bits.
    fn fits(&self) -> bool {
        let sum = |of: fn(&Row) -> u64| {
            let mut leaves = self.rows.iter().filter(|r| r.leaf);
            leaves.try_fold(0u64, |sum, r| sum.checked_add(of(r)))
        };
        let all =
            [sum(|r| r.multiply_adds), sum(|r| r.torchinfo), sum(|r| r.bytes).and_then(|n| n.checked_mul(2))];
        all.iter().all(Option::is_some)
    }

    fn text(&self, output: &Output<'_>, name: &str, model: &Model, [b, s, t]: [usize; 3]) -> String {
        let columns = vec![
            Column::left("Layer (type:depth-index)"),
            Column::left("Output shape"),
            Column::right("Params"),
            Column::right("Mult-adds"),
            Column::right("MACs"),
        ];
        let mut table = Table::new(columns, output.glyphs()).flexible(0);
        for row in &self.rows {
            let label = format!(
                "{}{} ({}:{}-{})",
                "  ".repeat(row.depth - 1),
                row.name(),
                row.kind,
                row.depth,
                row.index
            );
            let or_dash = |n: u64| if n == 0 { "–".to_owned() } else { thousands(n) };
            let shape = if row.leaf { format!("{:?}", row.shape) } else { String::new() };
            let parameters = if row.tied { "(tied)".to_owned() } else { or_dash(row.parameters) };
            table.row([label, shape, parameters, or_dash(row.torchinfo), or_dash(row.multiply_adds)]);
        }
        let mut text =
            output.glyphs().text(&format!("{name} · {} · batch {b}, source {s}, target {t}", model.title()));
        text.push_str("\n\n");
        text += &table.render(output.width());
        text.push('\n');
        let (parameters, buffers) = model.parameters();
        let mut totals =
            Table::new(vec![Column::left(""), Column::right(""), Column::left("")], output.glyphs())
                .flexible(2);
        let mb = |n: u64| format!("{:.2} MB", n as f64 / 1e6);
        let m = |n: u64| format!("{:.2} M", n as f64 / 1e6);
        let forward = self.forward_backward();
        totals.row(["Total params", &thousands(parameters), "each tied weight once"]);
        if buffers > 0 {
            totals.row(["Buffers", &thousands(buffers), "constants in the file, not parameters"]);
        }
        totals.row([
            "Mult-adds",
            &m(self.total(|r| r.torchinfo)),
            "as torchinfo counts: parameters × batch, sequence length left out",
        ]);
        totals.row(["MACs", &m(self.total(|r| r.multiply_adds)), "all positions and attention products"]);
        totals.row(["Input size", &mb(self.input_bytes), "ids at 8 bytes, features at 4"]);
        totals.row([
            "Forward/backward size",
            &mb(forward),
            "torchinfo's: twice the outputs of layers with parameters",
        ]);
        totals.row(["Params size", &mb(parameters * 4), "in f32"]);
        totals.row(["Estimated total size", &mb(self.input_bytes + forward + parameters * 4), ""]);
        totals.row(["Forward memory", &mb(self.forward_bytes), "every tensor of a traced run kept, in f32"]);
        text + &totals.render(output.width())
    }

    /// torchinfo's estimate: outputs of layers with parameters, once forward and once for gradients.
    fn forward_backward(&self) -> u64 {
        self.total(|r| if r.has_weights { 2 * r.bytes } else { 0 })
    }

    fn json(&self, name: &str, model: &Model, [b, s, t]: [usize; 3]) -> String {
        let row = |r: &Row| {
            value!({
                "path": r.path, "type": r.kind, "depth": r.depth, "index": r.index,
                "shape": if r.leaf { value!(r.shape) } else { Value::Null },
                "parameters": r.parameters, "tied": r.tied,
                "mult_adds": r.torchinfo, "macs": r.multiply_adds, "bytes": r.bytes,
            })
        };
        let (parameters, buffers) = model.parameters();
        json::pretty(&value!({
            "schema": json::SCHEMA,
            "model": name,
            "input": { "batch": b, "source": s, "target": t },
            "layers": self.rows.iter().map(row).collect::<Vec<_>>(),
            "totals": {
                "parameters": parameters,
                "buffers": buffers,
                "mult_adds": self.total(|r| r.torchinfo),
                "macs": self.total(|r| r.multiply_adds),
                "input_bytes": self.input_bytes,
                "forward_backward_bytes": self.forward_backward(),
                "parameter_bytes": parameters * 4,
                "forward_bytes": self.forward_bytes,
            },
        }))
    }
}

impl Row {
    fn module(depth: usize, index: usize, path: String, segment: &str) -> Self {
        let kind = match segment {
            "self_attn" | "cross_attn" => "Attention",
            "ffn" => "FeedForward",
            "encoder" => "Encoder",
            "decoder" => "Decoder",
            "src" | "tgt" | "audio" => "Embeddings",
            _ => "Layer",
        };
        Self {
            depth,
            index,
            path,
            kind,
            shape: Vec::new(),
            parameters: 0,
            tied: false,
            torchinfo: 0,
            multiply_adds: 0,
            bytes: 0,
            leaf: false,
            has_weights: false,
        }
    }

    fn node(
        model: &Model,
        node: &Node,
        sizes: &Sizes,
        kind: &'static str,
        depth: usize,
        index: usize,
        counted: &mut HashSet<String>,
    ) -> Option<Self> {
        let mut parameters = 0;
        let own = node.weights.iter().filter(|&&w| !model.is_buffer(w));
        let mut tied = own.clone().count() > 0;
        for &weight in own {
            if counted.insert(model.graph.weight(weight).path.clone()) {
                tied = false;
                parameters += model.elements(weight);
            }
        }
        Some(Self {
            depth,
            index,
            path: node.path.as_str().to_owned(),
            kind,
            shape: sizes.shape(&node.dims)?,
            parameters,
            tied,
            torchinfo: torchinfo_multiply_adds(model, node, sizes)?,
            multiply_adds: multiply_adds(&model.graph, node, sizes)?,
            bytes: output_bytes(node, sizes)?,
            leaf: true,
            has_weights: !node.weights.is_empty(),
        })
    }

    /// A part's costs are its module's too.
    fn add(&mut self, row: &Self) -> Option<()> {
        self.parameters = self.parameters.checked_add(row.parameters)?;
        self.torchinfo = self.torchinfo.checked_add(row.torchinfo)?;
        self.multiply_adds = self.multiply_adds.checked_add(row.multiply_adds)?;
        self.bytes = self.bytes.checked_add(row.bytes)?;
        Some(())
    }

    fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

/// The type of a layer as PyTorch would call it; nothing for nodes that only rename or reshape.
fn kind(op: &Op) -> Option<&'static str> {
    Some(match op {
        Op::Embed { .. } => "Embedding",
        Op::Positions { .. } => "Positions",
        Op::Conv1d { .. } => "Conv1d",
        Op::Norm { kind: NormKind::Layer, .. } => "LayerNorm",
        Op::Norm { kind: NormKind::Rms, .. } => "RMSNorm",
        Op::Linear | Op::Logits { .. } => "Linear",
        Op::Scores { .. } => "MatMul",
        Op::RelativeBias { .. } => "RelativeBias",
        Op::Mask(_) => "Mask",
        Op::AddMask { .. } => "Add",
        Op::Squash(_) => "Softmax",
        Op::Context => "MatMul",
        Op::Residual { .. } | Op::AddPositions => "Add",
        Op::Activate(_) => "Activation",
        Op::Gate => "Mul",
        Op::Ids(_) | Op::Features | Op::Transpose | Op::Same | Op::SplitHeads(_) | Op::MergeHeads(_) => {
            return None;
        }
    })
}
