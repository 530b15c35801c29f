//! Interventions: tensors that are replaced during a run, in part or as a whole.

use std::collections::HashMap;

use attnscope_graph::{Model, Node, NodeId, Op};

use crate::error::RunError;

/// Values that replace a part of a node's tensor as soon as it is computed. Nodes that read it read these values.
#[derive(Debug, Clone, PartialEq)]
pub struct Intervention {
    /// The node; any but token ids, which are part of the input.
    pub node: NodeId,
    /// The first cell that is overwritten, counted row-major.
    pub first: usize,
    /// The new values of this cell and those after it.
    pub values: Vec<f32>,
}

/// The interventions of a run, by node, each within its tensor.
#[derive(Debug, Default)]
pub(crate) struct Interventions<'a>(HashMap<NodeId, Vec<&'a Intervention>>);

impl<'a> Interventions<'a> {
    pub(crate) fn new(
        model: &Model,
        interventions: &'a [Intervention],
        shape: impl Fn(&Node) -> Result<Vec<usize>, RunError>,
    ) -> Result<Self, RunError> {
        let mut by_node: HashMap<NodeId, Vec<&Intervention>> = HashMap::new();
        for intervention in interventions {
            let node = model.graph.node(intervention.node);
            let cells: usize = shape(node)?.iter().product();
            check(node, intervention, cells)?;
            by_node.entry(intervention.node).or_default().push(intervention);
        }
        Ok(Self(by_node))
    }

    pub(crate) fn intervenes_on(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    fn of(&self, node: NodeId) -> &[&'a Intervention] {
        self.0.get(&node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Writes the values of the interventions into `cells`, which are those of a tensor from `start` on.
    pub(crate) fn apply<T: From<f32>>(&self, node: NodeId, start: usize, cells: &mut [T]) {
        for intervention in self.of(node) {
            let from = intervention.first.max(start);
            let to = (intervention.first + intervention.values.len()).min(start + cells.len());
            for at in from..to {
                cells[at - start] = intervention.values[at - intervention.first].into();
            }
        }
    }

    /// The same where the cells are stored in another order: `place` gives the index of a cell.
    pub(crate) fn apply_at(&self, node: NodeId, cells: &mut [f32], place: impl Fn(usize) -> usize) {
        for intervention in self.of(node) {
            for (i, &value) in intervention.values.iter().enumerate() {
                cells[place(intervention.first + i)] = value;
            }
        }
    }
}

fn check(node: &Node, intervention: &Intervention, cells: usize) -> Result<(), RunError> {
    let refuse = |found: String, expected: String, help: &str| RunError::Input {
        place: format!("intervention on {}", node.path),
        found,
        expected,
        remedy: help.to_owned().into(),
    };
    if let Op::Ids(_) = node.op {
        let help = "give the run another input, or intervene on the embedding";
        return Err(refuse("token ids".into(), "these are the input".into(), help));
    }
    match intervention.first.checked_add(intervention.values.len()) {
        Some(end) if end <= cells => Ok(()),
        _ => Err(refuse(
            format!("{} values from cell {} on", intervention.values.len(), intervention.first),
            format!("the tensor has {cells} cells"),
            "intervene on cells that exist for this input",
        )),
    }
}
