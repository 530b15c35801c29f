//! Range, mean and spread of a tensor, streamed: a block per thread is all that is ever held.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod kernel;

use std::ops::Range;

use rayon::prelude::*;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::pread;
use crate::source::Source;
use crate::tensor::{Packing, TensorInfo};
use crate::values::{self, Layout};
use kernel::Partial;

/// Statistics of a tensor's values. Numbers are of its finite values, in f64; they are NaN where
/// there are none. Integers beyond 2^53 are rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    /// All elements, finite or not.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// The square root of their mean squared distance from the mean.
    pub std: f64,
    /// How many are zero, of either sign.
    pub zeros: u64,
    /// How many are NaN.
    pub nan: u64,
    /// How many are infinite.
    pub inf: u64,
}

impl Stats {
    /// Statistics of values in memory.
    pub fn of_f32(values: &[f32]) -> Self {
        merge(values.chunks(SUB_BLOCK).map(|v| kernel::run(v, |x| x)))
    }

    /// Statistics of values in memory.
    pub fn of_f64(values: &[f64]) -> Self {
        merge(values.chunks(SUB_BLOCK).map(|v| kernel::run(v, |x| x)))
    }

    /// Statistics of the little-endian bytes of a plain type; `None` for other types.
    pub fn of_bytes(dtype: DType, bytes: &[u8]) -> Option<Self> {
        let layout = Layout { dtype, elements: bytes.len() / dtype.block().1.max(1), prefix: 0 };
        dtype.is_plain().then(|| merge(bytes.chunks(layout.piece().1).map(|b| plain(dtype, b))))
    }
}

/// Values that are widened at once where a type needs it: they stay in the nearest cache.
const SUB_BLOCK: usize = 4096;

/// Statistics of many tensors, on all cores.
pub(crate) fn of_all(tensors: &[(&Source, &TensorInfo)]) -> Vec<Result<Stats, Error>> {
    tensors.par_iter().map(|(source, info)| of(source, info)).collect()
}

/// Statistics of one tensor, on all cores. The same file gives the same bits, however many there are.
pub(crate) fn of(source: &Source, info: &TensorInfo) -> Result<Stats, Error> {
    let layout = Layout::of(info).map_err(|kind| source.error(kind))?;
    let partials = match dense(info) {
        Some(range) => in_parallel(source, range, layout).map_err(|kind| source.error(kind))?,
        None => in_order(source, info)?,
    };
    Ok(merge(partials))
}

/// The bytes that hold each of the tensor's elements once, in whatever order: their statistics are the same.
fn dense(info: &TensorInfo) -> Option<Range<u64>> {
    let range = info.place.range.clone();
    match (&info.place.packing, &info.place.strides) {
        (Packing::Deflated { .. }, _) => None,
        (Packing::Stored, None) => Some(range),
        (Packing::Stored, Some(strides)) => {
            let mut dims: Vec<_> = strides.iter().zip(&info.shape).filter(|(_, d)| **d != 1).collect();
            dims.sort();
            let mut expected = 1usize;
            for (&stride, &dim) in dims {
                if stride != expected {
                    return None;
                }
                expected = expected.saturating_mul(dim);
            }
            (range.end - range.start == info.bytes()).then_some(range)
        }
    }
}

fn in_parallel(source: &Source, range: Range<u64>, layout: Layout) -> Result<Vec<Partial>, ErrorKind> {
    let first = range.start + layout.prefix as u64;
    let scale = pread::with(source, range.start..first.min(range.end), |bytes| layout.scale(bytes))?;
    let (elements, bytes) = layout.piece();
    (0..layout.elements.div_ceil(elements))
        .into_par_iter()
        .map(|i| {
            let start = first + (i * bytes) as u64;
            let end = range.end.min(start + bytes as u64);
            let count = elements.min(layout.elements - i * elements);
            pread::with(source, start..end, |bytes| partial(layout, scale, count, bytes))
        })
        .collect()
}

fn in_order(source: &Source, info: &TensorInfo) -> Result<Vec<Partial>, Error> {
    let mut partials = Vec::new();
    values::for_each_raw(source, info, &mut |bytes| {
        partials.push(plain(info.dtype, bytes));
        Ok(())
    })?;
    Ok(partials)
}

/// The statistics of a piece of `count` elements.
fn partial(layout: Layout, scale: f32, count: usize, bytes: &[u8]) -> Partial {
    if layout.dtype.is_plain() {
        return plain(layout.dtype, bytes);
    }
    let (elements, block) = layout.dtype.block();
    let step = (SUB_BLOCK / elements).max(1) * block;
    let mut values = Vec::with_capacity(SUB_BLOCK);
    let (mut whole, mut left) = (Partial::default(), count);
    for some in bytes.chunks(step) {
        values.clear();
        layout.widen(scale, some, &mut values);
        values.truncate(left);
        left -= values.len();
        whole.merge(kernel::run(&values, |x| x));
    }
    whole
}

fn plain(dtype: DType, bytes: &[u8]) -> Partial {
    #[cfg(target_arch = "x86_64")]
    if let Some(partial) = avx512::run(dtype, bytes) {
        return partial;
    }
    portable(dtype, bytes)
}

fn portable(dtype: DType, bytes: &[u8]) -> Partial {
    match dtype {
        DType::F64 => kernel::run(bytes.as_chunks().0, f64::from_le_bytes),
        DType::F32 => kernel::run(bytes.as_chunks().0, f32::from_le_bytes),
        DType::F16 => kernel::run(bytes.as_chunks().0, |b| values::f16_to_f32(u16::from_le_bytes(b))),
        DType::BF16 => kernel::run(bytes.as_chunks().0, |b| values::bf16_to_f32(u16::from_le_bytes(b))),
        DType::F8E4M3 => kernel::run(bytes, values::f8_e4m3),
        DType::F8E5M2 => kernel::run(bytes, values::f8_e5m2),
        DType::I64 => kernel::run(bytes.as_chunks().0, |b| i64::from_le_bytes(b) as f64),
        DType::I32 => kernel::run(bytes.as_chunks().0, |b| f64::from(i32::from_le_bytes(b))),
        DType::I16 => kernel::run(bytes.as_chunks().0, |b| f32::from(i16::from_le_bytes(b))),
        DType::I8 => kernel::run(bytes, |b| f32::from(b.cast_signed())),
        DType::U64 => kernel::run(bytes.as_chunks().0, |b| u64::from_le_bytes(b) as f64),
        DType::U32 => kernel::run(bytes.as_chunks().0, |b| f64::from(u32::from_le_bytes(b))),
        DType::U16 => kernel::run(bytes.as_chunks().0, |b| f32::from(u16::from_le_bytes(b))),
        DType::U8 => kernel::run(bytes, f32::from),
        DType::Bool => kernel::run(bytes, |b| f32::from(u8::from(b != 0))),
        _ => Partial::default(),
    }
}

fn merge(partials: impl IntoIterator<Item = Partial>) -> Stats {
    let mut whole = Partial::default();
    partials.into_iter().for_each(|p| whole.merge(p));
    let Partial { finite, zeros, nan, inf, min, max, mean, m2 } = whole;
    let or_nan = |x| if finite == 0 { f64::NAN } else { x };
    Stats {
        count: finite + nan + inf,
        min: or_nan(min),
        max: or_nan(max),
        mean: or_nan(mean),
        std: or_nan((m2 / finite as f64).sqrt()),
        zeros,
        nan,
        inf,
    }
}

#[cfg(test)]
mod tests;
