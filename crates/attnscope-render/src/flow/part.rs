//! One part of a layer (an attention, a feed-forward layer) node by node.

use std::collections::HashMap;

use attnscope_graph::{
    AttentionKind, AttentionStep, LayerPart, Node, NodeId, Op, Selector, Stack, WeightRole,
};

use super::View;
use super::block::{Naming, block, joins_input, outside};
use crate::diagram::{Arrow, Block, Diagram};
use attnscope::LayerGroup;

/// The diagram of nodes outside of layers that a selector picks: `src.*`, `logits`.
pub(super) fn loose(view: &View<'_>, selector: &Selector) -> Option<Diagram> {
    let picked = |(_, n): &(NodeId, &Node)| n.path.layer().is_none() && selector.matches(&n.path);
    let nodes: Vec<(NodeId, &Node)> = view.model.graph.iter().filter(picked).collect();
    // A group of one layer folds nothing: names stay whole.
    let whole = LayerGroup { stack: Stack::Encoder, first: 0, last: 0, alike: true };
    let naming = Naming { path: &|path| path.to_owned(), tensor: &|name, _| name.to_owned() };
    let title = selector.as_str().to_owned();
    (!nodes.is_empty()).then(|| draw_nodes(view, &whole, title, Vec::new(), &nodes, &naming))
}

/// The diagram of `part` in the first layer of a group, which stands for all of them.
pub(super) fn diagram(view: &View<'_>, group: &LayerGroup, part: LayerPart) -> Diagram {
    let graph = &view.model.graph;
    let nodes: Vec<(NodeId, &Node)> =
        graph.layer(group.stack, group.first).filter(|(_, n)| n.role.part() == Some(part)).collect();
    let maps = |(_, n): &&(NodeId, &Node)| matches!(n.op, Op::Linear);
    // What the projections begin with, and what everything in the drawing begins with: a norm stands outside.
    let close = common_prefix(view, group, nodes.iter().filter(maps));
    let wide = common_prefix(view, group, nodes.iter());
    let naming = Naming {
        path: &|path| group.general(path),
        tensor: &|name, weight| {
            let in_layer = owned_by_layer(view, group, weight);
            let name = group.general_name(&view.model.prefix, name, in_layer);
            match (name.strip_prefix(&close), name.strip_prefix(&wide)) {
                (Some(short), _) => short.to_owned(),
                (None, Some(short)) if !wide.is_empty() => format!("…{short}"),
                _ => name,
            }
        },
    };
    let facts = match (close.as_str(), wide.as_str()) {
        ("", _) => Vec::new(),
        (close, wide) if close == wide || wide.is_empty() => vec![format!("weights: {close}*")],
        (close, wide) => vec![format!("weights: {close}*, where … stands for {wide}")],
    };
    draw_nodes(view, group, title(group, part), facts, &nodes, &naming)
}

/// Boxes for nodes, those that join their input in its box, and arrows between them and from outside.
fn draw_nodes(
    view: &View<'_>,
    group: &LayerGroup,
    title: String,
    facts: Vec<String>,
    nodes: &[(NodeId, &Node)],
    naming: &Naming<'_>,
) -> Diagram {
    let graph = &view.model.graph;
    let mut drawing = Drawing::default();
    let groups = merge(nodes);
    for members in &groups {
        if drawing.see_through(view, group, members) {
            continue;
        }
        let blocks: Vec<&Node> = members.iter().map(|&id| graph.node(id)).collect();
        drawing.place(members, block(view, &blocks, naming));
    }
    for members in &groups {
        for &id in members {
            drawing.join(view, group, id, graph.node(id));
        }
    }
    drawing.order_outside();
    Diagram { title, facts, blocks: drawing.blocks, arrows: drawing.arrows }
}

fn title(group: &LayerGroup, part: LayerPart) -> String {
    let times = if group.count() > 1 { format!(" × {}", group.count()) } else { String::new() };
    format!("{}.{}{times}", group.path(), part.name())
}

fn owned_by_layer(view: &View<'_>, group: &LayerGroup, weight: attnscope_graph::WeightId) -> bool {
    let WeightRole { owner, .. } = view.model.graph.weight(weight).role;
    // A table that the first layer keeps for all is named as it is.
    let is_bias_table = owner.is(AttentionKind::SelfAttention, AttentionStep::Bias);
    owner.layer() == Some((group.stack, group.first)) && !is_bias_table
}

/// Nodes with those that join them.
fn merge(nodes: &[(NodeId, &Node)]) -> Vec<Vec<NodeId>> {
    let mut groups: Vec<Vec<NodeId>> = Vec::new();
    let mut place: HashMap<NodeId, usize> = HashMap::new();
    for &(id, node) in nodes {
        let host = node.inputs.first().filter(|_| joins_input(node)).and_then(|i| place.get(i)).copied();
        let at = host.unwrap_or_else(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push(id);
        place.insert(id, at);
    }
    groups
}

#[derive(Default)]
struct Drawing {
    blocks: Vec<Block>,
    arrows: Vec<Arrow>,
    place: HashMap<NodeId, usize>,
}

impl Drawing {
    fn place(&mut self, members: &[NodeId], block: Block) {
        for &id in members {
            self.place.insert(id, self.blocks.len());
        }
        self.blocks.push(block);
    }

    /// A second name for a value from outside is not a step: its box is the outside one.
    fn see_through(&mut self, view: &View<'_>, group: &LayerGroup, members: &[NodeId]) -> bool {
        let graph = &view.model.graph;
        let first = members.first().map(|&id| graph.node(id)).filter(|n| matches!(n.op, Op::Same));
        let Some(&input) = first.and_then(|n| n.inputs.first()) else { return false };
        let at = self.source(view, group, input);
        self.place.extend(members.iter().map(|&id| (id, at)));
        true
    }

    /// The box of a value: its own, or one for a value from outside, made when it is first needed.
    fn source(&mut self, view: &View<'_>, group: &LayerGroup, id: NodeId) -> usize {
        if let Some(&at) = self.place.get(&id) {
            return at;
        }
        let node = view.model.graph.node(id);
        let path = group.general(node.path.as_str());
        self.place(&[id], outside(&path, &view.shape(&node.dims)));
        self.blocks.len() - 1
    }

    /// Arrows into a node; a value from outside of the part gets a box of its own.
    fn join(&mut self, view: &View<'_>, group: &LayerGroup, id: NodeId, node: &Node) {
        for (i, &input) in node.inputs.iter().enumerate() {
            let from = self.source(view, group, input);
            let Some(&to) = self.place.get(&id) else { continue };
            let label = match node.op {
                Op::Residual { .. } if i == 0 => "residual",
                _ => "",
            };
            let known = self.arrows.iter().any(|a| a.from == from && a.to == to);
            if from != to && !known {
                self.arrows.push(Arrow { from, to, label: label.into() });
            }
        }
    }

    /// Values from outside come first, so that a layout keeps them at the top.
    fn order_outside(&mut self) {
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        order.sort_by_key(|&i| self.blocks[i].kind != crate::diagram::Kind::Outside);
        let mut new_place = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            new_place[old] = new;
        }
        self.blocks = order.iter().map(|&i| self.blocks[i].clone()).collect();
        for arrow in &mut self.arrows {
            (arrow.from, arrow.to) = (new_place[arrow.from], new_place[arrow.to]);
        }
    }
}

/// What the names of all tensors of a drawing begin with, up to a dot.
fn common_prefix<'n>(
    view: &View<'_>,
    group: &LayerGroup,
    nodes: impl Iterator<Item = &'n (NodeId, &'n Node)>,
) -> String {
    let mut common: Option<String> = None;
    for &weight in nodes.flat_map(|(_, n)| &n.weights) {
        if !owned_by_layer(view, group, weight) {
            continue;
        }
        let name = match view.model.binding.slot(weight) {
            attnscope_graph::Slot::Missing { name } => name,
            attnscope_graph::Slot::Bound(found) | attnscope_graph::Slot::Mismatched { found, .. } => {
                &view.model.tensors[found.tensor].name
            }
        };
        let name = group.general_name(&view.model.prefix, name, true);
        common = Some(match common {
            None => name,
            Some(common) => shared(&common, &name),
        });
    }
    let common = common.unwrap_or_default();
    common.rfind('.').map_or_else(String::new, |dot| common[..=dot].to_owned())
}

fn shared(a: &str, b: &str) -> String {
    a.chars().zip(b.chars()).take_while(|(x, y)| x == y).map(|(x, _)| x).collect()
}
