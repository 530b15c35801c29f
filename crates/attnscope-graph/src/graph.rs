//! The model as a value: nodes in the order in which they are computed, and the weights they use.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;

use crate::dim::{Dim, Side, Stack};
use crate::op::{MaskKind, Op};
use crate::role::{
    AttentionKind, AttentionPlace, AttentionStep, AudioStep, EntryStep, FeedForwardStep, LayerStep, Role,
    WeightRole,
};
use crate::wiring::{Activation, Normaliser, PositionCount, Positions};

/// A node's name everywhere: command line, JSON, drawings, trace files, errors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodePath {
    text: String,
    /// Parsed once, because it is needed often.
    layer: Option<(Stack, usize)>,
}

impl NodePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The layer it is in: `decoder.1.cross_attn.q` is in layer 1 of the decoder.
    pub fn layer(&self) -> Option<(Stack, usize)> {
        self.layer
    }

    /// The path within its layer, `cross_attn.q`; the whole path outside of layers.
    pub fn within_layer(&self) -> &str {
        match self.layer() {
            Some(_) => self.text.splitn(3, '.').nth(2).unwrap_or_default(),
            None => &self.text,
        }
    }

    /// The part it belongs to: `cross_attn` of `decoder.1.cross_attn.q`, `src` of `src.embed`.
    pub fn part(&self) -> &str {
        self.within_layer().split('.').next().unwrap_or_default()
    }

    /// Its last segment.
    pub fn leaf(&self) -> &str {
        self.text.rsplit('.').next().unwrap_or_default()
    }
}

impl From<String> for NodePath {
    fn from(text: String) -> Self {
        let layer = || {
            let (first, rest) = text.split_once('.')?;
            let stack = Stack::ALL.into_iter().find(|s| s.name() == first)?;
            Some((stack, rest.split('.').next()?.parse().ok()?))
        };
        let layer = layer();
        Self { text, layer }
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// A node's place in [`Graph::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) usize);

/// A weight's place in [`Graph::weights`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub(crate) usize);

impl WeightId {
    /// As an index into [`Graph::weights`] or a table beside it.
    pub fn index(self) -> usize {
        self.0
    }
}

impl NodeId {
    /// As an index into [`Graph::nodes`] or a table beside it.
    pub fn index(self) -> usize {
        self.0
    }
}

/// One step of the model: what it computes, from what, and the name it has everywhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is in the model.
    pub role: Role,
    /// Its name, which follows from the role.
    pub path: NodePath,
    /// What it computes.
    pub op: Op,
    /// From what, in the operation's order.
    pub inputs: Vec<NodeId>,
    /// The shape that leaves it.
    pub dims: Vec<Dim>,
    /// The weights it uses, in the operation's order: table or matrix first, bias second.
    pub weights: Vec<WeightId>,
}

/// A weight that the graph asks for. Whether a checkpoint has it is in the [`crate::Binding`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// What it is in the model.
    pub role: WeightRole,
    /// Its name, which follows from the role: the path of the node that owns it, then `weight` or `bias`.
    pub path: String,
    /// Its shape.
    pub dims: Vec<Dim>,
}

/// Nodes and weights. Immutable once built; costs, values and findings are tables beside it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    nodes: Vec<Node>,
    weights: Vec<Weight>,
    by_path: HashMap<String, NodeId>,
    by_role: HashMap<Role, NodeId>,
    weight_by_role: HashMap<WeightRole, WeightId>,
    /// The nodes of a layer are neighbours.
    by_layer: BTreeMap<(Stack, usize), Range<usize>>,
}

/// Positions that are added to embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddedPositions {
    /// Where they come from.
    pub kind: Positions,
    /// The row that position 0 takes.
    pub offset: usize,
    /// What their numbers count.
    pub count: PositionCount,
}

impl Graph {
    /// Every node, inputs before the nodes that use them.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Every weight, each once however many nodes share it.
    pub fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// A node by its number.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// A weight by its number.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0]
    }

    /// Every weight's place, in order.
    pub fn weight_ids(&self) -> impl Iterator<Item = WeightId> + use<> {
        (0..self.weights.len()).map(WeightId)
    }

    /// Each node with its number.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i), n))
    }

    /// The node of that name.
    pub fn find(&self, path: &str) -> Option<NodeId> {
        self.by_path.get(path).copied()
    }

    /// The node that has a role.
    pub fn at(&self, role: Role) -> Option<NodeId> {
        self.by_role.get(&role).copied()
    }

    /// The weight of that path.
    pub fn find_weight(&self, path: &str) -> Option<WeightId> {
        self.weights.iter().position(|weight| weight.path == path).map(WeightId)
    }

    /// The weight that has a role.
    pub fn weight_at(&self, role: WeightRole) -> Option<WeightId> {
        self.weight_by_role.get(&role).copied()
    }

    /// Every weight by what it is, in order.
    pub fn weight_roles(&self) -> impl Iterator<Item = WeightRole> {
        self.weights.iter().map(|weight| weight.role)
    }

    /// How many layers a stack has.
    pub fn layers(&self, stack: Stack) -> usize {
        self.by_layer.keys().filter(|(s, _)| *s == stack).count()
    }

    /// The nodes of one layer, with their numbers.
    pub fn layer(&self, stack: Stack, n: usize) -> impl Iterator<Item = (NodeId, &Node)> {
        let range = self.by_layer.get(&(stack, n)).cloned().unwrap_or_default();
        range.filter_map(|i| Some((NodeId(i), self.nodes.get(i)?)))
    }

    /// Whether a sublayer's norm comes after its residual sum, not before the sublayer.
    pub fn is_after_sum(&self, norm: &Node) -> bool {
        let first = norm.inputs.first().map(|&id| self.node(id).role);
        let of_layer = |role: Role| match role {
            Role::Layer(stack, n, LayerStep::Attention(kind, step)) => {
                Some((stack, n, Some(kind), step == AttentionStep::Residual))
            }
            Role::Layer(stack, n, LayerStep::FeedForward(step)) => {
                Some((stack, n, None, step == FeedForwardStep::Residual))
            }
            _ => None,
        };
        match (first.and_then(of_layer), of_layer(norm.role)) {
            (Some((stack, n, kind, true)), Some((own, m, part, _))) => (stack, n, kind) == (own, m, part),
            _ => false,
        }
    }

    /// The weights of a node that belong to another one: a table that source and target share, a tied output.
    pub fn borrows_weights(&self, node: &Node) -> bool {
        node.weights.first().is_some_and(|&id| self.weight(id).role.owner != node.role)
    }

    /// Whether the output projection is an embedding table.
    pub fn has_tied_output(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.op, Op::Logits { .. }) && self.borrows_weights(node))
    }

    /// Whether source and target look up one table.
    pub fn shares_tables(&self) -> bool {
        let table = |side| {
            let embed = self.at(Role::Entry(side, EntryStep::Embed))?;
            self.node(embed).weights.first()
        };
        let source = table(Side::Source);
        source.is_some() && source == table(Side::Target)
    }

    /// What an attention hides, by its mask; `None` where it has no mask.
    pub fn mask_of(&self, place: AttentionPlace) -> Option<MaskKind> {
        match self.node(self.at(place.step(AttentionStep::Mask))?).op {
            Op::Mask(kind) => Some(kind),
            _ => None,
        }
    }

    /// What the self-attention of a stack hides, by the mask of its first layer; `None` where it has no mask.
    pub fn self_mask(&self, stack: Stack) -> Option<MaskKind> {
        self.mask_of(AttentionPlace { stack, layer: 0, kind: AttentionKind::SelfAttention })
    }

    /// Whether the self-attention of a stack hides later positions.
    pub fn is_causal(&self, stack: Stack) -> bool {
        self.self_mask(stack).is_some_and(|mask| mask.causal)
    }

    /// Whether a mask of any attention hides padding.
    pub fn hides_padding(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.op, Op::Mask(MaskKind { padding: true, .. })))
    }

    /// Whether every attention's weights are a softmax of its scores, so that what all scores of a query have in common
    /// cancels.
    pub fn has_softmax(&self) -> bool {
        let normaliser = |node: &Node| match node.op {
            Op::Normalise(normaliser) => Some(normaliser),
            _ => None,
        };
        let mut all = self.nodes.iter().filter_map(normaliser);
        all.all(|normaliser| normaliser == Normaliser::Softmax)
    }

    /// The activation of a layer's feed-forward.
    pub fn activation(&self, stack: Stack, layer: usize) -> Option<Activation> {
        let role = Role::Layer(stack, layer, LayerStep::FeedForward(FeedForwardStep::Act));
        match self.node(self.at(role)?).op {
            Op::Activate(activation) => Some(activation),
            _ => None,
        }
    }

    /// The positions that are added to the embeddings of a side; `None` where none are.
    pub fn positions(&self, side: Side) -> Option<AddedPositions> {
        match self.node(self.at(Role::Entry(side, EntryStep::Positions))?).op {
            Op::Positions { kind, offset, count, .. } => Some(AddedPositions { kind, offset, count }),
            _ => None,
        }
    }

    /// Whether it has any attention, and so something that a mask could hide.
    pub fn has_attention(&self) -> bool {
        self.nodes.iter().any(|node| node.role.attention().is_some())
    }

    /// Whether blocks of a classifier stand before its logits.
    pub fn has_classifier(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.role, Role::Block(..)))
    }

    /// Whether its scores are those of classes, not of the vocabulary's tokens.
    pub fn scores_classes(&self) -> bool {
        let scores = self.at(Role::Logits).and_then(|id| self.node(id).dims.last());
        scores.is_some_and(|dim| matches!(dim, Dim::Fixed(_)))
    }

    /// Whether its first stack reads audio features, not token ids.
    pub fn reads_audio(&self) -> bool {
        self.at(Role::Audio(AudioStep::Mel)).is_some()
    }

    /// Audio frames per position: the product of the convolutions' strides.
    fn frames_a_position(&self) -> usize {
        let stride = |node: &Node| match node.op {
            Op::Conv1d { stride, .. } => Some(stride),
            _ => None,
        };
        self.nodes.iter().filter_map(stride).product()
    }

    /// The number of positions for so many frames.
    pub fn positions_of(&self, frames: usize) -> usize {
        frames.div_ceil(self.frames_a_position().max(1))
    }

    /// The number of frames for so many positions.
    pub fn frames_of(&self, positions: usize) -> usize {
        positions.saturating_mul(self.frames_a_position())
    }

    /// Whether a node depends on another, directly or through others.
    pub fn is_made_of(&self, node: NodeId, source: NodeId) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = self.node(node).inputs.clone();
        while let Some(id) = open.pop() {
            if id == source {
                return true;
            }
            // Inputs come before the nodes that use them, so nodes before the source do not depend on it.
            if id > source && seen.insert(id) {
                open.extend(&self.node(id).inputs);
            }
        }
        false
    }

    /// Adds a weight, or finds the one that has this role.
    pub(crate) fn add_weight(&mut self, role: WeightRole, dims: Vec<Dim>) -> WeightId {
        let next = WeightId(self.weights.len());
        let id = *self.weight_by_role.entry(role).or_insert(next);
        if id == next {
            self.weights.push(Weight { role, path: role.to_string(), dims });
        }
        id
    }

    /// Adds a node; its shape follows from the operation's shape rule.
    pub(crate) fn add(&mut self, role: Role, op: Op, inputs: &[NodeId], weights: &[WeightId]) -> NodeId {
        let id = NodeId(self.nodes.len());
        let input_dims: Vec<&[Dim]> = inputs.iter().map(|&i| self.node(i).dims.as_slice()).collect();
        let weight_dims: Vec<&[Dim]> = weights.iter().map(|&w| self.weight(w).dims.as_slice()).collect();
        let dims = op.output(&input_dims, &weight_dims);
        let path = NodePath { text: role.to_string(), layer: role.layer() };
        self.by_path.insert(path.text.clone(), id);
        self.by_role.insert(role, id);
        if let Some(layer) = role.layer() {
            self.by_layer.entry(layer).or_insert(id.0..id.0).end = id.0 + 1;
        }
        self.nodes.push(Node { role, path, op, inputs: inputs.to_vec(), dims, weights: weights.to_vec() });
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::FAMILIES;
    use crate::{Architecture, Front, Switch, Wiring, build};

    #[test]
    fn every_weight_is_found_by_its_role_and_belongs_to_a_node() {
        for family in FAMILIES {
            let architecture = Architecture::new(family.stacks, family.head.clone(), |_| 2);
            let graph = build(&architecture, &family.wiring);
            for id in graph.weight_ids() {
                let Weight { role, path, .. } = graph.weight(id);
                assert!(graph.at(role.owner).is_some(), "{}: {path} has no owner", family.id);
                assert_eq!((graph.weight_at(*role), graph.find_weight(path)), (Some(id), Some(id)));
                assert_eq!(role.to_string(), *path);
            }
            assert_eq!(graph.weight_roles().count(), graph.weights().len(), "{}", family.id);
        }
    }

    #[test]
    fn the_graph_knows_what_the_wiring_joined() {
        let vaswani = Wiring::VASWANI;
        let facts = |wiring: &Wiring| {
            let graph = build(&Architecture::encoder_decoder(1, 1), wiring);
            let masks = Stack::ALL.map(|stack| graph.self_mask(stack).map(|mask| mask.causal));
            let shared = (graph.shares_tables(), graph.has_tied_output());
            (shared, graph.hides_padding(), masks, graph.has_softmax(), graph.activation(Stack::Decoder, 0))
        };
        let usual = ((true, true), true, [Some(false), Some(true)], true, Some(Activation::Relu));
        let (shared, padding, masks, softmax, activation) = usual;
        let unpadded = Wiring { padding_mask: Switch::Off, ..vaswani };
        let cases = [
            (vaswani, usual),
            (
                Wiring { shared_embeddings: false, ..vaswani },
                ((false, true), padding, masks, softmax, activation),
            ),
            (Wiring { tied_output: false, ..vaswani }, ((true, false), padding, masks, softmax, activation)),
            (Wiring { front: Front::Audio, ..vaswani }, ((false, true), padding, masks, softmax, activation)),
            (unpadded, (shared, false, [None, Some(true)], softmax, activation)),
            (
                Wiring { causal_mask: Switch::Off, ..unpadded },
                (shared, false, [None, None], softmax, activation),
            ),
            (
                Wiring { causal_mask: Switch::Off, ..vaswani },
                (shared, true, [Some(false); 2], softmax, activation),
            ),
            (
                Wiring { normaliser: Normaliser::Sigmoid, ..vaswani },
                (shared, padding, masks, false, activation),
            ),
            (
                Wiring { activation: Activation::Swish, gated: true, ..vaswani },
                (shared, padding, masks, softmax, Some(Activation::Swish)),
            ),
        ];
        for (wiring, expected) in cases {
            assert_eq!(facts(&wiring), expected, "{wiring:?}");
        }
        // A model of one sequence has nothing to share.
        let alone = build(&Architecture::decoder_only(1), &vaswani);
        assert!(!alone.shares_tables() && alone.has_tied_output());
        assert_eq!(alone.activation(Stack::Encoder, 0), None);
        assert!(alone.is_causal(Stack::Decoder) && !alone.is_causal(Stack::Encoder));
        let source_table = Role::Entry(Side::Source, EntryStep::Embed).weight();
        assert_eq!([Role::Logits.weight(), source_table].map(|role| alone.weight_at(role)), [None; 2]);
    }
}
