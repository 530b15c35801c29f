//! A node's page, and the walk through all 43 snapshots.

use std::collections::BTreeSet;

use attnscope_graph::{Dim, Node, NodeId, Snapshot, View, snapshot_numbers, snapshots, words};
use attnscope_render::page::Page;
use attnscope_render::trace::number;

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
    let stats = subject.stats(node.path.as_str())?;
    let mut text = format!(
        "{} to {}, mean {}, standard deviation {}",
        number(stats.min),
        number(stats.max),
        number(stats.mean),
        number(stats.std)
    );
    if stats.inf > 0 {
        text += &format!("; {} infinite", stats.inf);
    }
    if stats.nan > 0 {
        text += &format!("; {} not a number", stats.nan);
    }
    Some(text)
}

/// What flows into a node and where it goes: its neighbours in the drawing.
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
    for snapshot in snapshots(subject.graph(), layer) {
        stop(subject, &snapshot, &mut page);
    }
    page
}

/// One stop: what it is, formula, shape and why.
fn stop(subject: &Subject<'_>, snapshot: &Snapshot, page: &mut Page) {
    let graph = subject.graph();
    page.heading(format!("{}. {}: {}", snapshot.number, snapshot.view.path(graph), snapshot.what));
    let node = match &snapshot.view {
        View::Absent(_) => {
            page.words("This model, or this layer of it, does not have it.");
            return;
        }
        View::Corner(weight) => {
            let dims = &graph.weight(*weight).dims;
            page.facts([("shape", Some(format!("the first 5 by 5 of {}", subject.shape(dims))))]);
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
    page.facts([
        ("formula", Some(words::formula(node, &subject.sizes, false))),
        ("shape", Some(shape)),
        ("why", Some(words::why_shape(node).to_owned())),
        ("beside", (!beside.is_empty()).then_some(beside)),
        ("values", values(subject, node)),
    ]);
}
