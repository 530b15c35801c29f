//! A tensor out of what the pickle says of it, checked against the storage it points into.

use std::collections::HashMap;
use std::ops::Range;

use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::read::fields::elements;
use crate::read::pickle::{Arena, Global, Id, Known, Node, RawTensor};
use crate::read::{clip, dims, zip};
use crate::source::Source;
use crate::tensor::{Packing, Place, TensorInfo};

/// torch itself has 64.
const MAX_RANK: usize = 64;

/// A tensor may be larger than its storage (`expand` repeats it with a stride of 0), but not without end.
const MAX_EXPANDED: u64 = 1 << 30;

/// The storages of one archive; each entry's place is looked up once, when a tensor first needs it.
pub(super) struct Storages<'s> {
    source: &'s Source,
    folder: &'s str,
    entries: HashMap<&'s str, &'s zip::Entry>,
    located: HashMap<String, Storage>,
}

/// The bytes of a storage.
#[derive(Clone)]
struct Storage {
    range: Range<u64>,
    size: u64,
    deflated: bool,
}

/// A storage as the pickle names it.
struct Claim<'p> {
    key: &'p str,
    /// `None` for bytes without a type.
    dtype: Option<DType>,
    length: u64,
}

impl<'s> Storages<'s> {
    pub(super) fn new(
        source: &'s Source,
        folder: &'s str,
        entries: HashMap<&'s str, &'s zip::Entry>,
    ) -> Self {
        Self { source, folder, entries, located: HashMap::new() }
    }

    /// The tensor, or an error that names it.
    pub(super) fn tensor(
        &mut self,
        arena: &Arena<'_>,
        name: &str,
        raw: &RawTensor,
    ) -> Result<TensorInfo, ErrorKind> {
        let claim = claim(arena, name, raw.storage)?;
        let dtype = dtype(arena, name, raw, &claim)?;
        let shape = sizes(arena, name, "shape", raw.shape)?;
        let strides = sizes(arena, name, "strides", raw.strides)?;
        let offset = size(arena, name, "storage offset", raw.offset)?;
        if strides.len() != shape.len() {
            let expected = format!("{} strides", shape.len());
            return Err(ErrorKind::invalid(place(name), expected, dims(&strides)));
        }
        let storage = self.locate(name, &claim)?;
        let elements = elements(&shape, format!("tensor {name:?}: shape"))?;
        let bytes = span(name, dtype, offset, &shape, &strides, &storage)?;
        let dense = dtype.bytes_for(elements).map_or(u64::MAX, |n| n as u64);
        if dense > storage.size && dense > MAX_EXPANDED {
            return Err(ErrorKind::TooLarge { place: place(name), found: dense, cap: MAX_EXPANDED });
        }
        let strides = (!contiguous(&shape, &strides)).then_some(strides);
        let len = bytes.end - bytes.start;
        let (range, packing) = match storage.deflated {
            true => (storage.range, Packing::Deflated { skip: bytes.start, len }),
            false => (storage.range.start + bytes.start..storage.range.start + bytes.end, Packing::Stored),
        };
        let place = Place { source: 0, range, strides, packing };
        Ok(TensorInfo { name: name.to_owned(), dtype, shape, place })
    }

    fn locate(&mut self, name: &str, claim: &Claim<'_>) -> Result<Storage, ErrorKind> {
        let storage = match self.located.get(claim.key) {
            Some(storage) => storage.clone(),
            None => {
                let path = format!("{}data/{}", self.folder, claim.key);
                let Some(entry) = self.entries.get(path.as_str()) else {
                    let expected = format!("an entry {:?} in the archive", clip(&path));
                    return Err(ErrorKind::invalid(place(name), expected, "none"));
                };
                let range = entry.locate(self.source)?;
                let deflated = entry.method == zip::Method::Deflated;
                let storage = Storage { range, size: entry.size, deflated };
                self.located.insert(claim.key.to_owned(), storage.clone());
                storage
            }
        };
        let width = claim.dtype.map_or(1, |dtype| dtype.block().1 as u64);
        let need = claim.length.saturating_mul(width);
        if need > storage.size {
            let place = format!("{}: storage {:?}", place(name), clip(claim.key));
            return Err(ErrorKind::Truncated { place, need, have: storage.size });
        }
        Ok(storage)
    }
}

fn place(name: &str) -> String {
    format!("tensor {:?}", clip(name))
}

/// The storage of a tensor: `('storage', type, key, location, length)`.
fn claim<'p>(arena: &'p Arena<'_>, name: &str, storage: Id) -> Result<Claim<'p>, ErrorKind> {
    let expected = "a storage of the archive";
    let wrong = |found: Id| ErrorKind::invalid(place(name), expected, arena.describe(found));
    let &Node::Persistent(pid) = arena.get(storage) else { return Err(wrong(storage)) };
    let Some(&[tag, class, key, _, length]) = arena.items(pid) else { return Err(wrong(pid)) };
    if arena.str(tag) != Some("storage") {
        return Err(wrong(tag));
    }
    let dtype = match arena.get(class) {
        Node::Global(Global::Known(Known::Storage(dtype))) => Some(*dtype),
        Node::Global(Global::Known(Known::UntypedStorage)) => None,
        _ => return Err(wrong(class)),
    };
    let key = arena.str(key).ok_or_else(|| wrong(key))?;
    Ok(Claim { key, dtype, length: size(arena, name, "storage length", length)? as u64 })
}

fn dtype(arena: &Arena<'_>, name: &str, raw: &RawTensor, claim: &Claim<'_>) -> Result<DType, ErrorKind> {
    match (raw.dtype.map(|id| arena.get(id)), claim.dtype) {
        (Some(&Node::Global(Global::Known(Known::Dtype(dtype)))), _) | (None, Some(dtype)) => Ok(dtype),
        _ => {
            let found = raw.dtype.map_or("none".into(), |id| arena.describe(id));
            Err(ErrorKind::invalid(place(name), "a torch dtype", found))
        }
    }
}

fn sizes(arena: &Arena<'_>, name: &str, what: &str, id: Id) -> Result<Vec<usize>, ErrorKind> {
    match arena.items(id) {
        Some(items) if items.len() <= MAX_RANK => {
            items.iter().map(|&item| size(arena, name, what, item)).collect()
        }
        Some(items) => {
            let expected = format!("at most {MAX_RANK} dimensions");
            Err(ErrorKind::invalid(format!("{}: {what}", place(name)), expected, items.len()))
        }
        None => Err(ErrorKind::invalid(format!("{}: {what}", place(name)), "a tuple", arena.describe(id))),
    }
}

fn size(arena: &Arena<'_>, name: &str, what: &str, id: Id) -> Result<usize, ErrorKind> {
    let size = match arena.get(id) {
        Node::Int(n) => usize::try_from(*n).ok(),
        _ => None,
    };
    size.ok_or_else(|| {
        ErrorKind::invalid(format!("{}: {what}", place(name)), "a size of 0 or more", arena.describe(id))
    })
}

/// The bytes of the storage from the first element to the last.
fn span(
    name: &str,
    dtype: DType,
    offset: usize,
    shape: &[usize],
    strides: &[usize],
    storage: &Storage,
) -> Result<Range<u64>, ErrorKind> {
    let width = dtype.block().1;
    if shape.contains(&0) {
        return Ok(0..0);
    }
    let reach = shape
        .iter()
        .zip(strides)
        .try_fold(0usize, |sum, (&n, &stride)| sum.checked_add((n - 1).checked_mul(stride)?));
    let start = offset.checked_mul(width);
    let end = reach.and_then(|n| n.checked_add(1)?.checked_add(offset)?.checked_mul(width));
    match (start, end) {
        (Some(start), Some(end)) if end as u64 <= storage.size => Ok(start as u64..end as u64),
        (_, end) => {
            let need = end.map_or(u64::MAX, |n| n as u64);
            Err(ErrorKind::Truncated { place: place(name), need, have: storage.size })
        }
    }
}

/// Whether the elements lie one after the other; a dimension of one element may claim any stride.
fn contiguous(shape: &[usize], strides: &[usize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1usize;
    shape.iter().zip(strides).rev().filter(|(n, _)| **n != 1).all(|(&n, &stride)| {
        let follows = stride == expected;
        expected = expected.saturating_mul(n);
        follows
    })
}
