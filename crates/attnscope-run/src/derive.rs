//! One node at a time: what its tensor is, given the tensors it reads. The judge of tensors that somebody else computed.

use std::sync::Arc;

use attnscope_graph::{Model, Node, NodeId, Op};

use crate::error::RunError;
use crate::input::Input;
use crate::prepare::Prepared;
use crate::reference::{Step, Tensor};
use crate::sink::Kept;

/// A model on one input, whose nodes can be computed in any order.
pub struct Derive<'a> {
    model: &'a Model,
    prepared: Prepared<'a>,
}

impl<'a> Derive<'a> {
    /// Checks that the model can read the input.
    ///
    /// # Errors
    /// When it cannot.
    pub fn new(model: &'a Model, input: &'a Input) -> Result<Self, RunError> {
        Ok(Self { model, prepared: Prepared::new(model, input)? })
    }

    /// The shape of a node's tensor.
    ///
    /// # Errors
    /// When it does not follow from the input.
    pub fn shape(&self, id: NodeId) -> Result<Vec<usize>, RunError> {
        self.prepared.shape(self.model.graph.node(id))
    }

    /// A node's tensor as the reference computes it, from its own weights and the tensors it reads, both in the node's
    /// order.
    ///
    /// # Errors
    /// When the tensors are not those that the node reads.
    pub fn node(&self, id: NodeId, weights: &[&[f32]], inputs: &[Kept]) -> Result<Kept, RunError> {
        let node = self.model.graph.node(id);
        self.check(node, weights, inputs)?;
        let shape = self.prepared.shape(node)?;
        let tensor = |kept: &Kept| Arc::new(Tensor { shape: kept.shape.clone(), data: kept.values.clone() });
        let inputs: Vec<Arc<Tensor>> = inputs.iter().map(tensor).collect();
        let step = Step { prepared: &self.prepared, weights, node, shape: &shape, inputs: &inputs };
        let values = step.compute();
        Ok(Kept { shape, values })
    }

    fn check(&self, node: &Node, weights: &[&[f32]], inputs: &[Kept]) -> Result<(), RunError> {
        let wrong = |found: String, expected: String| RunError::Input {
            place: node.path.to_string(),
            found,
            expected,
            help: "give the tensors of one run of this model".into(),
        };
        if inputs.len() != node.inputs.len() {
            return Err(wrong(
                format!("{} tensors", inputs.len()),
                format!("it reads {}", node.inputs.len()),
            ));
        }
        for (input, &from) in inputs.iter().zip(&node.inputs) {
            let expected = self.shape(from)?;
            if input.shape != expected || input.values.len() != expected.iter().product::<usize>() {
                return Err(wrong(
                    format!("a tensor of shape {:?}", input.shape),
                    format!("it reads {expected:?}"),
                ));
            }
        }
        if let (Op::Embed { .. }, Some(ids), Some(table)) = (node.op, inputs.first(), weights.first()) {
            let width = self.prepared.shape(node)?.last().copied().unwrap_or(1).max(1);
            let rows = (table.len() / width) as f64;
            if let Some(id) = ids.values.iter().find(|id| !(0.0..rows).contains(*id)) {
                return Err(wrong(format!("token id {id}"), format!("the table has {rows} rows")));
            }
        }
        Ok(())
    }
}
