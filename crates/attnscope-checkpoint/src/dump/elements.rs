//! The values of one tensor of a dump, read in pieces: comparing two tensors keeps only a piece of each in memory.

use std::ops::Range;
use std::path::Path;

use crate::dtype::DType;
use crate::error::Error;
use crate::memory::room;
use crate::pread;
use crate::source::Source;
use crate::tensor::{Packing, TensorInfo};
use crate::values::{self, Layout};

/// Values in row-major order.
#[derive(Debug)]
pub struct Elements(Held);

#[derive(Debug)]
enum Held {
    /// In a file, contiguous, in a plain type.
    File { source: Source, start: u64, layout: Layout },
    /// A view whose elements are strided or repeated: the bytes that it reads from, which may be far fewer than its own.
    View { bytes: Vec<u8>, info: TensorInfo, layout: Layout },
    /// Compressed or written as text: read as a whole.
    Whole(Vec<f64>),
}

impl Elements {
    pub(super) fn of(source: Source, info: &TensorInfo) -> Result<Self, Error> {
        let layout = Layout::of(info).map_err(|kind| source.error(kind))?;
        if let (Some(strides), true) = (&info.place.strides, info.dtype.is_plain()) {
            let bytes = values::unpacked(&source, info)?.into_owned();
            values::check_view(&bytes, info, strides).map_err(|kind| source.error(kind))?;
            return Ok(Self(Held::View { bytes, info: info.clone(), layout }));
        }
        if info.place.packing == Packing::Stored && info.dtype.is_plain() {
            let start = info.place.range.start;
            return Ok(Self(Held::File { source, start, layout }));
        }
        values::to_f64(&source, info).map(Self::whole)
    }

    pub(super) fn whole(values: Vec<f64>) -> Self {
        Self(Held::Whole(values))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::File { layout, .. } | Held::View { layout, .. } => layout.elements,
            Held::Whole(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them. File and name are for errors.
    pub(super) fn all(self, file: &Path, name: &str) -> Result<Vec<f64>, Error> {
        if let Held::Whole(values) = self.0 {
            return Ok(values);
        }
        let room = room(self.len() as u64, format_args!("tensor {name:?}"));
        let mut out = room.map_err(|kind| Error::new(file, kind))?;
        self.get(0..self.len(), &mut out)?;
        Ok(out)
    }

    /// Replaces the contents of `out` with the values of a range. Values past the end are left out.
    ///
    /// # Errors
    /// When the file cannot be read, or has become shorter.
    pub fn get(&self, range: Range<usize>, out: &mut Vec<f64>) -> Result<(), Error> {
        out.clear();
        let range = range.start.min(self.len())..range.end.min(self.len());
        match &self.0 {
            Held::Whole(values) => out.extend_from_slice(values.get(range).unwrap_or_default()),
            Held::View { bytes, info, layout } => {
                let mut piece = Vec::new();
                let strides = info.place.strides.as_deref().unwrap_or_default();
                values::gather_range(bytes, info, strides, range, &mut piece);
                widen(*layout, &piece, &mut Vec::new(), out);
            }
            Held::File { source, start, layout } => {
                let width = layout.dtype.block().1 as u64;
                let mut narrow = Vec::new();
                let bytes = start + range.start as u64 * width..start + range.end as u64 * width;
                for block in pread::blocks(bytes) {
                    pread::with(source, block, |bytes| widen(*layout, bytes, &mut narrow, out))
                        .map_err(|kind| source.error(kind))?;
                }
            }
        }
        Ok(())
    }
}

/// Types that f32 does not hold are not rounded.
fn widen(layout: Layout, bytes: &[u8], narrow: &mut Vec<f32>, out: &mut Vec<f64>) {
    let eight = bytes.as_chunks::<8>().0.iter();
    match layout.dtype {
        DType::F64 => out.extend(eight.map(|&b| f64::from_le_bytes(b))),
        DType::I64 => out.extend(eight.map(|&b| i64::from_le_bytes(b) as f64)),
        _ => {
            narrow.clear();
            layout.widen(1.0, bytes, narrow);
            out.extend(narrow.iter().map(|&x| f64::from(x)));
        }
    }
}
