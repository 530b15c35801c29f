//! Makes a tensor from the pickle's description, checked against the storage that it points into.

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

/// Tensors may be larger than their storages (`expand` repeats one with a stride of 0), but only up to a limit on the bytes of
/// all such tensors of a file.
const MAX_EXPANDED: u64 = 1 << 30;

/// Bytes of a storage's key: torch numbers storages or gives them an address.
const MAX_KEY: usize = 256;

/// The storages of one file.
pub(super) struct Storages<'s> {
    located: HashMap<String, Storage>,
    /// Where storages can be found. Each is looked up once, when a tensor first needs it.
    archive: Option<Archive<'s>>,
    /// Bytes of the tensors so far that are larger than their storages.
    expanded: u64,
}

/// A zip that holds a storage in each entry.
pub(super) struct Archive<'s> {
    pub(super) source: &'s Source,
    pub(super) folder: &'s str,
    pub(super) entries: HashMap<&'s str, &'s zip::Entry>,
}

/// The bytes of a storage.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    pub(super) range: Range<u64>,
    /// Once inflated.
    pub(super) size: u64,
    pub(super) deflated: bool,
}

/// A storage as the pickle names it.
pub(super) struct Claim<'p> {
    pub(super) key: &'p str,
    /// `None` for bytes without a type.
    dtype: Option<DType>,
    /// Elements in it.
    pub(super) length: u64,
    /// The view of the storage to which a tensor's offset and strides refer, where it is not the whole storage.
    view: Option<Range<u64>>,
}

impl Claim<'_> {
    /// Bytes of an element.
    pub(super) fn width(&self) -> u64 {
        self.dtype.map_or(1, |dtype| dtype.block().1 as u64)
    }
}

impl<'s> Storages<'s> {
    pub(super) fn of_archive(archive: Archive<'s>) -> Self {
        Self { located: HashMap::new(), archive: Some(archive), expanded: 0 }
    }

    pub(super) fn of_table(located: HashMap<String, Storage>) -> Self {
        Self { located, archive: None, expanded: 0 }
    }

    /// The tensor, or an error that names it.
    pub(super) fn tensor(
        &mut self,
        arena: &Arena<'_>,
        name: &str,
        raw: &RawTensor,
    ) -> Result<TensorInfo, ErrorKind> {
        let storage = match arena.get(raw.storage) {
            Node::Persistent(id) => *id,
            _ => return Err(ErrorKind::invalid(place(name), A_STORAGE, arena.describe(raw.storage))),
        };
        let claim = claim(arena, &place(name), storage)?;
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
        if dense > storage.size {
            self.expanded = self.expanded.saturating_add(dense);
            if self.expanded > MAX_EXPANDED {
                let place = format!("{}, with the repeated tensors before it", place(name));
                return Err(ErrorKind::TooLarge { place, found: self.expanded, cap: MAX_EXPANDED });
            }
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
                let storage = self.look_up(name, claim.key)?;
                self.located.insert(claim.key.to_owned(), storage.clone());
                storage
            }
        };
        let need = claim.length.saturating_mul(claim.width());
        if need > storage.size {
            let place = format!("{}: storage {:?}", place(name), clip(claim.key));
            return Err(ErrorKind::Truncated { place, need, have: storage.size });
        }
        storage.part(name, claim)
    }

    fn look_up(&self, name: &str, key: &str) -> Result<Storage, ErrorKind> {
        let Some(archive) = &self.archive else {
            let expected = format!("a storage {:?} in the file", clip(key));
            return Err(ErrorKind::invalid(place(name), expected, "none"));
        };
        let path = format!("{}data/{key}", archive.folder);
        let Some(entry) = archive.entries.get(path.as_str()) else {
            let expected = format!("an entry {:?} in the archive", clip(&path));
            return Err(ErrorKind::invalid(place(name), expected, "none"));
        };
        let range = entry.locate(archive.source)?;
        Ok(Storage { range, size: entry.size, deflated: entry.method == zip::Method::Deflated })
    }
}

impl Storage {
    /// The field that an error is about.
    fn part(self, name: &str, claim: &Claim<'_>) -> Result<Self, ErrorKind> {
        let Some(view) = &claim.view else { return Ok(self) };
        let (start, end) = (view.start.saturating_mul(claim.width()), view.end.saturating_mul(claim.width()));
        if self.deflated {
            return Err(ErrorKind::invalid(place(name), "a whole storage of a zip", "a view of one"));
        }
        if start > end || end > self.size {
            let place = format!("{}: view of storage {:?}", place(name), clip(claim.key));
            return Err(ErrorKind::Truncated { place, need: end, have: self.size });
        }
        let range = self.range.start + start..self.range.start + end;
        Ok(Self { range, size: end - start, deflated: false })
    }
}

fn place(name: &str) -> String {
    format!("tensor {:?}", clip(name))
}

const A_STORAGE: &str = "a storage of the file";

/// The storage of a persistent id: `('storage', type, key, location, length)`, in files of before the zip with
/// `None` or `(key of the view, offset, length)` behind.
pub(super) fn claim<'p>(arena: &'p Arena<'_>, place: &str, id: Id) -> Result<Claim<'p>, ErrorKind> {
    let wrong = |found: Id| ErrorKind::invalid(place, A_STORAGE, arena.describe(found));
    let Some(&[tag, class, key, _, length, ref view @ ..]) = arena.items(id) else { return Err(wrong(id)) };
    if arena.str(tag) != Some("storage") {
        return Err(wrong(tag));
    }
    let dtype = match arena.get(class) {
        Node::Global(Global::Known(Known::Storage(dtype))) => Some(*dtype),
        Node::Global(Global::Known(Known::UntypedStorage)) => None,
        _ => return Err(wrong(class)),
    };
    let key = arena.str(key).filter(|text| text.len() <= MAX_KEY).ok_or_else(|| wrong(key))?;
    let number = |id: Id| match arena.get(id) {
        Node::Int(n) => u64::try_from(*n).map_err(|_| wrong(id)),
        _ => Err(wrong(id)),
    };
    let view = match view.first().map(|&id| (id, arena.get(id))) {
        None | Some((_, Node::None)) => None,
        Some((id, _)) => {
            let Some(&[_, offset, length]) = arena.items(id) else { return Err(wrong(id)) };
            let offset = number(offset)?;
            Some(offset..offset.saturating_add(number(length)?))
        }
    };
    Ok(Claim { key, dtype, length: number(length)?, view })
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
