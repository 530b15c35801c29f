//! NumPy's zip of arrays. The header of an array is a Python literal of three known fields; the few lines that read
//! it here do not need a crate that also wants to own the data.

use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::listing::Listing;
use crate::read::fields::{check_unique, elements};
use crate::read::{clip, zip};
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

/// NumPy pads headers to 64 bytes and refuses more than 10,000.
const MAX_HEADER: u64 = 64 << 10;

/// Magic, version and the length of the header.
const PREAMBLE: u64 = 12;

/// Bytes of all headers. Many entries of a directory may point to one header, which may be deflated.
const MAX_HEADERS: u64 = 256 << 20;

/// NumPy itself has 64.
const MAX_RANK: usize = 64;

/// Enough for almost every header in one go.
const FIRST_READ: u64 = 512;

/// Lists the file.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    let mut tensors = Vec::new();
    let mut headers = 0;
    for entry in zip::entries(source)? {
        // Other files in the archive are ignored.
        let Some(name) = entry.name.strip_suffix(".npy") else { continue };
        let (header, data) = header(source, &entry)?;
        headers += data;
        if headers > MAX_HEADERS {
            let place = "headers of all arrays".into();
            return Err(ErrorKind::TooLarge { place, found: headers, cap: MAX_HEADERS });
        }
        tensors.push(array(source, &entry, name, &header, data)?);
    }
    check_unique(&tensors)?;
    Ok(Listing { tensors, ..Listing::default() })
}

/// A single array, which is a file of its own.
pub(crate) fn array_file(source: &Source, name: &str) -> Result<TensorInfo, ErrorKind> {
    array_header(&source.start(MAX_HEADER + PREAMBLE)?, source.len(), name)
}

/// A single array of `size` bytes, by the first of them.
pub(crate) fn array_header(start: &[u8], size: u64, name: &str) -> Result<TensorInfo, ErrorKind> {
    let place = format!("array {:?}", clip(name));
    let (length, data) = preamble(start, &place)?;
    let end = data + length;
    let Some(text) = start.get(data as usize..end as usize) else {
        return Err(ErrorKind::Truncated { place, need: end, have: start.len() as u64 });
    };
    let (header, dtype, need) =
        described(&String::from_utf8_lossy(text), &place, name, size.saturating_sub(end))?;
    let strides = if header.fortran { column_major(&header.shape) } else { None };
    let place = Place { source: 0, range: end..end + need, strides, packing: Packing::Stored };
    Ok(TensorInfo { name: name.to_owned(), dtype, shape: header.shape, place })
}

/// What a header says, checked, and the bytes that its values take of the `have` that are there.
fn described(text: &str, place: &str, name: &str, have: u64) -> Result<(Header, DType, u64), ErrorKind> {
    let header = Header::parse(text)
        .ok_or_else(|| ErrorKind::invalid(place, "descr, fortran_order and shape", clip(text)))?;
    if header.shape.len() > MAX_RANK {
        let expected = format!("at most {MAX_RANK} dimensions");
        return Err(ErrorKind::invalid(place, expected, header.shape.len()));
    }
    let dtype = dtype(place, &header.descr)?;
    let count = elements(&header.shape, format!("tensor {name:?}: shape"))?;
    let need = dtype.bytes_for(count).map_or(u64::MAX, |n| n as u64);
    if need > have {
        return Err(ErrorKind::Truncated { place: place.to_owned(), need, have });
    }
    Ok((header, dtype, need))
}

fn array(
    source: &Source,
    entry: &zip::Entry,
    name: &str,
    header: &str,
    data: u64,
) -> Result<TensorInfo, ErrorKind> {
    let have = entry.size.saturating_sub(data);
    let (header, dtype, need) = described(header, &entry.place(), name, have)?;
    let range = entry.locate(source)?;
    let (range, packing) = match entry.method {
        zip::Method::Stored => (range.start + data..range.start + data + need, Packing::Stored),
        _ => (range, Packing::Deflated { skip: data, len: need }),
    };
    let strides = if header.fortran { column_major(&header.shape) } else { None };
    let place = Place { source: 0, range, strides, packing };
    Ok(TensorInfo { name: name.to_owned(), dtype, shape: header.shape, place })
}

/// The text of an array's header, and where its data begins. Only this much is unpacked.
fn header(source: &Source, entry: &zip::Entry) -> Result<(String, u64), ErrorKind> {
    let start = entry.start(source, FIRST_READ)?;
    let (length, data) = preamble(&start, &entry.place())?;
    let end = data + length;
    let whole = if end > FIRST_READ { entry.start(source, end)? } else { start };
    match whole.get(data as usize..end as usize) {
        Some(text) => Ok((String::from_utf8_lossy(text).into_owned(), end)),
        None => Err(ErrorKind::Truncated { place: entry.place(), need: end, have: whole.len() as u64 }),
    }
}

/// The length of a header and where its text begins.
fn preamble(start: &[u8], place: &str) -> Result<(u64, u64), ErrorKind> {
    let (length, data) = match *start {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, a, b, ..] => (u64::from(u16::from_le_bytes([a, b])), 10),
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, a, b, c, d, ..] => {
            (u64::from(u32::from_le_bytes([a, b, c, d])), 12)
        }
        _ => return Err(ErrorKind::invalid(place, "a NumPy header, version 1 to 3", "other bytes")),
    };
    if length > MAX_HEADER {
        return Err(ErrorKind::TooLarge { place: place.to_owned(), found: length, cap: MAX_HEADER });
    }
    Ok((length, data))
}

/// Strides in elements where the first dimension is the fastest; `None` where the order makes no difference.
fn column_major(shape: &[usize]) -> Option<Vec<usize>> {
    if shape.iter().filter(|n| **n != 1).count() < 2 || shape.contains(&0) {
        return None;
    }
    let mut stride = 1usize;
    let next = |&n: &usize| {
        let own = stride;
        stride = stride.saturating_mul(n);
        own
    };
    Some(shape.iter().map(next).collect())
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// `descr` keeps the brackets of a structured type, which is refused by name later.
    fn parse(text: &str) -> Option<Self> {
        let descr = after(text, "descr")?;
        let descr = match descr.chars().next()? {
            quote @ ('\'' | '"') => descr.get(1..)?.split(quote).next()?.to_owned(),
            '[' => "[".to_owned(),
            _ => return None,
        };
        let fortran = after(text, "fortran_order")?;
        let fortran = match fortran {
            _ if fortran.starts_with("True") => true,
            _ if fortran.starts_with("False") => false,
            _ => return None,
        };
        let shape = after(text, "shape")?.strip_prefix('(')?.split(')').next()?;
        let shape = shape.split(',').map(str::trim).filter(|n| !n.is_empty());
        // Python 2 marks its long integers.
        let shape = shape.map(|n| n.trim_end_matches('L').parse().ok()).collect::<Option<Vec<usize>>>()?;
        Some(Self { descr, fortran, shape })
    }
}

/// What follows a key and its colon.
fn after<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let at = text.find(&format!("'{key}'")).or_else(|| text.find(&format!("\"{key}\"")))?;
    Some(text.get(at + key.len() + 2..)?.trim_start().strip_prefix(':')?.trim_start())
}

fn dtype(place: &str, descr: &str) -> Result<DType, ErrorKind> {
    let refuse = |what: &str, help: &str| {
        Err(ErrorKind::Unsupported { what: format!("{place}: {what}"), help: help.into() })
    };
    let mut chars = descr.chars();
    let (order, kind, width) = (chars.next(), chars.next(), chars.as_str());
    let opaque = |name, block_bytes| DType::Opaque { name, block: 1, block_bytes };
    let dtype = match (kind, width) {
        _ if order == Some('[') => return refuse("a structured array", "save each field as its own array"),
        (Some('O'), _) => {
            return refuse("an object array, which is a pickle", "save it as an array of numbers");
        }
        (Some('f'), "2") => DType::F16,
        (Some('f'), "4") => DType::F32,
        (Some('f'), "8") => DType::F64,
        (Some('i'), "1") => DType::I8,
        (Some('i'), "2") => DType::I16,
        (Some('i'), "4") => DType::I32,
        (Some('i'), "8") => DType::I64,
        (Some('u'), "1") => DType::U8,
        (Some('u'), "2") => DType::U16,
        (Some('u'), "4") => DType::U32,
        (Some('u'), "8") => DType::U64,
        (Some('b'), "1") => DType::Bool,
        (Some('c'), "8") => opaque("c64", 8),
        (Some('c'), "16") => opaque("c128", 16),
        // bfloat16 arrays are saved as this, and so is anything else of two bytes.
        (Some(kind @ ('V' | 'S' | 'U')), width) => match width.parse::<u32>() {
            Ok(n) if kind == 'U' => opaque("text", n as usize * 4),
            Ok(n) if kind == 'S' => opaque("text", n as usize),
            Ok(n) => opaque("void", n as usize),
            Err(_) => return refuse(&format!("dtype {:?}", clip(descr)), "save it as an array of numbers"),
        },
        _ => return refuse(&format!("dtype {:?}", clip(descr)), "save it as an array of numbers"),
    };
    let (_, bytes) = dtype.block();
    match order {
        Some('<' | '|' | '=') => Ok(dtype),
        Some('>') if bytes == 1 => Ok(dtype),
        Some('>') => refuse("a big-endian array", "save it with .astype(a.dtype.newbyteorder('<'))"),
        _ => refuse(&format!("dtype {:?}", clip(descr)), "save it as an array of numbers"),
    }
}
