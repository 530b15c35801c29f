//! The folder that the IMDB reviews are published as: `train/pos/0_9.txt`, a file a review.

use std::path::{Path, PathBuf};

use super::error::{DataError, RowFault, listed};
use super::{Example, RawRow, Split};
use crate::recipe::DataTable;

/// A review is a page; nothing here is a megabyte.
const MOST_REVIEW: u64 = 16 << 20;

/// The reviews of some splits, in the order of their names.
pub(super) struct AclImdb {
    files: std::vec::IntoIter<(Split, u32, PathBuf)>,
}

impl AclImdb {
    pub(super) fn open(folder: &Path, table: &DataTable, wanted: &[Split]) -> Result<Self, DataError> {
        let DataTable::Classification { classes, .. } = table else { return Err(DataError::None) };
        if ![Split::Train, Split::Test].iter().any(|split| folder.join(split.name()).is_dir()) {
            return Err(DataError::Layout {
                place: folder.to_owned(),
                expected: "the folders train and test, each with a folder for each class",
                found: listed(folder),
            });
        }
        let mut files = Vec::new();
        for split in [Split::Train, Split::Validation, Split::Test] {
            let parts = folder.join(split.name());
            // There is no folder for validation as it is published.
            if !wanted.contains(&split) || (split == Split::Validation && !parts.is_dir()) {
                continue;
            }
            let before = files.len();
            for part in entries(&parts)? {
                let Some(class) = class_of_folder(classes, &part) else { continue };
                files.extend(entries(&part)?.into_iter().map(|file| (split, class, file)));
            }
            if files.len() == before {
                return Err(DataError::Layout {
                    place: parts,
                    expected: "a folder for each class, named after it",
                    found: format!("none for {}", classes.join(" or ")),
                });
            }
        }
        Ok(Self { files: files.into_iter() })
    }
}

impl Iterator for AclImdb {
    type Item = RawRow;

    fn next(&mut self) -> Option<RawRow> {
        let (split, class, file) = self.files.next()?;
        Some(read(&file).map(|text| (split, Example::Labelled { text, class })))
    }
}

fn read(file: &Path) -> Result<String, DataError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let opened = attnscope_checkpoint::open_input(file);
    let read = opened.and_then(|opened| opened.take(MOST_REVIEW).read_to_end(&mut bytes));
    read.map_err(|why| DataError::Io { file: file.to_owned(), why })?;
    let text = String::from_utf8(bytes).map_err(|_| RowFault::new(file, 1, "UTF-8", "other bytes"))?;
    if text.trim().is_empty() {
        return Err(RowFault::new(file, 1, "a text", "nothing").into());
    }
    Ok(text)
}

/// `pos` is `positive`.
fn class_of_folder(classes: &[String], folder: &Path) -> Option<u32> {
    let name = folder.file_name()?.to_str()?.to_ascii_lowercase();
    let class = classes.iter().position(|class| class.to_ascii_lowercase().starts_with(&name))?;
    u32::try_from(class).ok().filter(|_| folder.is_dir())
}

/// What is in a folder, in the order of names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let io = |why| DataError::Io { file: folder.to_owned(), why };
    let listed = std::fs::read_dir(folder).map_err(io)?;
    let mut paths =
        listed.map(|entry| Ok(entry.map_err(io)?.path())).collect::<Result<Vec<_>, DataError>>()?;
    paths.sort();
    Ok(paths)
}
