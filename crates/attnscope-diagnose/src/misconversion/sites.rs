//! The places of a model where a converter can go wrong: attentions, feed-forward layers, norms and tables.

use std::fmt;

use attnscope_graph::{
    AttentionKind, AttentionPlace, AttentionStep, Dim, EntryStep, FeedForwardStep, Graph, LayerPart,
    LayerStep, Model, Role, Side, Stack, WeightRole,
};

/// One feed-forward layer: `encoder.0.ffn`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FeedForwardSite {
    pub(crate) stack: Stack,
    pub(crate) layer: usize,
    pub(crate) is_gated: bool,
}

impl FeedForwardSite {
    /// The role of one of its steps.
    pub(crate) fn step(self, step: FeedForwardStep) -> Role {
        Role::Layer(self.stack, self.layer, LayerStep::FeedForward(step))
    }
}

/// A sublayer with its norm: `decoder.1.cross_attn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sublayer {
    pub(crate) stack: Stack,
    pub(crate) layer: usize,
    pub(crate) part: LayerPart,
}

impl Sublayer {
    /// The sublayer that a node is in.
    pub(crate) fn of(role: Role) -> Option<Self> {
        let (stack, layer) = role.layer()?;
        Some(Self { stack, layer, part: role.part()? })
    }

    /// Whether two differ in the number of their layer alone: `decoder.0.cross_attn` and `decoder.1.cross_attn`.
    pub(crate) fn is_of_another_layer(self, other: Self) -> bool {
        self.layer != other.layer && Self { layer: other.layer, ..self } == other
    }
}

impl From<AttentionPlace> for Sublayer {
    fn from(AttentionPlace { stack, layer, kind }: AttentionPlace) -> Self {
        Self { stack, layer, part: LayerPart::Attention(kind) }
    }
}

impl From<FeedForwardSite> for Sublayer {
    fn from(FeedForwardSite { stack, layer, .. }: FeedForwardSite) -> Self {
        Self { stack, layer, part: LayerPart::FeedForward }
    }
}

impl fmt::Display for Sublayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.stack.name(), self.layer, self.part.name())
    }
}

/// Every attention of a model, in the order of computation.
pub(crate) fn attentions(graph: &Graph) -> Vec<AttentionPlace> {
    let mut places = Vec::new();
    for stack in Stack::ALL {
        for layer in 0..graph.layers(stack) {
            let here = [AttentionKind::SelfAttention, AttentionKind::CrossAttention]
                .map(|kind| AttentionPlace { stack, layer, kind });
            let exists = |place: &AttentionPlace| has(graph, place.step(AttentionStep::Q).weight());
            places.extend(here.into_iter().filter(exists));
        }
    }
    places
}

/// Every feed-forward layer.
pub(crate) fn feed_forwards(graph: &Graph) -> Vec<FeedForwardSite> {
    let mut sites = Vec::new();
    for stack in Stack::ALL {
        for layer in 0..graph.layers(stack) {
            let site = FeedForwardSite { stack, layer, is_gated: false };
            let has = |step| has(graph, site.step(step).weight());
            if has(FeedForwardStep::Hidden) {
                sites.push(FeedForwardSite { is_gated: has(FeedForwardStep::Gate), ..site });
            }
        }
    }
    sites
}

/// The norms of each layer: those of one layer together.
pub(crate) fn layer_norms(graph: &Graph) -> Vec<(Stack, Vec<Role>)> {
    let mut layers = Vec::new();
    for stack in Stack::ALL {
        for layer in 0..graph.layers(stack) {
            let norms = LayerPart::ALL.map(|part| part.norm(stack, layer));
            layers.push((stack, norms.into_iter().filter(|norm| has(graph, norm.weight())).collect()));
        }
    }
    layers
}

/// Tables with a row per token, position or bucket.
pub(crate) fn tables(graph: &Graph) -> Vec<WeightRole> {
    let is_table =
        |dims: &[Dim]| matches!(dims.first(), Some(Dim::Vocab(_) | Dim::Positions(_) | Dim::Buckets(_)));
    graph.weights().iter().filter(|weight| is_table(&weight.dims)).map(|weight| weight.role).collect()
}

/// Tables of the encoder and of the decoder that hold the same kind of thing in the same shape.
pub(crate) fn twin_tables(model: &Model) -> Vec<[WeightRole; 2]> {
    let entries = |step| [Side::Source, Side::Target].map(|side| Role::Entry(side, step).weight());
    let bias = |stack| {
        let first = AttentionPlace { stack, layer: 0, kind: AttentionKind::SelfAttention };
        first.step(AttentionStep::Bias).weight()
    };
    let twins = [entries(EntryStep::Embed), entries(EntryStep::Positions), Stack::ALL.map(bias)];
    let shape = |role: WeightRole| {
        let id = model.graph.weight_at(role)?;
        model.sizes.shape(&model.graph.weight(id).dims)
    };
    twins.into_iter().filter(|&[a, b]| shape(a).is_some() && shape(a) == shape(b)).collect()
}

/// A module's matrix, and its bias where it has one.
pub(crate) fn weights_of(graph: &Graph, module: Role, with_bias: bool) -> Vec<WeightRole> {
    let bias = Some(module.bias()).filter(|_| with_bias);
    [module.weight()].into_iter().chain(bias).filter(|&role| has(graph, role)).collect()
}

/// Whether a model has a weight.
pub(crate) fn has(graph: &Graph, role: WeightRole) -> bool {
    graph.weight_at(role).is_some()
}
