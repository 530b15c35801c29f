//! What a reader gives back: everything in a file but the values.

use crate::list::StoredList;
use crate::tensor::TensorInfo;

/// The contents of one file. A reader for a format is a function `read(&Source) -> Result<Listing, ErrorKind>`;
/// it has checked every size, offset and count against the file.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) configs: Vec<Config>,
    pub(crate) placeholders: Vec<Placeholder>,
    pub(crate) checks: Vec<Check>,
    /// Arrays of the header that may be asked for.
    pub(crate) lists: Vec<StoredList>,
    /// What the file holds besides, which is neither tensor nor fact: a vocabulary, filters.
    pub(crate) left_out: Vec<String>,
}

/// Facts about the model: config.json, a header's metadata, a pickled dictionary of sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where they were found, as shown to the user: `config.json`, `metadata`, `dims`.
    pub source: String,
    /// The facts.
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// A pickled object of a class this program does not know. It was never called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Placeholder {
    /// `module.name` of the callable, as written in the file: `argparse.Namespace`, `os.system`.
    pub global: String,
    /// Where in the file's value it stands: `args`, `callbacks.0`.
    pub place: String,
    /// The pickle asks for it to be called with arguments while loading.
    pub called: bool,
}

/// The state of one checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What it covers: `header`, `whole file`.
    pub what: &'static str,
    /// Its state. A wrong checksum is an error, not a state.
    pub state: CheckState,
}

/// The state of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// Computed and equal.
    Verified,
    /// The file has none.
    Absent,
    /// The file has one; it was not computed because that reads all of a large file.
    NotComputed,
}
