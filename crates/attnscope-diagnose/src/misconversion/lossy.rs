//! Mistakes that lose data: a bias dropped, a layer written twice, a layer left out. They are seen in the file itself, and no
//! repair can prove them.

use attnscope_graph::{
    AttentionPlace, AttentionStep, Graph, LayerStep, Model, Role, Slot, Stack, WeightId, WeightKind,
    WeightRole,
};
use attnscope_run::Weights;
use serde_json::{Value, json};

use crate::kinds::kinds;

/// The most missing layers whose weights are listed; a config may claim any number.
const MOST_LAYERS: usize = 64;

/// Something that is no longer in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// A bias is all zero though the same bias of other layers is not.
    DroppedBias {
        /// Which.
        weight: WeightRole,
        /// Layers whose own is not zero.
        siblings: usize,
    },
    /// Kinds of biases are all zero in every layer of a trained model. It may have been trained without them: this is not
    /// certain.
    ZeroBiases {
        /// Their modules within a layer: `self_attn.q`.
        modules: Vec<String>,
        /// Those of all layers.
        weights: Vec<WeightRole>,
    },
    /// A layer holds the values of another, to the last bit.
    CopiedLayer {
        /// Their stack.
        stack: Stack,
        /// The layer that comes first, and the one that holds the same.
        layers: [usize; 2],
    },
    /// A config has more layers than the file.
    MissingLayer {
        /// Their stack.
        stack: Stack,
        /// Layers in the file.
        found: usize,
        /// Layers in the config.
        declared: usize,
        /// Which config.
        source: String,
    },
}

kinds! {
    Loss {
        Self::DroppedBias { .. } => "dropped_bias",
        Self::ZeroBiases { .. } => "zero_biases",
        Self::CopiedLayer { .. } => "copied_layer",
        Self::MissingLayer { .. } => "missing_layer",
    }
}

impl Loss {
    /// The weights that are lost; if a config claims very many layers, only those of the first.
    pub fn weights(&self, graph: &Graph) -> Vec<WeightRole> {
        match self {
            Self::DroppedBias { weight, .. } => vec![*weight],
            Self::ZeroBiases { weights, .. } => weights.clone(),
            Self::CopiedLayer { stack, layers } => layer_weights(graph, *stack, layers[1]),
            // T5's first layer has a table that the others lack, so the last layer is the model for the missing ones.
            Self::MissingLayer { stack, found, declared, .. } => {
                let like = layer_weights(graph, *stack, found.saturating_sub(1));
                let missing = (*found..*declared).take(MOST_LAYERS);
                missing.flat_map(|n| like.iter().map(move |role| role.in_layer(n))).collect()
            }
        }
    }

    /// Where it is: the bias or the layer; absent where it is in all layers.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::DroppedBias { weight, .. } => Some(weight.to_string()),
            Self::ZeroBiases { .. } => None,
            Self::CopiedLayer { stack, layers } => Some(format!("{}.{}", stack.name(), layers[1])),
            Self::MissingLayer { stack, found, .. } => Some(format!("{}.{found}", stack.name())),
        }
    }

    /// As JSON, in the form of a repair.
    pub fn json(&self, graph: &Graph) -> Value {
        let weights: Vec<String> = self.weights(graph).iter().map(ToString::to_string).collect();
        match self {
            Self::DroppedBias { .. } | Self::ZeroBiases { .. } => {
                json!({ "kind": self.kind(), "weights": weights })
            }
            Self::CopiedLayer { stack, layers } => {
                json!({ "kind": self.kind(), "weights": weights, "stack": stack.name(), "layers": layers })
            }
            Self::MissingLayer { stack, found, declared, .. } => json!({
                "kind": self.kind(), "weights": weights, "stack": stack.name(), "found": found, "declared": declared,
            }),
        }
    }

    /// Whether it does not change the output: k's bias adds the same number to every score of a query, which the softmax
    /// cancels. Rotary positions turn the bias by each key's position, and then it adds other numbers.
    pub fn has_no_effect(&self, model: &Model) -> bool {
        let is_cancelled = |weight: &WeightRole| {
            let of_k = weight.owner.attention().filter(|(_, step)| *step == AttentionStep::K);
            let is_rotated =
                |place: AttentionPlace| model.graph.at(place.step(AttentionStep::KRot)).is_some();
            of_k.is_some_and(|(place, _)| !is_rotated(place))
                && weight.kind == WeightKind::Bias
                && model.graph.has_softmax()
        };
        match self {
            Self::DroppedBias { weight, .. } => is_cancelled(weight),
            Self::ZeroBiases { weights, .. } => weights.iter().all(is_cancelled),
            Self::CopiedLayer { .. } | Self::MissingLayer { .. } => false,
        }
    }

    /// Whether there is no other explanation.
    pub fn is_sure(&self) -> bool {
        !matches!(self, Self::ZeroBiases { .. })
    }
}

fn layer_weights(graph: &Graph, stack: Stack, layer: usize) -> Vec<WeightRole> {
    graph.weight_roles().filter(|role| role.owner.layer() == Some((stack, layer))).collect()
}

/// Layers that the config has and the file lacks.
pub(crate) fn missing_layers(model: &Model) -> Vec<Loss> {
    let mut losses = Vec::new();
    for stack in Stack::ALL {
        let name = format!("{} layers", stack.name());
        let found = model.graph.layers(stack);
        let said = model.facts.iter().filter(|fact| fact.name == name).flat_map(|fact| &fact.disagree);
        let more = said
            .filter_map(|(source, value)| Some((source, usize::try_from(value.as_u64()?).ok()?)))
            .find(|(_, declared)| *declared > found);
        if let Some((source, declared)) = more {
            losses.push(Loss::MissingLayer { stack, found, declared, source: source.clone() });
        }
    }
    losses
}

/// Layers that are the copy of another. Where every layer of three or more is the same, the model shares them by design.
pub(crate) fn copied_layers(model: &Model, weights: &Weights) -> Vec<Loss> {
    let mut losses = Vec::new();
    for stack in Stack::ALL {
        let count = model.graph.layers(stack);
        let mut copies = Vec::new();
        for b in 1..count {
            let first = (0..b).find(|&a| is_copy(model, weights, stack, [a, b]));
            copies.extend(first.map(|a| Loss::CopiedLayer { stack, layers: [a, b] }));
        }
        if count < 3 || copies.len() + 1 < count {
            losses.extend(copies);
        }
    }
    losses
}

/// Whether every weight of two layers is equal, although they are separate tensors.
fn is_copy(model: &Model, weights: &Weights, stack: Stack, [a, b]: [usize; 2]) -> bool {
    let graph = &model.graph;
    let pair = |role: &WeightRole| Some((graph.weight_at(role.in_layer(a))?, graph.weight_at(*role)?));
    let pairs: Vec<_> = layer_weights(graph, stack, b).iter().filter_map(pair).collect();
    let storage = |id| match model.binding.slot(id) {
        Slot::Bound(found) => model.tensors.get(found.tensor).map(|t| (t.storage, found.rows.clone())),
        Slot::Missing { .. } | Slot::Mismatched { .. } => None,
    };
    !pairs.is_empty()
        && pairs.iter().all(|&(x, y)| are_equal(weights, [x, y]))
        && pairs.iter().all(|&(x, y)| storage(x) != storage(y))
        // Layers that are all zero or all one were never trained; other rules report them.
        && pairs.iter().any(|&(x, _)| varies(weights, x))
}

/// Of weights that cannot be read neither is true, and no run of the model succeeds: each says why.
fn are_equal(weights: &Weights, [a, b]: [WeightId; 2]) -> bool {
    matches!((weights.get(a), weights.get(b)), (Ok(a), Ok(b)) if a == b)
}

fn varies(weights: &Weights, id: WeightId) -> bool {
    weights.get(id).is_ok_and(|values| values.iter().any(|x| Some(x) != values.first()))
}

/// Biases that are all zero where the same bias of most other layers is not; and kinds of biases that are all zero in every
/// layer.
pub(crate) fn dropped_biases(model: &Model, weights: &Weights) -> Vec<Loss> {
    let biases = layer_biases(&model.graph);
    let is_zero = |role: WeightRole| {
        let values = model.graph.weight_at(role).and_then(|id| weights.get(id).ok());
        values.is_some_and(|values| values.iter().all(|&x| x == 0.0))
    };
    let mut losses = Vec::new();
    for &(weight, step) in biases.iter().filter(|(role, _)| is_zero(*role)) {
        let others = biases.iter().filter(|(other, of)| *of == step && *other != weight);
        let siblings = others.clone().filter(|(other, _)| !is_zero(*other)).count();
        if siblings > 0 && 2 * siblings >= others.count() {
            losses.push(Loss::DroppedBias { weight, siblings });
        }
    }
    let is_zero_everywhere =
        |step: LayerStep| biases.iter().filter(|(_, of)| *of == step).all(|(role, _)| is_zero(*role));
    let zero: Vec<&(WeightRole, LayerStep)> =
        biases.iter().filter(|(_, step)| is_zero_everywhere(*step)).collect();
    if !zero.is_empty() && is_trained(model, weights) {
        let mut steps: Vec<LayerStep> = Vec::new();
        for (_, step) in &zero {
            if !steps.contains(step) {
                steps.push(*step);
            }
        }
        let modules = steps.iter().map(ToString::to_string).collect();
        losses.push(Loss::ZeroBiases { modules, weights: zero.iter().map(|(role, _)| *role).collect() });
    }
    losses
}

/// The biases of layers, each with its place within the layer.
fn layer_biases(graph: &Graph) -> Vec<(WeightRole, LayerStep)> {
    let bias = |role: WeightRole| match role {
        WeightRole { owner: Role::Layer(_, _, step), kind: WeightKind::Bias } => Some((role, step)),
        _ => None,
    };
    let vectors = graph.weights().iter().filter(|weight| weight.dims.len() == 1);
    vectors.filter_map(|weight| bias(weight.role)).collect()
}

/// Whether training has moved the gains of norms, which begin as ones: biases begin as zeros, and are still so in a model that
/// was not trained.
fn is_trained(model: &Model, weights: &Weights) -> bool {
    let is_gain = |role: WeightRole| role.kind == WeightKind::Weight && role.owner.is_norm();
    let ids = model.binding.iter().map(|(id, _)| id);
    ids.filter(|&id| is_gain(model.graph.weight(id).role)).any(|id| varies(weights, id))
}
