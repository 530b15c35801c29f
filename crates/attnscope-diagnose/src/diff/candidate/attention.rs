//! Usual mistakes of attention: masks, the softmax, the scale, heads, keys and values, relative positions.

use std::sync::Arc;

use attnscope_graph::{Factor, KvSharing, MaskKind, Node, NodeId, Normaliser, Op, Stack};
use attnscope_run::{Kept, relative_bucket as bucket, used_buckets};

use super::{CLOSER_IN_HALF, Candidate, SHORTER, Shorten, Steps, of_whole, read, then, with_inputs, with_op};
use crate::diff::lab::{Edit, Extent, Made, Test, Trial};
use crate::diff::relation::Relation;
use crate::diff::variant::OtherBucket;

/// The largest distances with a bucket of their own in common models.
const MAX_DISTANCES: [usize; 8] = [128, 64, 256, 32, 512, 1024, 20, 16];

/// The row of a relative bias table for a query's and a key's position.
type BucketRow = Box<dyn Fn(usize, usize) -> usize>;

/// The order of heads among the features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadLayout {
    /// Neighbouring features belong to neighbouring heads.
    Interleaved,
    /// Cut as [batch, head, length, size] without a transpose.
    NotTransposed,
}

impl HeadLayout {
    const ALL: [Self; 2] = [Self::Interleaved, Self::NotTransposed];

    fn relation(self, at: &'static str) -> Relation {
        match self {
            Self::Interleaved => Relation::InterleavedHeads { at },
            Self::NotTransposed => Relation::HeadsNotTransposed { at },
        }
    }
}

impl<'a> Steps<'_, 'a> {
    /// Another scale, one that is applied twice, keys and values exchanged, half precision.
    pub(super) fn scores(&self, step: usize, scale: Factor, sharing: KvSharing) -> Vec<Candidate<'a>> {
        let mut found = self.factors(step, scale, &|scale| Op::Scores { scale, sharing });
        let sizes = self.judge.formula.sizes();
        if let Some(factor) = scale.value(sizes).filter(|factor| *factor != 1.0) {
            let twice = then(self.node(step), step, move |made| made.map(|_, x, e| (x * factor, e * factor)));
            let known = Some(format!("the scale {} once more: it is applied twice", scale.text(sizes, true)));
            found.push(Candidate::new(Relation::Scale { factor, known }, vec![twice]));
        }
        found.extend(self.queries_and_keys(step));
        found.extend(self.kv_sharings(step, sharing));
        found.extend(self.keys_and_values(step));
        found.extend(self.lower_precision(step));
        found
    }

    /// Keys where queries belong and the other way round; both are as long in self-attention alone.
    fn queries_and_keys(&self, step: usize) -> Option<Candidate<'a>> {
        let node = self.node(step);
        let &[q, k] = node.inputs.as_slice() else { return None };
        let edit = with_inputs(node, step, vec![k, q]);
        let same = self.graph().node(q).dims == self.graph().node(k).dims;
        same.then(|| Candidate::new(Relation::SwappedInputs { tensors: ["q", "k"] }, vec![edit]))
    }

    /// Where the scores are there, what is left is the weighted sum.
    pub(super) fn contexts(&self, step: usize, sharing: KvSharing) -> Vec<Candidate<'a>> {
        match self.beside(step, "scores") {
            // Tried with the scores.
            Some(_) => Vec::new(),
            None => {
                let exchanged = self.keys_and_values(step).into_iter().chain(self.lower_precision(step));
                exchanged.chain(self.kv_sharings(step, sharing)).collect()
            }
        }
    }

    /// Keys where values belong and the other way round, after they were projected.
    fn keys_and_values(&self, step: usize) -> Option<Candidate<'a>> {
        let (k, v) = (self.sibling(step, "k_heads")?, self.sibling(step, "v_heads")?);
        let swapped = |at: usize, new: NodeId| {
            let node = self.node(at);
            let first = *node.inputs.first()?;
            Some(with_inputs(node, at, vec![first, new]))
        };
        let scores = self.beside(step, "scores").and_then(|at| swapped(at, v));
        let context = self.beside(step, "context_heads").and_then(|at| swapped(at, k));
        let edits: Vec<Edit<'a>> = scores.into_iter().chain(context).collect();
        (!edits.is_empty()).then(|| Candidate::new(Relation::SwappedInputs { tensors: ["k", "v"] }, edits))
    }

    /// Half precision inside of this attention alone.
    fn lower_precision(&self, step: usize) -> Vec<Candidate<'a>> {
        let leaves = ["q_heads", "k_heads", "v_heads", "scores", "masked_scores", "weights", "context_heads"];
        let part = self.node(step).path.as_str().rsplit_once('.').map_or("", |(part, _)| part);
        let candidate = |(to, round): (&'static str, Shorten)| {
            let inside = leaves.iter().filter_map(|leaf| self.beside(step, leaf));
            let edits: Vec<Edit<'a>> = inside
                .map(|at| then(self.node(at), at, move |made| made.map(|_, x, e| (round(x), e))))
                .collect();
            let relation = Relation::LowerPrecision { to, part: part.to_owned() };
            Candidate { test: Test::Closer(CLOSER_IN_HALF), step, ..Candidate::new(relation, edits) }
        };
        SHORTER.into_iter().map(candidate).collect()
    }

    /// Every other mask, and a causal one that is off by a position.
    pub(super) fn masks(&self, step: usize, kind: MaskKind) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let same_reach = all.into_iter().map(|(causal, padding)| MaskKind { causal, padding, ..kind });
        // No window, or one that is off by a position, as where the query itself is not counted.
        let reaches = kind.reach.map(|reach| [None, Some(reach + 1), reach.checked_sub(1)]);
        let others = same_reach.chain(reaches.into_iter().flatten().map(|reach| MaskKind { reach, ..kind }));
        let mut found: Vec<Candidate<'a>> = others
            .filter(|other| *other != kind)
            .map(|other| {
                Candidate::new(mask_relation(kind, other), vec![with_op(node, step, Op::Mask(other))])
            })
            .collect();
        for by in if kind.causal { &[1i64, -1][..] } else { &[] } {
            let offset = self.causal_offset(step, kind, *by);
            // Without its own position the first query has nothing to see, and programs differ in what they make of that.
            let from = usize::from(*by < 0);
            let candidate = Candidate::new(Relation::CausalOffset { by: *by }, vec![offset]);
            found.push(Candidate { test: Test::Equal { from }, ..candidate });
        }
        found
    }

    /// The mask without its causal part, which is put in again from another diagonal.
    fn causal_offset(&self, step: usize, kind: MaskKind, by: i64) -> Edit<'a> {
        self.causal_by(step, kind, move |query, key| key as i64 <= query as i64 + by)
    }

    /// The mask without its causal part, in whose place a key is seen where `sees` says so, by query and key.
    pub(super) fn causal_by(
        &self,
        step: usize,
        kind: MaskKind,
        sees: impl Fn(usize, usize) -> bool + 'a,
    ) -> Edit<'a> {
        let padding = Node { op: Op::Mask(MaskKind { causal: false, ..kind }), ..self.node(step).clone() };
        Edit {
            step,
            make: Box::new(move |trial, extent| {
                let Some(open) = trial.computed(&padding, None, Extent::Whole)? else {
                    return Ok(None);
                };
                let [.., queries, keys] = open.kept.shape[..] else { return Ok(None) };
                let moved = open.map(|i, x, e| {
                    (if sees(i / keys % queries, i % keys) { x } else { f64::NEG_INFINITY }, e)
                });
                Ok(Some(trial.cut(moved, extent)))
            }),
        }
    }

    /// Scores without their relative bias, without their mask, or multiplied by it.
    pub(super) fn mask_sums(&self, step: usize) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let without = |is: &dyn Fn(Op) -> bool| {
            let place = node.inputs.iter().position(|id| is(self.graph().node(*id).op))?;
            let mut inputs = node.inputs.clone();
            let left_out = inputs.remove(place);
            Some((self.graph().node(left_out).op, with_inputs(node, step, inputs)))
        };
        let bias = without(&|op| matches!(op, Op::RelativeBias { .. }))
            .map(|(_, edit)| Candidate::new(Relation::BiasNotAdded, vec![edit]));
        // A mask that was not dumped is a step of its own, and is tried there.
        let own_step = self.beside(step, "mask").is_some();
        let mask = without(&|op| matches!(op, Op::Mask(_)) && !own_step).and_then(|(op, edit)| {
            let Op::Mask(kind) = op else { return None };
            let none = MaskKind { causal: false, padding: false, reach: None, ..kind };
            Some(Candidate::new(mask_relation(kind, none), vec![edit]))
        });
        bias.into_iter().chain(mask).chain(self.mask_multiplied(step)).collect()
    }

    /// Masked scores times 0, where −∞ is to be added.
    fn mask_multiplied(&self, step: usize) -> Option<Candidate<'a>> {
        let edit = self.zero_masked(step, self.node(step), |scores, _, _| Some(scores))?;
        Some(Candidate::new(Relation::MaskMultiplied, vec![edit]))
    }

    /// A step as what is made of scores without their mask, with 0 where the mask hides a key.
    fn zero_masked(
        &self,
        step: usize,
        sum: &Node,
        of_scores: impl Fn(Made, &Trial<'_, '_, '_>, Extent) -> Option<Made> + 'a,
    ) -> Option<Edit<'a>> {
        let (bare, mask) = self.without_mask(sum)?;
        let make = Box::new(move |trial: &Trial<'_, '_, '_>, extent| {
            let (Some(scores), Some(mask)) =
                (trial.computed(&bare, None, extent)?, read(trial, mask, extent)?)
            else {
                return Ok(None);
            };
            Ok(of_scores(scores, trial, extent).and_then(|made| zero_where_masked(made, &mask)))
        });
        Some(Edit { step, make })
    }

    /// The sum of scores and mask without the mask, and the mask.
    fn without_mask(&self, sum: &Node) -> Option<(Node, NodeId)> {
        let mut bare = sum.clone();
        let is_mask = |id: &NodeId| matches!(self.graph().node(*id).op, Op::Mask(_));
        let mask = bare.inputs.remove(bare.inputs.iter().position(is_mask)?);
        Some((bare, mask))
    }

    /// Another function from scores to weights, another axis, a mask that comes too late.
    pub(super) fn normalisers(&self, step: usize) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let mut found: Vec<Candidate<'a>> = [Normaliser::Sigmoid, Normaliser::Softmax]
            .into_iter()
            .filter(|normaliser| node.op != Op::Normalise(*normaliser))
            .map(|normaliser| {
                Candidate::new(
                    Relation::OtherNormaliser { normaliser },
                    vec![with_op(node, step, Op::Normalise(normaliser))],
                )
            })
            .collect();
        found.extend(self.mask_after(step));
        let Some(&scores) = node.inputs.first() else { return found };
        for (axis, name) in [(2, "queries"), (1, "heads")] {
            let edit = of_whole(scores, step, move |made| softmax_along(&made, axis));
            let candidate = Candidate::new(Relation::SoftmaxAxis { axis: name }, vec![edit]);
            found.push(Candidate { costly: true, ..candidate });
        }
        found
    }

    /// The softmax over all keys, of which the masked ones are then set to 0: the rows do not sum to 1.
    fn mask_after(&self, step: usize) -> Option<Candidate<'a>> {
        let node = self.node(step).clone();
        let sum = self.graph().node(*node.inputs.first()?);
        let edit = self.zero_masked(step, sum, move |scores, trial, extent| {
            trial.lab.evaluate(&node, &[scores], None, extent)
        })?;
        Some(Candidate::new(Relation::MaskAfterSoftmax, vec![edit]))
    }

    /// Heads that are cut out of the features, or put together, in another order: for the whole attention where its heads
    /// were not dumped.
    pub(super) fn head_layouts(&self, step: usize, stack: Stack) -> Vec<Candidate<'a>> {
        let merge = |how: HeadLayout| {
            let input = *self.node(step).inputs.first()?;
            Some(of_whole(input, step, move |made| merged(&made, how)))
        };
        let split: Vec<usize> =
            ["q_heads", "k_heads", "v_heads"].iter().filter_map(|leaf| self.beside(step, leaf)).collect();
        let splits = |how: HeadLayout| split.iter().filter_map(move |&at| self.split(at, stack, how));
        let mut found = Vec::new();
        for how in HeadLayout::ALL {
            let ways = [
                ("merge", merge(how).into_iter().collect::<Vec<_>>()),
                ("split", splits(how).collect()),
                ("both", splits(how).chain(merge(how)).collect()),
            ];
            for (at, edits) in ways {
                // Without a step that is split differently, "both" is the merge alone.
                if !edits.is_empty() && (at == "merge" || !split.is_empty()) {
                    let candidate = Candidate::new(how.relation(at), edits);
                    found.push(Candidate { step, costly: true, ..candidate });
                }
            }
        }
        found
    }

    /// Where the merged heads are not on the way, one that is split differently.
    pub(super) fn split_layouts(&self, step: usize, stack: Stack) -> Vec<Candidate<'a>> {
        if self.beside(step, "context").is_some() {
            return Vec::new();
        }
        let candidate = |how: HeadLayout| {
            Some(Candidate::new(how.relation("split"), vec![self.split(step, stack, how)?]))
        };
        HeadLayout::ALL.into_iter().filter_map(candidate).collect()
    }

    fn split(&self, step: usize, stack: Stack, how: HeadLayout) -> Option<Edit<'a>> {
        let input = *self.node(step).inputs.first()?;
        let heads = self.judge.formula.sizes().get(attnscope_graph::Dim::Heads(stack))?;
        Some(of_whole(input, step, move |made| split_heads(&made, heads, how)))
    }

    /// Another bucket for a distance.
    pub(super) fn buckets(
        &self,
        step: usize,
        stack: Stack,
        buckets: usize,
        max_distance: usize,
    ) -> Vec<Candidate<'a>> {
        let node = self.node(step);
        let Some(own) = self.judge.weights_of(node) else { return Vec::new() };
        let (Some(table), Some(shape)) = (own.first(), self.judge.formula.sizes().shape(&node.dims)) else {
            return Vec::new();
        };
        let [_, heads, queries, keys] = shape[..] else { return Vec::new() };
        let rows = used_buckets(buckets, table.len() / heads.max(1));
        let table: Arc<[f32]> = (*table).into();
        let mut found = Vec::new();
        let mut add = |how: OtherBucket, row: BucketRow| {
            let (table, shape) = (table.clone(), shape.clone());
            // Made when it is tried: the tensor is as large as the scores.
            let make = move |trial: &Trial<'_, '_, '_>, extent: Extent| {
                let value = |i: usize| {
                    let (h, t, s) = (i / (queries * keys), i / keys % queries, i % keys);
                    f64::from(table[row(t, s).min(rows.saturating_sub(1)) * heads + h])
                };
                let values = (0..heads * queries * keys).map(value).collect();
                let made = Made::exact(Arc::new(Kept { shape: shape.clone(), values }));
                Ok(Some(trial.cut(made, extent)))
            };
            let edit = Edit { step, make: Box::new(make) };
            found.push(Candidate::new(Relation::OtherBucket { how }, vec![edit]));
        };
        let other = if stack == Stack::Encoder { Stack::Decoder } else { Stack::Encoder };
        let direction =
            if stack == Stack::Encoder { OtherBucket::OneDirection } else { OtherBucket::BothDirections };
        let own = move |t: usize, s: usize| bucket(stack, t, s, rows, max_distance);
        add(direction, Box::new(move |t, s| bucket(other, t, s, rows, max_distance)));
        add(OtherBucket::Negated, Box::new(move |t, s| own(s, t)));
        add(OtherBucket::Distance(1), Box::new(move |t, s| own(t, s + 1)));
        add(OtherBucket::Distance(-1), Box::new(move |t, s| own(t + 1, s)));
        add(OtherBucket::Row(1), Box::new(move |t, s| own(t, s) + 1));
        add(OtherBucket::Row(-1), Box::new(move |t, s| own(t, s).saturating_sub(1)));
        for max in MAX_DISTANCES.into_iter().filter(|max| *max != max_distance) {
            add(OtherBucket::MaxDistance(max), Box::new(move |t, s| bucket(stack, t, s, rows, max)));
        }
        found
    }
}

/// In words: what is not hidden, or too much.
fn mask_relation(expected: MaskKind, found: MaskKind) -> Relation {
    let later = expected.causal && !found.causal;
    let far = expected.reach.is_some_and(|reach| found.reach.is_none_or(|found| found > reach));
    let pads = expected.padding && !found.padding;
    let open: Vec<String> = [
        later.then(|| "later positions".to_owned()),
        far.then(|| "positions outside the window".to_owned()),
        pads.then(|| format!("the {}'s padding", expected.keys.word())),
    ]
    .into_iter()
    .flatten()
    .collect();
    match open.is_empty() {
        true => Relation::MaskTooWide { mask: found.to_string() },
        false => Relation::MaskNotApplied { which: open.join(" and ") },
    }
}

/// [batch, head, query, key] with 0 where a mask, [batch, 1, query, key], hides a key.
fn zero_where_masked(made: Made, mask: &Made) -> Option<Made> {
    let [_, heads, queries, keys] = made.kept.shape[..] else { return None };
    let batch = mask.kept.shape.first().copied().unwrap_or(1).max(1);
    let cell = queries * keys;
    Some(made.map(|i, x, e| {
        let of_mask = i / (heads * cell).max(1) % batch * cell + i % cell.max(1);
        let masked = mask.kept.values.get(of_mask).is_some_and(|x| *x == f64::NEG_INFINITY);
        if masked { (0.0, 0.0) } else { (x, e) }
    }))
}

/// The softmax along another axis of [batch, head, query, key].
fn softmax_along(made: &Made, axis: usize) -> Option<Made> {
    let shape = &made.kept.shape;
    let length = *shape.get(axis)?;
    let stride: usize = shape.get(axis + 1..)?.iter().product();
    let (mut values, mut error) = (vec![0.0; made.kept.values.len()], vec![0.0; made.kept.values.len()]);
    for start in (0..values.len()).filter(|i| (i / stride).is_multiple_of(length)) {
        let cells = || (0..length).map(|n| start + n * stride);
        let at = |i: usize| made.kept.values[i];
        let most = cells().map(at).fold(f64::NEG_INFINITY, f64::max);
        if most == f64::NEG_INFINITY {
            continue;
        }
        let sum: f64 = cells().map(|i| (at(i) - most).exp()).sum();
        // An error of the scores is one of the exponentials, above and below the line; beside it a few roundings.
        let largest = cells().map(|i| made.error.at(i)).filter(|e| e.is_finite()).fold(0.0, f64::max);
        let unit = f64::from(f32::EPSILON) * (8.0 + length as f64 + most.abs());
        for i in cells() {
            values[i] = (at(i) - most).exp() / sum;
            error[i] = values[i] * (2.0 * largest + unit) + f64::from(f32::MIN_POSITIVE);
        }
    }
    Some(Made::new(Kept { shape: shape.clone(), values }, error))
}

/// [batch, length, heads · size] cut into [batch, head, length, size].
fn split_heads(made: &Made, heads: usize, how: HeadLayout) -> Option<Made> {
    let [batch, length, width] = made.kept.shape[..] else { return None };
    let size = width / heads.max(1);
    let from = move |i: usize| {
        let (b, h, l, k) =
            (i / (heads * length * size), i / (length * size) % heads, i / size % length, i % size);
        match how {
            HeadLayout::Interleaved => (b * length + l) * width + k * heads + h,
            HeadLayout::NotTransposed => i,
        }
    };
    Some(moved(made, vec![batch, heads, length, size], from))
}

/// [batch, head, length, size] put together to [batch, length, heads · size].
fn merged(made: &Made, how: HeadLayout) -> Option<Made> {
    let [batch, heads, length, size] = made.kept.shape[..] else { return None };
    let width = heads * size;
    let from = move |i: usize| {
        let (b, l, at) = (i / (length * width), i / width % length, i % width);
        match how {
            HeadLayout::Interleaved => ((b * heads + at % heads) * length + l) * size + at / heads,
            HeadLayout::NotTransposed => i,
        }
    };
    Some(moved(made, vec![batch, length, width], from))
}

fn moved(made: &Made, shape: Vec<usize>, from: impl Fn(usize) -> usize) -> Made {
    let cells = 0..made.kept.values.len();
    let (values, error) = cells.map(|i| (made.kept.values[from(i)], made.error.at(from(i)))).unzip();
    Made::new(Kept { shape, values }, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_cut_and_put_together_in_other_orders() {
        // Two positions of two heads of two features.
        let values = (0..8).map(f64::from).collect();
        let made = Made::exact(Arc::new(Kept { shape: vec![1, 2, 4], values }));
        let split = |how| split_heads(&made, 2, how).map(|made| made.kept.values.clone());
        assert_eq!(split(HeadLayout::Interleaved), Some(vec![0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0]));
        assert_eq!(split(HeadLayout::NotTransposed), Some((0..8).map(f64::from).collect()));
        for how in HeadLayout::ALL {
            let again = split_heads(&made, 2, how).and_then(|made| merged(&made, how));
            assert_eq!(again.map(|made| made.kept.values.clone()), Some(made.kept.values.clone()), "{how:?}");
        }
    }
}
