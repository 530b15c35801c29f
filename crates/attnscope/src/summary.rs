//! The cost of a model's layers, in the style of torchinfo, with what torchinfo leaves out.

use std::collections::{BTreeMap, HashSet};

use attnscope_checkpoint::Remedy;
use attnscope_graph::{
    Dim, LayerStep, Model, Node, Op, Positions, Role, Side, Sizes, Stack, multiply_adds, output_bytes,
    torchinfo_multiply_adds,
};

use crate::answer::{Layer, SCHEMA, Summary, SummaryInput, Totals};
use crate::failure::Failure;
use crate::note::{Note, Notes};
use crate::open::Opened;
use crate::torch_summary::torch_summary;

/// The sizes of an input whose costs are counted.
///
/// ```
/// let lengths = attnscope::Lengths { batch: Some(2), ..attnscope::Lengths::default() };
/// assert_eq!(attnscope::open("demo")?.summary(&lengths)?.layers[0].path, "src");
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Rows of the batch; where nothing is said, as a recipe has them, or 1.
    pub batch: Option<usize>,
    /// Source positions; by default 128, or an audio model's full window.
    pub source: Option<usize>,
    /// Target positions.
    pub target: usize,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { batch: None, source: None, target: 64 }
    }
}

/// Counts what every layer costs.
pub(crate) fn summarise(opened: &Opened, lengths: &Lengths, mut notes: Notes) -> Result<Summary, Failure> {
    let model = opened.model()?;
    let window = || model.sizes.get(Dim::Positions(Side::Source)).filter(|_| model.graph.reads_audio());
    let fixed = || model.architecture.classifier().and_then(|classifier| classifier.length);
    let source = lengths.source.or_else(window).or_else(fixed).unwrap_or(128);
    let batch = lengths.batch.or(opened.batch).unwrap_or(1);
    let of = |side: Side, length: usize| Some(length).filter(|_| model.architecture.reads(side));
    let input =
        SummaryInput { batch, source: of(Side::Source, source), target: of(Side::Target, lengths.target) };
    let sizes = model.sizes.with_lengths(batch, source, lengths.target);
    if model.architecture.stacks().any(|stack| sizes.get(Dim::Head(stack)).is_none()) {
        let why = model.obstacles.first().cloned().unwrap_or_default();
        return Err(Failure::new(format!("{}: {why}", opened.name), Remedy::HeadCount));
    }
    let rows = Rows::of(model, &sizes).ok_or_else(|| {
        Failure::new(
            format!("{}: a shape at this size does not fit in 64 bits", opened.name),
            Remedy::SmallerSizes,
        )
    })?;
    notes.add(too_few_positions(model, input));
    Ok(Summary {
        schema: SCHEMA,
        model: opened.name.clone(),
        title: model.title(),
        input,
        totals: rows.totals(model),
        torch_summary: torch_summary(model, &sizes),
        layers: rows.rows.into_iter().map(|row| row.layer).collect(),
        notes: notes.all,
    })
}

/// The layers alone, with what they cost at some sizes; `None` where a number does not fit 64 bits.
pub(crate) fn layers(model: &Model, sizes: &Sizes) -> Option<Vec<Layer>> {
    Some(Rows::of(model, sizes)?.rows.into_iter().map(|row| row.layer).collect())
}

/// Sides that are longer than the model's table of positions.
fn too_few_positions(model: &Model, input: SummaryInput) -> Vec<Note> {
    let note = |side: Side| {
        let length = match side {
            Side::Source => input.source,
            Side::Target => input.target,
        };
        let table = model.sizes.get(Dim::Positions(side));
        let positions = model.graph.positions(side).filter(|added| added.kind == Positions::Table)?;
        let rows = table?.saturating_sub(positions.offset);
        let length = length.filter(|&length| rows < length)?;
        Some(Note::TooFewPositions { side, rows, length })
    };
    model.architecture.sides().filter_map(note).collect()
}

/// A line of the table, with the numbers for its module's sums.
struct Row {
    layer: Layer,
    has_weights: bool,
}

struct Rows {
    rows: Vec<Row>,
    input_bytes: u64,
    /// Of every node, including those that are not shown as layers.
    forward_bytes: u64,
}

impl Rows {
    /// The nodes that are shown as layers, under the modules of their paths.
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
            let Some(kind) = node.op.facets().module else { continue };
            let segments: Vec<&str> = node.path.as_str().split('.').collect();
            let modules = segments.len() - 1;
            let shared = open.iter().zip(&segments).take_while(|((name, _), s)| name == *s).count();
            open.truncate(shared.min(modules));
            for depth in open.len()..modules {
                open.push((segments[depth].to_owned(), rows.len()));
                let path = segments[..=depth].join(".");
                rows.push(Row::module(depth + 1, next(depth + 1), path, module_kind(node.role, depth)));
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

    /// Nodes; modules only sum them up.
    fn leaves(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.layer.shape.is_some())
    }

    /// Checked when the rows were made, so their sums fit.
    fn total(&self, of: impl Fn(&Row) -> u64) -> u64 {
        self.leaves().map(of).fold(0, u64::saturating_add)
    }

    fn totals(&self, model: &Model) -> Totals {
        let (parameters, buffers) = model.parameters();
        Totals {
            parameters,
            buffers,
            mult_adds: self.total(|row| row.layer.mult_adds),
            macs: self.total(|row| row.layer.macs),
            input_bytes: self.input_bytes,
            forward_backward_bytes: self.total(|row| if row.has_weights { 2 * row.layer.bytes } else { 0 }),
            parameter_bytes: parameters * 4,
            forward_bytes: self.forward_bytes,
        }
    }

    /// Whether every total fits in 64 bits.
    fn fits(&self) -> bool {
        let sum =
            |of: fn(&Layer) -> u64| self.leaves().try_fold(0u64, |sum, row| sum.checked_add(of(&row.layer)));
        let all = [
            sum(|layer| layer.macs),
            sum(|layer| layer.mult_adds),
            sum(|layer| layer.bytes).and_then(|n| n.checked_mul(2)),
        ];
        all.iter().all(Option::is_some)
    }
}

/// What the module at a depth of a node's path is: the stack, the layer, the part of it.
fn module_kind(role: Role, depth: usize) -> &'static str {
    match (role, depth) {
        (Role::Entry(..) | Role::Audio(_), 0) => "Embeddings",
        (Role::Layer(Stack::Encoder, ..) | Role::StackOut(Stack::Encoder), 0) => "Encoder",
        (Role::Layer(Stack::Decoder, ..) | Role::StackOut(Stack::Decoder), 0) => "Decoder",
        (Role::Layer(_, _, LayerStep::Attention(..)), 2) => "Attention",
        (Role::Layer(_, _, LayerStep::FeedForward(_)), 2) => "FeedForward",
        _ => "Layer",
    }
}

impl Row {
    fn module(depth: usize, index: usize, path: String, kind: &'static str) -> Self {
        let layer = Layer {
            path,
            kind: kind.to_owned(),
            depth,
            index,
            shape: None,
            parameters: 0,
            tied: false,
            mult_adds: 0,
            macs: 0,
            bytes: 0,
        };
        Self { layer, has_weights: false }
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
        let layer = Layer {
            path: node.path.as_str().to_owned(),
            kind: kind.to_owned(),
            depth,
            index,
            shape: Some(sizes.shape(&node.dims)?),
            parameters,
            tied,
            mult_adds: torchinfo_multiply_adds(model, node, sizes)?,
            macs: multiply_adds(&model.graph, node, sizes)?,
            bytes: output_bytes(node, sizes)?,
        };
        Some(Self { layer, has_weights: !node.weights.is_empty() })
    }

    /// A part's costs also count for its module.
    fn add(&mut self, part: &Self) -> Option<()> {
        let (own, part) = (&mut self.layer, &part.layer);
        own.parameters = own.parameters.checked_add(part.parameters)?;
        own.mult_adds = own.mult_adds.checked_add(part.mult_adds)?;
        own.macs = own.macs.checked_add(part.macs)?;
        own.bytes = own.bytes.checked_add(part.bytes)?;
        Some(())
    }
}
