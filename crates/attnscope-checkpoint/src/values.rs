//! The values of one tensor: its bytes, its numbers, all at once or block by block.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use flate2::read::DeflateDecoder;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::memory::room;
use crate::pread;
use crate::quant;
use crate::read::fields::Fields;
use crate::source::{Source, Stream, from_io};
use crate::tensor::{Packing, TensorInfo};

/// A deflate stream cannot grow by more.
const MAX_INFLATION: u64 = 1032;
/// A view that repeats elements (a stride of 0) may claim any size; from this size on it is read only if the file has a fair
/// share of its bytes.
const LARGE_VIEW: u64 = 1 << 30;
const MAX_REPEATS: u64 = 64;

/// Takes the bytes of a tensor, a piece at a time.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Error> + 'a;

/// The tensor's bytes, row-major and contiguous: borrowed if they lie so in the file.
pub(crate) fn raw<'a>(source: &'a Source, info: &TensorInfo) -> Result<Cow<'a, [u8]>, Error> {
    let bytes = unpacked(source, info)?;
    let Some(strides) = &info.place.strides else { return Ok(bytes) };
    let mut out = room(info.bytes(), tensor(info)).map_err(|kind| source.error(kind))?;
    gather(source, &bytes, info, strides, &mut |some| {
        out.extend_from_slice(some);
        Ok(())
    })?;
    Ok(Cow::Owned(out))
}

/// The bytes of the tensor in the file, possibly strided.
pub(crate) fn unpacked<'a>(source: &'a Source, info: &TensorInfo) -> Result<Cow<'a, [u8]>, Error> {
    let bytes = match info.place.packing {
        Packing::Stored => source.read(info.place.range.clone(), tensor(info)),
        Packing::Deflated { skip, len } => inflate(source, info, skip, len).map(Cow::Owned),
    };
    bytes.map_err(|kind| source.error(kind))
}

/// Every value as f32: exact for types of at most 24 significant bits, rounded to nearest for wider ones.
pub(crate) fn to_f32(source: &Source, info: &TensorInfo) -> Result<Vec<f32>, Error> {
    let mut out = room(info.elements() as u64, tensor(info)).map_err(|kind| source.error(kind))?;
    for_each_block(source, info, &mut |values| {
        out.extend_from_slice(values);
        Ok(())
    })?;
    Ok(out)
}

/// The name of a tensor in errors.
fn tensor(info: &TensorInfo) -> String {
    format!("tensor {:?}", info.name)
}

/// Every value as f64: those of a type that f32 does not hold are not rounded.
pub(crate) fn to_f64(source: &Source, info: &TensorInfo) -> Result<Vec<f64>, Error> {
    let mut out = room(info.elements() as u64, tensor(info)).map_err(|kind| source.error(kind))?;
    let mut eight = |convert: fn([u8; 8]) -> f64| {
        for_each_raw(source, info, &mut |bytes| {
            out.extend(bytes.as_chunks().0.iter().map(|&b| convert(b)));
            Ok(())
        })
    };
    match info.dtype {
        DType::F64 => eight(f64::from_le_bytes)?,
        DType::I64 => eight(|b| i64::from_le_bytes(b) as f64)?,
        _ => for_each_block(source, info, &mut |values| {
            out.extend(values.iter().map(|&x| f64::from(x)));
            Ok(())
        })?,
    }
    Ok(out)
}

/// The values in row-major order, some at a time, without holding the tensor.
pub(crate) fn for_each_block(
    source: &Source,
    info: &TensorInfo,
    take: &mut dyn FnMut(&[f32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let layout = Layout::of(info).map_err(|kind| source.error(kind))?;
    let (mut scale, mut left) = (None, layout.elements);
    let mut values = Vec::new();
    for_each_raw(source, info, &mut |bytes| {
        if layout.prefix > 0 && scale.is_none() {
            scale = Some(layout.scale(bytes));
            return Ok(());
        }
        values.clear();
        layout.widen(scale.unwrap_or(1.0), bytes, &mut values);
        values.truncate(left);
        left -= values.len();
        take(&values)
    })?;
    check_length(info, layout.elements - left).map_err(|kind| source.error(kind))
}

/// The bytes that [`raw`] gives, some at a time: first the prefix if the type has one, then whole blocks.
pub(crate) fn for_each_raw(source: &Source, info: &TensorInfo, sink: &mut Sink<'_>) -> Result<(), Error> {
    if let Some(strides) = &info.place.strides {
        return gather(source, &unpacked(source, info)?, info, strides, sink);
    }
    let layout = Layout::of_any(info);
    match info.place.packing {
        Packing::Stored => {
            let mut buffer = Vec::new();
            for range in layout.pieces(info.bytes()) {
                let start = info.place.range.start;
                // Copied out of the thread's buffer, because the sink may read other tensors.
                buffer.clear();
                pread::with(source, start + range.start..start + range.end, |bytes| {
                    buffer.extend_from_slice(bytes);
                })
                .map_err(|kind| source.error(kind))?;
                sink(&buffer)?;
            }
            Ok(())
        }
        Packing::Deflated { skip, len } => {
            let mut inflated = open_deflated(source, info, skip, len).map_err(|kind| source.error(kind))?;
            let mut buffer = vec![0; pread::BLOCK];
            for range in layout.pieces(len) {
                let piece = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let bytes = buffer.get_mut(..piece).unwrap_or_default();
                read_inflated(&mut inflated, bytes, info).map_err(|kind| source.error(kind))?;
                sink(bytes)?;
            }
            Ok(())
        }
    }
}

/// How the bytes of a contiguous tensor divide into pieces that can be decoded alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
    /// Bytes before the first block: a scale for the whole tensor.
    pub(crate) prefix: usize,
}

impl Layout {
    /// The layout of a tensor whose values can be read.
    pub(crate) fn of(info: &TensorInfo) -> Result<Self, ErrorKind> {
        match info.dtype {
            DType::Opaque { name, .. } => Err(ErrorKind::Unsupported {
                what: format!(
                    "tensor {:?} is {name}, which is listed but whose values are not read",
                    info.name
                ),
                help: "quantise the model to q8_0, q6_k, q5_k or q4_k, or use one that is not quantised"
                    .into(),
            }),
            _ => Ok(Self::of_any(info)),
        }
    }

    /// The layout of any tensor, for its bytes alone.
    fn of_any(info: &TensorInfo) -> Self {
        let prefix = if info.dtype == DType::AprQ8 { 4 } else { 0 };
        Self { dtype: info.dtype, elements: info.elements(), prefix }
    }

    /// Elements and bytes in a piece of at most [`pread::BLOCK`] bytes.
    pub(crate) fn piece(self) -> (usize, usize) {
        let (elements, bytes) = self.dtype.block();
        let blocks = (pread::BLOCK / bytes.max(1)).max(1);
        (blocks * elements, blocks * bytes)
    }

    /// The ranges of the prefix and the pieces in a tensor of `total` bytes.
    fn pieces(self, total: u64) -> impl Iterator<Item = Range<u64>> {
        let (prefix, step) = (self.prefix as u64, self.piece().1 as u64);
        let first = (prefix > 0).then_some(0..prefix.min(total));
        let count = total.saturating_sub(prefix).div_ceil(step);
        first.into_iter().chain((0..count).map(move |i| {
            let start = prefix + i * step;
            start..total.min(start + step)
        }))
    }

    /// The scale in the prefix, 1 for types without one.
    pub(crate) fn scale(self, bytes: &[u8]) -> f32 {
        if self.prefix == 0 {
            return 1.0;
        }
        Fields::new(bytes).u32("scale").map_or(f32::NAN, f32::from_bits)
    }

    /// Appends the values of whole blocks to `out`.
    pub(crate) fn widen(self, scale: f32, bytes: &[u8], out: &mut Vec<f32>) {
        match self.dtype {
            DType::F64 => plain(bytes, |b| f64::from_le_bytes(b) as f32, out),
            DType::F32 => plain(bytes, f32::from_le_bytes, out),
            DType::F16 => plain(bytes, |b| f16_to_f32(u16::from_le_bytes(b)), out),
            DType::BF16 => plain(bytes, |b| bf16_to_f32(u16::from_le_bytes(b)), out),
            DType::F8E4M3 => plain(bytes, |[b]| f8_e4m3(b), out),
            DType::F8E5M2 => plain(bytes, |[b]| f8_e5m2(b), out),
            DType::I64 => plain(bytes, |b| i64::from_le_bytes(b) as f32, out),
            DType::I32 => plain(bytes, |b| i32::from_le_bytes(b) as f32, out),
            DType::I16 => plain(bytes, |b| i16::from_le_bytes(b).into(), out),
            DType::I8 => plain(bytes, |b| i8::from_le_bytes(b).into(), out),
            DType::U64 => plain(bytes, |b| u64::from_le_bytes(b) as f32, out),
            DType::U32 => plain(bytes, |b| u32::from_le_bytes(b) as f32, out),
            DType::U16 => plain(bytes, |b| u16::from_le_bytes(b).into(), out),
            DType::U8 => plain(bytes, |[b]| b.into(), out),
            DType::Bool => plain(bytes, |[b]| f32::from(b != 0), out),
            DType::Q4_0 => quant::each(bytes, quant::q4_0, out),
            DType::Q4_1 => quant::each(bytes, quant::q4_1, out),
            DType::Q5_0 => quant::each(bytes, quant::q5_0, out),
            DType::Q5_1 => quant::each(bytes, quant::q5_1, out),
            DType::Q8_0 => quant::each(bytes, quant::q8_0, out),
            DType::Q4K => quant::each(bytes, quant::q4_k, out),
            DType::Q5K => quant::each(bytes, quant::q5_k, out),
            DType::Q6K => quant::each(bytes, quant::q6_k, out),
            DType::AprQ4 => quant::each(bytes, quant::apr_q4, out),
            DType::AprQ8 => plain(bytes, |b| f32::from(i8::from_le_bytes(b)) * scale, out),
            // `Layout::of` has refused it.
            DType::Opaque { .. } => {}
        }
    }
}

fn plain<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32, out: &mut Vec<f32>) {
    out.extend(bytes.as_chunks().0.iter().map(|&b| value(b)));
}

/// 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities, one NaN of each sign.
#[inline(always)]
pub(crate) fn f8_e4m3(b: u8) -> f32 {
    let sign = u32::from(b & 0x80) << 24;
    let magnitude = u32::from(b & 0x7f);
    // The exponent moves from bias 7 to bias 127; a subnormal is its mantissa times 2^-9.
    let normal = (magnitude << 20) + (120 << 23);
    let subnormal = (magnitude as f32 * (1.0 / 512.0)).to_bits();
    let finite = if magnitude < 8 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude == 0x7f { 0x7fc0_0000 } else { finite })
}

/// The upper byte of an f16.
#[inline(always)]
pub(crate) fn f8_e5m2(b: u8) -> f32 {
    f16_to_f32(u16::from(b) << 8)
}

/// The upper half of an f32.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Without branches, table or subnormal arithmetic, so that a loop over it becomes vector instructions on any
/// machine; the `half` crate asks for the machine's features at each value.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    // The exponent moves from bias 15 to bias 127; that of infinities and NaN from all ones to all ones.
    let unusual = if magnitude >= 0x7c00 { 112 << 23 } else { 0 };
    let normal = (magnitude << 13) + (112 << 23) + unusual;
    // A subnormal is its mantissa times 2^-24, the last place of a number in 0.5..1.
    let subnormal = (f32::from_bits(0.5f32.to_bits() | magnitude) - 0.5).to_bits();
    f32::from_bits(sign | if magnitude < 0x400 { subnormal } else { normal })
}

fn check_length(info: &TensorInfo, found: usize) -> Result<(), ErrorKind> {
    let expected = info.elements();
    if found == expected {
        return Ok(());
    }
    Err(ErrorKind::invalid(format!("tensor {:?}", info.name), format!("{expected} elements"), found))
}

fn open_deflated<'a>(
    source: &'a Source,
    info: &TensorInfo,
    skip: u64,
    len: u64,
) -> Result<DeflateDecoder<Stream<'a>>, ErrorKind> {
    let range = info.place.range.clone();
    let packed = range.end.saturating_sub(range.start);
    let most = packed.saturating_mul(MAX_INFLATION);
    if skip.checked_add(len).is_none_or(|total| total > most) {
        let place = format!("tensor {:?}", info.name);
        let expected = format!("at most {most} bytes out of {packed} deflated ones");
        return Err(ErrorKind::invalid(place, expected, format!("{skip} + {len}")));
    }
    let mut inflated = DeflateDecoder::new(source.stream(range));
    let skipped = std::io::copy(&mut inflated.by_ref().take(skip), &mut std::io::sink()).map_err(from_io)?;
    if skipped < skip {
        return Err(short(info, skip, skipped));
    }
    Ok(inflated)
}

fn inflate(source: &Source, info: &TensorInfo, skip: u64, len: u64) -> Result<Vec<u8>, ErrorKind> {
    let inflated = open_deflated(source, info, skip, len)?;
    let mut out = room(len, tensor(info))?;
    let found = inflated.take(len).read_to_end(&mut out).map_err(from_io)? as u64;
    if found < len { Err(short(info, len, found)) } else { Ok(out) }
}

fn read_inflated(from: &mut impl Read, into: &mut [u8], info: &TensorInfo) -> Result<(), ErrorKind> {
    let need = into.len() as u64;
    from.read_exact(into).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => short(info, need, 0),
        _ => from_io(e),
    })
}

fn short(info: &TensorInfo, need: u64, have: u64) -> ErrorKind {
    ErrorKind::Truncated { place: format!("deflated tensor {:?}", info.name), need, have }
}

/// Gives a strided view in row-major order, in pieces of at most [`pread::BLOCK`] bytes.
fn gather(
    source: &Source,
    bytes: &[u8],
    info: &TensorInfo,
    strides: &[usize],
    sink: &mut Sink<'_>,
) -> Result<(), Error> {
    let size = info.dtype.block().1;
    let total = check_view(bytes, info, strides).map_err(|kind| source.error(kind))?;
    let mut piece = Vec::with_capacity(total.min(pread::BLOCK));
    for from in (0..total / size).step_by(pread::BLOCK / size) {
        piece.clear();
        gather_range(bytes, info, strides, from..(total / size).min(from + pread::BLOCK / size), &mut piece);
        sink(&piece)?;
    }
    Ok(())
}

/// Appends some elements of a view that [`check_view`] has passed, counted in row-major order.
pub(crate) fn gather_range(
    bytes: &[u8],
    info: &TensorInfo,
    strides: &[usize],
    range: Range<usize>,
    out: &mut Vec<u8>,
) {
    let size = info.dtype.block().1;
    let mut index = vec![0; info.shape.len()];
    let mut rest = range.start;
    for (i, &dim) in index.iter_mut().zip(&info.shape).rev() {
        (*i, rest) = (rest % dim.max(1), rest / dim.max(1));
    }
    for _ in range {
        let at = index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>() * size;
        out.extend_from_slice(bytes.get(at..at + size).unwrap_or_default());
        // Count up, the last dimension fastest.
        for (i, &dim) in index.iter_mut().zip(&info.shape).rev() {
            *i += 1;
            if *i < dim {
                break;
            }
            *i = 0;
        }
    }
}

/// Checks that the view's last element is inside `bytes`, so that single indices need no check; returns its size.
pub(crate) fn check_view(bytes: &[u8], info: &TensorInfo, strides: &[usize]) -> Result<usize, ErrorKind> {
    let place = || format!("strides of tensor {:?}", info.name);
    if !info.dtype.is_plain() || strides.len() != info.shape.len() {
        return Err(ErrorKind::invalid(
            place(),
            format!("{} strides of a plain type", info.shape.len()),
            format!("{strides:?} of {}", info.dtype),
        ));
    }
    let total = info.dtype.bytes_for(info.elements()).unwrap_or(usize::MAX);
    if total == 0 {
        return Ok(0);
    }
    let last =
        info.shape.iter().zip(strides).try_fold(0usize, |sum, (dim, stride)| {
            sum.checked_add(dim.saturating_sub(1).checked_mul(*stride)?)
        });
    let size = info.dtype.block().1;
    let end = last.and_then(|last| last.checked_add(1)?.checked_mul(size));
    if end.is_none_or(|end| end > bytes.len()) {
        let expected = format!("elements inside {} bytes", bytes.len());
        return Err(ErrorKind::invalid(place(), expected, format!("{strides:?}")));
    }
    if total as u64 > LARGE_VIEW && total as u64 / MAX_REPEATS > bytes.len() as u64 {
        return Err(too_large(info, total as u64));
    }
    Ok(total)
}

fn too_large(info: &TensorInfo, found: u64) -> ErrorKind {
    ErrorKind::TooLarge { place: format!("view {:?}", info.name), found, cap: LARGE_VIEW }
}

#[cfg(test)]
mod tests;
