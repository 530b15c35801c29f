//! Attention weights of a run, with the tokens on both sides.

use std::collections::BTreeMap;

use attnscope_diagnose::{HeadMeasures, Weights, head_measures};
use attnscope_graph::{AttentionKind, AttentionStep, Dim, Graph, NodeId, Side};
use attnscope_run::audio::POSITION_SECONDS;
use attnscope_run::{Input, Tensor};

use crate::figures::counted;
use crate::ready::{Ready, Token};

/// The weights of one attention, of one row of the batch.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionMap {
    /// The path of its weights.
    pub path: String,
    /// The labels of the rows.
    pub rows: Vec<String>,
    /// The labels of the columns.
    pub columns: Vec<String>,
    /// What is drawn: a head or the mean of all, by its name, [row, column].
    pub panels: Vec<(String, Vec<f64>)>,
    /// What each head does.
    pub heads: Vec<HeadMeasures>,
    /// Whether it is a cross-attention.
    pub is_cross: bool,
    /// Whether its queries or keys are positions of the source.
    pub reads_source: bool,
    /// Whether its queries are steps of a decoder: the token that is read and the one that is predicted.
    pub of_decoder: bool,
}

/// One row of a batch that was run.
pub(crate) struct Batch<'a> {
    pub(crate) ready: &'a Ready<'a>,
    pub(crate) input: &'a Input,
    pub(crate) row: usize,
}

/// Audio has too many positions to draw each: this many are drawn.
const AUDIO_COLUMNS: usize = 30;

/// Which heads of an attention are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrawnHeads {
    /// One picture, the mean of all.
    Mean,
    /// One head.
    One(usize),
    /// One picture per head.
    All,
}

/// The weights of every cross-attention.
pub(crate) fn cross_weights(graph: &Graph) -> Vec<NodeId> {
    graph
        .iter()
        .filter(|(_, node)| node.role.is(AttentionKind::CrossAttention, AttentionStep::Weights))
        .map(|(id, _)| id)
        .collect()
}

impl Batch<'_> {
    /// The attentions whose weights are these nodes, where they were kept.
    pub(crate) fn maps(
        &self,
        weights: &[NodeId],
        kept: &BTreeMap<NodeId, Tensor>,
        heads: DrawnHeads,
    ) -> Vec<AttentionMap> {
        weights.iter().filter_map(|id| self.map(*id, kept.get(id)?, heads)).collect()
    }

    /// One of them: the heads that are drawn, padding left out, and what each head does.
    pub(crate) fn map(&self, id: NodeId, kept: &Tensor, drawn: DrawnHeads) -> Option<AttentionMap> {
        let graph = &self.ready.model.graph;
        let (node, &[_, heads, stride, keys]) = (graph.node(id), kept.shape()) else { return None };
        let &[_, _, query_dim, key_dim] = &node.dims[..] else { return None };
        let cells = heads * stride * keys;
        let values = kept.values().range(self.row * cells..(self.row + 1) * cells)?.as_f64();
        let values = &*values;
        let (queries, columns) = (self.axis(query_dim, stride)?, self.axis(key_dim, keys)?);
        let rows = match query_dim == Dim::Target {
            true => steps(self.ready.tokens(Side::Target, self.input.rows(Side::Target)?).get(self.row)?),
            false => queries.labels.clone(),
        };
        let weights = Weights {
            values,
            heads,
            queries: queries.open.iter().filter(|&&open| open).count(),
            stride,
            open: &columns.open,
            end: &self.ends(key_dim),
            mask: node.role.attention().and_then(|(place, _)| graph.mask_of(place)),
        };
        let weight = |head: usize, t: usize, s: usize| values[(head * stride + t) * keys + s];
        let mean =
            |t: usize, s: usize| (0..heads).map(|h| weight(h, t, s)).sum::<f64>() / heads.max(1) as f64;
        let of_head =
            |h: usize| (format!("head {h}"), drawn_cells(&queries, &columns, &|t, s| weight(h, t, s)));
        let panels = match drawn {
            DrawnHeads::Mean => {
                vec![(format!("mean of {}", counted(heads, "head")), drawn_cells(&queries, &columns, &mean))]
            }
            DrawnHeads::One(head) => (head < heads).then(|| of_head(head)).into_iter().collect(),
            DrawnHeads::All => (0..heads).map(of_head).collect(),
        };
        let heads = head_measures(&weights);
        Some(AttentionMap {
            path: node.path.to_string(),
            rows,
            columns: columns.labels,
            panels,
            heads,
            is_cross: node.role.is(AttentionKind::CrossAttention, AttentionStep::Weights),
            reads_source: node.dims.contains(&Dim::Source),
            of_decoder: query_dim == Dim::Target,
        })
    }

    /// The positions along a dimension of the weights.
    fn axis(&self, dim: Dim, length: usize) -> Option<Axis> {
        let side = if dim == Dim::Target { Side::Target } else { Side::Source };
        let Some(rows) = self.input.rows(side) else { return Some(Axis::of_audio(length)) };
        let tokens = self.ready.tokens(side, rows);
        Some(Axis::of_tokens(tokens.get(self.row)?))
    }

    /// The keys at which a source's sentence ends. What a decoder reads of itself has no end yet.
    pub(crate) fn ends(&self, keys: Dim) -> Vec<usize> {
        let (Dim::Source, Some(rows)) = (keys, self.input.rows(Side::Source)) else { return Vec::new() };
        let ends = self.ready.end_tokens();
        let length = rows.length();
        let ids = rows.ids().get(self.row * length..(self.row + 1) * length).unwrap_or_default();
        (0..length).filter(|&i| rows.open()[self.row * length + i] && ends.contains(&ids[i])).collect()
    }
}

/// The steps of a decoder: at each it reads a token and predicts the next. The weights of a row belong to the prediction.
pub(crate) fn steps(row: &[Token]) -> Vec<String> {
    let read: Vec<String> = row.iter().filter(|t| !t.padding).map(Token::label).collect();
    let step = |t: usize| match read.get(t + 1) {
        Some(written) => format!("{} ⇒ {written}", read[t]),
        None => format!("{} ⇒ …", read[t]),
    };
    (0..read.len()).map(step).collect()
}

/// The positions along one side of a matrix, and where they are drawn.
struct Axis {
    /// What is a token and what is padding.
    open: Vec<bool>,
    /// The label of each line or column.
    labels: Vec<String>,
    /// The line or column of each position: its own for a token, its neighbours' too for audio.
    place: Vec<usize>,
}

impl Axis {
    fn of_tokens(row: &[Token]) -> Self {
        let open: Vec<bool> = row.iter().map(|t| !t.padding).collect();
        let labels = row.iter().filter(|t| !t.padding).map(Token::label).collect();
        let place = (0..row.len()).map(|i| open[..i].iter().filter(|&&o| o).count()).collect();
        Self { open, labels, place }
    }

    fn of_audio(length: usize) -> Self {
        let drawn = length.clamp(1, AUDIO_COLUMNS);
        // Whole seconds for a window of 30 s: a number that fits its column.
        let second = |c: usize| {
            let seconds = (c * length / drawn) as f64 * POSITION_SECONDS;
            format!("{:.1}", seconds).trim_end_matches(".0").to_owned()
        };
        let place = (0..length).map(|s| s * drawn / length).collect();
        Self { open: vec![true; length], labels: (0..drawn).map(second).collect(), place }
    }

    /// The positions that are drawn.
    fn positions(&self) -> impl Iterator<Item = (usize, usize)> {
        self.open
            .iter()
            .zip(&self.place)
            .enumerate()
            .filter(|(_, (open, _))| **open)
            .map(|(i, (_, &at))| (i, at))
    }
}

/// A matrix as it is drawn, [row, column]: keys that share a column are added, queries that share a line averaged.
fn drawn_cells(queries: &Axis, keys: &Axis, weight: &dyn Fn(usize, usize) -> f64) -> Vec<f64> {
    let columns = keys.labels.len();
    let mut cells = vec![0.0; queries.labels.len() * columns];
    let mut shared = vec![0usize; queries.labels.len()];
    queries.positions().for_each(|(_, row)| shared[row] += 1);
    for (t, row) in queries.positions() {
        for (s, column) in keys.positions() {
            cells[row * columns + column] += weight(t, s) / shared[row] as f64;
        }
    }
    cells
}
