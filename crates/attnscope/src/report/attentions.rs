//! The attentions of a run with their pictures.

use std::ops::Range;

use attnscope_diagnose::{HeadMeasures, contributions, contributions_need};
use attnscope_graph::{AttentionPlace, AttentionStep, NodeId, Side};
use attnscope_run::{Kept, RunError, Tensor};

use super::picture::Matrices;
use super::watch::{OTHER_BYTES, TensorWatch, key_side};
use crate::answer::{F32Array, HeadSummary, LeftOut, PictureOf, ReportAttention, Trace};
use crate::attention_map::{Batch, DrawnHeads};

/// Products of the largest contributions that are computed: a few seconds.
const MOST_PRODUCTS: usize = 1 << 30;

/// Every attention, in the order of computation.
pub(super) fn attentions(
    batch: &Batch<'_>,
    trace: &Trace,
    watch: &mut TensorWatch,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<ReportAttention>, RunError> {
    let graph = &batch.ready.model.graph;
    let (mut without, mut reduced) = (Vec::new(), Vec::new());
    let mut all = Vec::new();
    for (id, node) in graph.iter() {
        let Some((place, AttentionStep::Weights)) = node.role.attention() else { continue };
        batch.ready.prepared.limits().cancel.check()?;
        let shape = trace.nodes.iter().find(|traced| traced.id == id).and_then(|traced| traced.shape.clone());
        let Some(&[_, heads, queries, keys]) = shape.as_deref() else { continue };
        let mut attention = ReportAttention {
            path: place.to_string(),
            stack: place.stack.name(),
            layer: place.layer,
            kind: place.kind.name(),
            query_side: side_name(place.stack.side()),
            key_side: side_name(key_side(place)),
            heads,
            queries,
            keys,
            ends: batch.ends(key_side(place).length()),
            measures: measures(batch, trace, id),
            pictures: watch.pictures.remove(&place).unwrap_or_default(),
            largest: watch.largest.remove(&place),
            on_padding: watch.on_padding.remove(&place),
            stream_share: None,
        };
        let shown = watch.shown(place, queries, keys);
        if !add_contributions(batch, trace, place, &shown, &mut attention) {
            without.push(attention.path.clone());
        }
        if attention.pictures.iter().any(|picture| picture.queries_a_row * picture.keys_a_column > 1) {
            reduced.push(attention.path.clone());
        }
        all.push(attention);
    }
    if !reduced.is_empty() {
        let why = format!(
            "the pictures of {} have fewer cells than the attention: each is the largest of a group",
            reduced.join(", ")
        );
        left_out.push(LeftOut { part: "pictures", why });
    }
    if !without.is_empty() {
        let why = format!("not computed for {}: too large, or no sum with a stream", without.join(", "));
        left_out.push(LeftOut { part: "contribution", why });
    }
    Ok(all)
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Source => "source",
        Side::Target => "target",
    }
}

/// What each head does, where the weights were kept.
fn measures(batch: &Batch<'_>, trace: &Trace, weights: NodeId) -> Vec<HeadSummary> {
    let map = trace.kept.get(&weights).and_then(|kept| batch.map(weights, kept, DrawnHeads::Mean));
    let head = |HeadMeasures { entropy, peak, end_share, .. }: HeadMeasures| HeadSummary {
        entropy,
        peak,
        end_share,
    };
    map.map(|map| map.heads.into_iter().map(head).collect()).unwrap_or_default()
}

/// Adds what each key contributes. False where that is not known.
fn add_contributions(
    batch: &Batch<'_>,
    trace: &Trace,
    place: AttentionPlace,
    shown: &[Range<usize>; 2],
    attention: &mut ReportAttention,
) -> bool {
    let model = batch.ready.model;
    let needed = contributions_need(model, place);
    let kept: Vec<(NodeId, &Tensor)> =
        needed.iter().filter_map(|id| Some((*id, trace.kept.get(id)?))).collect();
    let ReportAttention { heads, queries, keys, .. } = *attention;
    let width = kept.first().and_then(|(_, stream)| stream.shape().last()).copied().unwrap_or(0);
    // Every value goes through the output projection once, whatever the number of queries.
    let size = width / heads.max(1);
    let products =
        [heads, keys, width, queries.max(size)].iter().fold(1usize, |all, &n| all.saturating_mul(n));
    if kept.is_empty() || kept.len() < needed.len() || products > MOST_PRODUCTS {
        return false;
    }
    let kept: Vec<(NodeId, Kept)> = kept.into_iter().map(|(id, tensor)| (id, tensor.to_f64())).collect();
    let find = |id: NodeId| kept.iter().find(|(known, _)| *known == id).map(|(_, kept)| kept);
    let Some(found) = contributions(model, batch.ready.weights(), place, batch.row, &find) else {
        return false;
    };
    let values: Vec<f32> = found.keys.iter().map(|&x| x as f32).collect();
    let matrix = Matrices { values: &values, count: 1, rows: queries, columns: keys };
    attention.pictures.push(matrix.picture_of(shown, PictureOf::Contribution, OTHER_BYTES));
    attention.stream_share = found.stream.map(|shares| F32Array(shares.iter().map(|&x| x as f32).collect()));
    true
}
