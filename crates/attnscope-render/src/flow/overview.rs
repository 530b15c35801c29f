//! The whole model at a glance: inputs, embeddings, layers folded, output.

use std::collections::HashMap;

use attnscope_graph::{
    AttentionStep, AudioStep, Dim, EntryStep, FeedForwardStep, HeadStep, LayerPart, LayerStep, Node, NodeId,
    Op, Role, Side, Slot, Stack, WeightId, words,
};

use super::View;
use super::block::{Naming, block, heads, hole, joins_input, positions, step};
use crate::diagram::{Arrow, Block, Diagram, Kind};
use attnscope::figures::thousands;
use attnscope::{LayerGroup, layer_groups};

/// The diagram of those of the given stacks that the model has, with everything that feeds them.
pub(super) fn diagram(view: &View<'_>, stacks: &[Stack]) -> Diagram {
    let mut d =
        Diagram { title: title(view, stacks), facts: Vec::new(), blocks: Vec::new(), arrows: Vec::new() };
    let mut outputs: Vec<(Stack, usize)> = Vec::new();
    let drawn = view.model.architecture.stacks.iter().filter(|(shape, _)| stacks.contains(&shape.stack));
    for (shape, _) in drawn {
        let memory = shape.reads.map(|read| match outputs.iter().find(|(stack, _)| *stack == read) {
            Some(&(_, block)) => block,
            None => push(&mut d, memory(view, read), &[]),
        });
        let embedded = embeddings(view, &mut d, shape.stack.side());
        let out = stack(view, &mut d, shape.stack, embedded, memory);
        outputs.push((shape.stack, out));
    }
    match (outputs.last(), view.model.architecture.stacks().next_back()) {
        (Some(&(last, out)), Some(end)) if last == end => head(view, &mut d, out),
        (_, None) => {
            let embedded = embeddings(view, &mut d, Side::Source);
            head(view, &mut d, embedded);
        }
        _ => {}
    }
    d
}

/// The output of a stack that is not drawn.
fn memory(view: &View<'_>, stack: Stack) -> Block {
    let role = Role::StackOut(stack);
    let shape = node(view, role).map(|n| view.shape(&n.dims)).unwrap_or_default();
    super::block::outside(&role.to_string(), &shape)
}

/// What follows the last stack, or the embeddings.
fn head(view: &View<'_>, d: &mut Diagram, out: usize) {
    let mut x = blocks(view, d, out);
    for role in [HeadStep::Dense, HeadStep::Act, HeadStep::Norm, HeadStep::Logits]
        .map(Role::Head)
        .into_iter()
        .chain([Role::Logits])
    {
        let Some(n) = node(view, role) else { continue };
        let mut block = block(view, &[n], &whole_names());
        if matches!(n.op, Op::Logits { .. }) && view.model.graph.borrows_weights(n) {
            block.lines.insert(1, "tied to the embedding table".into());
        }
        if role != Role::Logits {
            block.title = role.to_string();
        }
        x = push(d, block, &[(x, "")]);
    }
}

/// The blocks of a classifier, each step a box; gives the last.
fn blocks(view: &View<'_>, d: &mut Diagram, input: usize) -> usize {
    let graph = &view.model.graph;
    let mut boxes: HashMap<NodeId, usize> = HashMap::new();
    let mut last = input;
    let steps = graph.iter().filter(|(_, node)| matches!(node.role, Role::Block(..)));
    for (id, node) in steps {
        // What is no block is what the blocks read.
        let from = |id: &NodeId| boxes.get(id).copied().unwrap_or(input);
        let inputs: Vec<usize> = node.inputs.iter().map(from).collect();
        last = match inputs.first() {
            Some(&host) if joins_input(node) => host,
            _ => {
                let arrows: Vec<(usize, &str)> = inputs.iter().map(|&from| (from, "")).collect();
                let block = block(view, &[node], &whole_names());
                push(d, Block { title: node.path.to_string(), ..block }, &arrows)
            }
        };
        boxes.insert(id, last);
    }
    last
}

fn title(view: &View<'_>, stacks: &[Stack]) -> String {
    match stacks {
        [one] => format!("{} {}", view.model.title(), one.name()),
        _ if view.model.architecture.stacks.is_empty() => view.model.title(),
        _ => format!("{} {}", view.model.title(), view.model.architecture.kind()),
    }
}

/// Names in full: nothing is folded outside of layers.
fn whole_names() -> Naming<'static> {
    Naming { path: &|path| path.to_owned(), tensor: &|name: &str, _: WeightId| name.to_owned() }
}

fn node<'a>(view: &View<'a>, role: Role) -> Option<&'a Node> {
    let model = view.model;
    model.graph.at(role).map(|id| model.graph.node(id))
}

fn push(d: &mut Diagram, block: Block, inputs: &[(usize, &str)]) -> usize {
    let to = d.blocks.len();
    d.blocks.push(block);
    d.arrows.extend(inputs.iter().map(|&(from, label)| Arrow { from, to, label: label.into() }));
    to
}

/// Ids or audio, then everything up to `embed_pos` in one box.
fn embeddings(view: &View<'_>, d: &mut Diagram, side: Side) -> usize {
    let names = whole_names();
    let mut last = None;
    let audio =
        [Role::Audio(AudioStep::Mel), Role::Audio(AudioStep::Conv(1)), Role::Audio(AudioStep::Conv(2))];
    for role in audio.into_iter().filter(|_| side == Side::Source) {
        let Some(n) = node(view, role) else { continue };
        let mut block = block(view, &[n], &names);
        block.title = role.to_string();
        if matches!(n.op, Op::Conv1d { .. }) {
            block.lines.insert(1, "then gelu".into());
        }
        last = Some(push(d, block, &last.map(|l| (l, "")).into_iter().collect::<Vec<_>>()));
    }
    let entry = |step| Role::Entry(side, step);
    if let Some(ids) = node(view, entry(EntryStep::Ids)) {
        let mut block = block(view, &[ids], &names);
        block.title = ids.path.to_string();
        last = Some(push(d, block, &[]));
    }
    use EntryStep::{Embed, EmbedNorm, EmbedPos, EmbedProj, EmbedSum, Positions as Added, Types};
    let parts: Vec<&Node> = [Embed, EmbedNorm, Added, Types, EmbedSum, EmbedPos, EmbedProj]
        .into_iter()
        .filter_map(|step| node(view, entry(step)))
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
            Op::Embed { .. } if n.role == entry(Types) => {
                let mut lines = vec!["+ table of token types".to_owned()];
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
    if node(view, entry(Added)).is_none() {
        whole.lines.push(no_positions(view, side).into());
    }
    if let Some(embed) = node(view, entry(Embed))
        && side == Side::Target
        && view.model.graph.borrows_weights(embed)
    {
        whole.lines.push(format!("table shared with {}", Role::Entry(Side::Source, Embed)));
    }
    whole.path = entry(EmbedPos).to_string();
    whole.title = whole.path.clone();
    push(d, whole, &last.map(|l| (l, "")).into_iter().collect::<Vec<_>>())
}

/// Where positions come from when none are added to the embeddings.
fn no_positions(view: &View<'_>, side: Side) -> &'static str {
    let of_side = |node: &&Node| node.role.layer().is_some_and(|(stack, _)| stack.side() == side);
    let nodes = || view.model.graph.nodes().iter().filter(of_side);
    if nodes().any(|node| matches!(node.op, Op::Rotate { .. })) {
        return "no positions added: queries and keys are rotated in self-attention";
    }
    match nodes().any(|node| matches!(node.op, Op::RelativeBias { .. })) {
        true => "no positions added: a relative bias in self-attention",
        false => "no positions added",
    }
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
    match node(view, Role::StackOut(stack)) {
        Some(n) if matches!(n.op, Op::Norm { .. }) => {
            let mut block = block(view, &[n], &whole_names());
            block.title = n.path.to_string();
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
    for part in LayerPart::ALL {
        let nodes: Vec<&Node> = nodes.iter().filter(|n| n.role.part() == Some(part)).copied().collect();
        if !nodes.is_empty() {
            lines.extend(part_lines(view, part, &nodes));
        }
    }
    let mut weights: Vec<WeightId> = nodes.iter().flat_map(|n| n.weights.iter().copied()).collect();
    weights.sort();
    weights.dedup();
    let bound = |w: &WeightId| matches!(model.binding.slot(*w), Slot::Bound(_));
    // A relative bias table that all layers of a stack look up is kept by the first.
    let is_shared = |n: &Node| {
        let users = model.graph.nodes().iter().filter(|user| user.op == n.op && user.weights == n.weights);
        users.count() > 1
    };
    let of_bias = |n: &&Node| matches!(n.op, Op::RelativeBias { .. }) && is_shared(n);
    let biases: Vec<WeightId> =
        nodes.iter().copied().filter(of_bias).flat_map(|n| n.weights.clone()).collect();
    let is_table = |w: &WeightId| biases.contains(w);
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
fn part_lines(view: &View<'_>, part: LayerPart, nodes: &[&Node]) -> Vec<String> {
    let mut facts = Vec::new();
    let (mut norm, mut after, mut of_output, mut norms_heads) = (None, false, false, false);
    for n in nodes {
        match n.op {
            Op::SplitHeads(stack) => match n.role.attention().map(|(_, step)| step) {
                Some(AttentionStep::QHeads) => facts.push(heads(view, stack, n)),
                // Told where they are fewer.
                Some(AttentionStep::KHeads) if n.dims.get(1) != Some(&Dim::Heads(stack)) => {
                    facts.push(format!("{} of keys and values", heads(view, stack, n)));
                }
                _ => {}
            },
            Op::Rotate { .. } if n.role.attention().map(|(_, step)| step) == Some(AttentionStep::QRot) => {
                facts.push(rotary_words(n));
            }
            Op::Scores { .. } => facts.push(step(view, n)),
            Op::SoftCap { cap, .. } => facts.push(format!("capped at {cap}")),
            Op::RelativeBias { .. } => facts.push("relative bias".into()),
            Op::Mask(kind) => facts.push(format!("mask: {kind}")),
            Op::Linear if n.role.feed_forward() == Some(FeedForwardStep::Hidden) => {
                let (d, f) = (view.dim(Dim::Model), n.dims.last().map(|&d| view.dim(d)).unwrap_or_default());
                facts.push(format!("{d} → {f} → {d}"));
            }
            Op::Activate(_) => facts.push(words::formula(n, &view.model.sizes, view.symbolic)),
            Op::Gate => facts.push("gated".into()),
            Op::Norm { .. } if is_of_heads(n) => norms_heads = true,
            Op::Norm { .. } if is_of_output(n) => of_output = true,
            Op::Same if n.role.feed_forward() == Some(FeedForwardStep::In) && is_parallel(view, n) => {
                facts.push("beside attention: reads what the layer reads".into());
            }
            Op::Norm { .. } => {
                norm = step(view, n).split(',').next().map(str::to_owned);
                after = view.model.graph.is_after_sum(n);
            }
            _ => {}
        }
    }
    if norms_heads {
        facts.push("queries and keys normed".into());
    }
    if part != LayerPart::FeedForward && !nodes.iter().any(|n| matches!(n.op, Op::Mask(_))) {
        facts.push("no mask".into());
    }
    let (part, norm) = (part.name(), norm.unwrap_or_default());
    let place = match (norm.as_str(), after, of_output) {
        ("", ..) => format!("{part} → + residual"),
        (_, false, false) => format!("{norm} → {part} → + residual"),
        (_, false, true) => format!("{norm} → {part} → {norm} → + residual"),
        (_, true, _) => format!("{part} → + residual → {norm}"),
    };
    vec![place, format!("  {}", facts.join(", "))]
}

/// Whether a norm is that of queries or keys.
fn is_of_heads(node: &Node) -> bool {
    let step = node.role.attention().map(|(_, step)| step);
    matches!(step, Some(AttentionStep::QNorm | AttentionStep::KNorm))
}

/// Whether a norm is that of a sublayer's output, before the sum.
fn is_of_output(node: &Node) -> bool {
    let step = node.role.attention().map(|(_, step)| step);
    step == Some(AttentionStep::OutNorm) || node.role.feed_forward() == Some(FeedForwardStep::OutNorm)
}

/// Which features are rotated, and how their frequencies are scaled.
fn rotary_words(node: &Node) -> String {
    let Op::Rotate { rotary, .. } = node.op else { return String::new() };
    let share = if rotary.share == 1.0 { String::new() } else { format!(" on {} of a head", rotary.share) };
    let scaling = rotary.scaling.map(|scaling| format!(" ({scaling})")).unwrap_or_default();
    format!("rotary positions{share}{scaling}")
}

/// Whether a feed-forward reads what its layer reads, not the stream after the attention.
fn is_parallel(view: &View<'_>, into: &Node) -> bool {
    let graph = &view.model.graph;
    let before = |node: &Node| node.inputs.first().map(|&id| graph.node(id));
    let read = before(into).map(|node| if node.role.is_norm() { before(node).unwrap_or(node) } else { node });
    read.is_some_and(|node| matches!(node.role, Role::Layer(_, _, LayerStep::In)))
}
