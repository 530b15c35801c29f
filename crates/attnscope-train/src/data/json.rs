//! JSON lines: an object a line.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::{DataError, RowFault};
use super::lines::Lines;
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
                Err(error) => return Some(Err(error)),
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
        let object = match serde_json::from_str(line) {
            Ok(Value::Object(object)) => object,
            Ok(other) => return Err(self.fault("a JSON object", short(&other))),
            Err(e) => return Err(self.fault("a JSON object", json_words(line, &e))),
        };
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
        let expected = format!("a text under {key:?}");
        match object.get(key) {
            Some(Value::String(text)) if text.trim().is_empty() => Err(self.fault(expected, "an empty one")),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.fault(expected, short(other))),
            None => Err(self.fault(expected, format!("only {}", keys(object)))),
        }
    }

    fn split(&self, object: &Map<String, Value>, key: &str, unmarked: Split) -> Result<Split, DataError> {
        let Some(value) = object.get(key) else { return Ok(unmarked) };
        let named = value.as_str().and_then(Split::named);
        named.ok_or_else(|| self.fault(format!("train, validation or test under {key:?}"), short(value)))
    }

    fn class(&self, object: &Map<String, Value>, key: &str, classes: &[String]) -> Result<u32, DataError> {
        let expected = || format!("{} under {key:?}", class_words(classes));
        let found = match object.get(key) {
            Some(Value::String(word)) => class_of(classes, word),
            Some(Value::Number(number)) => class_of(classes, &number.to_string()),
            Some(_) => None,
            None => return Err(self.fault(expected(), format!("only {}", keys(object)))),
        };
        found.ok_or_else(|| self.fault(expected(), object.get(key).map(short).unwrap_or_default()))
    }
}

/// Where a line is no JSON any more, and what stands there.
fn json_words(line: &str, error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "the line's end in the middle of it".into();
    }
    // The reader counts bytes, from 1.
    let before = error.column().saturating_sub(1);
    let start = (0..=before.min(line.len())).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
    let column = line[..start].chars().count() + 1;
    format!("{:?} at column {column}, which is not JSON there", shortened(&line[start..]))
}

fn keys(object: &Map<String, Value>) -> String {
    match object.len() {
        0 => "nothing".into(),
        _ => object.keys().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", "),
    }
}

/// The beginning of a value.
fn short(value: &Value) -> String {
    shortened(&value.to_string())
}

fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
