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
    /// A quote that is not closed where its field ends: where the rows after it end is not known.
    #[error(transparent)]
    OpenQuote(RowFault),
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
    /// A compressed file that ends too early.
    #[error("{}: expected a whole gzip file, found one that is cut off", file.display())]
    Cut {
        /// The file.
        file: PathBuf,
    },
    /// A file in which nothing is.
    #[error("{}: expected rows of data, found an empty file", file.display())]
    EmptyFile {
        /// The file.
        file: PathBuf,
    },
    /// Texts of one class alone: nothing can be learned from them.
    #[error("expected texts of two classes or more to learn from, found {examples} of {class:?} alone")]
    OneClass {
        /// The class.
        class: String,
        /// How many texts.
        examples: usize,
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

/// What reading a file ended with.
pub(super) fn reading(file: &Path, why: std::io::Error) -> DataError {
    match why.kind() {
        std::io::ErrorKind::UnexpectedEof => DataError::Cut { file: file.to_owned() },
        _ => DataError::Io { file: file.to_owned(), why },
    }
}

/// What is in a folder, for an error.
pub(super) fn listed(folder: &Path) -> String {
    const SOME: usize = 4;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let more = names.len().saturating_sub(SOME);
    names.truncate(SOME);
    match (names.len(), more) {
        (0, _) => "an empty folder".into(),
        (_, 0) => names.join(", "),
        (_, more) => format!("{} and {more} more", names.join(", ")),
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
            Self::OpenQuote(_) => {
                "close the quote; a quote that is a part of the text is written twice: \"\"".into()
            }
            Self::Layout { .. } => {
                "give JSON lines, CSV, tab-separated pairs, the aclImdb folder, or a folder with the files that the recipe names"
                    .into()
            }
            Self::Cut { .. } => "copy or download the file again: a part of it is missing".into(),
            Self::EmptyFile { .. } => "give a file that has rows: JSON lines, CSV, or tab-separated pairs".into(),
            Self::OneClass { .. } => "give data with texts of every class".into(),
            Self::Empty { .. } => "give data that has rows of this split".into(),
        }
    }
}
