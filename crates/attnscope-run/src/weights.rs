//! The weights of a model in memory, widened once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use attnscope_checkpoint::{Checkpoint, Error, ErrorKind, TensorInfo, check_memory};
use attnscope_graph::{Graph, Model, Slot, TensorSpec, WeightId};

use crate::error::RunError;

/// Every weight of a graph in f32. Weights that are one tensor in the file are one here.
#[derive(Debug, Clone)]
pub struct Weights(Vec<Weight>);

#[derive(Debug, Clone)]
struct Weight {
    tensor: Arc<[f32]>,
    /// The elements that are meant, where a tensor packs several weights.
    from: usize,
    to: usize,
}

/// What a file holds, as a model is recognised by it, with tensors that are one under two names marked.
pub fn tensor_specs(checkpoint: &Checkpoint) -> Vec<TensorSpec> {
    let mut seen = HashMap::new();
    let spec = |tensor: &TensorInfo, storage: usize| TensorSpec {
        name: tensor.name.clone(),
        shape: tensor.shape.clone(),
        dtype: tensor.dtype.name(),
        bytes: tensor.bytes(),
        storage,
    };
    let tensors = checkpoint.tensors().iter().enumerate();
    tensors.map(|(i, tensor)| spec(tensor, *seen.entry(tensor.identity()).or_insert(i))).collect()
}

/// Bytes of the tensors that a model is bound to, each once, and of the largest once more: it is there twice while it is
/// handed over.
fn in_f32(model: &Model, checkpoint: &Checkpoint) -> u64 {
    let bound = model.binding.iter().filter_map(|(_, slot)| match slot {
        Slot::Bound(found) => Some(found.tensor),
        _ => None,
    });
    let tensors: HashSet<usize> = bound.collect();
    let bytes = |&tensor: &usize| (checkpoint.tensors()[tensor].elements() as u64).saturating_mul(4);
    let all = tensors.iter().map(bytes).fold(0, u64::saturating_add);
    all.saturating_add(tensors.iter().map(bytes).max().unwrap_or(0))
}

/// [input, output] → [output, input].
fn transposed(values: &[f32], shape: &[usize]) -> Vec<f32> {
    let columns = shape.last().copied().unwrap_or(1).max(1);
    let rows = values.len() / columns;
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

impl Weights {
    /// Reads the tensors that a model's weights are bound to.
    ///
    /// # Errors
    /// When the model has holes, or a tensor cannot be read.
    pub fn load(model: &Model, checkpoint: &Checkpoint) -> Result<Self, RunError> {
        if let Some(obstacle) = model.obstacles.first() {
            return Err(RunError::Obstacle(obstacle.clone()));
        }
        check_memory(in_f32(model, checkpoint)).map_err(|shortage| {
            let place = "its weights in f32".to_owned();
            Error::new(checkpoint.path(), ErrorKind::Shortage { place, shortage })
        })?;
        let mut read: HashMap<(usize, bool), Arc<[f32]>> = HashMap::new();
        let mut weights = Vec::with_capacity(model.graph.weights().len());
        for (id, slot) in model.binding.iter() {
            let Slot::Bound(found) = slot else {
                return Err(RunError::Obstacle(format!("{} is missing", model.graph.weight(id).path)));
            };
            let info = &checkpoint.tensors()[found.tensor];
            let tensor = match read.get(&(found.tensor, found.transposed)) {
                Some(tensor) => tensor.clone(),
                None => {
                    let values = checkpoint.read_f32(info)?;
                    let tensor: Arc<[f32]> = match found.transposed {
                        true => transposed(&values, &info.shape).into(),
                        false => values.into(),
                    };
                    read.insert((found.tensor, found.transposed), tensor.clone());
                    tensor
                }
            };
            let rows = if found.transposed { info.shape.last() } else { info.shape.first() };
            let row = tensor.len().checked_div(rows.copied().unwrap_or(1)).unwrap_or(0);
            let (from, to) = match &found.rows {
                Some(rows) => (rows.start * row, rows.end * row),
                None => (0, tensor.len()),
            };
            weights.push(Weight { tensor, from, to });
        }
        Ok(Self(weights))
    }

    /// The same weights in the order of another graph over the same tensors, without a copy. `None` where that graph
    /// asks for a weight which this one does not have.
    pub fn reordered(&self, from: &Graph, to: &Graph) -> Option<Self> {
        let weight = |weight: &attnscope_graph::Weight| {
            Some(self.0.get(from.find_weight(&weight.path)?.index())?.clone())
        };
        to.weights().iter().map(weight).collect::<Option<_>>().map(Self)
    }

    /// The same weights with the values of one of them replaced.
    pub fn with(&self, id: WeightId, values: Vec<f32>) -> Self {
        let mut weights = self.0.clone();
        if let Some(weight) = weights.get_mut(id.index()) {
            *weight = Weight { from: 0, to: values.len(), tensor: values.into() };
        }
        Self(weights)
    }

    /// Two weights change places, without a copy.
    pub fn exchange(&mut self, a: WeightId, b: WeightId) {
        if a.index().max(b.index()) < self.0.len() {
            self.0.swap(a.index(), b.index());
        }
    }

    /// Whether a weight is the very same elements in both, not only equal ones; no value is looked at.
    pub fn same(&self, other: &Self, id: WeightId) -> bool {
        match (self.0.get(id.index()), other.0.get(id.index())) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.tensor, &b.tensor) && (a.from, a.to) == (b.from, b.to),
            _ => false,
        }
    }

    /// The values of a weight, row-major.
    pub fn get(&self, id: WeightId) -> &[f32] {
        let weight = &self.0[id.index()];
        &weight.tensor[weight.from..weight.to]
    }
}
