//! One attention: from what it reads to its output projection.

use super::Builder;
use crate::dim::{Dim, Side, Stack};
use crate::graph::{NodeId, WeightId};
use crate::op::{Capped, Factor, MaskKind, Op};
use crate::role::{AttentionKind, AttentionPlace, AttentionStep};
use crate::rotary::RotaryScaling;
use crate::wiring::{Positions, ScoreScale, Switch};

/// Which attention of a layer, and what it may see.
#[derive(Clone, Copy)]
pub(super) struct Attention {
    pub(super) place: AttentionPlace,
    pub(super) keys: Side,
    pub(super) causal: bool,
}

impl Builder<'_> {
    /// Queries from `x`, keys and values from `memory`: the same node for self-attention.
    pub(super) fn attention(&mut self, attention: Attention, x: NodeId, memory: NodeId) -> NodeId {
        use AttentionStep::{
            Context, ContextHeads, K, KHeads, KNorm, KRot, Out, Q, QHeads, QNorm, QRot, V, VHeads, Weights,
        };
        let place = attention.place;
        let (stack, biases) = (place.stack, self.wiring.biases);
        let inner = Dim::Inner(stack);
        let shared = if self.wiring.kv_heads.is_some() { Dim::KvInner(stack) } else { inner };
        let norms = self.wiring.query_key_norm;
        let heads = |b: &mut Self, [projection, split]: [AttentionStep; 2], norm, width, from, bias| {
            let mut x = b.linear(place.step(projection), from, [width, Dim::Model], bias);
            if let Some(norm) = norm {
                x = b.norm_of_width(place.step(norm), x, Dim::Head(stack));
            }
            b.graph.add(place.step(split), Op::SplitHeads(stack), &[x], &[])
        };
        let q = heads(self, [Q, QHeads], norms.then_some(QNorm), inner, x, biases.q);
        let k = heads(self, [K, KHeads], norms.then_some(KNorm), shared, memory, biases.k);
        let v = heads(self, [V, VHeads], None, shared, memory, biases.v);
        let (q, k) = (self.rotated(place, QRot, q), self.rotated(place, KRot, k));
        let masked = self.masked_scores(attention, q, k);
        let sharing = self.wiring.kv_sharing;
        let normaliser = Op::Normalise(self.wiring.normaliser);
        let weights = self.graph.add(place.step(Weights), normaliser, &[masked], &[]);
        let context = self.graph.add(place.step(ContextHeads), Op::Context { sharing }, &[weights, v], &[]);
        let merged = self.graph.add(place.step(Context), Op::MergeHeads(stack), &[context], &[]);
        self.linear(place.step(Out), merged, [Dim::Model, inner], biases.attn_out)
    }

    /// Queries or keys after rotary positions, which only self-attention has.
    fn rotated(&mut self, place: AttentionPlace, step: AttentionStep, x: NodeId) -> NodeId {
        let side = place.stack.side();
        let has_rotary = self.wiring.positions(side) == Positions::Rotary;
        if !has_rotary || place.kind != AttentionKind::SelfAttention {
            return x;
        }
        let rotary = self.wiring.rotary_of(place.layer);
        // One list for all layers of a stack, or one of short and one of long texts.
        let lists: &[AttentionStep] = match rotary.scaling {
            Some(RotaryScaling::StoredLongrope { .. }) => &[AttentionStep::QRot, AttentionStep::KRot],
            _ if self.wiring.rotary_factors => &[AttentionStep::QRot],
            _ => &[],
        };
        let list = |owner: &AttentionStep| {
            let owner = AttentionPlace { layer: 0, ..place }.step(*owner);
            self.graph.add_weight(owner.weight(), vec![Dim::RotaryPairs(place.stack)])
        };
        let factors: Vec<WeightId> = lists.iter().map(list).collect();
        self.graph.add(place.step(step), Op::Rotate { side, rotary }, &[x], &factors)
    }

    /// scores, capped where there is a cap, (+ bias) (+ mask): a bias or a mask that the model lacks has no node.
    fn masked_scores(&mut self, attention: Attention, q: NodeId, k: NodeId) -> NodeId {
        let Attention { place, keys, causal } = attention;
        let AttentionPlace { stack, kind, .. } = place;
        let scale = match self.wiring.score_scale {
            ScoreScale::DHead => match self.wiring.score_width {
                Some(width) => Factor::RsqrtOf(width),
                None => Factor::Rsqrt(Dim::Head(stack)),
            },
            ScoreScale::DModel => Factor::Rsqrt(Dim::Model),
            ScoreScale::None => Factor::One,
        };
        let product = Op::Scores { scale, sharing: self.wiring.kv_sharing };
        let scores = self.graph.add(place.step(AttentionStep::Scores), product, &[q, k], &[]);
        let mut sum = vec![match self.wiring.score_cap {
            Some(cap) => {
                let op = Op::SoftCap { cap, of: Capped::Scores };
                self.graph.add(place.step(AttentionStep::CappedScores), op, &[scores], &[])
            }
            None => scores,
        }];
        let has_bias = self.wiring.relative_bias && kind == AttentionKind::SelfAttention;
        if has_bias {
            // One table per stack, which its first layer owns and all layers use; or one per layer.
            let layer = if self.wiring.relative_bias_per_layer { place.layer } else { 0 };
            let owner = AttentionPlace { layer, ..place }.step(AttentionStep::Bias);
            let dims = vec![Dim::Buckets(stack), Dim::Heads(stack)];
            let table = self.graph.add_weight(owner.weight(), dims);
            let (buckets, max_distance) = (self.wiring.relative_buckets, self.wiring.relative_max_distance);
            let op = Op::RelativeBias { stack, buckets, max_distance };
            sum.push(self.graph.add(place.step(AttentionStep::Bias), op, &[], &[table]));
        }
        let is_cross = kind == AttentionKind::CrossAttention;
        let mask = MaskKind {
            queries: stack.side(),
            keys,
            causal: causal && (is_cross || self.wiring.causal_mask == Switch::On),
            padding: self.wiring.padding_mask == Switch::On,
            reach: self.window(place).map(|window| match causal {
                // A query sees itself and those before it.
                true => window.saturating_sub(1),
                // Half of the window lies on each side.
                false => window / 2,
            }),
        };
        if mask.masks() {
            sum.push(self.graph.add(place.step(AttentionStep::Mask), Op::Mask(mask), &[], &[]));
        }
        let op = Op::AddMask { bias: has_bias, mask: mask.masks() };
        self.graph.add(place.step(AttentionStep::MaskedScores), op, &sum, &[])
    }

    /// The window of an attention. Decoders that read an encoder have none.
    fn window(&self, place: AttentionPlace) -> Option<usize> {
        let is_cross = place.kind == AttentionKind::CrossAttention;
        let reads_encoder = place.stack == Stack::Decoder && self.architecture.has(Stack::Encoder);
        self.wiring.window_of(place.layer).filter(|_| !is_cross && !reads_encoder)
    }
}
