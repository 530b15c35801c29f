//! The weights of a model in memory: each once, in its own type, and for some executors in the layout that their products read.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use attnscope_checkpoint::{
    Checkpoint, DType, Error, ErrorKind, TensorInfo, check_memory, check_memory_within,
};
use attnscope_graph::{Dim, Graph, Model, Slot, TensorSpec, WeightId};

use crate::error::RunError;
use crate::limits::Limits;
use crate::panels::{Elements, Panels, Stored, packed};

/// Every weight of a graph. Weights that share a tensor in the file share it here.
#[derive(Debug, Clone)]
pub struct Weights(Vec<Weight>);

#[derive(Debug, Clone)]
struct Weight {
    tensor: Arc<Stored>,
    /// The elements of this weight, where a tensor packs several weights.
    from: usize,
    to: usize,
}

/// What an executor does with a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// Looks up some rows.
    Table,
    /// Multiplies with it, as the right side, rows of so many elements.
    Product { depth: usize },
    /// Reads all values.
    Values,
}

/// The listing of a file by which a model is recognised, with tensors that are stored once under two names marked.
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

/// Bytes of the tensors that a model is bound to, each once in its own type, plus the f32 copy of the largest while it is read.
fn in_memory(model: &Model, checkpoint: &Checkpoint) -> u64 {
    let bound = model.binding.iter().filter_map(|(_, slot)| match slot {
        Slot::Bound(found) => Some(found.tensor),
        _ => None,
    });
    let tensors: HashSet<usize> = bound.collect();
    let bytes =
        |tensor: usize, each: u64| (checkpoint.tensors()[tensor].elements() as u64).saturating_mul(each);
    let kept = |&tensor: &usize| match checkpoint.tensors()[tensor].dtype {
        DType::F16 | DType::BF16 => bytes(tensor, 2),
        _ => bytes(tensor, 4),
    };
    let all = tensors.iter().map(kept).fold(0, u64::saturating_add);
    all.saturating_add(tensors.iter().map(|&tensor| bytes(tensor, 4)).max().unwrap_or(0))
}

/// [input, output] → [output, input].
fn transposed(values: &[f32], shape: &[usize]) -> Vec<f32> {
    let columns = shape.last().copied().unwrap_or(1).max(1);
    let rows = values.len() / columns;
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

/// The heads of the stack that a weight belongs to.
fn heads_of(model: &Model, id: WeightId) -> Result<usize, RunError> {
    let stack = model.graph.weight(id).role.owner.stack();
    let heads = stack.and_then(|stack| model.sizes.get(Dim::Heads(stack)));
    heads.ok_or_else(|| RunError::Obstacle("the head count is not known".into()))
}

/// Rows of several weights that lie head by head, [head, part, row], put part by part: [part, head, row].
fn part_by_part(values: &[f32], parts: usize, heads: usize) -> Vec<f32> {
    let each = values.len().checked_div(heads * parts).unwrap_or(0);
    let piece =
        |part: usize, head: usize| values.get((head * parts + part) * each..).map(|rest| &rest[..each]);
    let all = (0..parts).flat_map(|part| (0..heads).filter_map(move |head| piece(part, head)));
    all.flatten().copied().collect()
}

impl Weight {
    /// Its values row-major in f32, in a tensor of their own.
    fn copied(&self) -> Self {
        let values = self.tensor.range(self.from, self.to).into_owned();
        let to = values.len();
        Self { tensor: Arc::new(Stored::Rows(Elements::F32(values))), from: 0, to }
    }
}

impl Weights {
    /// Weights that no file holds: the values of each, row-major, in the order of a graph's weights.
    pub fn of(values: Vec<Vec<f32>>) -> Self {
        let weight = |values: Vec<f32>| {
            let to = values.len();
            Weight { tensor: Arc::new(Stored::Rows(Elements::F32(values))), from: 0, to }
        };
        Self(values.into_iter().map(weight).collect())
    }

    /// Reads the tensors that a model's weights are bound to.
    ///
    /// # Errors
    /// When weights are missing, or a tensor cannot be read.
    pub fn load(model: &Model, checkpoint: &Checkpoint) -> Result<Self, RunError> {
        Self::load_within(model, checkpoint, &Limits::default())
    }

    /// The same within limits of memory, until it is cancelled.
    ///
    /// # Errors
    /// As [`Weights::load`], and when it is cancelled.
    pub fn load_within(model: &Model, checkpoint: &Checkpoint, limits: &Limits) -> Result<Self, RunError> {
        if let Some(obstacle) = model.obstacles.first() {
            return Err(RunError::Obstacle(obstacle.clone()));
        }
        check_memory_within(in_memory(model, checkpoint), limits.memory).map_err(|shortage| {
            let place = "its weights".to_owned();
            Error::new(checkpoint.path(), ErrorKind::Shortage { place, shortage })
        })?;
        let mut read: HashMap<(usize, bool, Option<usize>), Arc<Stored>> = HashMap::new();
        let mut weights = Vec::with_capacity(model.graph.weights().len());
        for (id, slot) in model.binding.iter() {
            let Slot::Bound(found) = slot else {
                return Err(RunError::Obstacle(format!("{} is missing", model.graph.weight(id).path)));
            };
            limits.cancel.check()?;
            let info = &checkpoint.tensors()[found.tensor];
            let key = (found.tensor, found.transposed, found.by_head);
            let tensor = match read.get(&key) {
                Some(tensor) => tensor.clone(),
                None => {
                    let values = checkpoint.read_f32(info)?;
                    let values = if found.transposed { transposed(&values, &info.shape) } else { values };
                    let values = match found.by_head {
                        Some(parts) => part_by_part(&values, parts, heads_of(model, id)?),
                        None => values,
                    };
                    let tensor = Arc::new(Stored::Rows(Elements::of(values, info.dtype)));
                    read.insert(key, tensor.clone());
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

    /// The same weights in the layout of an executor, each by its use: right sides of products in panels of this width, weights
    /// that are read whole in f32. A tensor without other owners exists twice only while it is converted; one that already has
    /// the right layout stays the same tensor.
    pub(crate) fn laid_out(mut self, uses: &[Use], width: usize) -> Self {
        // Keyed by the address of the old tensor: all of these are alive when this begins, and new ones are never looked up.
        let mut done: HashMap<(*const Stored, usize, usize, bool), Arc<Stored>> = HashMap::new();
        // Products first: a table that is also used in a product is then looked up in its panels.
        let is_table = |wanted: &Use| *wanted == Use::Table;
        let order = |tables: bool| (0..uses.len()).filter(move |&i| is_table(&uses[i]) == tables);
        for i in order(false).chain(order(true)) {
            let (Some(weight), wanted) = (self.0.get_mut(i), uses[i]) else { continue };
            let is_values = wanted == Use::Values;
            let key = (Arc::as_ptr(&weight.tensor), weight.from, weight.to, is_values);
            let tensor = match (&*weight.tensor, wanted) {
                (Stored::Panels(panels), Use::Product { .. }) if panels.width() == width => continue,
                (Stored::Rows(Elements::F32(_)), Use::Values) => continue,
                _ if done.contains_key(&key) => done[&key].clone(),
                (_, Use::Table) => continue,
                (Stored::Panels(panels), Use::Product { .. }) => {
                    Arc::new(Stored::Panels(panels.of_width(width)))
                }
                (Stored::Rows(rows), Use::Product { depth }) => {
                    Arc::new(Stored::Panels(Panels::pack(rows, weight.from, weight.to, depth, width)))
                }
                (stored, Use::Values) => {
                    let values = stored.range(weight.from, weight.to).into_owned();
                    Arc::new(Stored::Rows(Elements::F32(values)))
                }
            };
            done.insert(key, tensor.clone());
            let len = tensor.len();
            *weight = Weight { tensor, from: 0, to: len };
        }
        self
    }

    /// The same weights, row-major f32, shared with nobody.
    pub(crate) fn copied(&self) -> Result<Self, RunError> {
        let bytes: u64 = self.0.iter().map(|weight| 4 * (weight.to - weight.from) as u64).sum();
        check_memory(bytes).map_err(RunError::Memory)?;
        Ok(Self(self.0.iter().map(Weight::copied).collect()))
    }

    /// The same weights to be changed: each has values of its own in f32, where an executor reads them.
    pub(crate) fn to_learn(&self, uses: &[Use], width: usize) -> Self {
        Self(self.0.iter().map(Weight::copied).collect()).laid_out(uses, width)
    }

    /// How many values a weight has.
    pub(crate) fn len(&self, id: WeightId) -> usize {
        let weight = &self.0[id.index()];
        weight.to - weight.from
    }

    /// The values of each weight as they lie, to be changed; nothing of those that somebody else holds.
    pub(crate) fn stored_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.0
            .iter_mut()
            .map(|weight| Arc::get_mut(&mut weight.tensor).and_then(Stored::f32_mut).unwrap_or_default())
    }

    /// Values that lie like a weight's, in their places row-major.
    pub(crate) fn to_rows(&self, id: WeightId, stored: &[f32]) -> Vec<f32> {
        match self.panels(id) {
            Some(panels) => panels.unpacked(stored),
            None => stored.to_vec(),
        }
    }

    /// Row-major values, put where a weight's lie.
    pub(crate) fn like_stored(&self, id: WeightId, rows: Vec<f32>) -> Vec<f32> {
        match self.panels(id) {
            Some(panels) => packed(&rows, panels.depth(), panels.width()),
            None => rows,
        }
    }

    /// The same weights in the order of another graph over the same tensors, without a copy. `None` where that graph needs a
    /// weight that this one lacks.
    pub fn reordered(&self, from: &Graph, to: &Graph) -> Option<Self> {
        let weight = |weight: &attnscope_graph::Weight| {
            Some(self.0.get(from.weight_at(weight.role)?.index())?.clone())
        };
        to.weights().iter().map(weight).collect::<Option<_>>().map(Self)
    }

    /// The same weights with the values of one of them replaced.
    pub fn with(&self, id: WeightId, values: Vec<f32>) -> Self {
        let mut weights = self.0.clone();
        if let Some(weight) = weights.get_mut(id.index()) {
            let to = values.len();
            *weight = Weight { tensor: Arc::new(Stored::Rows(Elements::F32(values))), from: 0, to };
        }
        Self(weights)
    }

    /// Exchanges two weights, without a copy.
    pub fn exchange(&mut self, a: WeightId, b: WeightId) {
        if a.index().max(b.index()) < self.0.len() {
            self.0.swap(a.index(), b.index());
        }
    }

    /// Whether a weight is the same memory in both. Values are not compared.
    pub fn same(&self, other: &Self, id: WeightId) -> bool {
        match (self.0.get(id.index()), other.0.get(id.index())) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.tensor, &b.tensor) && (a.from, a.to) == (b.from, b.to),
            _ => false,
        }
    }

    /// The values of a weight in f32, row-major: a copy where they are stored otherwise.
    pub fn get(&self, id: WeightId) -> Cow<'_, [f32]> {
        let weight = &self.0[id.index()];
        weight.tensor.range(weight.from, weight.to)
    }

    /// The values of a weight without a copy, where they are stored in f32 and row-major: after [`Weights::widened`], every
    /// weight.
    pub fn plain(&self, id: WeightId) -> Option<&[f32]> {
        let weight = &self.0[id.index()];
        match &*weight.tensor {
            Stored::Rows(Elements::F32(values)) => Some(&values[weight.from..weight.to]),
            _ => None,
        }
    }

    /// The same weights, all in f32 and row-major, for code that reads them often.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn widened(self) -> Result<Self, RunError> {
        let held = |weight: &&Weight| !matches!(*weight.tensor, Stored::Rows(Elements::F32(_)));
        let more: u64 = self.0.iter().filter(held).map(|weight| 4 * (weight.to - weight.from) as u64).sum();
        check_memory(more).map_err(RunError::Memory)?;
        let uses = vec![Use::Values; self.0.len()];
        Ok(self.laid_out(&uses, 0))
    }

    /// The first rows of a weight, of so many values each.
    pub fn first_rows(&self, id: WeightId, rows: usize, width: usize) -> Vec<f32> {
        let weight = &self.0[id.index()];
        let there = (weight.to - weight.from) / width.max(1);
        let mut values = vec![0.0; rows.min(there) * width];
        values.chunks_mut(width.max(1)).enumerate().for_each(|(row, out)| self.row(id, row, out));
        values
    }

    /// A row of a weight that is a table.
    pub(crate) fn row(&self, id: WeightId, row: usize, out: &mut [f32]) {
        let weight = &self.0[id.index()];
        weight.tensor.row(weight.from, row, out);
    }

    /// A weight that is the right side of a product.
    pub(crate) fn panels(&self, id: WeightId) -> Option<&Panels> {
        match &*self.0[id.index()].tensor {
            Stored::Panels(panels) => Some(panels),
            Stored::Rows(_) => None,
        }
    }
}
