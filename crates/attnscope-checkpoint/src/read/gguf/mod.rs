//! llama.cpp's GGUF, versions 2 and 3.
//!
//! Hand-written: the crates that read it hold the tokenizer's arrays and every value in memory, or believe the
//! counts in the header. Here long arrays are skipped and only described, and memory is reserved only for bytes that the file
//! has.

mod metadata;

use crate::error::ErrorKind;
use crate::list::{List, StoredList};
use crate::listing::Listing;
use crate::read::fields::{Fields, MAX_TENSORS, check_disjoint, check_unique, elements};
use crate::read::ggml_types;
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

const DEFAULT_ALIGNMENT: u64 = 32;
/// ggml's own limit is 64; forks have raised it.
const MAX_NAME: u64 = 256;
const MAX_DIMS: u32 = 4;
/// An entry without a name and without dimensions: name length, dimension count, type, offset.
const SMALLEST_ENTRY: u64 = 8 + 4 + 4 + 8;

/// Lists a GGUF file.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    let mut f = Fields::of(source, 0..source.len(), "the file")?;
    let magic = f.take(4, "magic")?;
    if magic != b"GGUF" {
        return Err(ErrorKind::invalid("magic", "GGUF", magic.escape_ascii()));
    }
    check_version(f.u32("version")?)?;
    let tensor_count = f.u64("tensor count")?;
    let key_count = f.u64("metadata count")?;
    let (facts, lists) = metadata::read(&mut f, key_count)?;

    if tensor_count > MAX_TENSORS {
        return Err(ErrorKind::invalid("tensor count", format!("at most {MAX_TENSORS}"), tensor_count));
    }
    f.check_count(tensor_count, SMALLEST_ENTRY, "tensor table")?;
    let alignment = alignment(&facts)?;
    let entries = (0..tensor_count).map(|_| Entry::read(&mut f, alignment)).collect::<Result<Vec<_>, _>>()?;

    let data = f.position().next_multiple_of(alignment);
    let end = source.len();
    let tensors = entries.into_iter().map(|e| e.place(data, end)).collect::<Result<Vec<_>, _>>()?;
    check_unique(&tensors)?;
    check_disjoint(&tensors)?;
    let configs = metadata::config(facts);
    let long = |value: &serde_json::Value| value.get("length").is_some() && value.get("first").is_some();
    let facts = configs.iter().flat_map(|c| &c.facts);
    let left_out =
        facts.filter(|(_, value)| long(value)).map(|(key, _)| format!("the list {key:?}")).collect();
    Ok(Listing { tensors, configs, lists, left_out, ..Listing::default() })
}

/// The elements of an array of the header.
pub(crate) fn list(source: &Source, stored: &StoredList) -> Result<List, ErrorKind> {
    let mut f = Fields::of(source, stored.range.clone(), &stored.key)?;
    metadata::list(&mut f, &stored.key)
}

fn check_version(version: u32) -> Result<(), ErrorKind> {
    let (what, help) = match version {
        2 | 3 => return Ok(()),
        1 => ("GGUF version 1", "convert it with llama.cpp's gguf tools, which write version 3"),
        // A small number whose low half is empty was written by a big-endian machine.
        v if v & 0xffff == 0 && v != 0 => ("big-endian GGUF", "llama.cpp's gguf_convert_endian.py swaps it"),
        v => return Err(ErrorKind::invalid("version", "2 or 3", v)),
    };
    Err(ErrorKind::Unsupported { what: format!("{what} is not read"), help: help.into() })
}

fn alignment(facts: &metadata::Facts) -> Result<u64, ErrorKind> {
    let Some(value) = facts.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    match value.as_u64() {
        Some(n) if n.is_power_of_two() && n <= 1 << 31 => Ok(n),
        _ => Err(ErrorKind::invalid("general.alignment", "a power of two", value)),
    }
}

/// A line of the tensor table; `offset` counts from the data section, which begins after the table.
struct Entry {
    info: TensorInfo,
    offset: u64,
    size: u64,
}

impl Entry {
    fn read(f: &mut Fields<'_>, alignment: u64) -> Result<Self, ErrorKind> {
        let length = f.u64("length of a tensor's name")?;
        if length > MAX_NAME {
            return Err(ErrorKind::TooLarge {
                place: "a tensor's name".into(),
                found: length,
                cap: MAX_NAME,
            });
        }
        let name = f.text(length, "a tensor's name")?.to_owned();
        let rank = f.u32(format_args!("rank of tensor {name:?}"))?;
        if rank > MAX_DIMS {
            return Err(ErrorKind::invalid(
                format!("rank of tensor {name:?}"),
                format!("at most {MAX_DIMS}"),
                rank,
            ));
        }
        let place = format!("shape of tensor {name:?}");
        let mut shape = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            let dim = f.u64(&place)?;
            shape.push(
                usize::try_from(dim).map_err(|_| ErrorKind::invalid(&place, "a length in memory", dim))?,
            );
        }
        shape.reverse(); // ggml lists the fastest dimension first.
        let count = elements(&shape, &place)?;
        let dtype = ggml_types::dtype(f.u32(format_args!("type of tensor {name:?}"))?, &name)?;
        let size = ggml_types::size(dtype, &shape, count, &name)?;
        let offset = f.u64(format_args!("offset of tensor {name:?}"))?;
        if !offset.is_multiple_of(alignment) {
            return Err(ErrorKind::invalid(
                format!("offset of tensor {name:?}"),
                format!("a multiple of {alignment}"),
                offset,
            ));
        }
        let place = Place { source: 0, range: 0..0, strides: None, packing: Packing::Stored };
        Ok(Self { info: TensorInfo { name, dtype, shape, place }, offset, size })
    }

    fn place(mut self, data: u64, end: u64) -> Result<TensorInfo, ErrorKind> {
        let start = data.checked_add(self.offset);
        match start.and_then(|s| Some(s..s.checked_add(self.size)?)) {
            // A tensor without elements needs no bytes.
            _ if self.size == 0 => Ok(self.info),
            Some(range) if range.end <= end => {
                self.info.place.range = range;
                Ok(self.info)
            }
            _ => Err(ErrorKind::Truncated {
                place: format!("tensor {:?}", self.info.name),
                need: self.size,
                have: end.saturating_sub(start.unwrap_or(u64::MAX)),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
