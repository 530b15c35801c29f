//! Why an audit could not be made.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Remedy;
use attnscope_run::RunError;
use attnscope_run::data::LineError;
use parquet::errors::ParquetError;

use crate::schema::INPUT_COLUMNS;

/// Why an audit could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// A corpus whose lines cannot be read.
    #[error(transparent)]
    Lines(LineError),
    /// A file of the corpus that is no Parquet, or is damaged.
    #[error("{}: {why}", file.display())]
    Parquet {
        /// The file.
        file: PathBuf,
        /// What its reader said.
        why: String,
    },
    /// A file of the corpus in a compression that is not read.
    #[error("{}: expected Parquet with Snappy compression or without any, found {found}", file.display())]
    Compression {
        /// The file.
        file: PathBuf,
        /// Its compression.
        found: String,
    },
    /// A corpus that is a folder.
    #[error("{}: expected a file, found a folder", file.display())]
    CorpusFolder {
        /// Where it is.
        file: PathBuf,
    },
    /// A corpus without a column that is needed.
    #[error("{}: expected a column {column:?}, found {found}", file.display())]
    Column {
        /// The file.
        file: PathBuf,
        /// What was looked for.
        column: String,
        /// The columns that are there.
        found: String,
    },
    /// A column of another type.
    #[error("{}: column {column:?}: expected {expected}, found {found}", file.display())]
    ColumnType {
        /// The file.
        file: PathBuf,
        /// The column.
        column: String,
        /// What it should hold.
        expected: &'static str,
        /// What it holds.
        found: String,
    },
    /// A corpus in which nothing can be measured.
    #[error("{}: expected rows that can be measured, found {}", file.display(), rejected(*.rejects, .first))]
    NoRows {
        /// The file.
        file: PathBuf,
        /// How many rows were rejected.
        rejects: usize,
        /// What is wrong with the first of them.
        first: Option<String>,
    },
    /// A batch that is not what the kernel reads.
    #[error("record batch: expected {expected}, found {found}")]
    Batch {
        /// What it should have.
        expected: String,
        /// What it has.
        found: String,
    },
    /// A folder that holds an audit already.
    #[error("{}: the folder holds an audit already", folder.display())]
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// A file where the folder should be.
    #[error("{}: expected a folder, found a file", folder.display())]
    NoFolder {
        /// Where it is.
        folder: PathBuf,
    },
    /// A folder that holds something else.
    #[error("{}: expected an empty folder, or one of an audit, found {found}", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// What is in it.
        found: String,
    },
    /// A folder without an audit.
    #[error("{}: expected the folder of an audit, found no audit.json", folder.display())]
    NoAudit {
        /// The folder.
        folder: PathBuf,
    },
    /// Another audit than the one that is asked for.
    #[error("{}: {what}: the audit there has {there}, this one {here}", folder.display())]
    Other {
        /// The folder.
        folder: PathBuf,
        /// Which fact differs.
        what: &'static str,
        /// As it is there.
        there: String,
        /// As it is here.
        here: String,
    },
    /// Another process writes to the folder.
    #[error("{}: another audit is writing to the folder", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// Parts that are not there.
    #[error("{}: {} of {total} parts are missing: {}", folder.display(), missing.len(), some(missing))]
    Missing {
        /// The folder, or those that were to be merged.
        folder: PathBuf,
        /// Their numbers.
        missing: Vec<usize>,
        /// How many there should be.
        total: usize,
        /// Whether the work was shared out.
        sharded: bool,
    },
    /// A part that two folders have.
    #[error("part {part} is in both {} and {}", first.display(), second.display())]
    Twice {
        /// Its number.
        part: usize,
        /// A folder.
        first: PathBuf,
        /// Another.
        second: PathBuf,
    },
    /// A manifest or a part that cannot be understood.
    #[error("{}: expected {expected}, found {found}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What should be there.
        expected: String,
        /// What is.
        found: String,
    },
    /// A file or a folder that cannot be read or written.
    #[error("{}: {why}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        why: std::io::Error,
    },
    /// A file that cannot be written, or a checkpoint that cannot be read.
    #[error(transparent)]
    File(#[from] attnscope_checkpoint::Error),
    /// The model cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<LineError> for AuditError {
    fn from(error: LineError) -> Self {
        Self::Lines(error)
    }
}

impl AuditError {
    pub(crate) fn io(path: &Path, why: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), why }
    }

    /// What a reader or writer of Parquet said; the system's own words where it is the system's error.
    pub(crate) fn parquet(file: &Path, why: ParquetError) -> Self {
        match why {
            ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
                Ok(why) => Self::io(file, *why),
                Err(other) => Self::Parquet { file: file.to_owned(), why: other.to_string() },
            },
            other => Self::unreadable(file, other.to_string()),
        }
    }

    /// What a reader of Parquet said in words.
    pub(crate) fn unreadable(file: &Path, why: String) -> Self {
        match why.split_once("Disabled feature at compile time: ") {
            Some((_, found)) => Self::Compression { file: file.to_owned(), found: found.trim().to_owned() },
            None => Self::Parquet { file: file.to_owned(), why },
        }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Lines(e) => e.remedy(),
            Self::Compression { .. } => "write the file again with Snappy compression, or without any".into(),
            Self::CorpusFolder { .. } => "give the file of the corpus; several can be joined before".into(),
            Self::Parquet { .. } => "write or download the file again".into(),
            Self::Column { .. } => Remedy::NameColumns,
            Self::ColumnType { .. } => "name another column, or write this one as text".into(),
            Self::NoRows { .. } => "give rows with a text on every side that the model reads".into(),
            Self::Batch { .. } => Remedy::Advice(format!(
                "the kernel reads {}; it keeps others, under names that its output does not have",
                INPUT_COLUMNS.join(", ")
            )),
            Self::Exists { .. } => Remedy::ResumeAudit,
            Self::NoFolder { .. } | Self::Foreign { .. } => {
                "give a folder that is empty, or that does not exist yet".into()
            }
            Self::NoAudit { .. } => "give the folder that an audit was written to".into(),
            Self::Other { .. } => {
                "give another folder, or the same model, corpus and options as before".into()
            }
            Self::Busy { .. } => "wait until it has ended, or give another folder".into(),
            Self::Missing { sharded: true, .. } => Remedy::FinishShards,
            Self::Missing { sharded: false, .. } => Remedy::ResumeAudit,
            Self::Twice { .. } => "give each shard once".into(),
            Self::Damaged { .. } => "write the audit again".into(),
            Self::Io { why, .. } => attnscope_checkpoint::limit_help(why)
                .unwrap_or("check the path, and that it may be read and written")
                .into(),
            Self::File(e) => e.remedy(),
            Self::Run(e) => e.remedy(),
        }
    }
}

fn rejected(count: usize, first: &Option<String>) -> String {
    match (count, first) {
        (0, _) | (_, None) => "none".to_owned(),
        (1, Some(first)) => format!("one that cannot: {first}"),
        (count, Some(first)) => format!("{count} that cannot, the first: {first}"),
    }
}

/// The first of many numbers.
fn some(numbers: &[usize]) -> String {
    const SOME: usize = 8;
    let shown: Vec<String> = numbers.iter().take(SOME).map(usize::to_string).collect();
    match numbers.len() > SOME {
        true => format!("{} …", shown.join(", ")),
        false => shown.join(", "),
    }
}
