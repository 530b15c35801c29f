//! CSV and its kin: a header that names the columns, then a row an example.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use attnscope_run::data::{LineError, open_plain_or_gzip};
use csv::{Reader, ReaderBuilder, StringRecord};

use super::error::{DataError, RowFault};
use super::quotes::{OpenQuote, Quotes};
use super::{Example, RawRow, Split, class_of, class_words, pair};
use crate::recipe::DataTable;

/// The rows of a table.
pub(super) struct Table {
    reader: Reader<Quotes<Box<dyn BufRead>>>,
    file: PathBuf,
    columns: Columns,
    unmarked: Split,
}

/// Which columns hold what.
enum Columns {
    Labelled { text: usize, label: usize, split: Option<usize>, classes: Vec<String> },
    Pairs { source: usize, target: usize, split: Option<usize> },
}

impl Table {
    pub(super) fn open(
        file: &Path,
        delimiter: u8,
        table: &DataTable,
        unmarked: Split,
    ) -> Result<Self, DataError> {
        let quotes = Quotes::new(open_plain_or_gzip(file)?, delimiter);
        let mut reader = ReaderBuilder::new().delimiter(delimiter).has_headers(true).from_reader(quotes);
        let header = reader.headers().map_err(|e| error(file, e))?.clone();
        let find = |name: &str| {
            header.iter().position(|column| column.trim_start_matches('\u{feff}').trim() == name)
        };
        let needed = |name: &str| {
            let named = || header.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            let fault =
                || RowFault::new(file, 1, format!("a column {name:?}"), format!("columns {}", named()));
            find(name).ok_or_else(fault)
        };
        let columns = match table {
            DataTable::Classification { classes, text, label, split, .. } => Columns::Labelled {
                text: needed(text)?,
                label: needed(label)?,
                split: find(split),
                classes: classes.clone(),
            },
            DataTable::Translation { .. } => {
                Columns::Pairs { source: needed("source")?, target: needed("target")?, split: find("split") }
            }
        };
        Ok(Self { reader, file: file.to_owned(), columns, unmarked })
    }

    fn read(&self, record: &StringRecord) -> RawRow {
        let line = record.position().map_or(0, |at| usize::try_from(at.line()).unwrap_or(usize::MAX));
        let fault =
            |expected: String, found: &str| RowFault::new(&self.file, line, expected, format!("{found:?}"));
        let field = |column: usize| record.get(column).unwrap_or_default();
        let split = |column: Option<usize>| {
            let Some(column) = column else { return Ok(self.unmarked) };
            let word = field(column);
            Split::named(word).ok_or_else(|| fault("train, validation or test".into(), word))
        };
        match &self.columns {
            Columns::Labelled { text, label, split: column, classes } => {
                let (text, word) = (field(*text), field(*label));
                if text.trim().is_empty() {
                    return Err(fault("a text".into(), text).into());
                }
                let class = class_of(classes, word).ok_or_else(|| fault(class_words(classes), word))?;
                Ok((split(*column)?, Example::Labelled { text: text.to_owned(), class }))
            }
            Columns::Pairs { source, target, split: column } => {
                Ok((split(*column)?, pair(&self.file, line, field(*source), field(*target))?))
            }
        }
    }
}

impl Iterator for Table {
    type Item = RawRow;

    fn next(&mut self) -> Option<RawRow> {
        let mut record = StringRecord::new();
        match self.reader.read_record(&mut record) {
            Ok(false) => None,
            Ok(true) => Some(self.read(&record)),
            Err(e) => Some(Err(error(&self.file, e))),
        }
    }
}

/// The reader's errors, each of one row where it is.
fn error(file: &Path, error: csv::Error) -> DataError {
    let line = |position: Option<&csv::Position>| {
        position.map_or(0, |at| usize::try_from(at.line()).unwrap_or(usize::MAX))
    };
    match error.into_kind() {
        csv::ErrorKind::Io(why) => match why.downcast::<OpenQuote>() {
            Ok(quote) => {
                let expected = "the quote that opens a field here to be closed at the field's end";
                DataError::OpenQuote(RowFault::new(file, quote.line, expected, quote.found))
            }
            Err(why) => LineError::reading(file, why).into(),
        },
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            RowFault::new(file, line(pos.as_ref()), format!("{expected_len} columns"), len.to_string()).into()
        }
        csv::ErrorKind::Utf8 { pos, err } => {
            let found = format!("other bytes in column {}", err.field() + 1);
            RowFault::new(file, line(pos.as_ref()), "UTF-8", found).into()
        }
        _ => DataError::Layout {
            place: file.to_owned(),
            expected: "a table",
            found: "something that cannot be read as one".into(),
        },
    }
}
