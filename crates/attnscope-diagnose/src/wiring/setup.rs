//! Everything about a model that a hypothesis can change, and the model under it.

use std::sync::Arc;

use attnscope_graph::{Dim, Model, RotaryPairs, Side, Stack, Switch, Wiring, build};
use attnscope_run::{Prepared, Shift};
use serde_json::{Value, json};

use super::edit::{WiringEdit, whole};
use crate::corpus::Corpus;
use crate::score::{Candidate, Padding};

/// Everything about a model that an edit can change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    pub(crate) wiring: Wiring,
    /// Heads of the encoder and of the decoder.
    pub(super) heads: [usize; 2],
    pub(super) shift: Shift,
    pub(crate) padding: Padding,
}

impl Setup {
    pub(crate) fn declared(model: &Model, shift: &Shift) -> Self {
        Self {
            wiring: model.wiring,
            heads: Stack::ALL.map(|stack| model.sizes.get(Dim::Heads(stack)).unwrap_or(0)),
            shift: shift.clone(),
            padding: Padding::None,
        }
    }

    /// The family's defaults.
    pub(crate) fn usual(model: &Model, shift: &Shift) -> Self {
        Self { wiring: model.family.wiring, ..Self::declared(model, shift) }
    }

    /// The heads of a stack.
    pub(super) fn heads_of(&self, stack: Stack) -> usize {
        let [encoder, decoder] = self.heads;
        match stack {
            Stack::Encoder => encoder,
            Stack::Decoder => decoder,
        }
    }

    /// The same with rows padded in another way.
    pub(crate) fn padded(&self, padding: Padding) -> Self {
        Self { padding, ..self.clone() }
    }

    /// What a field holds, as JSON.
    pub(crate) fn get(&self, field: &str) -> Value {
        let [encoder, decoder] = self.heads;
        match (field, &self.shift) {
            ("heads", _) if encoder == decoder => json!(encoder),
            ("heads", _) => json!(self.heads),
            ("encoder_heads", _) => json!(encoder),
            ("decoder_heads", _) => json!(decoder),
            ("start_token", Shift::Start(id)) => json!(id),
            ("start_token", _) => Value::Null,
            // The wiring holds it as f32.
            ("residual_gain", _) => whole(f64::from(self.wiring.residual_gain)),
            ("norm_eps", _) => whole(self.wiring.norm_eps),
            // Fields that are not written where they have their usual value, and whole numbers without a fraction.
            ("rotary_theta", _) => whole(self.wiring.rotary_base.unwrap_or(Wiring::ROTARY_BASE)),
            ("rotary_share", _) => whole(self.wiring.rotary_share.unwrap_or(1.0)),
            ("rotary_layout", _) => json!(self.wiring.rotary_pairs.unwrap_or(RotaryPairs::Halves)),
            ("kv_sharing", _) => json!(self.wiring.kv_sharing),
            ("norm_gain", _) => json!(self.wiring.norm_gain.unwrap_or_default()),
            ("score_cap", _) => self.wiring.score_cap.map_or(Value::Null, whole),
            ("logit_cap", _) => self.wiring.logit_cap.map_or(Value::Null, whole),
            ("score_width", _) => self.wiring.score_width.map_or(Value::Null, whole),
            ("parallel_residual", _) => json!(self.wiring.parallel_residual),
            _ => {
                let wiring = serde_json::to_value(self.wiring).ok();
                wiring.and_then(|w| w.get(field).cloned()).unwrap_or(Value::Null)
            }
        }
    }

    /// The setup after an edit.
    pub(crate) fn with(&self, edit: WiringEdit) -> Self {
        let mut setup = self.clone();
        let w = &mut setup.wiring;
        match edit {
            WiringEdit::ScoreScale(scale) => w.score_scale = scale,
            WiringEdit::Normaliser(normaliser) => w.normaliser = normaliser,
            WiringEdit::ResidualGain(gain, at) => (w.residual_gain, w.residual_gain_at) = (gain, at),
            WiringEdit::Activation(activation) => w.activation = activation,
            WiringEdit::Norm(norm) => w.norm = norm,
            WiringEdit::NormPlace(place) => w.norm_place = place,
            WiringEdit::NormEps(eps) => w.norm_eps = eps,
            WiringEdit::PositionOffset(offset) => w.position_offset = offset,
            WiringEdit::PositionLayout(stack, layout) => {
                if stack != Some(Stack::Decoder) {
                    w.source_positions = layout;
                }
                if stack != Some(Stack::Encoder) {
                    w.target_positions = layout;
                }
            }
            WiringEdit::EmbeddingScale(scale) => w.embedding_scale = scale,
            WiringEdit::CausalMask(switch) => w.causal_mask = switch,
            WiringEdit::PaddingMask(switch, padding) => {
                w.padding_mask = switch;
                setup.padding = padding;
            }
            WiringEdit::CrossMask(mask) => w.cross_mask = mask,
            WiringEdit::DecoderShift(switch) => w.decoder_shift = switch,
            WiringEdit::LogitScale(scale) => w.logit_scale = scale,
            WiringEdit::RelativeBias(on) => w.relative_bias = on,
            WiringEdit::RelativeBuckets(buckets) => w.relative_buckets = buckets,
            WiringEdit::RelativeMaxDistance(distance) => w.relative_max_distance = distance,
            WiringEdit::Heads(stack, heads) => {
                for (now, own) in setup.heads.iter_mut().zip(Stack::ALL) {
                    if stack.is_none_or(|stack| stack == own) {
                        *now = heads;
                    }
                }
            }
            WiringEdit::StartToken(id) => setup.shift = Shift::Start(id),
            WiringEdit::RotaryLayout(pairs) => w.rotary_pairs = Some(pairs),
            WiringEdit::RotaryTheta(theta) => w.rotary_base = Some(theta),
            WiringEdit::RotaryShare(share) => w.rotary_share = Some(share),
            WiringEdit::RotaryScaling(scaling) => w.rotary_scaling = scaling,
            WiringEdit::KvSharing(sharing) => w.kv_sharing = sharing,
            WiringEdit::NormGain(gain) => w.norm_gain = Some(gain),
            WiringEdit::Window(window) => w.window = window,
            WiringEdit::ScoreCap(cap) => w.score_cap = cap,
            WiringEdit::LogitCap(cap) => w.logit_cap = cap,
            WiringEdit::ScoreWidth(width) => w.score_width = width,
            WiringEdit::ParallelResidual(on) => w.parallel_residual = on,
            WiringEdit::TiedOutput(on) => w.tied_output = on,
        }
        setup
    }

    /// Whether the decoder sees the token that it must predict.
    pub(crate) fn leaks(&self) -> bool {
        self.wiring.decoder_shift == Switch::Off || self.wiring.causal_mask == Switch::Off
    }

    /// Whether it is another model than under another setup: some fields say nothing about some models.
    pub(super) fn is_another(&self, model: &Model, other: &Self) -> bool {
        let graph = |setup: &Self| build(&model.architecture, &setup.wiring);
        // How targets are shifted is no node; a decoder alone has no other way.
        let is_shifted_otherwise =
            self.wiring.decoder_shift != other.wiring.decoder_shift && model.architecture.reads(Side::Source);
        (self.heads, &self.shift, self.padding) != (other.heads, &other.shift, other.padding)
            || is_shifted_otherwise
            || graph(self) != graph(other)
    }

    /// The model under this setup; `None` where the file lacks weights for it, or the pairs are too long for it.
    pub(crate) fn candidate(&self, declared: &dyn Prepared, corpus: &Corpus) -> Option<Candidate> {
        let model = declared.model();
        let heads = |stack: Stack| {
            Some(self.heads_of(stack)).filter(|n| model.sizes.get(Dim::Heads(stack)) != Some(*n))
        };
        let rewired = model.rewired_by_stack(&self.wiring, heads);
        let weights = declared.weights().reordered(&model.graph, &rewired.graph)?;
        let fits = rewired.obstacles.is_empty() && corpus.fits(&rewired, &self.shift);
        let (shift, padding) = (self.shift.clone(), self.padding);
        let prepared = fits.then(|| declared.again(Arc::new(rewired), weights).ok())??;
        Some(Candidate { prepared, shift, padding })
    }
}

#[cfg(test)]
mod tests {
    use attnscope_graph::{Activation, GainAt, KvSharing, Positions, RotaryScaling};
    use serde_json::{Map, Value, json};

    use super::*;

    pub(crate) fn setup() -> Setup {
        Setup { wiring: Wiring::VASWANI, heads: [4, 4], shift: Shift::Start(0), padding: Padding::None }
    }

    #[test]
    fn an_edit_sets_its_field_and_says_so() {
        let edits = [
            (WiringEdit::Activation(Activation::Gelu), "activation gelu", json!({ "activation": "gelu" })),
            (WiringEdit::NormEps(1e-6), "norm_eps 1e-6", json!({ "norm_eps": 1e-6 })),
            (WiringEdit::Heads(None, 8), "heads 8", json!({ "heads": 8 })),
            (WiringEdit::Heads(Some(Stack::Encoder), 8), "8 encoder heads", json!({ "encoder_heads": 8 })),
            (WiringEdit::Heads(Some(Stack::Decoder), 1), "1 decoder head", json!({ "decoder_heads": 1 })),
            (WiringEdit::StartToken(2), "start_token 2", json!({ "start_token": 2 })),
            (
                WiringEdit::ResidualGain(2.0, GainAt::Encoder),
                "residual_gain 2 in the encoder",
                json!({ "residual_gain": 2 }),
            ),
            (WiringEdit::RotaryTheta(500_000.0), "rotary_theta 500000", json!({ "rotary_theta": 500_000 })),
            (
                WiringEdit::RotaryLayout(RotaryPairs::Neighbours),
                "rotary_layout interleaved",
                json!({ "rotary_layout": "interleaved" }),
            ),
            (
                WiringEdit::RotaryScaling(Some(RotaryScaling::Linear { factor: 4.0 })),
                "rotary_scaling linear × 4",
                json!({ "rotary_scaling": { "type": "linear", "factor": 4.0 } }),
            ),
            (WiringEdit::KvSharing(KvSharing::Tile), "kv_sharing tile", json!({ "kv_sharing": "tile" })),
            (WiringEdit::Window(Some(16)), "window 16", json!({ "window": 16 })),
            (
                WiringEdit::ParallelResidual(true),
                "parallel_residual true",
                json!({ "parallel_residual": true }),
            ),
            (
                WiringEdit::PositionLayout(None, Positions::SinusoidHalves),
                "source_positions sinusoid_halves",
                json!({ "source_positions": "sinusoid_halves", "target_positions": "sinusoid_halves" }),
            ),
        ];
        for (edit, words, json) in edits {
            let after = setup().with(edit);
            let mut shown = Map::new();
            edit.shown(&after, &mut shown);
            assert_eq!((edit.words().as_str(), Value::Object(shown)), (words, json));
            assert!(edit.differs(&after, &setup()) && !edit.differs(&after, &after), "{words}");
            assert_eq!(after.get(edit.field()), edit.value(), "{words}");
        }
    }

    #[test]
    fn stacks_are_edited_alone_or_together() {
        let heads = |edit| setup().with(edit).heads;
        assert_eq!(heads(WiringEdit::Heads(Some(Stack::Decoder), 2)), [4, 2]);
        assert_eq!(heads(WiringEdit::Heads(None, 2)), [2, 2]);
        assert_eq!(setup().with(WiringEdit::Heads(Some(Stack::Decoder), 2)).get("heads"), json!([4, 2]));
    }
}
