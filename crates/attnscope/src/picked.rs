//! The selected part of a run: nodes, or stops of the walk.

use attnscope_graph::{Graph, NodeId, SNAPSHOTS, Selector, Snapshot, View, snapshots};

use crate::collect::check_layer_index;
use crate::failure::{Argument, Failure};
use crate::near::nearest;

/// The selected part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// The nodes that a selector picks: `logits`, `decoder.*.cross_attn.weights`, `*`.
    Nodes(String),
    /// The walk through a run.
    Walk {
        /// The layer that it opens in each stack.
        layer_index: usize,
        /// The numbers of the stops; all by default.
        stops: Option<Vec<usize>>,
    },
}

impl Default for Pick {
    fn default() -> Self {
        Self::Walk { layer_index: 0, stops: None }
    }
}

impl Pick {
    /// What that is in a graph.
    pub(crate) fn of(&self, graph: &Graph) -> Result<Picked, Failure> {
        match self {
            Self::Nodes(pattern) => {
                let selector = Selector::new(pattern);
                let picked = graph.iter().filter(|(_, node)| selector.matches(&node.path));
                let nodes: Vec<NodeId> = picked.map(|(id, _)| id).collect();
                if nodes.is_empty() {
                    return Err(nothing_picked(pattern, graph));
                }
                Ok(Picked::Nodes(nodes))
            }
            Self::Walk { layer_index, stops } => {
                check_layer_index(graph, *layer_index)?;
                let mut walk = snapshots(graph, *layer_index);
                if let Some(stops) = stops {
                    check_stops(stops)?;
                    walk.retain(|snapshot| stops.contains(&snapshot.number));
                }
                Ok(Picked::Walk { walk, is_whole: stops.is_none() })
            }
        }
    }
}

/// Refuses numbers that no walk has.
fn check_stops(stops: &[usize]) -> Result<(), Failure> {
    let wrong = stops.iter().find(|stop| !(1..=SNAPSHOTS).contains(stop)).map(usize::to_string);
    let Some(found) = wrong.or_else(|| stops.is_empty().then(|| "none".to_owned())) else { return Ok(()) };
    let error = format!("expected numbers from 1 to {SNAPSHOTS}, found {found}");
    Err(Failure::new(error, "the walk lists the stops and their numbers").about(Argument::Stops))
}

fn nothing_picked(pattern: &str, graph: &Graph) -> Failure {
    let near = nearest(pattern, graph.nodes().iter().map(|n| n.path.as_str()));
    Failure::new(
        format!("picks none of the {} nodes", graph.nodes().len()),
        format!("the nearest names are {}; `*` stands for anything", near.join(", ")),
    )
    .about(Argument::Selector(pattern.to_owned()))
}

/// What was picked.
#[derive(Debug)]
pub(crate) enum Picked {
    Nodes(Vec<NodeId>),
    Walk { walk: Vec<Snapshot>, is_whole: bool },
}

impl Picked {
    pub(crate) fn is_whole_walk(&self) -> bool {
        matches!(self, Self::Walk { is_whole: true, .. })
    }

    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        match self {
            Self::Nodes(nodes) => nodes.clone(),
            Self::Walk { walk, .. } => {
                let mut nodes: Vec<NodeId> = walk.iter().flat_map(|s| s.view.nodes()).copied().collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        }
    }

    /// Whether a part of the node's tensor is shown by itself.
    pub(crate) fn cuts(&self, node: NodeId) -> bool {
        let cut = |s: &Snapshot| match s.view {
            View::Row(n) | View::FirstLogits(n) => n == node,
            _ => false,
        };
        matches!(self, Self::Walk { walk, .. } if walk.iter().any(cut))
    }
}
