//! `.apr`, version 2: a header, JSON metadata, an index of tensors, their data, a checksum of it all.
//!
//! Hand-written: the format's own reader loads the whole file to list it and sums only the header.

use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::json::{MAX_JSON_VALUES, check_json_values};
use crate::listing::{Check, CheckState, Config, Listing};
use crate::pread;
use crate::read::fields::{Fields, MAX_TENSORS, check_disjoint, elements};
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

pub(crate) const MAGIC: &[u8] = b"APR\0";
pub(crate) const HEADER: u64 = 64;
/// Sections and tensors begin at multiples of this.
pub(crate) const ALIGN: u64 = 64;
pub(crate) const ROW_MAJOR: u16 = 0x400;
pub(crate) const MAX_NAME: u64 = 256;
pub(crate) const MAX_DIMS: u8 = 8;
pub(crate) const MAX_METADATA: u64 = 16 << 20;

const FOOTER: u64 = 4;
/// Files up to this size are checked when they are opened; larger ones by [`verify_footer`].
const SUMMED_AT_OPEN: u64 = 256 << 20;
/// An entry without a name and without dimensions.
const SMALLEST_ENTRY: u64 = 2 + 1 + 1 + 8 + 8;

const REFUSED_FLAGS: [(u16, &str); 5] = [
    (0x1, "LZ4-compressed"),
    (0x2, "ZSTD-compressed"),
    (0x4, "encrypted"),
    (0x10, "sharded"),
    (0x800, "column-major"),
];
const KNOWN_FLAGS: u16 = 0xfff;

/// Lists an `.apr` file.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    let header = Header::read(source)?;
    let configs = metadata(source, &header)?;
    let (tensors, end) = index(source, &header)?;
    let footer = footer(source, end)?;
    let checks = vec![Check { what: "header", state: CheckState::Verified }, footer];
    Ok(Listing { tensors, configs, checks, ..Listing::default() })
}

#[derive(Debug)]
struct Header {
    tensor_count: u32,
    metadata: u64,
    metadata_size: u32,
    index: u64,
    data: u64,
}

impl Header {
    fn read(source: &Source) -> Result<Self, ErrorKind> {
        let start = source.start(HEADER)?;
        let mut f = Fields::new(&start);
        let magic = f.take(4, "magic")?;
        if magic == b"APRN" {
            return Err(ErrorKind::Unsupported {
                what: ".apr version 1 has no index of tensors and is not read".into(),
                help: "write the model again as version 2".into(),
            });
        }
        if magic != MAGIC {
            return Err(ErrorKind::invalid("magic", r"APR\0", magic.escape_ascii()));
        }
        check_header_sum(&source.read(0..HEADER, "header")?)?;
        let version = (f.u8("version")?, f.u8("version")?);
        if version != (2, 0) {
            let what = format!(".apr version {}.{} is not read; 2.0 is", version.0, version.1);
            return Err(ErrorKind::Unsupported { what, help: "write the model again as version 2.0".into() });
        }
        check_flags(f.u16("flags")?)?;
        let header = Self {
            tensor_count: f.u32("tensor count")?,
            metadata: f.u64("metadata offset")?,
            metadata_size: f.u32("metadata size")?,
            index: f.u64("index offset")?,
            data: f.u64("data offset")?,
        };
        header.check_order(source.len())?;
        Ok(header)
    }

    fn metadata_end(&self) -> u64 {
        self.metadata.saturating_add(self.metadata_size.into())
    }

    fn check_order(&self, end: u64) -> Result<(), ErrorKind> {
        for (place, at, least) in [
            ("metadata offset", self.metadata, HEADER),
            ("index offset", self.index, self.metadata_end()),
            ("data offset", self.data, self.index),
        ] {
            if at < least {
                return Err(ErrorKind::invalid(place, format!("{least} or more"), at));
            }
            if !at.is_multiple_of(ALIGN) {
                return Err(ErrorKind::invalid(place, format!("a multiple of {ALIGN}"), at));
            }
            if at > end {
                return Err(ErrorKind::Truncated { place: place.into(), need: at, have: end });
            }
        }
        Ok(())
    }
}

fn check_header_sum(header: &[u8]) -> Result<(), ErrorKind> {
    let mut f = Fields::new(header);
    let mut sum = crc32fast::Hasher::new();
    sum.update(f.take(40, "header")?);
    let expected = f.u32("header")?;
    sum.update(f.take(20, "header")?);
    let found = sum.finalize();
    if found == expected {
        return Ok(());
    }
    Err(ErrorKind::Checksum { place: "header".into(), expected, found })
}

fn check_flags(flags: u16) -> Result<(), ErrorKind> {
    let refused = REFUSED_FLAGS.iter().find(|(bit, _)| flags & bit != 0);
    let what = match refused {
        Some((bit, name)) => format!("the file is {name} (flag {bit:#x}), which is not read"),
        None if flags & !KNOWN_FLAGS != 0 => {
            format!("flags {:#x} are not known to version 2.0", flags & !KNOWN_FLAGS)
        }
        None => return Ok(()),
    };
    Err(ErrorKind::Unsupported { what, help: "write the model again, plain and row-major".into() })
}

fn metadata(source: &Source, header: &Header) -> Result<Vec<Config>, ErrorKind> {
    let size = u64::from(header.metadata_size);
    if size > MAX_METADATA {
        return Err(ErrorKind::TooLarge { place: "metadata".into(), found: size, cap: MAX_METADATA });
    }
    if size == 0 {
        return Ok(Vec::new());
    }
    let json = source.read(header.metadata..header.metadata_end(), "metadata")?;
    check_json_values(&json, MAX_JSON_VALUES, "metadata")?;
    let facts = serde_json::from_slice(&json)
        .map_err(|e| ErrorKind::invalid("metadata", "a JSON object", format!("{e}")))?;
    Ok(vec![Config { source: "metadata".into(), facts }])
}

/// The tensors and where the data section ends.
fn index(source: &Source, header: &Header) -> Result<(Vec<TensorInfo>, u64), ErrorKind> {
    let mut f = Fields::of(source, header.index..header.data, "tensor index")?;
    let count = u64::from(header.tensor_count);
    if count > MAX_TENSORS {
        return Err(ErrorKind::invalid("tensor count", format!("at most {MAX_TENSORS}"), count));
    }
    f.check_count(count, SMALLEST_ENTRY, "tensor index")?;
    let mut tensors: Vec<TensorInfo> = Vec::new();
    let mut end = header.data;
    for _ in 0..count {
        let info = entry(&mut f, header.data, source.len())?;
        if let Some(before) = tensors.last() {
            check_increasing(&before.name, &info.name)?;
        }
        end = end.max(info.place.range.end);
        tensors.push(info);
    }
    if f.left() >= ALIGN {
        let expected = format!("{count} entries and less than {ALIGN} bytes of padding");
        return Err(ErrorKind::invalid("tensor index", expected, format!("{} bytes more", f.left())));
    }
    check_disjoint(&tensors)?;
    Ok((tensors, end.next_multiple_of(ALIGN)))
}

fn check_increasing(before: &str, name: &str) -> Result<(), ErrorKind> {
    match before.as_bytes().cmp(name.as_bytes()) {
        std::cmp::Ordering::Less => Ok(()),
        std::cmp::Ordering::Equal => Err(ErrorKind::Duplicate { name: name.into() }),
        std::cmp::Ordering::Greater => {
            Err(ErrorKind::invalid("tensor index", format!("names after {before:?}"), format!("{name:?}")))
        }
    }
}

fn entry(f: &mut Fields<'_>, data: u64, end: u64) -> Result<TensorInfo, ErrorKind> {
    let length = u64::from(f.u16("tensor index")?);
    if length > MAX_NAME {
        return Err(ErrorKind::TooLarge { place: "a tensor's name".into(), found: length, cap: MAX_NAME });
    }
    let name = f.text(length, "a tensor's name")?.to_owned();
    let place = format!("tensor {name:?}");
    let number = f.u8(&place)?;
    let dtype = dtype(number).ok_or_else(|| ErrorKind::invalid(&place, "a dtype of version 2", number))?;
    let rank = f.u8(&place)?;
    if rank > MAX_DIMS {
        return Err(ErrorKind::invalid(place, format!("at most {MAX_DIMS} dimensions"), rank));
    }
    let mut shape = Vec::with_capacity(rank.into());
    for _ in 0..rank {
        let dim = f.u64(&place)?;
        shape.push(usize::try_from(dim).map_err(|_| ErrorKind::invalid(&place, "a length in memory", dim))?);
    }
    let needed = dtype.bytes_for(elements(&shape, &place)?).map(|n| n as u64);
    let offset = f.u64(&place)?;
    let size = f.u64(&place)?;
    if needed != Some(size) {
        let expected = match needed {
            Some(n) => format!("{n} bytes for {dtype} {shape:?}"),
            None => format!("a shape that fills whole blocks of {dtype}"),
        };
        return Err(ErrorKind::invalid(place, expected, format!("{size} bytes for {shape:?}")));
    }
    let start = data.checked_add(offset);
    match start.and_then(|s| Some(s..s.checked_add(size)?)) {
        Some(range) if range.end <= end => {
            let place = Place { source: 0, range, strides: None, packing: Packing::Stored };
            Ok(TensorInfo { name, dtype, shape, place })
        }
        _ => Err(ErrorKind::Truncated {
            place,
            need: size,
            have: end.saturating_sub(start.unwrap_or(u64::MAX)),
        }),
    }
}

fn dtype(number: u8) -> Option<DType> {
    Some(match number {
        0 => DType::F32,
        1 => DType::F16,
        3 => DType::F64,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::I8,
        7 => DType::U8,
        12 => DType::Q4K,
        14 => DType::Q6K,
        30 => DType::BF16,
        // 8 and 9 are their numbers in older files.
        8 | 128 => DType::AprQ4,
        9 | 129 => DType::AprQ8,
        _ => return None,
    })
}

/// The number of a type in version 2.
pub(crate) fn number(wanted: DType) -> Option<u8> {
    [0, 1, 3, 4, 5, 6, 7, 12, 14, 30, 128, 129].into_iter().find(|&n| dtype(n) == Some(wanted))
}

/// Whether the file has a footer after its padded data, and if so, whether its checksum is right.
fn footer(source: &Source, data_end: u64) -> Result<Check, ErrorKind> {
    let what = "whole file";
    let len = source.len();
    match len.checked_sub(data_end) {
        None => {
            let place = "padding after the last tensor".into();
            Err(ErrorKind::Truncated { place, need: data_end, have: len })
        }
        Some(0) => Ok(Check { what, state: CheckState::Absent }),
        Some(FOOTER) if len > SUMMED_AT_OPEN => Ok(Check { what, state: CheckState::NotComputed }),
        Some(FOOTER) => verify_footer(source).map(|()| Check { what, state: CheckState::Verified }),
        Some(n @ 1..FOOTER) => Err(ErrorKind::Truncated { place: "footer".into(), need: FOOTER, have: n }),
        Some(n) => Err(ErrorKind::invalid("footer", format!("{FOOTER} bytes"), n)),
    }
}

/// Computes the checksum of a file that has a footer, which reads all of it.
pub(crate) fn verify_footer(source: &Source) -> Result<(), ErrorKind> {
    let len = source.len();
    let summed = len.saturating_sub(FOOTER);
    let mut sum = crc32fast::Hasher::new();
    for block in pread::blocks(0..summed) {
        pread::with(source, block, |bytes| sum.update(bytes))?;
    }
    let found = sum.finalize();
    let expected = pread::with(source, summed..len, |bytes| Fields::new(bytes).u32("footer"))??;
    if found == expected {
        return Ok(());
    }
    Err(ErrorKind::Checksum { place: "whole file".into(), expected, found })
}

#[cfg(test)]
mod tests;
