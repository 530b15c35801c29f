//! The steps from ids to logits, and their names in paths.

use std::fmt;

use super::LayerPart;

/// A step from the ids of a sequence to what the first layer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryStep {
    /// The token ids.
    Ids,
    /// Rows of the embedding table, scaled.
    Embed,
    /// The type of each token.
    TypeIds,
    /// A vector for each token's type.
    Types,
    /// Embeddings normed before positions are added.
    EmbedNorm,
    /// A vector for each position.
    Positions,
    /// Embeddings and positions before their norm.
    EmbedSum,
    /// What the first layer reads.
    EmbedPos,
    /// That widened to the stream, where the embedding table is narrower.
    EmbedProj,
    /// That after dropout.
    Dropout,
}

/// A step of the audio front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AudioStep {
    /// The log-mel features.
    Mel,
    /// A convolution, numbered from 1.
    Conv(usize),
    /// Its activation.
    ConvAct(usize),
}

/// A step of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerStep {
    /// What the layer reads.
    In,
    /// A step of an attention.
    Attention(AttentionKind, AttentionStep),
    /// A step of the feed-forward.
    FeedForward(FeedForwardStep),
    /// The output of the layer.
    Out,
}

/// Which attention of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionKind {
    /// Keys and values come from the same sequence as the queries.
    SelfAttention,
    /// Keys and values come from another stack's output.
    CrossAttention,
}

/// A step of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionStep {
    /// The sublayer's norm.
    Norm,
    /// The projection of queries.
    Q,
    /// The projection of keys.
    K,
    /// The projection of values.
    V,
    /// Queries, normed head by head.
    QNorm,
    /// Keys, normed head by head.
    KNorm,
    /// Queries split into heads.
    QHeads,
    /// Keys split into heads.
    KHeads,
    /// Values split into heads.
    VHeads,
    /// Queries after rotary positions.
    QRot,
    /// Keys after rotary positions.
    KRot,
    /// q·kᵀ, scaled.
    Scores,
    /// The scores after their cap.
    CappedScores,
    /// The relative bias.
    Bias,
    /// The mask.
    Mask,
    /// Scores plus bias plus mask.
    MaskedScores,
    /// The attention weights.
    Weights,
    /// weights·v, head by head.
    ContextHeads,
    /// The heads side by side.
    Context,
    /// The output projection.
    Out,
    /// Its norm, where it has one before it is added.
    OutNorm,
    /// That after dropout.
    Dropout,
    /// The sum with the stream.
    Residual,
}

/// A step of the feed-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FeedForwardStep {
    /// The sublayer's norm.
    Norm,
    /// What the sublayer reads.
    In,
    /// The wide projection, before the activation.
    Hidden,
    /// After the activation.
    Act,
    /// The second wide projection of a gated feed-forward.
    Gate,
    /// The product of both.
    Gated,
    /// The projection back to the stream's width.
    Out,
    /// Its norm, where it has one before it is added.
    OutNorm,
    /// That after dropout.
    Dropout,
    /// The sum with the stream.
    Residual,
}

/// A step between the last stack and the logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeadStep {
    /// A projection of the stream.
    Dense,
    /// Its activation.
    Act,
    /// Its norm.
    Norm,
    /// The output projection, where its result is capped.
    Logits,
}

impl AttentionKind {
    /// The segment of paths that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelfAttention => "self_attn",
            Self::CrossAttention => "cross_attn",
        }
    }
}

impl AttentionStep {
    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Norm => "norm",
            Self::Q => "q",
            Self::K => "k",
            Self::V => "v",
            Self::QNorm => "q_norm",
            Self::KNorm => "k_norm",
            Self::QHeads => "q_heads",
            Self::KHeads => "k_heads",
            Self::VHeads => "v_heads",
            Self::QRot => "q_rot",
            Self::KRot => "k_rot",
            Self::Scores => "scores",
            Self::CappedScores => "capped_scores",
            Self::Bias => "bias",
            Self::Mask => "mask",
            Self::MaskedScores => "masked_scores",
            Self::Weights => "weights",
            Self::ContextHeads => "context_heads",
            Self::Context => "context",
            Self::Out => "out",
            Self::OutNorm => "out_norm",
            Self::Dropout => "dropout",
            Self::Residual => "residual",
        }
    }
}

impl FeedForwardStep {
    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Norm => "norm",
            Self::In => "in",
            Self::Hidden => "hidden",
            Self::Act => "act",
            Self::Gate => "gate",
            Self::Gated => "gated",
            Self::Out => "out",
            Self::OutNorm => "out_norm",
            Self::Dropout => "dropout",
            Self::Residual => "residual",
        }
    }
}

impl EntryStep {
    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ids => "ids",
            Self::Embed => "embed",
            Self::TypeIds => "type_ids",
            Self::Types => "types",
            Self::EmbedNorm => "embed_norm",
            Self::Positions => "positions",
            Self::EmbedSum => "embed_sum",
            Self::EmbedPos => "embed_pos",
            Self::EmbedProj => "embed_proj",
            Self::Dropout => "dropout",
        }
    }
}

impl HeadStep {
    /// The last segment of its path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Act => "act",
            Self::Norm => "norm",
            Self::Logits => "logits",
        }
    }
}

/// Its path within the layer.
impl fmt::Display for LayerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In => write!(f, "in"),
            Self::Attention(kind, step) => write!(f, "{}.{}", kind.name(), step.name()),
            Self::FeedForward(step) => write!(f, "{}.{}", LayerPart::FeedForward.name(), step.name()),
            Self::Out => write!(f, "out"),
        }
    }
}
