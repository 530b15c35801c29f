//! Which key of a recipe a reader's error is about. A table with a `kind` is read as a whole, so that the reader itself does not
//! know; what it says changes when that key is taken away.

use toml::{Table, Value};

use super::Recipe;
use super::error::{key_span, path_at, span_of};

/// A key that is wrong: its place in the text, and what is wrong with it.
pub(super) struct Culprit {
    pub(super) at: Option<usize>,
    pub(super) why: String,
}

/// What the reader's errors are.
enum Complaint {
    UnknownKey {
        key: String,
        known: Vec<String>,
    },
    MissingKey(String),
    /// What was found as the reader writes it, and what it expected.
    WrongValue {
        found: String,
        expected: String,
    },
    /// Something else, in its own words.
    Other(String),
}

/// Finds the key, in a text that is TOML and no recipe.
pub(super) fn culprit(text: &str) -> Option<Culprit> {
    let document: Table = toml::from_str(text).ok()?;
    let message = complaint_of(&document)?;
    let complaint = Complaint::read(&message);
    let paths = paths(&document);
    // Whether the reader says something else without a key.
    let taken = |path: &[String]| {
        let mut edited = document.clone();
        remove(&mut edited, path);
        complaint_of(&edited).as_ref() != Some(&message)
    };
    let last = |path: &[String], name: &str| path.last().is_some_and(|last| last == name);
    let path = match &complaint {
        Complaint::UnknownKey { key, .. } => paths.iter().find(|path| last(path, key) && taken(path)),
        Complaint::WrongValue { found, .. } => {
            paths.iter().find(|path| value(&document, path).is_some_and(|v| looks(v, found)) && taken(path))
        }
        Complaint::MissingKey(key) => {
            // With it, the reader says something else, and not that the table has no such key.
            let given = |path: &[String]| {
                let mut edited = document.clone();
                if let Some(Value::Table(table)) = value_mut(&mut edited, path) {
                    table.insert(key.clone(), Value::Integer(1));
                }
                let said = complaint_of(&edited);
                let is_unknown = said.as_deref().map(Complaint::read).is_some_and(
                    |complaint| matches!(complaint, Complaint::UnknownKey { key: own, .. } if own == *key),
                );
                said.as_ref() != Some(&message) && !is_unknown
            };
            paths.iter().find(|path| matches!(value(&document, path), Some(Value::Table(_))) && given(path))
        }
        // A key without which the reader would miss it; without a table's kind it misses that one, whatever is wrong.
        Complaint::Other(_) => {
            paths.iter().filter(|path| !last(path, "kind") && !last(path, "task")).find(|path| {
                let mut edited = document.clone();
                remove(&mut edited, path);
                let missing = complaint_of(&edited).map(|message| Complaint::read(&message));
                matches!(missing, Some(Complaint::MissingKey(key)) if last(path, &key))
            })
        }
    };
    let path = path.cloned().unwrap_or_default();
    let at = match complaint {
        Complaint::UnknownKey { .. } => key_span(text, &path),
        _ => span_of(text, &path),
    };
    Some(Culprit { at, why: complaint.words(&path) })
}

/// What the reader says of the value at a place, in a text that is not all TOML that can be edited: a number can be too large.
pub(super) fn worded(text: &str, at: Option<usize>, message: &str) -> String {
    let path = at.and_then(|at| path_at(text, at)).unwrap_or_default();
    Complaint::read(message).words(&path)
}

fn complaint_of(document: &Table) -> Option<String> {
    Recipe::deserialize_from(document.clone()).err().map(|e| e.message().to_owned())
}

/// Every key and item, those of the innermost tables first.
fn paths(document: &Table) -> Vec<Vec<String>> {
    fn walk(value: &Value, path: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
        let inner: Vec<(String, &Value)> = match value {
            Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
            _ => Vec::new(),
        };
        for (key, value) in inner {
            path.push(key);
            walk(value, path, all);
            all.push(path.clone());
            path.pop();
        }
    }
    let mut all = Vec::new();
    walk(&Value::Table(document.clone()), &mut Vec::new(), &mut all);
    all.sort_by_key(|path| std::cmp::Reverse(path.len()));
    all
}

fn value<'a>(document: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(document.get(first)?, |value, key| match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    })
}

fn value_mut<'a>(document: &'a mut Table, path: &[String]) -> Option<&'a mut Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(document.get_mut(first)?, |value, key| match value {
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        other => other.get_mut(key),
    })
}

fn remove(document: &mut Table, path: &[String]) {
    let Some((last, before)) = path.split_last() else { return };
    if before.is_empty() {
        document.remove(last);
        return;
    }
    match value_mut(document, before) {
        Some(Value::Table(table)) => drop(table.remove(last)),
        Some(Value::Array(items)) => {
            if let Some(i) = last.parse().ok().filter(|&i: &usize| i < items.len()) {
                items.remove(i);
            }
        }
        _ => {}
    }
}

/// Whether a value is what the reader says it found.
fn looks(value: &Value, found: &str) -> bool {
    match value {
        Value::String(text) => found.trim_matches('"') == text,
        Value::Array(_) => found == "a list",
        Value::Table(_) => found == "a table",
        Value::Float(number) => found.parse() == Ok(*number),
        other => found == other.to_string(),
    }
}

impl Complaint {
    /// From the words of serde.
    fn read(message: &str) -> Self {
        let message = message.replace('\n', " ");
        let quoted =
            |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        if let Some(rest) = message.strip_prefix("unknown field ") {
            let mut names = quoted(rest).into_iter();
            if let Some(key) = names.next() {
                return Self::UnknownKey { key, known: names.collect() };
            }
        }
        if let Some(rest) = message.strip_prefix("unknown variant ") {
            let mut names = quoted(rest).into_iter();
            if let Some(found) = names.next() {
                let known: Vec<String> = names.map(|name| format!("{name:?}")).collect();
                return Self::WrongValue { found: format!("{found:?}"), expected: one_of(&known) };
            }
        }
        if let Some(key) = message.strip_prefix("missing field ").and_then(|rest| quoted(rest).pop()) {
            return Self::MissingKey(key);
        }
        let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|p| message.strip_prefix(p));
        match wrong.and_then(|rest| rest.split_once(", expected ")) {
            Some((found, expected)) => {
                Self::WrongValue { found: found_words(found), expected: expected_words(expected) }
            }
            None => Self::Other(message),
        }
    }

    fn words(&self, path: &[String]) -> String {
        let key = |more: Option<&String>| path.iter().chain(more).cloned().collect::<Vec<_>>().join(".");
        match self {
            Self::UnknownKey { known, .. } if known.is_empty() => {
                format!("{}: unknown key; this table has none", key(None))
            }
            Self::UnknownKey { known, .. } => {
                format!("{}: unknown key; allowed here: {}", key(None), known.join(", "))
            }
            Self::MissingKey(missing) => format!("{}: expected this key, found none", key(Some(missing))),
            Self::WrongValue { found, expected } if path.is_empty() => {
                format!("expected {expected}, found {found}")
            }
            Self::WrongValue { found, expected } => {
                format!("{}: expected {expected}, found {found}", key(None))
            }
            Self::Other(message) if path.is_empty() => message.clone(),
            Self::Other(message) => format!("{}: {message}", key(None)),
        }
    }
}

fn one_of(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        many => format!("one of {}", many.join(", ")),
    }
}

/// `integer `3`` → `3`.
fn found_words(found: &str) -> String {
    match found {
        "sequence" => return "a list".into(),
        "map" => return "a table".into(),
        _ => {}
    }
    if let Some(text) = found.strip_prefix("string ") {
        return text.to_owned();
    }
    let value = found.split('`').nth(1).unwrap_or(found);
    // The reader has no type of its own for such a number.
    if found.ends_with(" as i128") { format!("{value}, which is too large") } else { value.to_owned() }
}

/// The types of the recipe's fields, for people.
fn expected_words(expected: &str) -> String {
    match expected {
        "usize" | "u64" | "u32" => "a whole number, 0 or more".into(),
        "f64" | "f32" => "a number".into(),
        "a string" => "a text in quotes".into(),
        "a sequence" => "a list".into(),
        "a boolean" => "true or false".into(),
        "a map" => "a table".into(),
        other if other.starts_with("struct ") || other.contains("tagged enum ") => "a table".into(),
        other => other.to_owned(),
    }
}
