//! Tensors that are replaced on the way: what a run computes when a part of it is not what the model made.

use std::collections::HashMap;

use attnscope_graph::{Model, Node, NodeId, Op};

use crate::error::RunError;

/// Values that stand in for some of a node's as soon as it is computed. Whoever reads the node reads these.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Whose tensor; any but token ids, which are part of the input.
    pub node: NodeId,
    /// The first cell that is overwritten, counted row-major.
    pub first: usize,
    /// What is put there and in the cells after it.
    pub values: Vec<f32>,
}

/// The changes of a run, by node, each within its tensor.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a>(HashMap<NodeId, Vec<&'a Change>>);

impl<'a> Changes<'a> {
    pub(crate) fn new(
        model: &Model,
        changes: &'a [Change],
        shape: impl Fn(&Node) -> Result<Vec<usize>, RunError>,
    ) -> Result<Self, RunError> {
        let mut by_node: HashMap<NodeId, Vec<&Change>> = HashMap::new();
        for change in changes {
            let node = model.graph.node(change.node);
            let cells: usize = shape(node)?.iter().product();
            check(node, change, cells)?;
            by_node.entry(change.node).or_default().push(change);
        }
        Ok(Self(by_node))
    }

    pub(crate) fn touch(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    fn of(&self, node: NodeId) -> &[&'a Change] {
        self.0.get(&node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Overwrites what is to be changed in the cells of a tensor from `start` on.
    pub(crate) fn apply<T: From<f32>>(&self, node: NodeId, start: usize, cells: &mut [T]) {
        for change in self.of(node) {
            let from = change.first.max(start);
            let to = (change.first + change.values.len()).min(start + cells.len());
            for at in from..to {
                cells[at - start] = change.values[at - change.first].into();
            }
        }
    }

    /// The same where the cells lie in another order: `place` says where a cell of the tensor is kept.
    pub(crate) fn apply_at(&self, node: NodeId, cells: &mut [f32], place: impl Fn(usize) -> usize) {
        for change in self.of(node) {
            for (i, &value) in change.values.iter().enumerate() {
                cells[place(change.first + i)] = value;
            }
        }
    }
}

fn check(node: &Node, change: &Change, cells: usize) -> Result<(), RunError> {
    let refuse = |found: String, expected: String, help: &str| RunError::Input {
        place: format!("change of {}", node.path),
        found,
        expected,
        help: help.into(),
    };
    if let Op::Ids(_) = node.op {
        let help = "give the run another input, or change the embedding";
        return Err(refuse("token ids".into(), "these are the input".into(), help));
    }
    match change.first.checked_add(change.values.len()) {
        Some(end) if end <= cells => Ok(()),
        _ => Err(refuse(
            format!("{} values from cell {} on", change.values.len(), change.first),
            format!("the tensor has {cells} cells"),
            "change cells that exist for this input",
        )),
    }
}
