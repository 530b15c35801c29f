//! Whether a run is finite.

use attnscope_graph::{Model, NodeId};
use attnscope_run::{RunError, Sink, Tensor};

use crate::observe::{Broken, broken};

/// A NaN or an infinity, with which nothing can be proved: its movement cannot be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct NotFinite {
    /// The first tensor, in the order of computation, that holds such a value.
    pub node: String,
    /// Where in it.
    pub at: Vec<usize>,
    /// NaN or an infinity.
    pub value: f32,
}

/// Checks every tensor and remembers the first that is not finite.
pub(super) struct Finite<'m> {
    model: &'m Model,
    pub(super) broken: Option<Broken>,
}

impl<'m> Finite<'m> {
    pub(super) fn new(model: &'m Model) -> Self {
        Self { model, broken: None }
    }
}

impl Sink for Finite<'_> {
    fn wants(&self, node: NodeId) -> bool {
        // The steps of an attention are handed over together, so an earlier one may follow.
        self.broken.as_ref().is_none_or(|first| node < first.node)
    }

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        if self.wants(node) {
            let found =
                broken(node, &self.model.graph.node(node).op, tensor.shape(), &tensor.values().as_f32());
            self.broken = found.or(self.broken.take());
        }
        Ok(())
    }
}
