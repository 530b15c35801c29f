//! A hypothesis about the wiring in training, as a typed value: the search tries it, the report names it, JSON has it.

use attnscope_graph::{
    Activation, CrossMask, Dim, EmbeddingScale, GainAt, LogitScale, Model, NormKind, NormPlace, Normaliser,
    Positions, ScoreScale, Stack, Switch, Wiring,
};
use attnscope_run::{Prepared, Shift};
use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::corpus::Corpus;
use crate::score::{Candidate, Padding};

/// One field of the wiring with another value than the model declares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WiringEdit {
    /// What the scores are divided by.
    ScoreScale(ScoreScale),
    /// What turns scores into weights.
    Normaliser(Normaliser),
    /// The residual scale of attentions, and of which.
    ResidualGain(f32, GainAt),
    /// The feed-forward layer's activation.
    Activation(Activation),
    /// Mean-centred or root-mean-square.
    Norm(NormKind),
    /// Before the sublayer or after the sum.
    NormPlace(NormPlace),
    /// Added to the variance.
    NormEps(f64),
    /// The row of the position table that position 0 takes.
    PositionOffset(usize),
    /// The layout of computed positions, in one stack or in both.
    PositionLayout(Option<Stack>, Positions),
    /// What embeddings are multiplied by.
    EmbeddingScale(EmbeddingScale),
    /// The decoder's self-attention sees no later position.
    CausalMask(Switch),
    /// No attention sees padding. Judged on rows with padding: without any, both are the same.
    PaddingMask(Switch, Padding),
    /// What cross-attention masks.
    CrossMask(CrossMask),
    /// The decoder reads the target shifted right by one.
    DecoderShift(Switch),
    /// What the logits are multiplied by.
    LogitScale(LogitScale),
    /// A learned bias by distance.
    RelativeBias(bool),
    /// Rows of the relative bias table that are used.
    RelativeBuckets(usize),
    /// Distances from this one on share the last bucket.
    RelativeMaxDistance(usize),
    /// Attention heads, of one stack or of both.
    Heads(Option<Stack>, usize),
    /// The token that the decoder begins with.
    StartToken(u32),
}

/// "4 encoder heads"
pub(crate) fn heads_of(stack: Stack, value: &str) -> String {
    let heads = if value == "1" { "head" } else { "heads" };
    format!("{value} {} {heads}", stack.name())
}

impl WiringEdit {
    /// The field that it is about, as the wiring's JSON names it.
    pub fn field(&self) -> &'static str {
        self.fields()[0]
    }

    /// The fields that it sets.
    fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::ScoreScale(_) => &["score_scale"],
            Self::Normaliser(_) => &["squash"],
            Self::ResidualGain(..) => &["residual_gain"],
            Self::Activation(_) => &["activation"],
            Self::Norm(_) => &["norm"],
            Self::NormPlace(_) => &["norm_place"],
            Self::NormEps(_) => &["norm_eps"],
            Self::PositionOffset(_) => &["position_offset"],
            Self::PositionLayout(None, _) => &["source_positions", "target_positions"],
            Self::PositionLayout(Some(Stack::Encoder), _) => &["source_positions"],
            Self::PositionLayout(Some(Stack::Decoder), _) => &["target_positions"],
            Self::EmbeddingScale(_) => &["embedding_scale"],
            Self::CausalMask(_) => &["causal_mask"],
            Self::PaddingMask(..) => &["padding_mask"],
            Self::CrossMask(_) => &["cross_mask"],
            Self::DecoderShift(_) => &["decoder_shift"],
            Self::LogitScale(_) => &["logit_scale"],
            Self::RelativeBias(_) => &["relative_bias"],
            Self::RelativeBuckets(_) => &["relative_buckets"],
            Self::RelativeMaxDistance(_) => &["relative_max_distance"],
            Self::Heads(None, _) => &["heads"],
            Self::Heads(Some(Stack::Encoder), _) => &["encoder_heads"],
            Self::Heads(Some(Stack::Decoder), _) => &["decoder_heads"],
            Self::StartToken(_) => &["start_token"],
        }
    }

    /// Whether it changes what the encoder computes.
    pub(super) fn changes_encoder(&self) -> bool {
        !matches!(
            self,
            Self::CausalMask(_)
                | Self::CrossMask(_)
                | Self::DecoderShift(_)
                | Self::LogitScale(_)
                | Self::PositionLayout(Some(Stack::Decoder), _)
                | Self::Heads(Some(Stack::Decoder), _)
                | Self::StartToken(_)
        )
    }

    /// The new value of its field, as JSON.
    pub fn value(&self) -> Value {
        match self {
            Self::ScoreScale(scale) => json!(scale),
            Self::Normaliser(normaliser) => json!(normaliser),
            Self::ResidualGain(gain, _) => whole(f64::from(*gain)),
            Self::Activation(activation) => json!(activation),
            Self::Norm(norm) => json!(norm),
            Self::NormPlace(place) => json!(place),
            Self::NormEps(eps) => whole(*eps),
            Self::PositionLayout(_, layout) => json!(layout),
            Self::EmbeddingScale(scale) => json!(scale),
            Self::CausalMask(switch) | Self::PaddingMask(switch, _) | Self::DecoderShift(switch) => {
                json!(switch)
            }
            Self::CrossMask(mask) => json!(mask),
            Self::LogitScale(scale) => json!(scale),
            Self::RelativeBias(on) => json!(on),
            Self::PositionOffset(n)
            | Self::RelativeBuckets(n)
            | Self::RelativeMaxDistance(n)
            | Self::Heads(_, n) => json!(n),
            Self::StartToken(id) => json!(id),
        }
    }

    /// In words: `activation relu`.
    pub fn words(&self) -> String {
        self.words_with(&plain(&self.value()))
    }

    /// The same with other words for the value, such as several values.
    pub(crate) fn words_with(&self, value: &str) -> String {
        match self {
            Self::ResidualGain(_, GainAt::Encoder) => format!("{} {value} in the encoder", self.field()),
            Self::Heads(Some(stack), _) => heads_of(*stack, value),
            _ => format!("{} {value}", self.field()),
        }
    }

    /// How rows are padded when it is judged.
    pub(crate) fn padding(&self) -> Padding {
        match self {
            Self::PaddingMask(_, padding) => *padding,
            _ => Padding::None,
        }
    }

    /// The scale of logits is itself a temperature, so it is judged at temperature 1.
    pub(crate) fn is_temperature(&self) -> bool {
        matches!(self, Self::LogitScale(_))
    }

    /// Its fields as JSON, from a setup that they are set in.
    pub(crate) fn shown(&self, setup: &Setup, into: &mut Map<String, Value>) {
        for field in self.fields() {
            into.insert((*field).to_owned(), setup.get(field));
        }
    }

    /// Whether its fields are others in one setup than in another.
    pub(crate) fn differs(&self, one: &Setup, other: &Setup) -> bool {
        self.fields().iter().any(|field| one.get(field) != other.get(field))
    }
}

/// A value without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        other => other.to_string(),
    }
}

/// A number as JSON, whole ones without a fraction.
fn whole(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 1e9 { json!(n as i64) } else { json!(n) }
}

/// Everything about a model that an edit can change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    pub(super) wiring: Wiring,
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
        }
        setup
    }

    /// Whether the decoder sees the token that it must predict.
    pub(crate) fn leaks(&self) -> bool {
        self.wiring.decoder_shift == Switch::Off || self.wiring.causal_mask == Switch::Off
    }

    /// The model under this setup; `None` where the file lacks weights for it, or the pairs are too long for it.
    pub(crate) fn candidate(&self, declared: &dyn Prepared, corpus: &Corpus) -> Option<Candidate> {
        let model = declared.model();
        let [encoder, decoder] = self.heads;
        let heads = |stack: Stack| {
            let heads = if stack == Stack::Encoder { encoder } else { decoder };
            Some(heads).filter(|n| model.sizes.get(Dim::Heads(stack)) != Some(*n))
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
