//! Data: rows of files that people keep examples in, one at a time, with errors that name the file and the line.

mod acl_imdb;
mod error;
mod json;
mod parallel;
mod quotes;
mod table;

use std::path::{Path, PathBuf};

pub use error::{DataError, RowFault};

use attnscope_run::data::Lines;

use crate::recipe::DataTable;
use acl_imdb::AclImdb;
use json::JsonLines;
use parallel::Parallel;
use table::Table;

/// What rows are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// To learn from.
    Train,
    /// To compare checkpoints with.
    Validation,
    /// To judge the result with, once.
    Test,
}

impl Split {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }

    /// The split that goes by a name.
    fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "train" | "training" => Some(Self::Train),
            "validation" | "valid" | "val" | "dev" => Some(Self::Validation),
            "test" => Some(Self::Test),
            _ => None,
        }
    }
}

/// One example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Example {
    /// A text and its class.
    Labelled {
        /// The text.
        text: String,
        /// The number of its class.
        class: u32,
    },
    /// A sentence and its translation.
    Pair {
        /// What the model reads.
        source: String,
        /// What it should generate.
        target: String,
    },
}

/// Data that was found, and how it is laid out.
#[derive(Debug, Clone)]
pub struct DataSet {
    table: DataTable,
    layout: Layout,
    /// Bad rows are counted, and are no error.
    skip_bad: bool,
}

#[derive(Debug, Clone)]
enum Layout {
    /// The pairs of the recipe itself.
    Inline,
    JsonLines(PathBuf),
    Table {
        file: PathBuf,
        delimiter: u8,
    },
    /// Source, tab, target.
    Pairs(PathBuf),
    Parallel(PathBuf),
    AclImdb(PathBuf),
}

impl DataSet {
    /// Finds out how data is laid out, by what is in it.
    ///
    /// # Errors
    /// When there is none, it cannot be read, or it is not what the recipe's task needs.
    pub fn open(table: &DataTable, data: Option<&Path>) -> Result<Self, DataError> {
        let layout = match data {
            Some(path) => Layout::find(table, path)?,
            None => match table {
                DataTable::Translation { pairs, .. } if !pairs.is_empty() => Layout::Inline,
                _ => return Err(DataError::None),
            },
        };
        Ok(Self { table: table.clone(), layout, skip_bad: false })
    }

    /// The same where bad rows are passed over and counted.
    #[must_use]
    pub fn skipping_bad(self, skip_bad: bool) -> Self {
        Self { skip_bad, ..self }
    }

    /// The rows of some splits, in the order of the files. Rows that no file puts into a split are of `unmarked`.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn rows(&self, wanted: &[Split], unmarked: Split) -> Result<DataRows, DataError> {
        let raw: RawRows = match &self.layout {
            Layout::Inline => inline(&self.table, unmarked),
            Layout::JsonLines(file) => Box::new(JsonLines::open(file, &self.table, unmarked)?),
            Layout::Table { file, delimiter } => {
                Box::new(Table::open(file, *delimiter, &self.table, unmarked)?)
            }
            Layout::Pairs(file) => Box::new(tab_pairs(Lines::open(file)?, unmarked)),
            Layout::Parallel(folder) => Box::new(Parallel::open(folder, &self.table, wanted)?),
            Layout::AclImdb(folder) => Box::new(AclImdb::open(folder, &self.table, wanted)?),
        };
        Ok(DataRows {
            raw,
            wanted: wanted.to_vec(),
            skip_bad: self.skip_bad,
            bad: BadRows::default(),
            ended: false,
        })
    }
}

type RawRow = Result<(Split, Example), DataError>;
type RawRows = Box<dyn Iterator<Item = RawRow>>;

/// Rows as they are read.
pub struct DataRows {
    raw: RawRows,
    wanted: Vec<Split>,
    skip_bad: bool,
    bad: BadRows,
    ended: bool,
}

/// Rows that were passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BadRows {
    /// How many.
    pub count: usize,
    /// What is wrong with the first of them.
    pub first: Option<String>,
}

impl std::fmt::Debug for DataRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataRows")
            .field("wanted", &self.wanted)
            .field("bad", &self.bad)
            .finish_non_exhaustive()
    }
}

impl DataRows {
    /// The rows that were passed over until now.
    pub fn bad(&self) -> &BadRows {
        &self.bad
    }
}

impl Iterator for DataRows {
    type Item = RawRow;

    fn next(&mut self) -> Option<RawRow> {
        while !self.ended {
            match self.raw.next()? {
                Ok((split, _)) if !self.wanted.contains(&split) => {}
                Err(error @ DataError::Row(_)) if self.skip_bad => {
                    self.bad.count += 1;
                    self.bad.first.get_or_insert_with(|| error.to_string());
                }
                row => {
                    // After an error that is not about one row, nothing that follows can be believed.
                    self.ended = row.is_err();
                    return Some(row);
                }
            }
        }
        None
    }
}

impl Layout {
    fn find(table: &DataTable, path: &Path) -> Result<Self, DataError> {
        let io = |why| DataError::Io { file: path.to_owned(), why };
        if std::fs::metadata(path).map_err(io)?.is_dir() {
            return match table {
                DataTable::Classification { .. } => Ok(Self::AclImdb(path.to_owned())),
                DataTable::Translation { train: Some(_), .. } => Ok(Self::Parallel(path.to_owned())),
                DataTable::Translation { .. } => Err(DataError::Layout {
                    place: path.to_owned(),
                    expected: "a file: the recipe names no files of a folder (data.train)",
                    found: "a folder".into(),
                }),
            };
        }
        let mut lines =
            Lines::open(path)?.filter(|line| line.as_ref().map_or(true, |(_, l)| !l.trim().is_empty()));
        let Some((_, first)) = lines.next().transpose()? else {
            return Err(DataError::EmptyFile { file: path.to_owned() });
        };
        let has_tab = first.contains('\t');
        let file = path.to_owned();
        Ok(match table {
            _ if first.trim_start().starts_with('{') => Self::JsonLines(file),
            DataTable::Translation { .. } if has_tab => Self::Pairs(file),
            _ => Self::Table { file, delimiter: if has_tab { b'\t' } else { b',' } },
        })
    }
}

fn inline(table: &DataTable, unmarked: Split) -> RawRows {
    let DataTable::Translation { pairs, .. } = table else { return Box::new(std::iter::empty()) };
    let pair = move |[source, target]: [String; 2]| Ok((unmarked, Example::Pair { source, target }));
    Box::new(pairs.clone().into_iter().map(pair))
}

/// Source, tab, target, a line each; empty lines are passed over.
fn tab_pairs(lines: Lines, unmarked: Split) -> impl Iterator<Item = RawRow> {
    let file = lines.file().to_owned();
    lines.filter_map(move |line| {
        let (number, line) = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(error.into())),
        };
        // A line of a tab alone is a row with two empty sides.
        if line.trim_matches(' ').is_empty() {
            return None;
        }
        let sides: Vec<&str> = line.split('\t').collect();
        Some(match sides[..] {
            [source, target] => pair(&file, number, source, target).map(|pair| (unmarked, pair)),
            _ => {
                Err(RowFault::new(&file, number, "a source, a tab and a target", tabs(sides.len() - 1))
                    .into())
            }
        })
    })
}

fn tabs(count: usize) -> String {
    match count {
        0 => "no tab".into(),
        n => format!("{n} tabs"),
    }
}

/// A pair in which both sides have something.
fn pair(file: &Path, line: usize, source: &str, target: &str) -> Result<Example, DataError> {
    for (side, text) in [("source", source), ("target", target)] {
        if text.trim().is_empty() {
            return Err(RowFault::new(file, line, "a text on both sides", format!("an empty {side}")).into());
        }
    }
    Ok(Example::Pair { source: source.to_owned(), target: target.to_owned() })
}

/// The number of a class by its name, or by that number itself.
fn class_of(classes: &[String], word: &str) -> Option<u32> {
    let by_name = classes.iter().position(|class| class.eq_ignore_ascii_case(word.trim()));
    let number = by_name.or_else(|| word.trim().parse().ok().filter(|&n: &usize| n < classes.len()))?;
    u32::try_from(number).ok()
}

/// What a class may be written as, for an error.
fn class_words(classes: &[String]) -> String {
    format!("one of {}, or a number from 0 to {}", classes.join(", "), classes.len().saturating_sub(1))
}

#[cfg(test)]
mod tests;
