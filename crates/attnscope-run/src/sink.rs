//! Where tensors go while a run is under way. An executor computes and pushes; it knows nothing of files or screens.

use std::collections::BTreeMap;

use attnscope_graph::NodeId;

use crate::error::RunError;
pub use crate::native::Shared;

/// The values of a node, borrowed from the executor: they are gone when the call returns.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// Of the native executor.
    F32(&'a [f32]),
    /// Of the reference executor.
    F64(&'a [f64]),
}

impl Values<'_> {
    /// In f32, whichever executor made them.
    pub fn to_f32(self) -> Vec<f32> {
        match self {
            Self::F32(values) => values.to_vec(),
            Self::F64(values) => values.iter().map(|&x| x as f32).collect(),
        }
    }

    /// In f64, whichever executor made them.
    pub fn to_f64(self) -> Vec<f64> {
        match self {
            Self::F32(values) => values.iter().map(|&x| f64::from(x)).collect(),
            Self::F64(values) => values.to_vec(),
        }
    }
}

/// Takes the tensors that it has asked for.
pub trait Sink {
    /// Whether a node's tensor is wanted. What nobody wants is not kept, and its buffer is used again.
    fn wants(&self, node: NodeId) -> bool;

    /// Bytes a value that this holds of a node's tensor once it has it: what it keeps counts towards what a run needs.
    fn held(&self, node: NodeId) -> u64;

    /// Takes a tensor.
    ///
    /// # Errors
    /// When it cannot be kept; the run ends.
    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError>;

    /// Takes a tensor that it may hold on to without copying it. By default it is handed to [`Sink::put`].
    ///
    /// # Errors
    /// When it cannot be kept; the run ends.
    fn take(&mut self, node: NodeId, shape: &[usize], values: &Shared) -> Result<(), RunError> {
        self.put(node, shape, Values::F32(values))
    }
}

/// A tensor that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, row-major.
    pub values: Vec<f64>,
}

/// Keeps what a predicate picks, in memory.
pub struct Keep<F> {
    wanted: F,
    /// What was kept.
    pub tensors: BTreeMap<NodeId, Kept>,
}

impl<F: Fn(NodeId) -> bool> Keep<F> {
    /// Keeps the nodes for which `wanted` is true.
    pub fn new(wanted: F) -> Self {
        Self { wanted, tensors: BTreeMap::new() }
    }
}

impl<F: Fn(NodeId) -> bool> Sink for Keep<F> {
    fn wants(&self, node: NodeId) -> bool {
        (self.wanted)(node)
    }

    fn held(&self, node: NodeId) -> u64 {
        if self.wants(node) { 8 } else { 0 }
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        self.tensors.insert(node, Kept { shape: shape.to_vec(), values: values.to_f64() });
        Ok(())
    }
}

/// Holds what a predicate picks, in f32 and as the executor made it: nothing is copied, and tensors that are one in the run
/// are one here. The executor's buffers are used again when this is dropped.
pub struct Hold<F> {
    wanted: F,
    /// Shape and values of what was picked.
    pub tensors: BTreeMap<NodeId, (Vec<usize>, Shared)>,
}

impl<F: Fn(NodeId) -> bool> Hold<F> {
    /// Holds the nodes for which `wanted` is true.
    pub fn new(wanted: F) -> Self {
        Self { wanted, tensors: BTreeMap::new() }
    }
}

impl<F: Fn(NodeId) -> bool> Sink for Hold<F> {
    fn wants(&self, node: NodeId) -> bool {
        (self.wanted)(node)
    }

    fn held(&self, node: NodeId) -> u64 {
        if self.wants(node) { 4 } else { 0 }
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        self.take(node, shape, &values.to_f32().into())
    }

    fn take(&mut self, node: NodeId, shape: &[usize], values: &Shared) -> Result<(), RunError> {
        self.tensors.insert(node, (shape.to_vec(), values.clone()));
        Ok(())
    }
}
