//! The weights of a model: each once, in its own type, in memory or left in its file, and for some executors in the layout that
//! their products read.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use attnscope_checkpoint::{Checkpoint, TensorInfo, check_memory, check_memory_within};
use attnscope_graph::{Dim, Graph, Model, Slot, TensorSpec, WeightId};

use crate::error::RunError;
use crate::in_file::InFile;
use crate::limits::Limits;
use crate::panels::{Elements, Panels, Stored, packed};
use crate::right_side::RightSide;

/// Every weight of a graph. Weights that share a tensor in the file share it here.
#[derive(Debug, Clone)]
pub struct Weights(Vec<Weight>);

#[derive(Debug, Clone)]
pub(crate) struct Weight {
    tensor: Held,
    /// The elements of this weight, where a tensor packs several weights.
    from: usize,
    to: usize,
    /// Depth and panel width of a right side of products whose values lie row by row.
    product: Option<[usize; 2]>,
}

/// Where a tensor is.
#[derive(Debug, Clone)]
enum Held {
    Memory(Arc<Stored>),
    File(Arc<InFile>),
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

/// A weight that is left in its file, and what is wanted of it.
#[derive(Debug, Clone)]
pub(crate) struct Unread {
    pub(crate) id: WeightId,
    pub(crate) file: Arc<InFile>,
    pub(crate) wanted: Use,
    from: usize,
    to: usize,
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

/// The heads of the stack that a weight belongs to.
fn heads_of(model: &Model, id: WeightId) -> Result<usize, RunError> {
    let stack = model.graph.weight(id).role.owner.stack();
    let heads = stack.and_then(|stack| model.sizes.get(Dim::Heads(stack)));
    heads.ok_or_else(|| RunError::Obstacle("the head count is not known".into()))
}

impl Held {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(a), Self::Memory(b)) => Arc::ptr_eq(a, b),
            (Self::File(a), Self::File(b)) => Arc::ptr_eq(a, b),
            (Self::Memory(_), Self::File(_)) | (Self::File(_), Self::Memory(_)) => false,
        }
    }
}

impl Weight {
    /// All of a tensor in memory.
    fn whole(stored: Stored) -> Self {
        let to = stored.len();
        Self { tensor: Held::Memory(Arc::new(stored)), from: 0, to, product: None }
    }

    /// Values in f32, row-major.
    fn of(values: Vec<f32>) -> Self {
        Self::whole(Stored::Rows(Elements::F32(values)))
    }

    fn len(&self) -> usize {
        self.to - self.from
    }

    /// Its values in f32, row-major.
    fn values(&self) -> Result<Cow<'_, [f32]>, RunError> {
        match &self.tensor {
            Held::Memory(stored) => Ok(stored.range(self.from, self.to)),
            Held::File(file) => file.range(self.from, self.to).map(Cow::Owned),
        }
    }

    /// The same in a tensor of its own.
    fn copied(&self) -> Result<Self, RunError> {
        Ok(Self::of(self.values()?.into_owned()))
    }

    /// Its tensor, where that is in memory.
    fn stored(&self) -> Option<&Arc<Stored>> {
        match &self.tensor {
            Held::Memory(stored) => Some(stored),
            Held::File(_) => None,
        }
    }

    /// Whether it is in f32, row-major, in memory.
    fn is_plain(&self) -> bool {
        matches!(self.stored().map(|stored| &**stored), Some(Stored::Rows(Elements::F32(_))))
    }
}

impl Unread {
    /// The weight with its tensor, which was read.
    pub(crate) fn with(&self, stored: &Arc<Stored>, width: usize) -> Weight {
        let (from, to) = (self.from, self.to);
        let whole = |product| Weight { tensor: Held::Memory(stored.clone()), from, to, product };
        match self.wanted {
            Use::Product { depth } => whole(Some([depth, width])),
            Use::Table => whole(None),
            Use::Values => Weight::of(stored.range(from, to).into_owned()),
        }
    }
}

impl Weights {
    /// Weights that no file holds: the values of each, row-major, in the order of a graph's weights.
    pub fn of(values: Vec<Vec<f32>>) -> Self {
        Self(values.into_iter().map(Weight::of).collect())
    }

    /// Reads the tensors that a model's weights are bound to.
    ///
    /// # Errors
    /// When weights are missing, or a tensor cannot be read.
    pub fn load(model: &Model, checkpoint: &Checkpoint) -> Result<Self, RunError> {
        Self::load_within(model, checkpoint, &Limits::default())
    }

    /// The same within limits of memory, until it is cancelled. Weights that do not fit are left in their file, from which every
    /// run then reads them: [`Weights::unread`] says so.
    ///
    /// # Errors
    /// As [`Weights::load`], and when it is cancelled.
    pub fn load_within(model: &Model, checkpoint: &Checkpoint, limits: &Limits) -> Result<Self, RunError> {
        let weights = Self::in_file(model, checkpoint)?;
        let need = weights.unread().unwrap_or(0).saturating_add(weights.largest_unread());
        match check_memory_within(need, limits.memory) {
            Ok(()) => weights.read(limits),
            Err(_) => Ok(weights),
        }
    }

    /// The same, all left in their file.
    ///
    /// # Errors
    /// When weights are missing.
    pub fn in_file(model: &Model, checkpoint: &Checkpoint) -> Result<Self, RunError> {
        if let Some(obstacle) = model.obstacles.first() {
            return Err(RunError::Obstacle(obstacle.clone()));
        }
        let mut known: HashMap<(usize, bool, Option<usize>), Arc<InFile>> = HashMap::new();
        let mut weights = Vec::with_capacity(model.graph.weights().len());
        for (id, slot) in model.binding.iter() {
            let Slot::Bound(found) = slot else {
                return Err(RunError::Obstacle(format!("{} is missing", model.graph.weight(id).path)));
            };
            let info = &checkpoint.tensors()[found.tensor];
            let key = (found.tensor, found.transposed, found.by_head);
            let file = match known.get(&key) {
                Some(file) => file.clone(),
                None => {
                    let heads = found.by_head.map(|parts| Ok([parts, heads_of(model, id)?]));
                    let heads = heads.transpose().map_err(|e: RunError| e)?;
                    let file = Arc::new(InFile::new(checkpoint.reader(info), found.transposed, heads));
                    known.insert(key, file.clone());
                    file
                }
            };
            let rows = if found.transposed { info.shape.last() } else { info.shape.first() };
            let row = file.len().checked_div(rows.copied().unwrap_or(1)).unwrap_or(0);
            let (from, to) = match &found.rows {
                Some(rows) => (rows.start * row, rows.end * row),
                None => (0, file.len()),
            };
            weights.push(Weight { tensor: Held::File(file), from, to, product: None });
        }
        Ok(Self(weights))
    }

    /// The same with every tensor in memory.
    fn read(mut self, limits: &Limits) -> Result<Self, RunError> {
        let mut read: HashMap<*const InFile, Arc<Stored>> = HashMap::new();
        for weight in &mut self.0 {
            let Held::File(file) = &weight.tensor else { continue };
            limits.cancel.check()?;
            let stored = match read.get(&Arc::as_ptr(file)) {
                Some(stored) => stored.clone(),
                None => {
                    let stored = Arc::new(Stored::Rows(file.read()?));
                    read.insert(Arc::as_ptr(file), stored.clone());
                    stored
                }
            };
            weight.tensor = Held::Memory(stored);
        }
        Ok(self)
    }

    /// The tensors that were left in their file, each once.
    fn files(&self) -> impl Iterator<Item = &InFile> {
        let mut seen = HashSet::new();
        self.0.iter().filter_map(move |weight| match &weight.tensor {
            Held::File(file) => seen.insert(Arc::as_ptr(file)).then_some(&**file),
            Held::Memory(_) => None,
        })
    }

    /// Bytes of the weights that were left in their file, because they do not fit in memory: every run reads them from there, a
    /// layer at a time. `None` where all are in memory.
    pub fn unread(&self) -> Option<u64> {
        let any = self.0.iter().any(|weight| matches!(weight.tensor, Held::File(_)));
        any.then(|| self.files().map(InFile::bytes).fold(0, u64::saturating_add))
    }

    /// Bytes of the largest of them: while it is laid out, it exists twice.
    fn largest_unread(&self) -> u64 {
        self.files().map(InFile::bytes).max().unwrap_or(0)
    }

    /// A weight that was left in its file.
    pub(crate) fn unread_weight(&self, id: WeightId, wanted: Use) -> Option<Unread> {
        let weight = &self.0[id.index()];
        match &weight.tensor {
            Held::File(file) => {
                Some(Unread { id, file: file.clone(), wanted, from: weight.from, to: weight.to })
            }
            Held::Memory(_) => None,
        }
    }

    /// The same with some weights that were read.
    pub(crate) fn with_read(&self, read: Vec<(WeightId, Weight)>) -> Self {
        let mut weights = self.0.clone();
        read.into_iter().for_each(|(id, weight)| weights[id.index()] = weight);
        Self(weights)
    }

    /// The same weights in the layout of an executor, each by its use: right sides of products in panels of this width, or in
    /// quantised blocks as they are, weights that are read whole in f32. A tensor without other owners exists twice only while
    /// it is converted; one that already has the right layout stays the same tensor, and one in a file stays there.
    pub(crate) fn laid_out(mut self, uses: &[Use], width: usize) -> Self {
        // Keyed by the address of the old tensor: all of these are alive when this begins, and new ones are never looked up.
        let mut done: HashMap<(*const Stored, usize, usize, bool), Arc<Stored>> = HashMap::new();
        // Products first: a table that is also used in a product is then looked up in its panels.
        let is_table = |wanted: &Use| *wanted == Use::Table;
        let order = |tables: bool| (0..uses.len()).filter(move |&i| is_table(&uses[i]) == tables);
        for i in order(false).chain(order(true)) {
            let (Some(weight), wanted) = (self.0.get_mut(i), uses[i]) else { continue };
            let is_values = wanted == Use::Values;
            let Held::Memory(stored) = &weight.tensor else { continue };
            let key = (Arc::as_ptr(stored), weight.from, weight.to, is_values);
            let tensor = match (&**stored, wanted) {
                (Stored::Panels(panels), Use::Product { .. }) if panels.width() == width => continue,
                (Stored::Rows(Elements::F32(_)), Use::Values) => continue,
                (Stored::Rows(Elements::Blocks(_)), Use::Product { depth }) => {
                    weight.product = Some([depth, width]);
                    continue;
                }
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
            let to = tensor.len();
            *weight = Weight { tensor: Held::Memory(tensor), from: 0, to, product: None };
        }
        self
    }

    /// The same weights, row-major f32, shared with nobody.
    pub(crate) fn copied(&self) -> Result<Self, RunError> {
        let bytes: u64 = self.0.iter().map(|weight| 4 * weight.len() as u64).sum();
        check_memory(bytes).map_err(RunError::WeightsMemory)?;
        self.0.iter().map(Weight::copied).collect::<Result<_, _>>().map(Self)
    }

    /// The same weights to be changed: each has values of its own in f32, where an executor reads them.
    pub(crate) fn to_learn(&self, uses: &[Use], width: usize) -> Result<Self, RunError> {
        let copied = self.0.iter().map(Weight::copied).collect::<Result<_, _>>()?;
        Ok(Self(copied).laid_out(uses, width))
    }

    /// How many values a weight has.
    pub(crate) fn len(&self, id: WeightId) -> usize {
        self.0[id.index()].len()
    }

    /// The values of each weight as they lie, to be changed; nothing of those that somebody else holds.
    pub(crate) fn stored_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.0.iter_mut().map(|weight| match &mut weight.tensor {
            Held::Memory(stored) => Arc::get_mut(stored).and_then(Stored::f32_mut).unwrap_or_default(),
            Held::File(_) => &mut [],
        })
    }

    /// Values that lie like a weight's, in their places row-major.
    pub(crate) fn to_rows(&self, id: WeightId, stored: &[f32]) -> Vec<f32> {
        match self.packed_panels(id) {
            Some(panels) => panels.unpacked(stored),
            None => stored.to_vec(),
        }
    }

    /// Row-major values, put where a weight's lie.
    pub(crate) fn like_stored(&self, id: WeightId, rows: Vec<f32>) -> Vec<f32> {
        match self.packed_panels(id) {
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
            *weight = Weight::of(values);
        }
        Self(weights)
    }

    /// Exchanges two weights, without a copy.
    pub fn exchange(&mut self, a: WeightId, b: WeightId) {
        if a.index().max(b.index()) < self.0.len() {
            self.0.swap(a.index(), b.index());
        }
    }

    /// Whether a weight is the same memory, or the same place in a file, in both. Values are not compared.
    pub fn same(&self, other: &Self, id: WeightId) -> bool {
        match (self.0.get(id.index()), other.0.get(id.index())) {
            (Some(a), Some(b)) => a.tensor.is_same(&b.tensor) && (a.from, a.to) == (b.from, b.to),
            _ => false,
        }
    }

    /// The values of a weight in f32, row-major: a copy where they are stored otherwise.
    ///
    /// # Errors
    /// When it was left in its file, and cannot be read.
    pub fn get(&self, id: WeightId) -> Result<Cow<'_, [f32]>, RunError> {
        self.0[id.index()].values()
    }

    /// The values of a weight without a copy, where they are in memory in f32 and row-major: after [`Weights::widened`], every
    /// weight.
    pub fn plain(&self, id: WeightId) -> Option<&[f32]> {
        let weight = &self.0[id.index()];
        match &**weight.stored()? {
            Stored::Rows(Elements::F32(values)) => Some(&values[weight.from..weight.to]),
            _ => None,
        }
    }

    /// The same weights, all in memory in f32 and row-major, for code that reads them often.
    ///
    /// # Errors
    /// When there is not enough memory, or a weight cannot be read.
    pub fn widened(self, limits: &Limits) -> Result<Self, RunError> {
        let held = self.0.iter().filter(|weight| !weight.is_plain());
        let more: u64 = held.map(|weight| 4 * weight.len() as u64).sum();
        check_memory_within(more, limits.memory).map_err(RunError::WeightsMemory)?;
        let uses = vec![Use::Values; self.0.len()];
        Ok(self.read(limits)?.laid_out(&uses, 0))
    }

    /// The first rows of a weight, of so many values each.
    ///
    /// # Errors
    /// As [`Weights::get`].
    pub fn first_rows(&self, id: WeightId, rows: usize, width: usize) -> Result<Vec<f32>, RunError> {
        let there = self.len(id) / width.max(1);
        let mut values = vec![0.0; rows.min(there) * width];
        for (row, out) in values.chunks_mut(width.max(1)).enumerate() {
            self.row(id, row, out)?;
        }
        Ok(values)
    }

    /// A row of a weight that is a table.
    ///
    /// # Errors
    /// As [`Weights::get`].
    pub(crate) fn row(&self, id: WeightId, row: usize, out: &mut [f32]) -> Result<(), RunError> {
        let weight = &self.0[id.index()];
        match &weight.tensor {
            Held::Memory(stored) => stored.row(weight.from, row, out),
            Held::File(file) => {
                let from = weight.from + row * out.len();
                out.copy_from_slice(&file.range(from, from + out.len())?);
            }
        }
        Ok(())
    }

    /// A weight that is the right side of a product.
    pub(crate) fn right_side(&self, id: WeightId) -> Option<RightSide<'_>> {
        let weight = &self.0[id.index()];
        match (&**weight.stored()?, weight.product) {
            (Stored::Panels(panels), _) => Some(panels.right_side()),
            (Stored::Rows(rows), Some(size)) => Some(RightSide::of_rows(rows, weight.from, weight.to, size)),
            (Stored::Rows(_), None) => None,
        }
    }

    /// The panels of a weight that was packed.
    fn packed_panels(&self, id: WeightId) -> Option<&Panels> {
        match &**self.0[id.index()].stored()? {
            Stored::Panels(panels) => Some(panels),
            Stored::Rows(_) => None,
        }
    }
}
