//! Data that cannot be used, and where.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Remedy;

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The recipe has no examples of its own, and no data was given.
    #[error("the recipe has no examples of its own, and no data is given")]
    None,
    /// A file that cannot be read.
    #[error("{}: {why}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        why: std::io::Error,
    },
    /// One row that is no example. The rows after it may be.
    #[error(transparent)]
    Row(#[from] RowFault),
    /// Files that are not laid out as data is.
    #[error("{}: expected {expected}, found {found}", place.display())]
    Layout {
        /// The file or folder.
        place: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: String,
    },
    /// Nothing to learn from or to judge with.
    #[error("no {split} rows were found{}", skipped(*.bad))]
    Empty {
        /// Of which split.
        split: &'static str,
        /// How many rows were passed over.
        bad: usize,
    },
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
    pub(super) fn new(
        file: &Path,
        line: usize,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { file: file.to_owned(), line, expected: expected.into(), found: found.into() }
    }
}

fn skipped(bad: usize) -> String {
    match bad {
        0 => String::new(),
        n => format!(" ({n} bad rows were passed over)"),
    }
}

impl DataError {
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::None => Remedy::TrainingData,
            Self::Io { why, .. } => {
                attnscope_checkpoint::limit_help(why).unwrap_or("give a file or folder that you can read").into()
            }
            Self::Row(_) => Remedy::SkipBadRows,
            Self::Layout { .. } => {
                "give JSON lines, CSV, tab-separated pairs, the aclImdb folder, or a folder with the files that the recipe names"
                    .into()
            }
            Self::Empty { .. } => "give data that has rows of this split".into(),
        }
    }
}
