//! The whole model at a glance: inputs, embeddings, layers folded, output.

use attnscope_graph::{Dim, Front, Node, NormPlace, Op, Positions, Side, Slot, Stack, WeightId, words};

use super::block::{Naming, block, heads, hole, positions, step};
use super::layers::layer_groups;
use super::{LayerGroup, PARTS, View, thousands};
use crate::diagram::{Arrow, Block, Diagram, Kind};

/// The diagram of the given stacks with everything that feeds them.
pub(super) fn diagram(view: &View<'_>, stacks: &[Stack]) -> Diagram {
    let mut d =
        Diagram { title: title(view, stacks), facts: Vec::new(), blocks: Vec::new(), arrows: Vec::new() };
    let memory = if stacks.contains(&Stack::Encoder) {
        let embedded = embeddings(view, &mut d, Side::Source);
        stack(view, &mut d, Stack::Encoder, embedded, None)
    } else {
        let shape = node(view, "encoder.out").map(|n| view.shape(&n.dims)).unwrap_or_default();
        d.blocks.push(super::block::outside("encoder.out", &shape));
        0
    };
    if stacks.contains(&Stack::Decoder) {
        let embedded = embeddings(view, &mut d, Side::Target);
        let out = stack(view, &mut d, Stack::Decoder, embedded, Some(memory));
        if let Some(logits) = node(view, "logits") {
            let mut block = block(view, &[logits], &whole_names());
            if view.model.wiring.tied_output {
                block.lines.insert(1, "tied to the embedding table".into());
            }
            push(&mut d, block, &[(out, "")]);
        }
    }
    d
}

fn title(view: &View<'_>, stacks: &[Stack]) -> String {
    match stacks {
        [one] => format!("{} {}", view.model.title(), one.name()),
        _ => format!("{} encoder-decoder", view.model.title()),
    }
}

/// Names in full: nothing is folded outside of layers.
fn whole_names() -> Naming<'static> {
    Naming { path: &|path| path.to_owned(), tensor: &|name: &str, _: WeightId| name.to_owned() }
}

fn node<'a>(view: &View<'a>, path: &str) -> Option<&'a Node> {
    let model = view.model;
    model.graph.find(path).map(|id| model.graph.node(id))
}

fn push(d: &mut Diagram, block: Block, inputs: &[(usize, &str)]) -> usize {
    let to = d.blocks.len();
    d.blocks.push(block);
    d.arrows.extend(inputs.iter().map(|&(from, label)| Arrow { from, to, label: label.into() }));
    to
}

/// Ids or audio, then everything up to `embed_pos` in one box.
fn embeddings(view: &View<'_>, d: &mut Diagram, side: Side) -> usize {
    let s = side.name();
    let names = whole_names();
    let mut last = None;
    if side == Side::Source && view.model.wiring.front == Front::Audio {
        for path in ["audio.mel", "audio.conv1", "audio.conv2"] {
            let Some(n) = node(view, path) else { continue };
            let mut block = block(view, &[n], &names);
            block.title = path.to_owned();
            if matches!(n.op, Op::Conv1d { .. }) {
                block.lines.insert(1, "then gelu".into());
            }
            last = Some(push(d, block, &last.map(|l| (l, "")).into_iter().collect::<Vec<_>>()));
        }
    } else if let Some(ids) = node(view, &format!("{s}.ids")) {
        let mut block = block(view, &[ids], &names);
        block.title = format!("{s}.ids");
        last = Some(push(d, block, &[]));
    }
    let parts: Vec<&Node> = ["embed", "embed_norm", "positions", "embed_sum", "embed_pos"]
        .iter()
        .filter_map(|leaf| node(view, &format!("{s}.{leaf}")))
        .collect();
    let mut whole = Block { kind: Kind::Embedding, ..block(view, &[], &names) };
    for n in parts {
        let one = block(view, &[n], &names);
        whole.hole = whole.hole.max(one.hole);
        whole.shape = one.shape;
        whole.lines.extend(match n.op {
            Op::Same | Op::AddPositions => Vec::new(),
            Op::Positions { kind, offset, .. } => {
                let mut lines = vec![format!("+ {}", positions(kind, offset))];
                lines.extend(one.lines.into_iter().skip(1));
                lines
            }
            Op::Norm { .. } => {
                let mut lines = vec![format!("then {}", step(view, n).split(',').next().unwrap_or_default())];
                lines.extend(one.lines.into_iter().skip(1));
                lines
            }
            _ => one.lines,
        });
    }
    if view.model.wiring.positions(side) == Positions::None {
        whole.lines.push("no positions added: a relative bias in self-attention".into());
    }
    if side == Side::Target && view.model.wiring.shared_embeddings && view.model.wiring.front == Front::Tokens
    {
        whole.lines.push("table shared with src.embed".into());
    }
    whole.path = format!("{s}.embed_pos");
    whole.title = format!("{s}.embed_pos");
    push(d, whole, &last.map(|l| (l, "")).into_iter().collect::<Vec<_>>())
}

/// The layers of a stack, those alike in one box, then its end.
fn stack(view: &View<'_>, d: &mut Diagram, stack: Stack, input: usize, memory: Option<usize>) -> usize {
    let mut x = input;
    for group in layer_groups(view.model, stack) {
        let mut inputs = vec![(x, "")];
        if let Some(memory) = memory {
            inputs.insert(0, (memory, "k, v"));
        }
        x = push(d, layers(view, &group), &inputs);
    }
    let path = format!("{}.out", stack.name());
    match node(view, &path) {
        Some(n) if matches!(n.op, Op::Norm { .. }) => {
            let mut block = block(view, &[n], &whole_names());
            block.title = path;
            push(d, block, &[(x, "")])
        }
        _ => x,
    }
}

/// A group of layers in one box: a line or two for each part.
fn layers(view: &View<'_>, group: &LayerGroup) -> Block {
    let model = view.model;
    if !group.alike {
        return Block {
            path: group.path(),
            title: group.path(),
            shape: String::new(),
            lines: vec![format!("{} layers that differ from each other: --layer draws one", group.count())],
            kind: Kind::Stack,
            hole: None,
        };
    }
    let nodes: Vec<&Node> = model.graph.layer(group.stack, group.first).map(|(_, n)| n).collect();
    let mut lines = Vec::new();
    for part in PARTS {
        let nodes: Vec<&Node> = nodes.iter().filter(|n| n.path.part() == part).copied().collect();
        if !nodes.is_empty() {
            lines.extend(part_lines(view, part, &nodes));
        }
    }
    let mut weights: Vec<WeightId> = nodes.iter().flat_map(|n| n.weights.iter().copied()).collect();
    weights.sort();
    weights.dedup();
    let bound = |w: &WeightId| matches!(model.binding.slot(*w), Slot::Bound(_));
    // The relative bias is one table a stack, kept by its first layer.
    let is_table = |w: &WeightId| model.graph.weight(*w).path.ends_with("self_attn.bias.weight");
    let (tables, own): (Vec<WeightId>, Vec<WeightId>) = weights.iter().partition(|w| is_table(w));
    let count = |of: &[WeightId]| of.iter().map(|&w| model.elements(w)).sum::<u64>();
    let each = if group.count() > 1 { " each" } else { "" };
    lines.push(format!("{} parameters{each}", thousands(count(&own))));
    if !tables.is_empty() && group.first == 0 {
        lines.push(format!("{} more for the relative bias of all layers", thousands(count(&tables))));
    }
    let hole = weights.iter().filter_map(|&w| hole(model.binding.slot(w))).max();
    if hole.is_some() {
        let lost: Vec<_> = weights.iter().filter(|w| !bound(w)).collect();
        lines.push(format!("{} of {} weights missing or wrong", lost.len(), weights.len()));
    }
    let times = if group.count() > 1 { format!(" × {}", group.count()) } else { String::new() };
    let shape = nodes.last().map(|n| view.shape(&n.dims)).unwrap_or_default();
    Block {
        path: group.path(),
        title: format!("{}{times}", group.path()),
        shape,
        lines,
        kind: Kind::Stack,
        hole,
    }
}

/// What a reader wants to know of a part before looking inside.
fn part_lines(view: &View<'_>, part: &str, nodes: &[&Node]) -> Vec<String> {
    let mut facts = Vec::new();
    let mut norm = None;
    for n in nodes {
        match n.op {
            Op::SplitHeads(stack) if n.path.leaf() == "q_heads" => facts.push(heads(view, stack)),
            Op::Scores { .. } => facts.push(step(view, n)),
            Op::RelativeBias { .. } => facts.push("relative bias".into()),
            Op::Mask(kind) => facts.push(format!("mask: {kind}")),
            Op::Linear if n.path.leaf() == "hidden" => {
                let (d, f) = (view.dim(Dim::Model), n.dims.last().map(|&d| view.dim(d)).unwrap_or_default());
                facts.push(format!("{d} → {f} → {d}"));
            }
            Op::Activate(_) => facts.push(words::formula(n, &view.model.sizes, view.symbolic)),
            Op::Gate => facts.push("gated".into()),
            Op::Norm { .. } => norm = step(view, n).split(',').next().map(str::to_owned),
            _ => {}
        }
    }
    if part != "ffn" && !nodes.iter().any(|n| matches!(n.op, Op::Mask(_))) {
        facts.push("no mask".into());
    }
    let norm = norm.unwrap_or_default();
    let place = match view.model.wiring.norm_place {
        NormPlace::Pre => format!("{norm} → {part} → + residual"),
        NormPlace::Post => format!("{part} → + residual → {norm}"),
    };
    vec![place, format!("  {}", facts.join(", "))]
}
