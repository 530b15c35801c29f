//! Data that cannot be used, and where.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Remedy;
use attnscope_run::data::LineError;
pub use attnscope_run::data::RowFault;

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
    /// Lines that cannot be read.
    #[error(transparent)]
    Lines(LineError),
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

impl From<LineError> for DataError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Row(fault) => Self::Row(fault),
            other => Self::Lines(other),
        }
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
            Self::Lines(error) => error.remedy(),
            Self::EmptyFile { .. } => "give a file that has rows: JSON lines, CSV, or tab-separated pairs".into(),
            Self::OneClass { .. } => "give data with texts of every class".into(),
            Self::Empty { .. } => "give data that has rows of this split".into(),
        }
    }
}
