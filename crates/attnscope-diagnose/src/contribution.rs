//! What each token contributes to an attention's output, measured by norms: ALTI (Ferrando et al. 2022), with norm layers taken
//! as they are and feed-forward layers as acting on each position alone; and from it how much of the decoder's final state comes
//! from the source.

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
        let &[batch, _, queries, _] = &kept.get(&self.weights)?.shape[..] else { return None };
        let mut mixed = Vec::with_capacity(batch * queries);
        for row in 0..batch {
            let before = &shares[row * queries..][..queries];
            let share = |query: usize, parts: Parts| mixed.push(parts.source_share(before, query, is_cross));
            self.each_query(&|id| kept.get(&id), weights, row, is_cross, share)?;
        }
        Some(mixed)
    }

    /// The parts of each query of one row of the batch, in order.
    fn each_query<'k>(
        &self,
        kept: &dyn Fn(NodeId) -> Option<&'k Kept>,
        weights: &Weights,
        row: usize,
        is_cross: bool,
        mut give: impl FnMut(usize, Parts),
    ) -> Option<()> {
        let (stream, attention, values) = (kept(self.stream)?, kept(self.weights)?, kept(self.values)?);
        let (&[_, heads, queries, keys], &[_, value_heads, _, size], &[.., width]) =
            (&attention.shape[..], &values.shape[..], &stream.shape[..])
        else {
            return None;
        };
        // Where it cannot be read, no run of the model succeeds, and each says why.
        let out = weights.get(self.out).ok()?;
        let values = values.values.get(row * value_heads * keys * size..)?;
        let added = project(values, &out, [heads, value_heads, keys, size, width]);
        for query in 0..queries {
            let own = stream.values.get((row * queries + query) * width..)?.get(..width)?;
            let key = |key: usize| -> Vec<f64> {
                let weight = |head: usize| {
                    self.gain * attention.values[((row * heads + head) * queries + query) * keys + key]
                };
                let mut sum = vec![0.0; width];
                for head in 0..heads {
                    let part = &added[(head * keys + key) * width..][..width];
                    sum.iter_mut().zip(part).for_each(|(s, x)| *s += weight(head) * x);
                }
                sum
            };
            let added: Vec<Vec<f64>> = (0..keys).map(key).collect();
            give(query, Parts::of(own, &added, query, is_cross));
        }
        Some(())
    }
}

/// What each key of an attention contributes to each position that reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Contributions {
    /// Shares of the sum after the attention, [query, key]. In self-attention the share of a position's own key is that of the
    /// stream and of the key together.
    pub keys: Vec<f64>,
    /// In cross-attention: the share of the stream that the attention's output is added to, for each query.
    pub stream: Option<Vec<f64>>,
}

/// The contributions of an attention of one row of a batch, from the tensors of a run. `None` where the model does not add the
/// attention's output to a stream, or a tensor is not there.
pub fn contributions<'k>(
    model: &Model,
    weights: &Weights,
    place: AttentionPlace,
    row: usize,
    kept: &dyn Fn(NodeId) -> Option<&'k Kept>,
) -> Option<Contributions> {
    let is_cross = place.kind == AttentionKind::CrossAttention;
    let (mut keys, mut stream) = (Vec::new(), Vec::new());
    Sublayer::find(model, place)?.each_query(kept, weights, row, is_cross, |query, parts| {
        let total = parts.total();
        let share = |part: f64| if total > 0.0 { part / total } else { 0.0 };
        let begin = keys.len();
        keys.extend(parts.keys.iter().map(|&part| share(part)));
        match keys.get_mut(begin + query) {
            Some(own) if !is_cross => *own = share(parts.stay),
            _ => stream.push(share(parts.stay)),
        }
    })?;
    Some(Contributions { keys, stream: is_cross.then_some(stream) })
}

/// The tensors that the contributions of an attention are computed from.
pub fn contributions_need(model: &Model, place: AttentionPlace) -> Vec<NodeId> {
    let nodes = |sublayer: Sublayer| vec![sublayer.stream, sublayer.weights, sublayer.values];
    Sublayer::find(model, place).map(nodes).unwrap_or_default()
}

/// What each key of each head would add to the stream with weight 1, [head, key, width]. Heads may share values.
fn project(values: &[f64], out: &[f32], [heads, value_heads, keys, size, width]: [usize; 5]) -> Vec<f64> {
    let mut added = vec![0.0; heads * keys * width];
    for (n, row) in added.chunks_mut(width.max(1)).enumerate() {
        let (head, key) = (n / keys.max(1), n % keys.max(1));
        let value = &values[(head * value_heads / heads.max(1) * keys + key) * size..][..size];
        for (d, cell) in row.iter_mut().enumerate() {
            let weights = &out[d * heads * size + head * size..][..size];
            *cell = value.iter().zip(weights).map(|(v, &w)| v * f64::from(w)).sum();
        }
    }
    added
}

/// The parts of a sum, each by how much the sum would shrink without it.
struct Parts {
    /// The stream itself, and in self-attention what the position adds to itself.
    stay: f64,
    /// Each key; in self-attention the position's own is 0, because it is part of what stays.
    keys: Vec<f64>,
}

impl Parts {
    fn of(own: &[f64], added: &[Vec<f64>], query: usize, is_cross: bool) -> Self {
        let mut sum = own.to_vec();
        for part in added {
            sum.iter_mut().zip(part).for_each(|(s, x)| *s += x);
        }
        let norm: f64 = sum.iter().map(|x| x.abs()).sum();
        let without = |part: &[f64]| -> f64 { sum.iter().zip(part).map(|(s, x)| (s - x).abs()).sum() };
        let weight = |part: &[f64]| (norm - without(part)).max(0.0);
        let stay = match (is_cross, added.get(query)) {
            (false, Some(part)) => own.iter().zip(part).map(|(a, b)| a + b).collect(),
            _ => own.to_vec(),
        };
        let key = |(k, part): (usize, &Vec<f64>)| if is_cross || k != query { weight(part) } else { 0.0 };
        Self { stay: weight(&stay), keys: added.iter().enumerate().map(key).collect() }
    }

    fn total(&self) -> f64 {
        self.stay + self.keys.iter().sum::<f64>()
    }

    /// The source's share of the sum: of a cross-attention's keys all, of other parts what they had before.
    fn source_share(&self, before: &[f64], query: usize, is_cross: bool) -> f64 {
        let of_key = |k: usize| if is_cross { 1.0 } else { before.get(k).copied().unwrap_or(0.0) };
        let keys: f64 = self.keys.iter().enumerate().map(|(k, part)| part * of_key(k)).sum();
        let total = self.total();
        if total > 0.0 { (self.stay * before[query] + keys) / total } else { before[query] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_by_what_they_add() {
        let share = |own: &[f64], added: &[Vec<f64>], before: &[f64], query, is_cross| {
            Parts::of(own, added, query, is_cross).source_share(before, query, is_cross)
        };
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
        assert_eq!(project(&[1.0, 2.0], &[1.0, 1.0, 0.0, 3.0], [1, 1, 1, 2, 2]), [3.0, 6.0]);
    }
}
