//! What is known about a tensor before its values are read.

use std::ops::Range;

use crate::dtype::DType;

/// A tensor's name, type, shape and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the file; nested dictionaries are joined with dots.
    pub name: String,
    /// How its elements are stored.
    pub dtype: DType,
    /// Its shape, slowest dimension first.
    pub shape: Vec<usize>,
    /// Where its bytes are.
    pub(crate) place: Place,
}

/// Where a tensor's bytes lie. Readers have checked it against the file before a `TensorInfo` exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Which of the checkpoint's files.
    pub(crate) source: usize,
    /// The bytes in that file: exactly the tensor's own when it is contiguous, else from its first element
    /// to its last.
    pub(crate) range: Range<u64>,
    /// Strides in elements for a tensor that is not row-major contiguous.
    pub(crate) strides: Option<Vec<usize>>,
    /// How the range is to be read.
    pub(crate) packing: Packing,
}

/// Whether the bytes can be used as they lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Packing {
    /// As they are.
    Stored,
    /// `range` is a deflate stream; the tensor begins after `skip` inflated bytes and has `len` of them.
    Deflated { skip: u64, len: u64 },
}

impl TensorInfo {
    /// How many elements it has. Readers refuse shapes whose product overflows.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Equal for two names of the same values, such as a tied table; not for a view into one.
    pub fn identity(&self) -> Identity<'_> {
        Identity { dtype: self.dtype, shape: &self.shape, place: &self.place }
    }

    /// How many bytes its elements take when contiguous.
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes_for(self.elements()).unwrap_or(0) as u64
    }
}

/// What makes a tensor the same as another of the same checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity<'a> {
    dtype: DType,
    shape: &'a [usize],
    place: &'a Place,
}
