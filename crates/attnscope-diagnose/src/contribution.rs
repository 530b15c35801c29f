//! How much of the decoder's final state comes from the source, measured by the norms of each token's contribution: ALTI
//! (Ferrando et al. 2022), with norm layers taken as they are and feed-forward layers as acting on each position alone.

use std::collections::BTreeMap;

use attnscope_graph::{AttentionKind, AttentionPlace, AttentionStep, Model, NodeId, Op, Side, Stack};
use attnscope_run::{Capture, CheckedInput, Input, Kept, Prepared, RunError, Weights};

/// The source's share, from 0 to 1, the mean over target tokens. `None` where there is nothing to measure.
pub(crate) fn source_contribution(prepared: &dyn Prepared, input: &Input) -> Result<Option<f64>, RunError> {
    let model = prepared.model();
    let graph = &model.graph;
    let mut wanted = Vec::new();
    let mut sublayers = Vec::new();
    for layer in 0..graph.layers(Stack::Decoder) {
        for kind in [AttentionKind::SelfAttention, AttentionKind::CrossAttention] {
            let place = AttentionPlace { stack: Stack::Decoder, layer, kind };
            let Some(sublayer) = Sublayer::find(model, place) else { return Ok(None) };
            wanted.extend([sublayer.stream, sublayer.weights, sublayer.values]);
            sublayers.push((kind == AttentionKind::CrossAttention, sublayer));
        }
    }
    let Some(target) = input.rows(Side::Target) else { return Ok(None) };
    let mut keep = Capture::new(|id| wanted.contains(&id));
    prepared.run(&CheckedInput::new(model, input.clone())?, &mut keep)?;
    let kept: BTreeMap<NodeId, Kept> =
        keep.tensors.iter().map(|(&id, tensor)| (id, tensor.to_f64())).collect();
    // [batch, target]
    let mut shares = vec![0.0; target.batch() * target.length()];
    for (is_cross, sublayer) in &sublayers {
        let Some(mixed) = sublayer.mix(&kept, prepared.weights(), &shares, *is_cross) else {
            return Ok(None);
        };
        shares = mixed;
    }
    let open: Vec<f64> =
        shares.iter().zip(target.open()).filter(|(_, open)| **open).map(|(s, _)| *s).collect();
    Ok((!open.is_empty()).then(|| open.iter().sum::<f64>() / open.len() as f64))
}

/// The nodes of one attention of the decoder.
struct Sublayer {
    /// What its output is added to, [batch, target, width].
    stream: NodeId,
    /// [batch, head, target, key]
    weights: NodeId,
    /// [batch, head, key, size]
    values: NodeId,
    out: attnscope_graph::WeightId,
    gain: f64,
}

impl Sublayer {
    fn find(model: &Model, place: AttentionPlace) -> Option<Self> {
        let graph = &model.graph;
        let residual = graph.node(graph.at(place.step(AttentionStep::Residual))?);
        let Op::Residual { gain } = residual.op else { return None };
        Some(Self {
            stream: *residual.inputs.first()?,
            weights: graph.at(place.step(AttentionStep::Weights))?,
            values: graph.at(place.step(AttentionStep::VHeads))?,
            out: *graph.node(graph.at(place.step(AttentionStep::Out))?).weights.first()?,
            gain: f64::from(gain),
        })
    }

    /// The source's share of every target position after the sublayer, from the shares before it.
    fn mix(
        &self,
        kept: &BTreeMap<NodeId, Kept>,
        weights: &Weights,
        shares: &[f64],
        is_cross: bool,
    ) -> Option<Vec<f64>> {
        let (stream, attention, values) =
            (kept.get(&self.stream)?, kept.get(&self.weights)?, kept.get(&self.values)?);
        let (&[batch, heads, queries, keys], &[.., size], &[.., width]) =
            (&attention.shape[..], &values.shape[..], &stream.shape[..])
        else {
            return None;
        };
        let out = weights.get(self.out);
        let mut mixed = Vec::with_capacity(batch * queries);
        for b in 0..batch {
            let added = project(&values.values[b * heads * keys * size..], &out, [heads, keys, size, width]);
            for q in 0..queries {
                let own = &stream.values[(b * queries + q) * width..][..width];
                let key = |k: usize| -> Vec<f64> {
                    let weight =
                        |h: usize| self.gain * attention.values[((b * heads + h) * queries + q) * keys + k];
                    let mut sum = vec![0.0; width];
                    for h in 0..heads {
                        let part = &added[(h * keys + k) * width..][..width];
                        sum.iter_mut().zip(part).for_each(|(s, x)| *s += weight(h) * x);
                    }
                    sum
                };
                let parts: Vec<Vec<f64>> = (0..keys).map(key).collect();
                let before = &shares[b * queries..][..queries];
                mixed.push(share(own, &parts, before, q, is_cross));
            }
        }
        Some(mixed)
    }
}

/// What each key of each head would add to the stream with weight 1, [head, key, width].
fn project(values: &[f64], out: &[f32], [heads, keys, size, width]: [usize; 4]) -> Vec<f64> {
    let mut added = vec![0.0; heads * keys * width];
    for (n, row) in added.chunks_mut(width.max(1)).enumerate() {
        let head = n / keys.max(1);
        let value = &values[n * size..][..size];
        for (d, cell) in row.iter_mut().enumerate() {
            let weights = &out[d * heads * size + head * size..][..size];
            *cell = value.iter().zip(weights).map(|(v, &w)| v * f64::from(w)).sum();
        }
    }
    added
}

/// The source's share of one position: each part counts by how much the sum would shrink without it.
fn share(own: &[f64], parts: &[Vec<f64>], before: &[f64], query: usize, is_cross: bool) -> f64 {
    let mut sum = own.to_vec();
    for part in parts {
        sum.iter_mut().zip(part).for_each(|(s, x)| *s += x);
    }
    let norm: f64 = sum.iter().map(|x| x.abs()).sum();
    let without = |part: &[f64]| -> f64 { sum.iter().zip(part).map(|(s, x)| (s - x).abs()).sum() };
    let weight = |part: &[f64]| (norm - without(part)).max(0.0);
    // The stream itself, and in self-attention what the position adds to itself.
    let stay = match (is_cross, parts.get(query)) {
        (false, Some(part)) => own.iter().zip(part).map(|(a, b)| a + b).collect(),
        _ => own.to_vec(),
    };
    let (mut total, mut source) = (weight(&stay), 0.0);
    source += total * before[query];
    for (k, part) in parts.iter().enumerate().filter(|(k, _)| is_cross || *k != query) {
        let part = weight(part);
        total += part;
        source += part * if is_cross { 1.0 } else { before.get(k).copied().unwrap_or(0.0) };
    }
    if total > 0.0 { source / total } else { before[query] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_by_what_they_add() {
        // The stream and one source token add the same: half comes from the source.
        assert!((share(&[1.0, 0.0], &[vec![0.0, 1.0]], &[0.0], 0, true) - 0.5).abs() < 1e-12);
        // A source token that adds nothing has a share of 0.
        assert_eq!(share(&[1.0, 0.0], &[vec![0.0, 0.0]], &[0.0], 0, true), 0.0);
        // In self-attention a share is passed on from the attended position.
        let parts = [vec![0.0, 1.0], vec![0.0, 0.0]];
        assert!((share(&[1.0, 0.0], &parts, &[1.0, 0.0], 1, false) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn values_go_through_the_output_projection() {
        // One head, one key of size 2, a stream of width 2.
        assert_eq!(project(&[1.0, 2.0], &[1.0, 1.0, 0.0, 3.0], [1, 1, 2, 2]), [3.0, 6.0]);
    }
}
