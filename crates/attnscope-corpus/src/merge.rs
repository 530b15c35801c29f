//! Joins the shards of an audit in one folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Error, ErrorKind, write_file};

use crate::error::AuditError;
use crate::folder::{AuditFolder, Manifest, Shard};
use crate::reading::Reject;
use crate::summary::kernel_rejects;

/// Copies the parts of shards into one folder. Nothing is written before all parts are known to be there, each once.
///
/// # Errors
/// When the shards are not of one audit, a part is missing or in two of them, or the folder is not empty.
pub fn merge(shards: &[PathBuf], out: &Path) -> Result<AuditFolder, AuditError> {
    let folders = shards.iter().map(|path| AuditFolder::open(path)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = folders.first() else { return Err(AuditError::NoAudit { folder: out.to_owned() }) };
    let whole = Manifest { shard: Shard::WHOLE, ..first.manifest().clone() };
    let mut parts: BTreeMap<usize, &AuditFolder> = BTreeMap::new();
    for folder in &folders {
        let as_whole = Manifest { shard: Shard::WHOLE, ..folder.manifest().clone() };
        whole.check(folder.path(), &as_whole)?;
        for part in (0..whole.parts).filter(|&part| folder.part(part).is_file()) {
            if let Some(other) = parts.insert(part, folder) {
                let (first, second) = (other.path().to_owned(), folder.path().to_owned());
                return Err(AuditError::Twice { part, first, second });
            }
        }
    }
    let missing: Vec<usize> = (0..whole.parts).filter(|part| !parts.contains_key(part)).collect();
    if !missing.is_empty() {
        let folder = first.path().to_owned();
        return Err(AuditError::Missing { folder, missing, total: whole.parts, sharded: true });
    }
    let merged = AuditFolder::begin(out, whole, false)?;
    for (part, folder) in parts {
        copy(&folder.part(part), &merged.part(part))?;
    }
    // What was rejected as it was read is the same in every shard.
    let mut rejects = first.rejects()?;
    for reject in kernel_rejects(&merged)? {
        if !rejects.contains(&reject) {
            rejects.push(reject);
        }
    }
    write_all_rejects(&merged, rejects)?;
    Ok(merged)
}

/// The rows that could not be measured, in the order of the corpus.
pub(crate) fn write_all_rejects(folder: &AuditFolder, mut rejects: Vec<Reject>) -> Result<(), AuditError> {
    rejects.sort_by_key(|reject| reject.row);
    folder.write_rejects(&rejects)
}

fn copy(from: &Path, to: &Path) -> Result<(), AuditError> {
    // A second name for the same file costs nothing; other file systems get a copy.
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    let mut source = File::open(from).map_err(|why| AuditError::io(from, why))?;
    let copied = write_file(to, |mut file| {
        std::io::copy(&mut source, &mut file).map(drop).map_err(|e| Error::new(to, ErrorKind::Write(e)))
    });
    Ok(copied?)
}
