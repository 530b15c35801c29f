//! A node's page, and the walk through all 43 snapshots.

use std::collections::BTreeSet;

use crate::answer::Page;
use crate::figures::number;
use attnscope_graph::{
    Dim, Graph, Node, NodeId, Op, Side, Snapshot, View, computed_before, order_note, snapshot_numbers,
    snapshots, words,
};

use super::Subject;

/// What a node is, its formula and shape, why that shape, where it comes from and goes to.
pub(crate) fn node_page(subject: &Subject<'_>, id: NodeId) -> Page {
    let node = subject.graph().node(id);
    let mut page = Page::new(node.path.as_str());
    page.words(words::sentence(node));
    page.formula(format!("{} = {}", node.path.leaf(), words::formula(node, &subject.sizes, false)));
    let numbers = snapshot_numbers(subject.graph(), id);
    let numbers = numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    page.facts([
        ("snapshot", (!numbers.is_empty()).then_some(numbers)),
        ("shape", Some(shape_text(subject, node))),
        ("why", Some(words::why_shape(node).to_owned())),
        ("weights", weights(subject, node)),
        ("values", values(subject, node)),
    ]);
    page.table(&["", "dimension", "#size"], dimensions(subject, &node.dims));
    page.drawing(neighbours(subject, id));
    page
}

/// A snapshot: what it shows, and the node or weight that it is taken from.
pub(crate) fn snapshot_page(subject: &Subject<'_>, walk: &[Snapshot], snapshot: &Snapshot) -> Page {
    let graph = subject.graph();
    let mut page = match (&snapshot.view, snapshot.view.nodes()) {
        (View::Corner(weight), _) => corner_page(subject, *weight),
        (_, &[node, ..]) => node_page(subject, node),
        _ => Page::default(),
    };
    page.title = format!("Snapshot {}, {}: {}", snapshot.number, snapshot.view.path(graph), snapshot.what);
    if let View::FirstLogits(node) = snapshot.view {
        page.parts.truncate(0);
        page.words(
            "The scores of the first tokens of the vocabulary, as the next token after the last target token.",
        );
        first_logits(subject, node, &mut page);
    }
    for &id in snapshot.view.nodes().iter().skip(1) {
        let node = graph.node(id);
        page.words(format!("Beside it: {}. {}", node.path, words::sentence(node)));
        page.facts([("shape", Some(shape_text(subject, node))), ("values", values(subject, node))]);
    }
    if let Some(order) = order(graph, walk, snapshot) {
        page.words(format!("The walk's numbers are fixed: this one is {order}."));
    }
    page
}

/// Rows and columns of a weight that are shown.
const CORNER: usize = 5;

/// The first rows of a table of the file.
fn corner_page(subject: &Subject<'_>, id: attnscope_graph::WeightId) -> Page {
    let weight = subject.graph().weight(id);
    let mut page = Page::default();
    page.words(
        "The first rows and columns of a weight, as the file holds it: what lookups or products start from.",
    );
    page.facts([("weight", Some(format!("{} {}", weight.path, subject.shape(&weight.dims))))]);
    let (Some(run), Some(shape)) = (&subject.run, subject.sizes.shape(&weight.dims)) else { return page };
    let width: usize = shape.iter().skip(1).product();
    let all = match run.ready.weights().first_rows(id, CORNER, width) {
        Ok(rows) => rows,
        Err(e) => {
            page.words(format!("It cannot be read: {e}."));
            return page;
        }
    };
    let cell = |r: usize, c: usize| all.get(r * width + c).map_or_else(String::new, |x| format!("{x:.4}"));
    let columns: Vec<String> = (0..CORNER.min(width)).map(|c| format!("#{c}")).collect();
    let columns: Vec<&str> = std::iter::once("row").chain(columns.iter().map(String::as_str)).collect();
    let row =
        |r: usize| std::iter::once(r.to_string()).chain((0..CORNER.min(width)).map(|c| cell(r, c))).collect();
    page.table(&columns, (0..CORNER.min(shape.first().copied().unwrap_or(0))).map(row).collect());
    page
}

/// The logits of the first ten tokens after the last target token.
fn first_logits(subject: &Subject<'_>, node: NodeId, page: &mut Page) {
    let node = subject.graph().node(node);
    page.facts([("from", Some(format!("{} {}", node.path, shape_text(subject, node))))]);
    let (Some(run), Some(kept)) = (&subject.run, subject.kept(node.role)) else { return };
    let Some(&[_, _, vocabulary]) = kept.shape.first_chunk::<3>() else { return };
    let last = subject.row(Side::Target, 0).and_then(|row| row.iter().rposition(|t| !t.padding)).unwrap_or(0);
    let logits = kept.values.get(last * vocabulary..(last + 1) * vocabulary).unwrap_or_default();
    let piece = |id: usize| run.ready.tokenizer.as_ref()?.piece(Side::Target, u32::try_from(id).ok()?);
    let row = |(id, x): (usize, &f64)| vec![id.to_string(), piece(id).unwrap_or_default(), number(*x)];
    page.table(&["#id", "token", "#logit"], logits.iter().enumerate().take(10).map(row).collect());
}

/// `[B, H, T, S] = [1, 4, 5, 6]`.
fn shape_text(subject: &Subject<'_>, node: &Node) -> String {
    format!("{} = {}", subject.letters(&node.dims), subject.shape(&node.dims))
}

/// What each letter of a shape means.
fn dimensions(subject: &Subject<'_>, dims: &[Dim]) -> Vec<Vec<String>> {
    let mut seen = BTreeSet::new();
    let row = |&dim: &Dim| {
        let meaning = match dim {
            Dim::Fixed(1) => "repeated along this dimension",
            other => other.meaning(),
        };
        vec![dim.symbol(&subject.sizes), meaning.to_owned(), subject.size(dim)]
    };
    dims.iter().filter(|&&dim| seen.insert(dim)).map(row).collect()
}

/// The tensors of the file that a node uses.
fn weights(subject: &Subject<'_>, node: &Node) -> Option<String> {
    let graph = subject.graph();
    let text = |&id: &attnscope_graph::WeightId| {
        let weight = graph.weight(id);
        format!("{} {}", weight.path, subject.shape(&weight.dims))
    };
    let all: Vec<String> = node.weights.iter().map(text).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn values(subject: &Subject<'_>, node: &Node) -> Option<String> {
    let stats = subject.stats(node.role)?;
    let mut text = format!(
        "{} to {}, mean {}, standard deviation {}",
        number(stats.min),
        number(stats.max),
        number(stats.mean),
        number(stats.std)
    );
    match (stats.inf, &node.op) {
        (0, _) => {}
        // What masks add can only be that.
        (n, Op::Mask(_) | Op::AddMask { .. }) => text = format!("{n} × -inf; of the others {text}"),
        (n, _) => text += &format!("; {n} infinite"),
    }
    if stats.nan > 0 {
        text += &format!("; {} NaN", stats.nan);
    }
    Some(text)
}

/// The inputs of a node and the nodes that read it.
fn neighbours(subject: &Subject<'_>, id: NodeId) -> String {
    let graph = subject.graph();
    let label = |id: NodeId| format!("{} {}", graph.node(id).path, subject.shape(&graph.node(id).dims));
    let before: Vec<String> = graph.node(id).inputs.iter().map(|&i| label(i)).collect();
    let after: Vec<String> =
        graph.iter().filter(|(_, n)| n.inputs.contains(&id)).map(|(i, _)| label(i)).collect();
    let mut out = String::new();
    for (i, input) in before.iter().enumerate() {
        let corner = if i == 0 { "┌" } else { "├" };
        out += &format!("  {corner}─ {input}\n");
    }
    let join = if before.is_empty() { "" } else { "  ▼\n" };
    out += &format!("{join}  {}\n", label(id));
    for (i, user) in after.iter().enumerate() {
        let corner = if i + 1 == after.len() { "└" } else { "├" };
        out += &format!("  {corner}► {user}\n");
    }
    out
}

/// All 43 snapshots, one after the other, in the layer that is opened.
pub(crate) fn walk_page(subject: &Subject<'_>, layer: usize) -> Page {
    let mut page = Page::new(format!("A walk through {}", subject.name));
    let walk = snapshots(subject.graph(), layer);
    order_note(subject.graph(), &walk).into_iter().for_each(|note| {
        page.words(note);
    });
    for snapshot in &walk {
        stop(subject, &walk, snapshot, &mut page);
    }
    page
}

/// The smaller numbers that are computed from a snapshot, where there are some.
fn order(graph: &Graph, walk: &[Snapshot], snapshot: &Snapshot) -> Option<String> {
    let later = computed_before(graph, walk, snapshot);
    let later: Vec<String> = later.iter().map(usize::to_string).collect();
    (!later.is_empty()).then(|| format!("computed before {}", later.join(", ")))
}

/// One stop: what it is, formula, shape and why.
fn stop(subject: &Subject<'_>, walk: &[Snapshot], snapshot: &Snapshot, page: &mut Page) {
    let graph = subject.graph();
    page.heading(format!("{}. {}: {}", snapshot.number, snapshot.view.path(graph), snapshot.what));
    let node = match &snapshot.view {
        View::Absent(_) => {
            page.words("This model, or this layer of it, does not have it.");
            return;
        }
        View::Corner(weight) => {
            let dims = &graph.weight(*weight).dims;
            page.words("The first rows and columns of a weight, as the file holds it.");
            page.facts([(
                "shape",
                Some(format!("the first {CORNER} by {CORNER} of {}", subject.shape(dims))),
            )]);
            return;
        }
        view => match view.nodes().first() {
            Some(&id) => graph.node(id),
            None => return,
        },
    };
    let whole = subject.sizes.shape(&node.dims);
    let shape = match (&snapshot.view, whole) {
        (View::Nodes(_), _) | (_, None) => shape_text(subject, node),
        (view, Some(whole)) => format!("{:?} of {}", view.shape(&whole), shape_text(subject, node)),
    };
    let beside = snapshot.view.nodes().iter().skip(1).map(|&id| graph.node(id).path.as_str());
    let beside = beside.collect::<Vec<_>>().join(", ");
    page.words(words::sentence(node));
    let from = node.inputs.iter().map(|&id| graph.node(id).path.as_str()).collect::<Vec<_>>().join(", ");
    let reads = |n: &&Node| n.inputs.iter().any(|&id| graph.node(id).path == node.path);
    let to = graph.nodes().iter().filter(reads).map(|n| n.path.as_str()).collect::<Vec<_>>().join(", ");
    page.facts([
        ("formula", Some(words::formula(node, &subject.sizes, false))),
        ("from", (!from.is_empty()).then_some(from)),
        ("to", (!to.is_empty()).then_some(to)),
        ("shape", Some(shape)),
        ("why", Some(words::why_shape(node).to_owned())),
        ("beside", (!beside.is_empty()).then_some(beside)),
        ("order", order(graph, walk, snapshot)),
        ("values", values(subject, node)),
    ]);
}
