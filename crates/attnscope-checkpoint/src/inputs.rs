//! Which files this process has read, so that no output overwrites one of them.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Identifies a file, whatever its name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Identity {
    #[cfg(unix)]
    place: (u64, u64),
    #[cfg(not(unix))]
    place: std::path::PathBuf,
    /// The inode number of a deleted file may be reused; the time of creation then differs.
    made: Option<std::time::SystemTime>,
}

impl Identity {
    /// `None` for anything but a regular file: writing to a pipe or a terminal destroys nothing.
    fn of(path: &Path, meta: &Metadata) -> Option<Self> {
        if !meta.is_file() {
            return None;
        }
        Some(Self { place: place(path, meta)?, made: meta.created().ok() })
    }
}

#[cfg(unix)]
fn place(_: &Path, meta: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn place(path: &Path, _: &Metadata) -> Option<std::path::PathBuf> {
    fs::canonicalize(path).ok()
}

fn noted() -> MutexGuard<'static, HashSet<Identity>> {
    static NOTED: OnceLock<Mutex<HashSet<Identity>>> = OnceLock::new();
    NOTED.get_or_init(Default::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a file for reading and notes it: [`crate::check_output`] refuses it from then on.
///
/// # Errors
/// Those of the system.
pub fn open_input(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    noted().extend(Identity::of(path, &file.metadata()?));
    Ok(file)
}

/// Notes a file that belongs to the model but is not opened, such as its tokenizer.
pub(crate) fn note(path: &Path) {
    noted().extend(fs::metadata(path).ok().and_then(|meta| Identity::of(path, &meta)));
}

/// Whether a file was read by this process or belongs to a model that was.
pub(crate) fn is_input(path: &Path, meta: &Metadata) -> bool {
    Identity::of(path, meta).is_some_and(|identity| noted().contains(&identity))
}
