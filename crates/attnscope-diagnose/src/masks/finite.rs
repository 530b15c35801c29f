//! Whether a run holds nothing but numbers.

use attnscope_graph::{Model, NodeId};
use attnscope_run::{RunError, Sink, Values};

use crate::observe::{Broken, broken};

/// A value with which nothing can be proved: what is not a number is not seen to move.
#[derive(Debug, Clone, PartialEq)]
pub struct NotFinite {
    /// The first tensor, in the order of computation, that holds such a value.
    pub node: String,
    /// Where in it.
    pub at: Vec<usize>,
    /// NaN or an infinity.
    pub value: f32,
}

/// Looks at every tensor and remembers the first that is not finite.
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
        // The steps of an attention are handed over together, so one that is earlier may still come.
        self.broken.as_ref().is_none_or(|first| node < first.node)
    }

    fn held(&self, _: NodeId) -> u64 {
        0
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        if self.wants(node) {
            let found = broken(node, &self.model.graph.node(node).op, shape, &values.to_f32());
            self.broken = found.or(self.broken.take());
        }
        Ok(())
    }
}
