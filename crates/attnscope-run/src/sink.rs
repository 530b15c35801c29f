//! Where the tensors of a run go. An executor computes and pushes; it knows nothing of files or screens.

use std::collections::BTreeMap;

use attnscope_graph::NodeId;

use crate::error::RunError;
use crate::tensor::Tensor;

/// Receives the tensors that it wants.
pub trait Sink {
    /// Whether a node's tensor is wanted. Other tensors are not kept, and their buffers are reused.
    fn wants(&self, node: NodeId) -> bool;

    /// Bytes per value that the sink keeps of a node's tensor; they count towards the memory of the run. The executor's values
    /// have `own` bytes.
    fn held(&self, node: NodeId, own: u64) -> u64;

    /// Receives a tensor. A clone of it shares the executor's memory.
    ///
    /// # Errors
    /// When it cannot be kept; the run ends.
    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError>;
}

/// Keeps the tensors that a predicate picks, without a copy: tensors that share memory in the run share it here. The executor's
/// buffers are reused when this is dropped.
pub struct Capture<F> {
    wanted: F,
    /// What was kept.
    pub tensors: BTreeMap<NodeId, Tensor>,
}

impl<F: Fn(NodeId) -> bool> Capture<F> {
    /// Keeps the nodes for which `wanted` is true.
    pub fn new(wanted: F) -> Self {
        Self { wanted, tensors: BTreeMap::new() }
    }
}

impl<F: Fn(NodeId) -> bool> Sink for Capture<F> {
    fn wants(&self, node: NodeId) -> bool {
        (self.wanted)(node)
    }

    fn held(&self, node: NodeId, own: u64) -> u64 {
        if self.wants(node) { own } else { 0 }
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        self.tensors.insert(node, tensor.clone());
        Ok(())
    }
}

/// Wants nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Sink for Nothing {
    fn wants(&self, _: NodeId) -> bool {
        false
    }

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, _: NodeId, _: &Tensor) -> Result<(), RunError> {
        Ok(())
    }
}
