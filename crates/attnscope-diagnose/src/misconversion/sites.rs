//! The places of a model where a converter can go wrong: attentions, feed-forward layers, norms and tables.

use attnscope_graph::{Dim, Graph, Model, Side, Stack};

/// Which attention of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttentionKind {
    EncoderSelf,
    DecoderSelf,
    Cross,
}

impl AttentionKind {
    pub(crate) const ALL: [Self; 3] = [Self::EncoderSelf, Self::DecoderSelf, Self::Cross];
}

/// One attention: `decoder.1.cross_attn`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttentionSite {
    pub(crate) path: String,
    pub(crate) stack: Stack,
    pub(crate) kind: AttentionKind,
}

/// One feed-forward layer: `encoder.0.ffn`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FeedForwardSite {
    pub(crate) path: String,
    pub(crate) stack: Stack,
    pub(crate) is_gated: bool,
}

/// Every attention of a model, in the order of computation.
pub(crate) fn attentions(graph: &Graph) -> Vec<AttentionSite> {
    let kinds = [
        (Stack::Encoder, "self_attn", AttentionKind::EncoderSelf),
        (Stack::Decoder, "self_attn", AttentionKind::DecoderSelf),
        (Stack::Decoder, "cross_attn", AttentionKind::Cross),
    ];
    let mut sites = Vec::new();
    for stack in Stack::ALL {
        for layer in 0..graph.layers(stack) {
            for (_, part, kind) in kinds.iter().filter(|(of, ..)| *of == stack) {
                let path = format!("{}.{layer}.{part}", stack.name());
                if graph.find_weight(&format!("{path}.q.weight")).is_some() {
                    sites.push(AttentionSite { path, stack, kind: *kind });
                }
            }
        }
    }
    sites
}

/// Every feed-forward layer.
pub(crate) fn feed_forwards(graph: &Graph) -> Vec<FeedForwardSite> {
    let mut sites = Vec::new();
    for stack in Stack::ALL {
        for layer in 0..graph.layers(stack) {
            let path = format!("{}.{layer}.ffn", stack.name());
            let has = |module: &str| graph.find_weight(&format!("{path}.{module}.weight")).is_some();
            if has("hidden") {
                let is_gated = has("gate");
                sites.push(FeedForwardSite { path, stack, is_gated });
            }
        }
    }
    sites
}

/// The norms of each layer, by their modules: those of one layer together.
pub(crate) fn layer_norms(graph: &Graph) -> Vec<(Stack, Vec<String>)> {
    let mut layers = Vec::new();
    for stack in Stack::ALL {
        for layer in 0..graph.layers(stack) {
            let norm = |part: &str| format!("{}.{layer}.{part}.norm", stack.name());
            let norms = ["self_attn", "cross_attn", "ffn"].map(norm);
            let has = |norm: &String| graph.find_weight(&format!("{norm}.weight")).is_some();
            layers.push((stack, norms.into_iter().filter(has).collect()));
        }
    }
    layers
}

/// Tables with a row per token, position or bucket.
pub(crate) fn tables(graph: &Graph) -> Vec<String> {
    let is_table =
        |dims: &[Dim]| matches!(dims.first(), Some(Dim::Vocab(_) | Dim::Positions(_) | Dim::Buckets(_)));
    graph.weights().iter().filter(|w| is_table(&w.dims)).map(|w| w.path.clone()).collect()
}

/// Tables of the encoder and of the decoder that hold the same kind of thing in the same shape.
pub(crate) fn twin_tables(model: &Model) -> Vec<[String; 2]> {
    let [source, target] = [Side::Source, Side::Target].map(Side::name);
    let [encoder, decoder] = Stack::ALL.map(Stack::name);
    let twins = [
        [format!("{source}.embed.weight"), format!("{target}.embed.weight")],
        [format!("{source}.positions.weight"), format!("{target}.positions.weight")],
        [format!("{encoder}.0.self_attn.bias.weight"), format!("{decoder}.0.self_attn.bias.weight")],
    ];
    let shape = |path: &String| {
        let id = model.graph.find_weight(path)?;
        model.sizes.shape(&model.graph.weight(id).dims)
    };
    twins.into_iter().filter(|[a, b]| shape(a).is_some() && shape(a) == shape(b)).collect()
}

/// A module's matrix, and its bias where it has one.
pub(crate) fn weights_of(graph: &Graph, module: &str, with_bias: bool) -> Vec<String> {
    let bias = Some(format!("{module}.bias")).filter(|path| with_bias && graph.find_weight(path).is_some());
    let matrix = Some(format!("{module}.weight")).filter(|path| graph.find_weight(path).is_some());
    matrix.into_iter().chain(bias).collect()
}

/// Whether a module has a bias.
pub(crate) fn has_bias(graph: &Graph, module: &str) -> bool {
    graph.find_weight(&format!("{module}.bias")).is_some()
}
