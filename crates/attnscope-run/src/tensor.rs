//! The tensors of a run, of any executor.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use attnscope_checkpoint::{DType, HeldTensor, SharedBytes};

use crate::pool::Shared;

/// A tensor of a run: its shape, and its values in the precision of their computation. A clone shares the values.
#[derive(Debug, Clone)]
pub struct Tensor(Data);

#[derive(Debug, Clone)]
enum Data {
    F32 { shape: Vec<usize>, values: Shared },
    F64(Arc<Kept>),
}

/// The values of a tensor, row-major.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values<'a> {
    /// Of the native executor.
    F32(&'a [f32]),
    /// Of the reference executor.
    F64(&'a [f64]),
}

/// A tensor in f64: what formulas are computed with.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, row-major.
    pub values: Vec<f64>,
}

impl Tensor {
    /// In f32, row-major.
    pub fn new(shape: Vec<usize>, values: Vec<f32>) -> Self {
        Self::shared_with(&shape, &values.into())
    }

    /// A tensor whose values are shared.
    pub(crate) fn shared_with(shape: &[usize], values: &Shared) -> Self {
        Self(Data::F32 { shape: shape.to_vec(), values: values.clone() })
    }

    /// Its size along each dimension.
    pub fn shape(&self) -> &[usize] {
        match &self.0 {
            Data::F32 { shape, .. } => shape,
            Data::F64(kept) => &kept.shape,
        }
    }

    /// Its values.
    pub fn values(&self) -> Values<'_> {
        match &self.0 {
            Data::F32 { values, .. } => Values::F32(values),
            Data::F64(kept) => Values::F64(&kept.values),
        }
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        self.values().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in f32 to keep: without a copy where they are in f32 already.
    pub(crate) fn shared(&self) -> Shared {
        match &self.0 {
            Data::F32 { values, .. } => values.clone(),
            Data::F64(_) => self.values().to_f32().into(),
        }
    }

    /// The same as a tensor of a checkpoint or of a dump: it shares the values.
    pub fn held(&self, name: &str) -> HeldTensor {
        let dtype = match self.values() {
            Values::F32(_) => DType::F32,
            Values::F64(_) => DType::F64,
        };
        let bytes: SharedBytes = match cfg!(target_endian = "little") {
            true => Arc::new(Bytes(self.clone())),
            false => Arc::new(self.values().to_le_bytes()),
        };
        HeldTensor { name: name.to_owned(), dtype, shape: self.shape().to_vec(), bytes }
    }

    /// The same in f64.
    pub fn to_f64(&self) -> Kept {
        match &self.0 {
            Data::F32 { shape, values } => {
                Kept { shape: shape.clone(), values: Values::F32(values).to_f64() }
            }
            Data::F64(kept) => Kept::clone(kept),
        }
    }
}

/// The bytes of a tensor, where they lie.
struct Bytes(Tensor);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self.0.values() {
            Values::F32(values) => bytemuck::cast_slice(values),
            Values::F64(values) => bytemuck::cast_slice(values),
        }
    }
}

impl From<Arc<Kept>> for Tensor {
    fn from(kept: Arc<Kept>) -> Self {
        Self(Data::F64(kept))
    }
}

impl<'a> Values<'a> {
    /// How many there are.
    pub fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn get(self, i: usize) -> Option<f64> {
        match self {
            Self::F32(values) => values.get(i).map(|&x| f64::from(x)),
            Self::F64(values) => values.get(i).copied(),
        }
    }

    /// Some of them that follow each other.
    pub fn range(self, range: Range<usize>) -> Option<Self> {
        Some(match self {
            Self::F32(values) => Self::F32(values.get(range)?),
            Self::F64(values) => Self::F64(values.get(range)?),
        })
    }

    /// All of them, one after the other.
    pub fn iter(self) -> impl Iterator<Item = f64> + 'a {
        (0..self.len()).filter_map(move |i| self.get(i))
    }

    fn to_le_bytes(self) -> Vec<u8> {
        match self {
            Self::F32(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Self::F64(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// In f64: as they are, or a wider copy.
    pub fn as_f64(self) -> Cow<'a, [f64]> {
        match self {
            Self::F32(_) => self.to_f64().into(),
            Self::F64(values) => values.into(),
        }
    }

    /// In f32: as they are, or a narrower copy.
    pub fn as_f32(self) -> Cow<'a, [f32]> {
        match self {
            Self::F32(values) => values.into(),
            Self::F64(_) => self.to_f32().into(),
        }
    }

    /// In f32, from any executor.
    pub fn to_f32(self) -> Vec<f32> {
        match self {
            Self::F32(values) => values.to_vec(),
            Self::F64(values) => values.iter().map(|&x| x as f32).collect(),
        }
    }

    /// In f64, from any executor.
    pub fn to_f64(self) -> Vec<f64> {
        match self {
            Self::F32(values) => values.iter().map(|&x| f64::from(x)).collect(),
            Self::F64(values) => values.to_vec(),
        }
    }
}

impl Kept {
    /// The length of a dimension counted from the last.
    pub(crate) fn dim(&self, from_last: usize) -> usize {
        self.shape.len().checked_sub(from_last).map_or(1, |i| self.shape[i])
    }

    pub(crate) fn width(&self) -> usize {
        self.dim(1).max(1)
    }
}
