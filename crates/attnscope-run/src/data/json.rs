//! JSON lines: an object a line.

use std::path::Path;

use serde_json::{Map, Value};

use super::RowFault;

/// The object of a line.
///
/// # Errors
/// When it is none.
pub fn json_object(file: &Path, number: usize, line: &str) -> Result<Map<String, Value>, RowFault> {
    let found = match serde_json::from_str(line) {
        Ok(Value::Object(object)) => return Ok(object),
        Ok(other) => short_json(&other),
        Err(e) => json_words(line, &e),
    };
    Err(RowFault::new(file, number, "a JSON object", found))
}

/// A text with something in it, under a key of a line's object.
///
/// # Errors
/// When there is none.
pub fn json_text<'o>(
    file: &Path,
    number: usize,
    object: &'o Map<String, Value>,
    key: &str,
) -> Result<&'o str, RowFault> {
    let fault = |found: String| RowFault::new(file, number, format!("a text under {key:?}"), found);
    match object.get(key) {
        Some(Value::String(text)) if text.trim().is_empty() => Err(fault("an empty one".into())),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(fault(short_json(other))),
        None => Err(fault(format!("only {}", json_keys(object)))),
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

/// The keys of an object, for an error.
pub fn json_keys(object: &Map<String, Value>) -> String {
    match object.len() {
        0 => "nothing".into(),
        _ => object.keys().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", "),
    }
}

/// The beginning of a value, for an error.
pub fn short_json(value: &Value) -> String {
    shortened(&value.to_string())
}

fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
