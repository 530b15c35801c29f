//! A hypothesis about the wiring in training, as a typed value: the search tries it, the report names it, JSON has it.

use attnscope_graph::{
    Activation, CrossMask, EmbeddingScale, GainAt, KvSharing, LogitScale, NormGain, NormKind, NormPlace,
    Normaliser, Positions, RotaryPairs, RotaryScaling, ScoreScale, Stack, Switch,
};
use serde_json::{Map, Value, json};

use super::setup::Setup;
use crate::score::Padding;

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
    /// Which features are rotated together. Where rows of q and k were left in the other order, or brought into it, it is this
    /// that the weights show: rotating other pairs and moving the rows are the same.
    RotaryLayout(RotaryPairs),
    /// The base of rotary positions.
    RotaryTheta(f64),
    /// The share of a head that is rotated.
    RotaryShare(f64),
    /// How rotary frequencies are changed, if they are.
    RotaryScaling(Option<RotaryScaling>),
    /// Which head of keys and values a head of queries reads.
    KvSharing(KvSharing),
    /// What normed features are multiplied by.
    NormGain(NormGain),
    /// How many positions self-attention sees.
    Window(Option<usize>),
    /// The cap of the scores.
    ScoreCap(Option<f64>),
    /// The cap of the logits.
    LogitCap(Option<f64>),
    /// What stands for d_head in the scale of the scores.
    ScoreWidth(Option<f64>),
    /// Attention and feed-forward read the same stream.
    ParallelResidual(bool),
    /// The output projection is the embedding table.
    TiedOutput(bool),
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
            Self::RotaryLayout(_) => &["rotary_layout"],
            Self::RotaryTheta(_) => &["rotary_theta"],
            Self::RotaryShare(_) => &["rotary_share"],
            Self::RotaryScaling(_) => &["rotary_scaling"],
            Self::KvSharing(_) => &["kv_sharing"],
            Self::NormGain(_) => &["norm_gain"],
            Self::Window(_) => &["window"],
            Self::ScoreCap(_) => &["score_cap"],
            Self::LogitCap(_) => &["logit_cap"],
            Self::ScoreWidth(_) => &["score_width"],
            Self::ParallelResidual(_) => &["parallel_residual"],
            Self::TiedOutput(_) => &["tied_output"],
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
                | Self::LogitCap(_)
                | Self::TiedOutput(_)
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
            Self::RotaryLayout(pairs) => json!(pairs),
            Self::RotaryTheta(x) | Self::RotaryShare(x) => whole(*x),
            Self::RotaryScaling(scaling) => json!(scaling),
            Self::KvSharing(sharing) => json!(sharing),
            Self::NormGain(gain) => json!(gain),
            Self::Window(window) => json!(window),
            Self::ScoreCap(x) | Self::LogitCap(x) | Self::ScoreWidth(x) => x.map_or(Value::Null, whole),
            Self::ParallelResidual(on) | Self::TiedOutput(on) => json!(on),
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

/// A value in words: without quotes, and a scaling of frequencies as it is drawn.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Null => "none".to_owned(),
        other => serde_json::from_value::<RotaryScaling>(other.clone())
            .map_or_else(|_| other.to_string(), |scaling| scaling.to_string()),
    }
}

/// A number as JSON, whole ones without a fraction.
pub(super) fn whole(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 1e9 { json!(n as i64) } else { json!(n) }
}
