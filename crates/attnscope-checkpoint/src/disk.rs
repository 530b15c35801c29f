//! How much space the disk has.

use std::path::Path;

/// Bytes that may still be written to the file system of a folder; `None` where that cannot be found out.
#[cfg(unix)]
pub(crate) fn free_space(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes that may still be written to the file system of a folder; `None` where that cannot be found out.
#[cfg(not(unix))]
pub(crate) fn free_space(_folder: &Path) -> Option<u64> {
    None
}
