//! What a report needs of every tensor while it is there: a histogram, and pictures of attentions that are too large to keep.

use std::collections::BTreeMap;
use std::ops::Range;

use attnscope_checkpoint::Stats;
use attnscope_graph::{AttentionKind, AttentionPlace, AttentionStep, Graph, NodeId, Op, Side};
use attnscope_run::{Rows, Tensor};

use super::picture::Matrices;
use crate::answer::{Base64, F32Array, Histogram, Picture, PictureOf, RowMaxima};

/// Bytes of the pictures of one attention's weights, and of everything else that is shown of it.
const WEIGHT_BYTES: usize = 550_000;
pub(super) const OTHER_BYTES: usize = 250_000;

/// Bins of a histogram.
const BINS: usize = 24;

/// Looks at tensors as they are made.
#[derive(Debug)]
pub(crate) struct TensorWatch {
    /// The row of the batch that is shown.
    row: usize,
    /// What a node is, where it matters here.
    looked_at: BTreeMap<NodeId, LookedAt>,
    pub(super) histograms: BTreeMap<NodeId, Histogram>,
    pub(super) pictures: BTreeMap<AttentionPlace, Vec<Picture>>,
    pub(super) largest: BTreeMap<AttentionPlace, RowMaxima>,
    /// The mean weight of a token's query on padding, where padding is left out of pictures.
    pub(super) on_padding: BTreeMap<AttentionPlace, f64>,
    /// From the first token of a side to its last: what pictures show.
    tokens: BTreeMap<&'static str, Range<usize>>,
    /// The norm of each value vector: heads, then [head, key].
    norms: BTreeMap<AttentionPlace, (usize, Vec<f32>)>,
}

#[derive(Debug, Clone, Copy)]
enum LookedAt {
    Step(AttentionPlace, AttentionStep),
    Other,
}

impl TensorWatch {
    pub(crate) fn new(graph: &Graph, row: usize) -> Self {
        let look = |(id, node): (NodeId, &attnscope_graph::Node)| {
            let is_ids = matches!(node.op, Op::Ids(_) | Op::TypeIds(_));
            let look = match node.role.attention() {
                Some((place, step)) => LookedAt::Step(place, step),
                None => LookedAt::Other,
            };
            (!is_ids).then_some((id, look))
        };
        Self {
            row,
            looked_at: graph.iter().filter_map(look).collect(),
            histograms: BTreeMap::new(),
            pictures: BTreeMap::new(),
            largest: BTreeMap::new(),
            on_padding: BTreeMap::new(),
            tokens: BTreeMap::new(),
            norms: BTreeMap::new(),
        }
    }

    /// Takes note of where a side has tokens: padding before and after them is left out of pictures.
    pub(crate) fn reads(&mut self, side: Side, rows: &Rows) {
        let length = rows.length();
        let open = rows.open().get(self.row * length..(self.row + 1) * length).unwrap_or_default();
        let ends = (open.iter().position(|&open| open), open.iter().rposition(|&open| open));
        if let (Some(first), Some(last)) = ends {
            self.tokens.insert(side.word(), first..last + 1);
        }
    }

    /// The queries and the keys of an attention that its pictures show.
    pub(super) fn shown(&self, place: AttentionPlace, queries: usize, keys: usize) -> [Range<usize>; 2] {
        let of = |side: Side, count: usize| {
            let tokens = self.tokens.get(side.word()).filter(|tokens| tokens.end <= count);
            tokens.cloned().unwrap_or(0..count)
        };
        [of(place.stack.side(), queries), of(key_side(place), keys)]
    }

    /// Looks at a tensor.
    pub(crate) fn put(&mut self, node: NodeId, tensor: &Tensor, stats: &Stats) {
        let Some(&look) = self.looked_at.get(&node) else { return };
        let values = tensor.values().as_f32();
        self.histograms.insert(node, histogram(&values, stats));
        let (LookedAt::Step(place, step), &[_, heads, rows, columns]) = (look, tensor.shape()) else {
            return;
        };
        let cells = heads * rows * columns;
        let Some(values) = values.get(self.row * cells..(self.row + 1) * cells) else { return };
        let matrices = Matrices { values, count: heads, rows, columns };
        match step {
            AttentionStep::Scores => {
                let picture =
                    matrices.picture_of(&self.shown(place, rows, columns), PictureOf::Scores, OTHER_BYTES);
                self.add(place, picture);
            }
            AttentionStep::Weights => {
                let shown = self.shown(place, rows, columns);
                let picture = matrices.picture_of(&shown, PictureOf::Weights, WEIGHT_BYTES);
                if picture.queries_a_row * picture.keys_a_column > 1 {
                    self.largest.insert(place, row_maxima(matrices));
                }
                if shown[1] != (0..columns) {
                    self.on_padding.insert(place, share_beside(matrices, &shown));
                }
                self.add(place, picture);
                self.add_weighted_values(place, matrices);
            }
            AttentionStep::VHeads => {
                let norm =
                    |vector: &[f32]| vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt() as f32;
                let norms = values.chunks(columns.max(1)).map(norm).collect();
                self.norms.insert(place, (heads, norms));
            }
            _ => {}
        }
    }

    fn add(&mut self, place: AttentionPlace, picture: Picture) {
        self.pictures.entry(place).or_default().push(picture);
    }

    /// Each weight times the norm of its value vector. Heads may share values.
    fn add_weighted_values(&mut self, place: AttentionPlace, weights: Matrices<'_>) {
        let Some((value_heads, norms)) = self.norms.get(&place) else { return };
        let Matrices { values, count: heads, rows, columns } = weights;
        let mut weighted = Vec::with_capacity(values.len());
        for (head, matrix) in values.chunks((rows * columns).max(1)).enumerate() {
            let norms = &norms[head * value_heads / heads.max(1) * columns..][..columns];
            for row in matrix.chunks(columns.max(1)) {
                weighted.extend(row.iter().zip(norms).map(|(weight, norm)| weight * norm));
            }
        }
        let shown = self.shown(place, rows, columns);
        let weighted = Matrices { values: &weighted, ..weights };
        self.add(place, weighted.picture_of(&shown, PictureOf::WeightedValues, OTHER_BYTES));
    }
}

/// Whose positions the keys are.
pub(super) fn key_side(place: AttentionPlace) -> Side {
    match place.kind {
        AttentionKind::CrossAttention => Side::Source,
        AttentionKind::SelfAttention => place.stack.side(),
    }
}

/// What the rows that are shown have beside the columns that are shown, on average.
fn share_beside(matrices: Matrices<'_>, [queries, keys]: &[Range<usize>; 2]) -> f64 {
    let Matrices { values, count, rows, columns } = matrices;
    let row = |matrix: usize, row: usize| values[(matrix * rows + row) * columns..][..columns].iter();
    let beside = |(matrix, query)| -> f64 {
        let all = row(matrix, query).enumerate().filter(|(key, _)| !keys.contains(key));
        all.map(|(_, &weight)| f64::from(weight)).sum()
    };
    let all = (0..count).flat_map(|matrix| queries.clone().map(move |query| (matrix, query)));
    all.map(beside).sum::<f64>() / (count * queries.len()).max(1) as f64
}

/// Where the finite values lie.
fn histogram(values: &[f32], stats: &Stats) -> Histogram {
    let (low, high) = (stats.min, stats.max);
    let mut counts = vec![0; BINS];
    if low.is_finite() && high.is_finite() {
        let scale = if high > low { BINS as f64 / (high - low) } else { 0.0 };
        for x in values.iter().filter(|x| x.is_finite()) {
            counts[(((f64::from(*x) - low) * scale) as usize).min(BINS - 1)] += 1;
        }
    }
    let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
    Histogram { low: finite(low), high: finite(high), counts }
}

/// The largest value of each row, and its column.
fn row_maxima(matrices: Matrices<'_>) -> RowMaxima {
    let rows = matrices.values.chunks(matrices.columns.max(1)).take(matrices.count * matrices.rows);
    let largest = |row: &[f32]| {
        let all = row.iter().copied().enumerate();
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
    };
    let (mut weights, mut keys) = (Vec::new(), Vec::new());
    for (key, weight) in rows.map(largest) {
        weights.push(weight);
        keys.extend(u32::try_from(key).unwrap_or(u32::MAX).to_le_bytes());
    }
    RowMaxima { weights: F32Array(weights), keys: Base64(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_is_in_one_bin() {
        let values = [-1.0, 0.0, 0.5, 1.0, f32::NAN, f32::NEG_INFINITY];
        let histogram = histogram(&values, &Stats::of_f32(&values));
        assert_eq!((histogram.low, histogram.high), (-1.0, 1.0));
        assert_eq!(histogram.counts.iter().sum::<u64>(), 4);
        assert_eq!((histogram.counts[0], histogram.counts[BINS - 1]), (1, 1));
    }

    #[test]
    fn what_is_on_padding_is_the_mean_over_queries_that_are_tokens() {
        let values = [0.5, 0.25, 0.25, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0];
        let weights = Matrices { values: &values, count: 1, rows: 3, columns: 3 };
        assert_eq!(share_beside(weights, &[0..2, 0..2]), (0.25 + 0.5) / 2.0);
        assert_eq!(share_beside(weights, &[0..3, 1..3]), 0.5 / 3.0);
    }

    #[test]
    fn the_largest_of_each_row_is_found() {
        let values = [0.1, 0.7, 0.2, 0.5, 0.3, 0.2];
        let maxima = row_maxima(Matrices { values: &values, count: 1, rows: 2, columns: 3 });
        assert_eq!((maxima.weights.0, maxima.keys.0), (vec![0.7, 0.5], vec![1, 0, 0, 0, 0, 0, 0, 0]));
    }
}
