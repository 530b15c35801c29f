//! Everything in which Transformers differ, in one value.
//!
//! A family is a default wiring; a config edits it; a hypothesis about a broken model is another edit. The serde
//! names are the words of the JSON output.

use serde::{Deserialize, Serialize};

use crate::dim::{Side, Stack};
use crate::kv_sharing::KvSharing;
use crate::layer_set::LayerSet;
use crate::rotary::{Rotary, RotaryPairs, RotaryScaling};

/// How the parts of a model are joined. [`crate::build`] turns it into a graph.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Wiring {
    /// What the scores are divided by.
    pub score_scale: ScoreScale,
    /// What turns scores into weights.
    #[serde(rename = "squash")]
    pub normaliser: Normaliser,
    /// The residual scale: what an attention's output is multiplied by before it is added to the stream.
    pub residual_gain: f32,
    /// Which attentions have that residual scale.
    pub residual_gain_at: GainAt,
    /// The feed-forward layer's activation.
    pub activation: Activation,
    /// Whether the activation multiplies a second projection.
    pub gated: bool,
    /// Mean-centred or root-mean-square.
    pub norm: NormKind,
    /// Before the sublayer or after the sum.
    pub norm_place: NormPlace,
    /// Added to the variance.
    pub norm_eps: f64,
    /// The norm of the source's embeddings.
    pub source_embedding_norm: EmbeddingNorm,
    /// The norm of the target's embeddings.
    pub target_embedding_norm: EmbeddingNorm,
    /// A norm after the last layer of the encoder.
    pub encoder_final_norm: bool,
    /// A norm after the last layer of the decoder.
    pub decoder_final_norm: bool,
    /// Where the source's positions come from.
    pub source_positions: Positions,
    /// Where the target's positions come from.
    pub target_positions: Positions,
    /// The row of the position table that position 0 takes.
    pub position_offset: usize,
    /// What a position's number counts.
    pub position_count: PositionCount,
    /// What embeddings are multiplied by.
    pub embedding_scale: EmbeddingScale,
    /// Whether the target's embeddings are multiplied, too: in Blenderbot-small they are not.
    pub scales_target: bool,
    /// A learned bias by distance, added to the scores of self-attention.
    pub relative_bias: bool,
    /// Rows of the relative bias table; the table itself shows them.
    pub relative_buckets: usize,
    /// Distances from this one on share the last bucket.
    pub relative_max_distance: usize,
    /// The decoder's self-attention sees no later position.
    pub causal_mask: Switch,
    /// No attention sees padding.
    pub padding_mask: Switch,
    /// What cross-attention masks.
    pub cross_mask: CrossMask,
    /// The decoder reads the target shifted right by one, after a start token.
    pub decoder_shift: Switch,
    /// What the logits are multiplied by.
    pub logit_scale: LogitScale,
    /// The output projection is the target's embedding table.
    pub tied_output: bool,
    /// Source and target share one embedding table.
    pub shared_embeddings: bool,
    /// Tokens or audio.
    pub front: Front,
    /// Which maps add a bias.
    pub biases: Biases,
    /// How many heads keys and values have, where groups of query heads share them; 0 while the tensors have not shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// Which head of them a head of queries reads.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub kv_sharing: KvSharing,
    /// The base of rotary positions, where the model has them.
    #[serde(
        default,
        rename = "rotary_theta",
        alias = "rotary_base",
        skip_serializing_if = "Option::is_none"
    )]
    pub rotary_base: Option<f64>,
    /// Which features are a pair for rotary positions, where the model has them.
    #[serde(
        default,
        rename = "rotary_layout",
        alias = "rotary_pairs",
        skip_serializing_if = "Option::is_none"
    )]
    pub rotary_pairs: Option<RotaryPairs>,
    /// The share of a head's features that is rotated, where it is not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_share: Option<f64>,
    /// How rotary frequencies are changed for longer texts, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_scaling: Option<RotaryScaling>,
    /// The file holds a divisor for the frequency of each pair.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rotary_factors: bool,
    /// What normed features are multiplied by, where families differ in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_gain: Option<NormGain>,
    /// Queries and keys are normed, head by head, before they are rotated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub query_key_norm: bool,
    /// What stands for d_head in the scale of the scores, where it is another number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_width: Option<f64>,
    /// The cap of the scores, where they have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_cap: Option<f64>,
    /// The cap of the logits, where they have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logit_cap: Option<f64>,
    /// Attention and feed-forward of a layer both read the stream before the layer, and both are added to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parallel_residual: bool,
    /// The first layer's attention has no norm of its own: it reads embeddings that are normed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_norm_absent: bool,
    /// Each layer has a relative bias table of its own; else the first layer's is that of all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relative_bias_per_layer: bool,
    /// How many positions self-attention sees, where it does not see all: a causal one the query and those before it, another
    /// one half of them on each side. Of an encoder-decoder the encoder's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// The layers that have the window, where not all have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_layers: Option<LayerSet>,
    /// The base of rotary positions in those layers, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_rotary_base: Option<f64>,
    /// The embedding table is narrower than the stream, and a map widens its rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub embedding_projection: bool,
    /// How many layers have weights of their own, where groups of neighbouring layers share them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_groups: Option<usize>,
    /// A vector for each token's type is added to its embedding.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_types: bool,
    /// The share of values that is dropped while training: after embeddings, and before each residual sum. A model that is
    /// opened to be run has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropout: f32,
}

fn is_usual(sharing: &KvSharing) -> bool {
    *sharing == KvSharing::Repeat
}

fn is_zero(p: &f32) -> bool {
    *p == 0.0
}

/// What the scores are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreScale {
    /// √d_head.
    DHead,
    /// √d_model: a common mistake.
    DModel,
    /// Nothing: T5 folds the scale into its weights.
    None,
}

/// Which attentions have a residual scale other than 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GainAt {
    /// All of them.
    EveryAttention,
    /// The encoder's only.
    Encoder,
}

/// What turns a row of scores into weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normaliser {
    /// exp, divided by the row's sum.
    Softmax,
    /// 1 / (1 + exp(−x)), cell by cell.
    Sigmoid,
}

/// The feed-forward layer's activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// max(0, x).
    Relu,
    /// x·Φ(x), with the error function.
    Gelu,
    /// x·Φ(x), Φ by a tanh.
    GeluTanh,
    /// x·σ(x), also called SiLU.
    Swish,
    /// x·σ(1.702·x).
    QuickGelu,
    /// tanh(x).
    Tanh,
}

impl Activation {
    /// Its formula.
    pub fn formula(self) -> &'static str {
        match self {
            Self::Relu => "max(0, x)",
            Self::Gelu => "x/2 · (1 + erf(x/√2))",
            Self::GeluTanh => "x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))",
            Self::Swish => "x / (1 + e^−x)",
            Self::QuickGelu => "x / (1 + e^(−1.702 x))",
            Self::Tanh => "tanh(x)",
        }
    }

    /// Every activation.
    pub const ALL: [Self; 6] =
        [Self::Relu, Self::Gelu, Self::GeluTanh, Self::Swish, Self::QuickGelu, Self::Tanh];

    /// Its name in JSON and in drawings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Swish => "swish",
            Self::QuickGelu => "quick_gelu",
            Self::Tanh => "tanh",
        }
    }

    /// The activation that a config means by a word; `None` if the word is not known.
    pub fn from_config(word: &str) -> Option<Self> {
        // In T5's "gated-gelu", "gelu" means the tanh form.
        if word == "gated-gelu" {
            return Some(Self::GeluTanh);
        }
        Some(match word.strip_prefix("gated-").unwrap_or(word) {
            "relu" => Self::Relu,
            "gelu" | "gelu_python" => Self::Gelu,
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" | "gelu_tanh" | "gelu_accurate" => Self::GeluTanh,
            "swish" | "silu" => Self::Swish,
            "quick_gelu" => Self::QuickGelu,
            "tanh" => Self::Tanh,
            _ => return None,
        })
    }
}

/// What a norm subtracts and divides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Mean and standard deviation.
    Layer,
    /// Root mean square only.
    Rms,
}

/// Where a sublayer's norm is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// Before the sublayer; the sum is not normed.
    Pre,
    /// After the sum.
    Post,
    /// Before the sublayer, and another one of its output, before the sum.
    Both,
}

/// What a normed feature is multiplied by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormGain {
    /// The weight.
    #[default]
    Weight,
    /// One more than the weight, so that a weight of 0 changes nothing: Gemma.
    OnePlusWeight,
}

impl NormGain {
    /// What is added to the weight.
    pub fn offset(self) -> f32 {
        match self {
            Self::Weight => 0.0,
            Self::OnePlusWeight => 1.0,
        }
    }
}

/// Where embeddings are normed, if they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingNorm {
    /// Nowhere.
    None,
    /// After positions are added.
    AfterPositions,
    /// Before positions are added: Blenderbot's small decoder.
    BeforePositions,
}

/// Where positions come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// A table in the checkpoint, learned or stored.
    Table,
    /// Computed: sines in the first half of the width, cosines in the second.
    SinusoidHalves,
    /// Computed: sines and cosines alternate.
    SinusoidInterleaved,
    /// Computed as fairseq does: halves, frequencies spaced over one step fewer.
    SinusoidFairseq,
    /// Queries and keys are rotated; nothing is added to the embeddings.
    Rotary,
    /// Nothing is added to the embeddings.
    None,
}

impl Positions {
    /// True where the values that are added are computed, not stored.
    pub fn is_sinusoid(self) -> bool {
        match self {
            Self::SinusoidHalves | Self::SinusoidInterleaved | Self::SinusoidFairseq => true,
            Self::Table | Self::Rotary | Self::None => false,
        }
    }
}

/// What a position's number counts. It matters where padding comes before a row's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionCount {
    /// All positions before it, padding included: the same numbers in every row.
    Places,
    /// Only the tokens before it: padding has no number, and rows differ. fairseq and M2M-100 count so.
    Tokens,
}

/// What embeddings are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingScale {
    /// √d_model.
    SqrtDModel,
    /// Nothing.
    None,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    /// In force.
    On,
    /// Not there.
    Off,
}

/// What cross-attention masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrossMask {
    /// The source's padding.
    Padding,
    /// Later source positions: a mistake, because the whole source is known.
    Causal,
}

/// What the logits are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogitScale {
    /// Nothing.
    None,
    /// 1/√d_model, as T5 does with a tied output.
    RsqrtDModel,
}

/// What the encoder reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Front {
    /// Token ids, looked up.
    Tokens,
    /// A log-mel spectrogram through two convolutions.
    Audio,
}

/// Which maps add a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Biases {
    /// The q projection.
    pub q: bool,
    /// The k projection.
    pub k: bool,
    /// The v projection.
    pub v: bool,
    /// The output projection of attention.
    pub attn_out: bool,
    /// Both maps of the feed-forward layer.
    pub ffn: bool,
    /// Norms.
    pub norm: bool,
    /// The output projection of the model.
    pub logits: bool,
    /// The projection between the last stack and the logits, where there is one.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub head: bool,
}

fn yes() -> bool {
    true
}

fn is_yes(flag: &bool) -> bool {
    *flag
}

impl Biases {
    /// Every map but the output projection.
    pub const ALL: Self =
        Self { q: true, k: true, v: true, attn_out: true, ffn: true, norm: true, logits: false, head: true };
    /// None at all.
    pub const NONE: Self = Self {
        q: false,
        k: false,
        v: false,
        attn_out: false,
        ffn: false,
        norm: false,
        logits: false,
        head: true,
    };
}

impl Wiring {
    /// The Transformer as published in 2017. Families are described by their differences from it.
    pub const VASWANI: Self = Self {
        score_scale: ScoreScale::DHead,
        normaliser: Normaliser::Softmax,
        residual_gain: 1.0,
        residual_gain_at: GainAt::EveryAttention,
        activation: Activation::Relu,
        gated: false,
        norm: NormKind::Layer,
        norm_place: NormPlace::Post,
        norm_eps: 1e-5,
        source_embedding_norm: EmbeddingNorm::None,
        target_embedding_norm: EmbeddingNorm::None,
        encoder_final_norm: false,
        decoder_final_norm: false,
        source_positions: Positions::SinusoidInterleaved,
        target_positions: Positions::SinusoidInterleaved,
        position_offset: 0,
        position_count: PositionCount::Places,
        embedding_scale: EmbeddingScale::SqrtDModel,
        scales_target: true,
        relative_bias: false,
        relative_buckets: 0,
        relative_max_distance: 0,
        causal_mask: Switch::On,
        padding_mask: Switch::On,
        cross_mask: CrossMask::Padding,
        decoder_shift: Switch::On,
        logit_scale: LogitScale::None,
        tied_output: true,
        shared_embeddings: true,
        front: Front::Tokens,
        biases: Biases::ALL,
        kv_heads: None,
        kv_sharing: KvSharing::Repeat,
        rotary_base: None,
        rotary_pairs: None,
        rotary_share: None,
        rotary_scaling: None,
        rotary_factors: false,
        norm_gain: None,
        query_key_norm: false,
        score_width: None,
        score_cap: None,
        logit_cap: None,
        parallel_residual: false,
        first_norm_absent: false,
        relative_bias_per_layer: false,
        window: None,
        window_layers: None,
        window_rotary_base: None,
        embedding_projection: false,
        layer_groups: None,
        token_types: false,
        dropout: 0.0,
    };

    /// The base of rotary positions where no config names one.
    pub const ROTARY_BASE: f64 = 10_000.0;

    /// The names of all fields: those that a model does not use are not written.
    pub fn fields() -> Vec<String> {
        let every = Self {
            kv_heads: Some(1),
            kv_sharing: KvSharing::Tile,
            rotary_base: Some(Self::ROTARY_BASE),
            rotary_pairs: Some(RotaryPairs::Halves),
            rotary_share: Some(1.0),
            rotary_scaling: Some(RotaryScaling::Linear { factor: 1.0 }),
            rotary_factors: true,
            norm_gain: Some(NormGain::Weight),
            query_key_norm: true,
            score_width: Some(1.0),
            score_cap: Some(1.0),
            logit_cap: Some(1.0),
            parallel_residual: true,
            first_norm_absent: true,
            relative_bias_per_layer: true,
            window: Some(1),
            window_layers: Some(LayerSet::default()),
            window_rotary_base: Some(Self::ROTARY_BASE),
            embedding_projection: true,
            layer_groups: Some(1),
            token_types: true,
            dropout: 0.1,
            ..Self::VASWANI
        };
        match serde_json::to_value(every) {
            Ok(serde_json::Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        }
    }

    /// The window of a layer's self-attention; `None` where it sees everything.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.window_layers.is_none_or(|layers| layers.has(layer)))
    }

    /// A layer's rotary positions. In layers whose base is another one, frequencies are not scaled.
    pub fn rotary_of(&self, layer: usize) -> Rotary {
        let of_window = self.window_rotary_base.filter(|_| self.window_of(layer).is_some());
        Rotary {
            base: of_window.or(self.rotary_base).unwrap_or(Self::ROTARY_BASE),
            pairs: self.rotary_pairs.unwrap_or(RotaryPairs::Halves),
            share: self.rotary_share.unwrap_or(1.0),
            scaling: self.rotary_scaling.filter(|_| of_window.is_none()),
            shift: 0,
        }
    }

    /// Where a side's positions come from.
    pub fn positions(&self, side: Side) -> Positions {
        match side {
            Side::Source => self.source_positions,
            Side::Target => self.target_positions,
        }
    }

    /// Where a side's embeddings are normed.
    pub fn embedding_norm(&self, side: Side) -> EmbeddingNorm {
        match side {
            Side::Source => self.source_embedding_norm,
            Side::Target => self.target_embedding_norm,
        }
    }

    /// Whether a stack ends in a norm.
    pub fn final_norm(&self, stack: Stack) -> bool {
        match stack {
            Stack::Encoder => self.encoder_final_norm,
            Stack::Decoder => self.decoder_final_norm,
        }
    }
}
