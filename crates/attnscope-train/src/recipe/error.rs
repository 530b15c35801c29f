//! A text that is no recipe, and the place in it.

use std::fmt;

use attnscope_checkpoint::Remedy;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A text that is no recipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{}{why}", Place(*.place))]
pub struct RecipeError {
    /// The file, or the name of a shipped recipe.
    pub file: String,
    /// Line and column, from 1, of what is wrong.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub why: String,
}

/// `3:14: `, or nothing.
struct Place(Option<(usize, usize)>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((line, column)) => write!(f, "{line}:{column}: "),
            None => f.write_str(" "),
        }
    }
}

impl RecipeError {
    pub(super) fn at(file: &str, text: &str, byte: Option<usize>, why: String) -> Self {
        let place = |at: usize| {
            let before = text.get(..at).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            (line, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
        };
        Self { file: file.to_owned(), place: byte.map(place), why }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        "the shipped recipes are examples of every table: toy, imdb-conv, multi30k-en-de".into()
    }
}

/// Where a key itself stands, or the innermost table on the way to it.
pub(super) fn key_span(text: &str, key: &[String]) -> Option<usize> {
    let (last, before) = key.split_last()?;
    let document = DeTable::parse(text).ok()?;
    let table = match value_of(document.get_ref(), before) {
        Some(value) => match value.get_ref() {
            DeValue::Table(table) => table,
            _ => return Some(value.span().start),
        },
        None => document.get_ref(),
    };
    let named = table.iter().find(|(name, _)| &**name.get_ref() == last.as_str());
    named.map(|(name, _)| name.span().start).or_else(|| span_of(text, key))
}

/// Where the value of a key stands, or the innermost table on the way to it. A number in a key counts items of a list.
pub(super) fn span_of(text: &str, key: &[String]) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    Some(value_of(document.get_ref(), key)?.span().start)
}

/// The value of a key, or the innermost table on the way to it.
fn value_of<'d, 'i>(document: &'d DeTable<'i>, key: &[String]) -> Option<&'d Spanned<DeValue<'i>>> {
    let (first, rest) = key.split_first()?;
    let (_, mut value) = document.iter().find(|(name, _)| &**name.get_ref() == first.as_str())?;
    for part in rest {
        let inner = match value.get_ref() {
            DeValue::Table(table) => {
                table.iter().find(|(name, _)| &**name.get_ref() == part.as_str()).map(|(_, value)| value)
            }
            DeValue::Array(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
            _ => None,
        };
        match inner {
            Some(inner) => value = inner,
            None => break,
        }
    }
    Some(value)
}

/// The key whose value begins at a place.
pub(super) fn path_at(text: &str, at: usize) -> Option<Vec<String>> {
    let document = DeTable::parse(text).ok()?;
    in_table(document.get_ref(), at)
}

fn in_table(table: &DeTable<'_>, at: usize) -> Option<Vec<String>> {
    table.iter().find_map(|(name, value)| behind(name.get_ref().to_string(), value, at))
}

/// The rest of the way to a place behind a part of a key.
fn behind(part: String, value: &Spanned<DeValue<'_>>, at: usize) -> Option<Vec<String>> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => in_table(table, at),
        DeValue::Array(items) => {
            items.iter().enumerate().find_map(|(i, item)| behind(i.to_string(), item, at))
        }
        _ => (value.span().start == at).then(Vec::new),
    };
    inner.map(|rest| std::iter::once(part).chain(rest).collect())
}
