//! Reads a corpus: tab-separated lines, JSON lines or Parquet. A bad row is rejected with its line and the reason, and counted.

mod lines;
mod parquet;

use std::io::Read;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::AuditError;
use crate::model::Task;

/// Which columns of a corpus hold what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnNames {
    /// The source; `source` where it is absent.
    pub source: Option<String>,
    /// The target; `target` where it is absent.
    pub target: Option<String>,
    /// The text of a model that reads one; `text` where it is absent.
    pub text: Option<String>,
    /// The columns that are kept in the output.
    pub keep: Vec<String>,
}

impl ColumnNames {
    fn source(&self) -> &str {
        self.source.as_deref().unwrap_or("source")
    }

    /// The column of what the model predicts.
    fn target(&self, task: Task) -> &str {
        match task {
            Task::Text => self.text.as_deref().unwrap_or("text"),
            Task::Pairs | Task::Audio => self.target.as_deref().unwrap_or("target"),
        }
    }

    /// As they are told apart: `source "de", target "en", keeping "domain"`.
    pub(crate) fn words(&self) -> String {
        let sides = [("source", &self.source), ("target", &self.target), ("text", &self.text)];
        let named = sides.iter().filter_map(|(side, name)| Some((*side, name.as_deref()?)));
        let kept = self.keep.iter().map(|name| ("keeping", name.as_str()));
        let words: Vec<String> = named.chain(kept).map(|(what, name)| format!("{what} {name:?}")).collect();
        match words.is_empty() {
            true => "no names".to_owned(),
            false => words.join(", "),
        }
    }

    /// Whether columns are named at all: a table of tab-separated lines then has a header.
    fn are_named(&self) -> bool {
        self.source.is_some() || self.target.is_some() || self.text.is_some() || !self.keep.is_empty()
    }
}

/// One row of a corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorpusRow {
    /// Its number among all rows of the file, bad ones included, from 0.
    pub row: i64,
    /// Its line, from 1; for Parquet, its row from 1.
    pub line: i64,
    /// What the encoder reads: a text, or the name of a recording.
    pub source: Option<String>,
    /// What is predicted.
    pub target: String,
    /// The kept columns, as text.
    pub kept: Vec<Option<String>>,
}

/// A row that cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reject {
    /// The corpus.
    pub file: String,
    /// Its line, from 1; for Parquet, its row from 1.
    pub line: i64,
    /// Its number among all rows, from 0.
    pub row: i64,
    /// What was expected, and what was found.
    pub reason: String,
}

/// A corpus as it was read.
#[derive(Debug, Default)]
pub struct CorpusRead {
    /// The rows, in the order of the file.
    pub rows: Vec<CorpusRow>,
    /// The rows that are none.
    pub rejects: Vec<Reject>,
}

/// Parquet begins and ends with it.
const PARQUET: &[u8; 4] = b"PAR1";

/// Reads a corpus; which format it has, its content says.
///
/// # Errors
/// When the file cannot be read, or has no column of a name that is needed. A bad row is no error.
pub fn read_corpus(file: &Path, task: Task, columns: &ColumnNames) -> Result<CorpusRead, AuditError> {
    let mut first = [0; 4];
    if file.is_dir() {
        return Err(AuditError::CorpusFolder { file: file.to_owned() });
    }
    let mut opened = attnscope_checkpoint::open_input(file).map_err(|why| AuditError::io(file, why))?;
    let is_parquet = opened.read_exact(&mut first).is_ok() && first == *PARQUET;
    drop(opened);
    match is_parquet {
        true => parquet::read(file, task, columns),
        false => lines::read(file, task, columns),
    }
}

/// Collects rows and rejects, with the checks that all formats share.
struct Collector<'a> {
    file: &'a Path,
    task: Task,
    read: CorpusRead,
    /// The number of the next row.
    next: i64,
}

impl<'a> Collector<'a> {
    fn new(file: &'a Path, task: Task) -> Self {
        Self { file, task, read: CorpusRead::default(), next: 0 }
    }

    fn reject(&mut self, line: i64, reason: String) {
        let file = self.file.display().to_string();
        self.read.rejects.push(Reject { file, line, row: self.next, reason });
        self.next += 1;
    }

    fn add(&mut self, line: i64, source: Option<&str>, target: Option<&str>, kept: Vec<Option<String>>) {
        let sides = match self.task {
            Task::Text => vec![("text", target)],
            Task::Pairs | Task::Audio => vec![("source", source), ("target", target)],
        };
        let empty = sides.iter().find(|(_, text)| text.is_none_or(|text| text.trim().is_empty()));
        if let Some((side, text)) = empty {
            let expected = if self.task == Task::Text { "a text" } else { "a text on both sides" };
            let found = if text.is_some() { "an empty" } else { "null as the" };
            return self.reject(line, format!("expected {expected}, found {found} {side}"));
        }
        let target = target.unwrap_or_default();
        let source = source.map(str::to_owned).filter(|_| self.task != Task::Text);
        self.read.rows.push(CorpusRow { row: self.next, line, source, target: target.to_owned(), kept });
        self.next += 1;
    }

    /// What was read.
    ///
    /// # Errors
    /// When that is no row at all.
    fn finish(self) -> Result<CorpusRead, AuditError> {
        match self.read.rows.is_empty() {
            false => Ok(self.read),
            true => Err(AuditError::NoRows {
                file: self.file.to_owned(),
                rejects: self.read.rejects.len(),
                first: self
                    .read
                    .rejects
                    .first()
                    .map(|first| format!("line {}: {}", first.line, first.reason)),
            }),
        }
    }

    fn no_column(&self, column: &str, found: &[&str]) -> AuditError {
        let found = match found.is_empty() {
            true => "no columns".to_owned(),
            false => found.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
        };
        AuditError::Column { file: PathBuf::from(self.file), column: column.to_owned(), found }
    }
}

#[cfg(test)]
mod tests;
