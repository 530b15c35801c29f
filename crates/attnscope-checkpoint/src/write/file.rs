//! A file that is written whole or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};
use crate::unfinished::Unfinished;

/// Writes a file by way of a temporary one beside it, renamed at the end: an error leaves nothing behind, and what was
/// there before stays as it was. A link is followed, and a file keeps its permissions. Anything but a regular file (a pipe, a
/// device) cannot be replaced and is written to directly.
///
/// # Errors
/// Those of `body`, and the system's.
pub fn write_file(path: &Path, body: impl FnOnce(&File) -> Result<(), Error>) -> Result<(), Error> {
    let at = |e| Error::new(path, ErrorKind::Write(e));
    let existing = fs::metadata(path).ok();
    if existing.as_ref().is_some_and(|meta| !meta.is_file()) {
        return body(&File::options().write(true).open(path).map_err(at)?);
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .map_or_else(|| PathBuf::from("."), Path::to_owned);
    let part = Unfinished::file(&folder).map_err(at)?;
    let file = part.handle().map_err(at)?;
    body(file)?;
    if let Some(meta) = existing {
        file.set_permissions(meta.permissions()).map_err(at)?;
    }
    // Without this, a crash soon after could leave an empty file under the new name.
    file.sync_all().map_err(at)?;
    part.commit(&target).map_err(at)
}
