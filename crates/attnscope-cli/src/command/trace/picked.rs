//! What the user wants to see of a run: nodes, or stops of the walk.

use attnscope_graph::{Graph, NodeId, Selector, Snapshot, Stack, View, snapshots};

use super::Trace;
use crate::near::nearest;
use attnscope::Failure;

impl Trace {
    /// The nodes that the user asked for, or the walk.
    pub(super) fn picked(&self, graph: &Graph) -> Result<Picked, Failure> {
        if let Some(pattern) = &self.layer {
            let selector = Selector::new(pattern);
            let nodes: Vec<NodeId> =
                graph.iter().filter(|(_, n)| selector.matches(&n.path)).map(|(id, _)| id).collect();
            if nodes.is_empty() {
                let near = nearest(pattern, graph.nodes().iter().map(|n| n.path.as_str()));
                return Err(Failure::new(
                    format!("--layer {pattern:?} picks none of the {} nodes", graph.nodes().len()),
                    format!("the nearest names are {}; `*` stands for anything", near.join(", ")),
                ));
            }
            return Ok(Picked::Nodes(nodes));
        }
        check_layer_index(graph, self.layer_index)?;
        let walk = snapshots(graph, self.layer_index);
        let Some(numbers) = &self.snapshots else { return Ok(Picked::Walk(walk)) };
        let numbers = parse_numbers(numbers)?;
        Ok(Picked::Walk(walk.into_iter().filter(|s| numbers.contains(&s.number)).collect()))
    }
}

/// Refuses a layer that neither stack has. Where only one has it, the walk says what is absent.
pub(crate) fn check_layer_index(graph: &Graph, index: usize) -> Result<(), Failure> {
    if Stack::ALL.iter().any(|&stack| index < graph.layers(stack)) {
        return Ok(());
    }
    let layers = Stack::ALL.map(|s| format!("{} {}", graph.layers(s), s.name()));
    Err(Failure::new(
        format!("--layer-index {index}: the model has {} layers", layers.join(" and ")),
        "layers are counted from 0",
    ))
}

/// What the user wants to see.
pub(super) enum Picked {
    Nodes(Vec<NodeId>),
    Walk(Vec<Snapshot>),
}

impl Picked {
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        match self {
            Self::Nodes(nodes) => nodes.clone(),
            Self::Walk(walk) => {
                let mut nodes: Vec<NodeId> = walk.iter().flat_map(|s| s.view.nodes()).copied().collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        }
    }

    /// Whether a part of the node's tensor is shown on its own.
    pub(super) fn cuts(&self, node: NodeId) -> bool {
        let cut = |s: &Snapshot| match s.view {
            View::Row(n) | View::FirstLogits(n) => n == node,
            _ => false,
        };
        matches!(self, Self::Walk(walk) if walk.iter().any(cut))
    }
}

/// `10-12,34` as numbers.
fn parse_numbers(text: &str) -> Result<Vec<usize>, Failure> {
    let most = attnscope_graph::SNAPSHOTS;
    let wrong = |part: &str| {
        Failure::new(
            format!("--snapshots: expected numbers from 1 to {most}, found {part:?}"),
            "write them as 10-12,34",
        )
    };
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| (1..=most).contains(n));
        match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => numbers.extend(from..=to),
            _ => return Err(wrong(part)),
        }
    }
    Ok(numbers)
}
