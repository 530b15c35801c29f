//! What `torch.save` wrote before version 1.6, and still writes on request: five pickles and then the storages.
//!
//! The pickles are a magic number, a version, facts about the machine, the saved value, and the keys of its
//! storages in the order in which they follow. A storage is a count of elements and their bytes; the size of an element is
//! given only in the saved value.

use std::borrow::Cow;
use std::collections::HashMap;

use super::tensor::{Claim, Storage, Storages, claim};
use super::{MAX_PICKLE, listing};
use crate::error::ErrorKind;
use crate::listing::Listing;
use crate::read::clip;
use crate::read::fields::{Fields, MAX_TENSORS};
use crate::read::pickle::{self, Arena, Id, Node, Pickle};
use crate::source::Source;

/// 0x1950a86a20f9469cfc6c.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// Bytes that the values of the other pickles may take: they are small, and kept in addition to the saved value.
const MAX_PLAIN: usize = 32 << 20;

/// More than the pickle of the magic number takes in any protocol.
pub(crate) const MAGIC_PICKLE: u64 = 64;

/// What is read of the file at first in search of the end of a pickle.
const FIRST_WINDOW: u64 = 1 << 20;

/// The only version that exists.
const VERSION: i64 = 1001;

/// Sizes of C's types. torch writes constants; a few other writers of the format write the sizes of their machine.
const TYPE_SIZES: [(&str, &[i64]); 3] = [("short", &[2]), ("int", &[4]), ("long", &[4, 8])];

/// Whether the file begins with the pickle of torch's magic number.
pub(crate) fn is(bytes: &[u8]) -> bool {
    let start = bytes.get(..MAGIC_PICKLE as usize).unwrap_or(bytes);
    let number = pickle::load("magic number", start);
    number.is_ok_and(|p| matches!(p.arena.get(p.root), Node::Long(MAGIC)))
}

/// Lists the file.
pub(crate) fn read(source: &Source) -> Result<Listing, ErrorKind> {
    let mut at = 0;
    // A pickle with a few plain values.
    let plain = |at: u64| Window::read(source, at, MAX_PLAIN);
    for (name, check) in [
        ("magic number", None),
        ("protocol version", Some(check_version as fn(&Pickle<'_>) -> _)),
        ("system information", Some(check_machine as fn(&Pickle<'_>) -> _)),
    ] {
        let window = plain(at)?;
        let pickle = window.load(name)?;
        check.map_or(Ok(()), |check| check(&pickle))?;
        at += pickle.end as u64;
    }
    // The pickle that holds the model.
    let window = Window::read(source, at, pickle::MAX_HELD)?;
    let value = window.load("saved value")?;
    at += value.end as u64;
    let window = plain(at)?;
    let keys = window.load("storage keys")?;
    at += keys.end as u64;
    let table = storages(source, at, &claims(&value.arena)?, &keys)?;
    // What follows is ignored: a file may hold several saved values, and torch.load reads the first.
    listing(&value, Storages::of_table(table))
}

/// The bytes of the file from some place on, as far as the pickle there goes and a little further.
struct Window<'s> {
    bytes: Cow<'s, [u8]>,
    /// Bytes that its values may take.
    most: usize,
}

impl<'s> Window<'s> {
    /// Only the pickle itself says where it ends: more is read until it ends, up to a limit.
    fn read(source: &'s Source, at: u64, most: usize) -> Result<Self, ErrorKind> {
        let longest = source.len().saturating_sub(at).min(MAX_PICKLE);
        let mut length = FIRST_WINDOW.min(longest);
        loop {
            let window = Self { bytes: source.read(at..at + length, "pickle")?, most };
            if length == longest || window.load("pickle").is_ok() {
                return Ok(window);
            }
            length = length.saturating_mul(8).min(longest);
        }
    }

    fn load<'w>(&'w self, name: &'w str) -> Result<Pickle<'w>, ErrorKind> {
        pickle::load_within(name, &self.bytes, self.most)
    }
}

fn check_version(pickle: &Pickle<'_>) -> Result<(), ErrorKind> {
    match pickle.arena.get(pickle.root) {
        Node::Int(VERSION) => Ok(()),
        _ => {
            let found = pickle.arena.describe(pickle.root);
            Err(ErrorKind::invalid("protocol version", VERSION, found))
        }
    }
}

/// Refuses a file of a machine with another byte order or other sizes of numbers.
fn check_machine(pickle: &Pickle<'_>) -> Result<(), ErrorKind> {
    let arena = &pickle.arena;
    let describe = |id: Option<Id>| id.map_or("nothing".into(), |id| arena.describe(id));
    let little = arena.field(pickle.root, "little_endian");
    match little.map(|id| arena.get(id)) {
        Some(Node::Bool(true)) => {}
        Some(Node::Bool(false)) => {
            return Err(ErrorKind::Unsupported {
                what: "the file was written on a big-endian machine".into(),
                help: "load it in PyTorch on a little-endian machine and torch.save it again".into(),
            });
        }
        _ => return Err(ErrorKind::invalid("little_endian", "True or False", describe(little))),
    }
    let sizes = arena.field(pickle.root, "type_sizes");
    for (name, allowed) in TYPE_SIZES {
        let size = sizes.and_then(|sizes| arena.field(sizes, name));
        if !matches!(size.map(|id| arena.get(id)), Some(Node::Int(n)) if allowed.contains(n)) {
            let place = format!("type_sizes, {name}");
            return Err(ErrorKind::invalid(place, format!("one of {allowed:?}"), describe(size)));
        }
    }
    Ok(())
}

/// Every storage that the value refers to, also where the pickle dropped its tensor: the position of the next storage depends
/// on it.
fn claims<'p>(arena: &'p Arena<'_>) -> Result<HashMap<&'p str, Claim<'p>>, ErrorKind> {
    let mut claims: HashMap<&str, Claim<'_>> = HashMap::new();
    for id in arena.persistent() {
        let new = claim(arena, "saved value", id)?;
        if let Some(old) = claims.get(new.key)
            && (old.width(), old.length) != (new.width(), new.length)
        {
            let (is, was) = ((new.length, new.width()), (old.length, old.width()));
            let place = format!("storage {:?}", clip(new.key));
            let expected = format!("{} elements of {} bytes, as before", was.0, was.1);
            return Err(ErrorKind::invalid(place, expected, format!("{} of {}", is.0, is.1)));
        }
        claims.insert(new.key, new);
        if claims.len() as u64 > MAX_TENSORS {
            return Err(ErrorKind::invalid("saved value", format!("at most {MAX_TENSORS} storages"), "more"));
        }
    }
    Ok(claims)
}

/// Where each storage lies. `at` is where the first one begins.
fn storages(
    source: &Source,
    at: u64,
    claims: &HashMap<&str, Claim<'_>>,
    keys: &Pickle<'_>,
) -> Result<HashMap<String, Storage>, ErrorKind> {
    let place = "storage keys";
    let Some(ids) = keys.arena.items(keys.root) else {
        return Err(ErrorKind::invalid(place, "a list", keys.arena.describe(keys.root)));
    };
    let mut fields = Fields::of(source, at..source.len(), "storages")?;
    let mut table = HashMap::new();
    for &id in ids {
        let key = keys.arena.str(id);
        let Some((&key, claim)) = key.and_then(|key| claims.get_key_value(key)) else {
            let expected = "keys that the saved value speaks of";
            return Err(ErrorKind::invalid(place, expected, keys.arena.describe(id)));
        };
        if table.insert(key.to_owned(), storage(&mut fields, claim)?).is_some() {
            return Err(ErrorKind::invalid(place, "each key once", format!("{:?} twice", clip(key))));
        }
    }
    match claims.keys().filter(|key| !table.contains_key(**key)).min() {
        Some(key) => Err(ErrorKind::invalid(place, format!("{:?} among them", clip(key)), "it is not")),
        None => Ok(table),
    }
}

fn storage(fields: &mut Fields<'_>, claim: &Claim<'_>) -> Result<Storage, ErrorKind> {
    let place = format!("storage {:?}", clip(claim.key));
    let count = fields.u64(&place)?;
    if count != claim.length {
        let expected = format!("{} elements, as in the saved value", claim.length);
        return Err(ErrorKind::invalid(place, expected, count.cast_signed()));
    }
    let start = fields.position();
    // The product overflows, so it is more than the file has.
    let size = count.saturating_mul(claim.width());
    fields.skip(size, place)?;
    Ok(Storage { range: start..fields.position(), size, deflated: false })
}
