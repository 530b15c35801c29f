//! Files of examples, a row at a time: lines, plain or compressed, and JSON objects, with errors that name the file and the line.

mod json;
mod lines;

use std::io;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::Remedy;

pub use json::{json_keys, json_object, json_text, short_json};
pub use lines::{Lines, open_plain_or_gzip};

/// Lines that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// A file that cannot be read.
    #[error("{}: {why}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        why: io::Error,
    },
    /// A compressed file that ends too early.
    #[error("{}: expected a whole gzip file, found one that is cut off", file.display())]
    Cut {
        /// The file.
        file: PathBuf,
    },
    /// A compressed file whose bytes were changed.
    #[error("{}: expected a whole gzip file, found a damaged one: {why}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What its reader said.
        why: io::Error,
    },
    /// A line that nobody wrote.
    #[error("{}: expected lines of at most 16 MiB, found a longer one, line {line}", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// One line that is no row. The lines after it may be.
    #[error(transparent)]
    Row(#[from] RowFault),
}

/// One row that is no example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: expected {expected}, found {found}", file.display())]
pub struct RowFault {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// What should be there.
    pub expected: String,
    /// What is.
    pub found: String,
}

impl RowFault {
    /// What is wrong with a line of a file.
    pub fn new(file: &Path, line: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, expected: expected.into(), found: found.into() }
    }
}

impl LineError {
    /// What reading a file ended with.
    pub fn reading(file: &Path, why: io::Error) -> Self {
        match why.kind() {
            io::ErrorKind::UnexpectedEof => Self::Cut { file: file.to_owned() },
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                Self::Damaged { file: file.to_owned(), why }
            }
            _ => Self::Io { file: file.to_owned(), why },
        }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Io { why, .. } => attnscope_checkpoint::limit_help(why)
                .unwrap_or("give a file or folder that you can read")
                .into(),
            Self::Cut { .. } => "copy or download the file again: a part of it is missing".into(),
            Self::Damaged { .. } => "copy or download the file again".into(),
            Self::TooLong { .. } => "give one example a line".into(),
            Self::Row(_) => Remedy::SkipBadRows,
        }
    }
}
