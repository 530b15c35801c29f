//! Two files, line by line: sources and targets.

use std::path::{Path, PathBuf};

use attnscope_run::data::Lines;

use super::error::DataError;
use super::{RawRow, Split, pair};
use crate::recipe::DataTable;

/// The pairs of some splits, one split after the other.
pub(super) struct Parallel {
    files: std::vec::IntoIter<(Split, [PathBuf; 2])>,
    current: Option<(Split, [Lines; 2])>,
}

impl Parallel {
    pub(super) fn open(folder: &Path, table: &DataTable, wanted: &[Split]) -> Result<Self, DataError> {
        let DataTable::Translation { train, validation, test, .. } = table else {
            return Err(DataError::None);
        };
        let named = [(Split::Train, train), (Split::Validation, validation), (Split::Test, test)];
        let mut files = Vec::new();
        for (split, names) in named {
            let Some([source, target]) = names.as_ref().filter(|_| wanted.contains(&split)) else { continue };
            files.push((split, [find(folder, source)?, find(folder, target)?]));
        }
        Ok(Self { files: files.into_iter(), current: None })
    }

    fn row(&mut self) -> Result<Option<RawRow>, DataError> {
        loop {
            let Some((split, [sources, targets])) = &mut self.current else {
                let Some((split, [source, target])) = self.files.next() else { return Ok(None) };
                self.current = Some((split, [Lines::open(&source)?, Lines::open(&target)?]));
                continue;
            };
            match (sources.next(), targets.next()) {
                (Some(source), Some(target)) => {
                    // Both lines are read before either is refused: the next row must still be a pair.
                    let ((line, source), (_, target)) = match (source, target) {
                        (Ok(source), Ok(target)) => (source, target),
                        (Err(error), _) | (_, Err(error)) => return Ok(Some(Err(error.into()))),
                    };
                    return Ok(Some(pair(sources.file(), line, &source, &target).map(|pair| (*split, pair))));
                }
                (None, None) => self.current = None,
                (source, _) => {
                    let (short, long) =
                        if source.is_none() { (sources, targets) } else { (targets, sources) };
                    return Err(DataError::Layout {
                        place: short.file().to_owned(),
                        expected: "as many lines as in the file beside it",
                        found: format!("fewer than in {}", long.file().display()),
                    });
                }
            }
        }
    }
}

impl Iterator for Parallel {
    type Item = RawRow;

    fn next(&mut self) -> Option<RawRow> {
        match self.row() {
            Ok(row) => row,
            Err(error) => {
                // The files have no more in common.
                self.current = None;
                self.files = Vec::new().into_iter();
                Some(Err(error))
            }
        }
    }
}

/// A file by its name, or by that and `.gz`.
fn find(folder: &Path, name: &str) -> Result<PathBuf, DataError> {
    let names = [folder.join(name), folder.join(format!("{name}.gz"))];
    let found = names.iter().find(|file| file.is_file()).cloned();
    found.ok_or_else(|| DataError::Layout {
        place: folder.to_owned(),
        expected: "the files that the recipe names, plain or as .gz",
        found: format!("no {name}"),
    })
}
