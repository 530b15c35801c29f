//! Mistakes that lose what was there: a bias dropped, a layer written twice, a layer left out. They show in the file itself,
//! and no repair of it can prove them.

use attnscope_graph::{Graph, Model, Slot, Stack};
use attnscope_run::Weights;
use serde_json::{Value, json};

/// Layers that a config tells of and whose weights are listed; a config may tell of any number.
const MOST_LAYERS: usize = 64;

/// Something that is no longer in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// A bias is all zero though the same bias of other layers is not.
    DroppedBias {
        /// Its path.
        weight: String,
        /// Layers whose own is not zero.
        siblings: usize,
    },
    /// A layer holds the values of another, to the last bit.
    CopiedLayer {
        /// Their stack.
        stack: Stack,
        /// The layer that comes first, and the one that holds the same.
        layers: [usize; 2],
    },
    /// A config tells of more layers than the file has.
    MissingLayer {
        /// Their stack.
        stack: Stack,
        /// Layers in the file.
        found: usize,
        /// Layers that the config tells of.
        declared: usize,
        /// Which config.
        source: String,
    },
}

impl Loss {
    /// Its name in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DroppedBias { .. } => "dropped_bias",
            Self::CopiedLayer { .. } => "copied_layer",
            Self::MissingLayer { .. } => "missing_layer",
        }
    }

    /// The weights that are lost; of a config that tells of very many layers, those of the first.
    pub fn weights(&self, graph: &Graph) -> Vec<String> {
        match self {
            Self::DroppedBias { weight, .. } => vec![weight.clone()],
            Self::CopiedLayer { stack, layers } => layer_weights(graph, *stack, layers[1]),
            // T5's first layer has a table that the others lack: the last is like what is missing.
            Self::MissingLayer { stack, found, declared, .. } => {
                let last = found.saturating_sub(1);
                let (from, name) = (format!("{}.{last}.", stack.name()), stack.name());
                let like = layer_weights(graph, *stack, last);
                let mut lost = Vec::new();
                for n in (*found..*declared).take(MOST_LAYERS) {
                    lost.extend(like.iter().map(|path| path.replacen(&from, &format!("{name}.{n}."), 1)));
                }
                lost
            }
        }
    }

    /// As JSON, in the form of a repair.
    pub fn json(&self, graph: &Graph) -> Value {
        let weights = self.weights(graph);
        match self {
            Self::DroppedBias { .. } => json!({ "kind": self.kind(), "weights": weights }),
            Self::CopiedLayer { stack, layers } => {
                json!({ "kind": self.kind(), "weights": weights, "stack": stack.name(), "layers": layers })
            }
            Self::MissingLayer { stack, found, declared, .. } => json!({
                "kind": self.kind(), "weights": weights, "stack": stack.name(), "found": found, "declared": declared,
            }),
        }
    }

    /// Whether it changes nothing that the model computes: k's bias adds the same to every score of a query, and the softmax
    /// takes it out again.
    pub fn has_no_effect(&self, model: &Model) -> bool {
        match self {
            Self::DroppedBias { weight, .. } => {
                weight.ends_with("_attn.k.bias") && model.wiring.squash == attnscope_graph::Squash::Softmax
            }
            Self::CopiedLayer { .. } | Self::MissingLayer { .. } => false,
        }
    }
}

fn layer_weights(graph: &Graph, stack: Stack, layer: usize) -> Vec<String> {
    let start = format!("{}.{layer}.", stack.name());
    graph.weights().iter().map(|w| &w.path).filter(|path| path.starts_with(&start)).cloned().collect()
}

/// Layers that a config tells of and the file does not have.
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

/// Whether every weight of two layers is the same, though they are tensors of their own.
fn is_copy(model: &Model, weights: &Weights, stack: Stack, [a, b]: [usize; 2]) -> bool {
    let (here, there) = (format!("{}.{a}.", stack.name()), format!("{}.{b}.", stack.name()));
    let pairs: Vec<_> = layer_weights(&model.graph, stack, b)
        .iter()
        .filter_map(|path| {
            let other = path.replacen(&there, &here, 1);
            Some((model.graph.find_weight(&other)?, model.graph.find_weight(path)?))
        })
        .collect();
    let storage = |id| match model.binding.slot(id) {
        Slot::Bound(found) => model.tensors.get(found.tensor).map(|t| (t.storage, found.rows.clone())),
        Slot::Missing { .. } | Slot::Mismatched { .. } => None,
    };
    !pairs.is_empty()
        && pairs.iter().all(|&(x, y)| weights.get(x) == weights.get(y))
        && pairs.iter().all(|&(x, y)| storage(x) != storage(y))
        // Layers that are all zero or all one were never trained; other rules speak of them.
        && pairs.iter().any(|&(x, _)| weights.get(x).iter().any(|v| Some(v) != weights.get(x).first()))
}

/// Biases that are all zero where the same bias of most other layers is not.
pub(crate) fn dropped_biases(model: &Model, weights: &Weights) -> Vec<Loss> {
    let graph = &model.graph;
    let is_zero =
        |path: &str| graph.find_weight(path).is_some_and(|id| weights.get(id).iter().all(|&x| x == 0.0));
    let role = |path: &str| {
        let mut parts = path.splitn(3, '.');
        let stack = parts.next().filter(|name| Stack::ALL.iter().any(|stack| stack.name() == *name))?;
        parts.next()?.parse::<usize>().ok().map(|_| stack)?;
        parts.next().map(str::to_owned)
    };
    let biases: Vec<(&str, String)> = graph
        .weights()
        .iter()
        .filter(|weight| weight.path.ends_with(".bias") && weight.dims.len() == 1)
        .filter_map(|weight| Some((weight.path.as_str(), role(&weight.path)?)))
        .collect();
    let mut losses = Vec::new();
    for (path, role) in biases.iter().filter(|(path, _)| is_zero(path)) {
        let others = biases.iter().filter(|(other, of)| of == role && other != path);
        let siblings = others.clone().filter(|(other, _)| !is_zero(other)).count();
        if siblings > 0 && 2 * siblings >= others.count() {
            losses.push(Loss::DroppedBias { weight: (*path).to_owned(), siblings });
        }
    }
    losses
}
