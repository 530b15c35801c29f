//! Arrays of a GGUF header, read when they are asked for: a vocabulary, its scores, its merges.

use std::ops::Range;

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::read::gguf;

/// An array that a header holds, and where.
#[derive(Debug, Clone)]
pub(crate) struct StoredList {
    pub(crate) key: String,
    /// The file of the checkpoint that holds it.
    pub(crate) source: usize,
    /// Its bytes, the type and number of its elements first.
    pub(crate) range: Range<u64>,
}

/// The elements of such an array.
#[derive(Debug, Clone, PartialEq)]
pub enum List {
    /// Texts; bytes that are not UTF-8 are replaced.
    Texts(Vec<String>),
    /// Numbers; true and false are 1 and 0.
    Numbers(Vec<f64>),
}

impl Checkpoint {
    /// The array that a GGUF header holds under a key, if it does.
    ///
    /// # Errors
    /// When it has more elements than any vocabulary, or elements that are arrays themselves.
    pub fn list(&self, key: &str) -> Result<Option<List>, Error> {
        let Some(stored) = self.lists().iter().find(|list| list.key == key) else { return Ok(None) };
        // Set by `add`, never by a file.
        let source = &self.sources()[stored.source];
        gguf::list(source, stored).map(Some).map_err(|kind| source.error(kind))
    }
}
