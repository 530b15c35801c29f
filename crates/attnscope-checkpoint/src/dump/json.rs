//! Tensors as nested lists of numbers, under the keys that lead to them.

use std::path::Path;
use std::sync::Arc;

use super::scan::{self, Item};
use super::{At, DumpTensor};
use crate::dtype::DType;
use crate::error::ErrorKind;

/// Every list of numbers. A flat list beside a `shape` has that shape; a list beside a `path` or a `name` has that name.
pub(super) fn tensors(item: &Item, text: &[u8], file: &Arc<Path>) -> Result<Vec<DumpTensor>, ErrorKind> {
    let mut finder = Finder { text, file, found: Vec::new() };
    finder.visit(item, "")?;
    Ok(finder.found)
}

struct Finder<'a> {
    text: &'a [u8],
    file: &'a Arc<Path>,
    found: Vec<DumpTensor>,
}

impl Finder<'_> {
    fn visit(&mut self, item: &Item, name: &str) -> Result<(), ErrorKind> {
        let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
        match item {
            Item::Numbers { shape, range } => self.add(name, shape, range.clone()),
            Item::Object(entries) => match self.described(item, name)? {
                true => Ok(()),
                false => entries.iter().try_for_each(|(key, value)| self.visit(value, &inner(key))),
            },
            Item::List(items) => {
                items.iter().enumerate().try_for_each(|(i, value)| self.visit(value, &inner(&i.to_string())))
            }
            Item::Text(_) | Item::Single => Ok(()),
        }
    }

    /// An object that is one tensor: its values, its shape where they are flat, its name where it has one.
    fn described(&mut self, item: &Item, name: &str) -> Result<bool, ErrorKind> {
        let values = ["values", "data", "value"].into_iter().find_map(|key| match item.get(key)? {
            Item::Numbers { shape, range } => Some((shape, range.clone())),
            _ => None,
        });
        let Some((own, range)) = values else { return Ok(false) };
        let text = |key: &str| match item.get(key)? {
            Item::Text(range) => scan::unescaped(self.text, range.clone()),
            _ => None,
        };
        let given = ["path", "name", "node"].into_iter().find_map(text);
        let name = given.unwrap_or_else(|| name.to_owned());
        let given = match item.get("shape") {
            Some(Item::Numbers { shape: rank, range }) if own.len() == 1 => {
                self.shape(rank, range.clone(), own)
            }
            _ => None,
        };
        self.add(&name, given.as_ref().unwrap_or(own), range)?;
        Ok(true)
    }

    /// The shape given beside a list, if the list has as many numbers as the shape needs.
    fn shape(&self, rank: &[usize], range: std::ops::Range<usize>, flat: &[usize]) -> Option<Vec<usize>> {
        let text = self.text.get(range)?;
        let dims = scan::numbers(text, *rank.first()?).ok()?;
        let whole = dims.iter().all(|n| n.fract() == 0.0 && (0.0..9e15).contains(n));
        let fits = flat.first().is_some_and(|&n| dims.iter().product::<f64>() == n as f64);
        (whole && fits).then(|| dims.iter().map(|&n| n as usize).collect())
    }

    fn add(&mut self, name: &str, shape: &[usize], range: std::ops::Range<usize>) -> Result<(), ErrorKind> {
        scan::checked(shape, name)?;
        self.found.push(DumpTensor {
            name: if name.is_empty() { "tensor".into() } else { name.to_owned() },
            shape: shape.to_vec(),
            dtype: DType::F64,
            file: self.file.clone(),
            at: At::Digits(range),
        });
        Ok(())
    }
}
