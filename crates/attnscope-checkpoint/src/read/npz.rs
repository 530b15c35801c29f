//! NumPy's `.npz`: a zip of `.npy` files, stored or deflated. Only the headers are read to list it.
//!
//! Written by hand: the crates that read `.npy` read the array with it, and evaluate what they find.

use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::listing::Listing;
use crate::read::{clip, elements, refuse_duplicates, zip};
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

/// A header holds a type and a shape: NumPy pads it to 64 bytes, and no honest one reaches this.
const MAX_HEADER: u64 = 64 << 10;

/// Lists the file.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    let mut tensors = Vec::new();
    for entry in zip::entries(source.bytes())? {
        if let Some(name) = entry.name.strip_suffix(".npy") {
            tensors.push(tensor(source, &entry, name)?);
        }
    }
    refuse_duplicates(&tensors)?;
    Ok(Listing { tensors, ..Listing::default() })
}

/// Whether an entry of a zip makes it an .npz.
pub(crate) fn is_array(name: &str) -> bool {
    name.ends_with(".npy")
}

fn tensor(source: &Source, entry: &zip::Entry, name: &str) -> Result<TensorInfo, ErrorKind> {
    let start = entry.start(source, MAX_HEADER)?;
    let header = Header::parse(&start, entry)?;
    let count = elements(name, &header.shape)?;
    let bytes = header.dtype.bytes_for(count).map_or(u64::MAX, |n| n as u64);
    let have = entry.size.saturating_sub(header.len);
    if bytes > have {
        return Err(ErrorKind::Truncated { place: entry.place(), need: bytes, have });
    }
    if bytes < have {
        let expected = format!("{bytes} bytes of values for its shape");
        return Err(ErrorKind::invalid(entry.place(), expected, have));
    }
    let range = entry.locate(source)?;
    let (range, packing) = match entry.method {
        zip::Method::Stored => (range.start + header.len..range.end, Packing::Stored),
        _ => (range, Packing::Deflated { skip: header.len, len: bytes }),
    };
    let strides = header.fortran.then(|| fortran_strides(&header.shape)).flatten();
    let place = Place { source: 0, range, strides, packing };
    Ok(TensorInfo { name: name.to_owned(), dtype: header.dtype, shape: header.shape, place })
}

/// Strides of an array whose first dimension runs fastest; `None` where that is the same as row-major.
fn fortran_strides(shape: &[usize]) -> Option<Vec<usize>> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut step = 1usize;
    for &n in shape {
        strides.push(step);
        step = step.checked_mul(n)?;
    }
    (shape.iter().filter(|&&n| n > 1).count() > 1).then_some(strides)
}

/// What an `.npy` header says.
struct Header {
    dtype: DType,
    fortran: bool,
    shape: Vec<usize>,
    /// Bytes before the values.
    len: u64,
}

impl Header {
    fn parse(bytes: &[u8], entry: &zip::Entry) -> Result<Self, ErrorKind> {
        let place = || format!("{}: .npy header", entry.place());
        let cut = || ErrorKind::Truncated { place: place(), need: 12, have: bytes.len() as u64 };
        let Some(rest) = bytes.strip_prefix(b"\x93NUMPY") else {
            return Err(ErrorKind::invalid(place(), "NumPy's magic", "other bytes"));
        };
        let (before, text_len) = match rest {
            [1, _, a, b, ..] => (10, u64::from(u16::from_le_bytes([*a, *b]))),
            [2 | 3, _, a, b, c, d, ..] => (12, u64::from(u32::from_le_bytes([*a, *b, *c, *d]))),
            [1..=3, ..] | [] => return Err(cut()),
            [other, ..] => return Err(ErrorKind::invalid(place(), "version 1, 2 or 3", other)),
        };
        let len = before + text_len;
        if len > MAX_HEADER {
            return Err(ErrorKind::TooLarge { place: place(), found: len, cap: MAX_HEADER });
        }
        let text = usize::try_from(len)
            .ok()
            .and_then(|end| bytes.get(before as usize..end))
            .ok_or_else(|| ErrorKind::Truncated { place: place(), need: len, have: bytes.len() as u64 })?;
        let text = String::from_utf8_lossy(text);
        let field = |key: &str| {
            value_of(&text, key).ok_or_else(|| {
                ErrorKind::invalid(
                    place(),
                    format!("a dictionary with {key:?}"),
                    format!("{:?}", clip(text.trim())),
                )
            })
        };
        let fortran = match field("fortran_order")? {
            "True" => true,
            "False" => false,
            other => return Err(ErrorKind::invalid(place(), "True or False", clip(other))),
        };
        let shape = shape(field("shape")?)
            .ok_or_else(|| ErrorKind::invalid(place(), "a tuple of lengths", clip(&text)))?;
        Ok(Self { dtype: dtype(field("descr")?, entry)?, fortran, shape, len })
    }
}

/// The text of a value in a Python dictionary of plain literals: up to the comma that ends it.
fn value_of<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let after = [format!("'{key}':"), format!("\"{key}\":")]
        .iter()
        .find_map(|quoted| Some(text.split_once(quoted.as_str())?.1))?;
    let mut depth = 0usize;
    let end = after.find(|c| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(c, ',' | '}')
    })?;
    Some(after[..end].trim())
}

fn shape(text: &str) -> Option<Vec<usize>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    let lengths = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    // Python 2 wrote long integers with an L.
    lengths.map(|part| part.trim_end_matches('L').parse().ok()).collect()
}

fn dtype(descr: &str, entry: &zip::Entry) -> Result<DType, ErrorKind> {
    let name = descr.trim_matches(['\'', '"']);
    let refused = |what: &str, help: &str| {
        let what = format!("{} has type {:?}: {what}", entry.place(), clip(descr));
        ErrorKind::Unsupported { what, help: help.into() }
    };
    Ok(match name {
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "<i2" => DType::I16,
        "|i1" | "<i1" => DType::I8,
        "<u8" => DType::U64,
        "<u4" => DType::U32,
        "<u2" => DType::U16,
        "|u1" | "<u1" => DType::U8,
        "|b1" => DType::Bool,
        big if big.starts_with('>') => {
            return Err(refused("big-endian", "save it again after astype to a little-endian type"));
        }
        object if object.contains('O') => {
            return Err(refused("objects are pickles, which are not run", "save plain arrays"));
        }
        // NumPy has no bf16: it is saved as two bytes without a meaning.
        "|V2" => return Err(refused("two bytes without a meaning (bf16?)", "save it as float32")),
        _ => return Err(refused("not a plain number", "save plain arrays of numbers")),
    })
}
