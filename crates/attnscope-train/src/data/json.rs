//! JSON lines: an object a line.

use std::path::Path;

use attnscope_run::data::{Lines, RowFault, json_keys, json_object, json_text, short_json};
use serde_json::{Map, Value};

use super::error::DataError;
use super::{Example, RawRow, Split, class_of, class_words, pair};
use crate::recipe::DataTable;

/// The rows of a file of JSON lines.
pub(super) struct JsonLines {
    lines: Lines,
    table: DataTable,
    unmarked: Split,
}

impl JsonLines {
    pub(super) fn open(file: &Path, table: &DataTable, unmarked: Split) -> Result<Self, DataError> {
        Ok(Self { lines: Lines::open(file)?, table: table.clone(), unmarked })
    }
}

impl Iterator for JsonLines {
    type Item = RawRow;

    fn next(&mut self) -> Option<RawRow> {
        loop {
            match self.lines.next()? {
                Err(error) => return Some(Err(error.into())),
                Ok((_, line)) if line.trim().is_empty() => {}
                Ok((number, line)) => {
                    let row = Row { file: self.lines.file(), number };
                    return Some(row.read(&self.table, self.unmarked, &line));
                }
            }
        }
    }
}

/// The place of a row.
struct Row<'a> {
    file: &'a Path,
    number: usize,
}

impl Row<'_> {
    fn fault(&self, expected: impl Into<String>, found: impl Into<String>) -> DataError {
        RowFault::new(self.file, self.number, expected, found).into()
    }

    fn read(&self, table: &DataTable, unmarked: Split, line: &str) -> RawRow {
        let object = json_object(self.file, self.number, line)?;
        match table {
            DataTable::Classification { classes, text, label, split, .. } => {
                let split = self.split(&object, split, unmarked)?;
                let text = self.text(&object, text)?.to_owned();
                Ok((split, Example::Labelled { text, class: self.class(&object, label, classes)? }))
            }
            DataTable::Translation { .. } => {
                let split = self.split(&object, "split", unmarked)?;
                let (source, target) = (self.text(&object, "source")?, self.text(&object, "target")?);
                Ok((split, pair(self.file, self.number, source, target)?))
            }
        }
    }

    fn text<'o>(&self, object: &'o Map<String, Value>, key: &str) -> Result<&'o str, DataError> {
        Ok(json_text(self.file, self.number, object, key)?)
    }

    fn split(&self, object: &Map<String, Value>, key: &str, unmarked: Split) -> Result<Split, DataError> {
        let Some(value) = object.get(key) else { return Ok(unmarked) };
        let named = value.as_str().and_then(Split::named);
        named.ok_or_else(|| self.fault(format!("train, validation or test under {key:?}"), short_json(value)))
    }

    fn class(&self, object: &Map<String, Value>, key: &str, classes: &[String]) -> Result<u32, DataError> {
        let expected = || format!("{} under {key:?}", class_words(classes));
        let found = match object.get(key) {
            Some(Value::String(word)) => class_of(classes, word),
            Some(Value::Number(number)) => class_of(classes, &number.to_string()),
            Some(_) => None,
            None => return Err(self.fault(expected(), format!("only {}", json_keys(object)))),
        };
        found.ok_or_else(|| self.fault(expected(), object.get(key).map(short_json).unwrap_or_default()))
    }
}
