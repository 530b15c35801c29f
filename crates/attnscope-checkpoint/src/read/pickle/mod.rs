//! A pickle machine that cannot run anything.
//!
//! Written by hand because a pickle is a program and the crates that read it either build only serde values, without
//! persistent ids and globals, or resolve globals by a call. This one knows a closed list of globals
//! ([`Known`]), builds plain values, containers, tensors and storages from them, and turns every other
//! global into an inert [`Object`] that keeps the arguments of the call.
//!
//! Values live in an [`Arena`] and refer to one another by number: a value that contains itself is dropped without special
//! care, and nothing here recurses. Opcodes are counted and so are the bytes of what they build, so that time and
//! memory are bounded by [`MAX_STEPS`] and [`MAX_HELD`] whatever the file says.

mod global;
mod machine;
mod reader;
mod value;

pub(crate) use global::Known;
pub(crate) use machine::{Pickle, load, load_within};
pub(crate) use value::{Arena, Global, Id, Node, Object, RawTensor};

/// Opcodes, and items copied by them, in one pickle. A checkpoint of ten thousand tensors takes half a million.
const MAX_STEPS: u64 = 8 << 20;

/// Bytes that the values of one pickle may take. Those of fifty thousand tensors take some 60 MB.
pub(crate) const MAX_HELD: usize = 128 << 20;
