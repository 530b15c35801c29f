//! One box from one or a few nodes: its title, its shape, and everything that is known about it.

use attnscope_graph::{Dim, Node, NormGain, NormKind, Op, OpKind, Positions, Slot, Stack, WeightId, words};

use super::View;
use crate::diagram::{Block, Hole, Kind};
use attnscope::figures::thousands;

/// How the names of a drawing are shortened: what they all begin with, and the layer that stands for all.
pub(super) struct Naming<'a> {
    /// The path of a node as it reads in this drawing.
    pub(super) path: &'a dyn Fn(&str) -> String,
    /// The name of a weight's tensor as it reads in this drawing.
    pub(super) tensor: &'a dyn Fn(&str, WeightId) -> String,
}

/// True for a node that is not a separate step for a reader: it joins the box of its input.
pub(super) fn joins_input(node: &Node) -> bool {
    match node.op {
        Op::AddMask { bias, mask } => !bias && !mask,
        // What has a module is a step of its own, and so is the input.
        op => op.facets().module.is_none() && op.facets().kind != OpKind::Input,
    }
}

/// The colour of an operation.
fn kind(op: &Op) -> Kind {
    match op.facets().kind {
        OpKind::Input => Kind::Input,
        OpKind::Embedding => Kind::Embedding,
        OpKind::Linear => Kind::Linear,
        OpKind::Attention => Kind::Attention,
        OpKind::Mask => Kind::Mask,
        OpKind::Stream => Kind::Stream,
        OpKind::Activation => Kind::Activation,
        OpKind::Output => Kind::Output,
    }
}

/// The box of a node and of the nodes that join it.
pub(super) fn block(view: &View<'_>, nodes: &[&Node], naming: &Naming<'_>) -> Block {
    let model = view.model;
    let Some((&first, joined)) = nodes.split_first() else { return outside("", "") };
    let mut lines = vec![step(view, first)];
    for node in joined {
        lines.extend(joined_line(view, node));
    }
    let mut wrong = None;
    let (mut parameters, mut constants) = (0u64, 0u64);
    for &weight in &first.weights {
        wrong = wrong.max(hole(model.binding.slot(weight)));
        lines.push(weight_line(view, weight, naming));
        // A weight is counted where it occurs first: a tied table at the lookup, a bias table at the first layer.
        if model.graph.weight(weight).role.owner == first.role {
            *(if model.is_buffer(weight) { &mut constants } else { &mut parameters }) +=
                model.elements(weight);
        }
    }
    if matches!(first.op, Op::Linear | Op::Conv1d { .. }) && first.weights.len() == 1 {
        lines.push("no bias".into());
    }
    if parameters > 0 {
        lines.push(format!("{} parameters", thousands(parameters)));
    }
    if constants > 0 {
        lines.push(format!("{} constants in a buffer", thousands(constants)));
    }
    lines.retain(|l| !l.is_empty());
    Block {
        path: (naming.path)(first.path.as_str()),
        title: first.path.leaf().to_owned(),
        shape: view.shape(&first.dims),
        lines,
        kind: kind(&first.op),
        hole: wrong,
    }
}

/// What is wrong with a weight, if anything is.
pub(super) fn hole(slot: &Slot) -> Option<Hole> {
    match slot {
        Slot::Bound(_) => None,
        Slot::Mismatched { .. } => Some(Hole::WrongShape),
        Slot::Missing { .. } => Some(Hole::Missing),
    }
}

/// A box for a value that comes from elsewhere.
pub(super) fn outside(path: &str, shape: &str) -> Block {
    Block {
        path: path.to_owned(),
        title: path.to_owned(),
        shape: shape.to_owned(),
        lines: Vec::new(),
        kind: Kind::Outside,
        hole: None,
    }
}

/// What a node does, with the facts that matter for it.
pub(super) fn step(view: &View<'_>, node: &Node) -> String {
    let sizes = &view.model.sizes;
    match node.op {
        Op::Mask(kind) => kind.to_string(),
        Op::Norm { kind, eps, gain } => {
            let gain = match gain {
                NormGain::Weight => "",
                NormGain::OnePlusWeight => ", gain 1 + weight",
            };
            format!("{}, eps {eps:e}{gain}, {}", norm_name(kind), norm_place(view, node))
        }
        Op::Positions { kind, offset, .. } => positions(kind, offset),
        _ => words::formula(node, sizes, view.symbolic),
    }
}

fn norm_name(kind: NormKind) -> &'static str {
    match kind {
        NormKind::Layer => "LayerNorm",
        NormKind::Rms => "RMSNorm",
    }
}

fn norm_place(view: &View<'_>, node: &Node) -> &'static str {
    match (node.role.layer(), view.model.graph.is_after_sum(node)) {
        (None, _) => "at the end",
        (Some(_), false) => "before the sublayer",
        (Some(_), true) => "after the sum",
    }
}

/// Where positions come from, in words.
pub(super) fn positions(kind: Positions, offset: usize) -> String {
    let words = match kind {
        Positions::Table => "table of positions",
        Positions::SinusoidHalves => "sinusoids, sines then cosines",
        Positions::SinusoidInterleaved => "sinusoids, sine and cosine alternating",
        Positions::SinusoidFairseq => "sinusoids, fairseq's",
        Positions::Rotary => "rotary positions",
        Positions::None => "no positions",
    };
    if offset > 0 { format!("{words}, from row {offset}") } else { words.into() }
}

/// What a joined node adds: the split into heads, a second name.
fn joined_line(view: &View<'_>, node: &Node) -> Option<String> {
    match node.op {
        Op::SplitHeads(stack) => Some(heads(view, stack, node)),
        Op::MergeHeads(_) => Some(format!("heads side by side {}", view.shape(&node.dims))),
        _ => None,
    }
}

/// `4 heads × 32`, or letters while the file does not say.
pub(super) fn heads(view: &View<'_>, stack: Stack, split: &Node) -> String {
    let heads = split.dims.get(1).copied().unwrap_or(Dim::Heads(stack));
    let (count, size) = (view.dim(heads), view.dim(Dim::Head(stack)));
    match view.model.sizes.get(heads) {
        Some(_) => format!("{count} heads × {size}"),
        None => format!("{count} heads × {size} ({count} unknown)"),
    }
}

/// A weight's name, shape and type, or what is wrong with it.
fn weight_line(view: &View<'_>, weight: WeightId, naming: &Naming<'_>) -> String {
    let model = view.model;
    match model.binding.slot(weight) {
        Slot::Missing { name } => format!("MISSING {}", (naming.tensor)(name, weight)),
        Slot::Mismatched { found, expected, shape } => {
            let name = (naming.tensor)(&model.tensors[found.tensor].name, weight);
            format!("{name} {shape:?}, expected {expected:?}")
        }
        Slot::Bound(found) => {
            let tensor = &model.tensors[found.tensor];
            let name = (naming.tensor)(&tensor.name, weight);
            let text = if view.symbolic {
                let dims = &model.graph.weight(weight).dims;
                attnscope_graph::ShapeText { dims, sizes: &model.sizes, symbolic: true }.to_string()
            } else {
                format!("{:?}", found.shape(&model.tensors))
            };
            let rows = found.rows.as_ref().map(|r| format!(" rows {}–{}", r.start, r.end.saturating_sub(1)));
            let stored = match (found.transposed, found.by_head) {
                (true, _) => ", stored transposed",
                (false, Some(_)) => ", stored head by head",
                (false, None) => "",
            };
            format!("{name}{} {text} {}{stored}", rows.unwrap_or_default(), tensor.dtype)
        }
    }
}
