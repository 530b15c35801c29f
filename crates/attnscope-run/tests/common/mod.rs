//! Files for tests: the repository's fixtures, and the larger shared ones that may be absent.

#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of `fixtures`.
pub fn fixture(name: &str) -> PathBuf {
    root().join("fixtures").join(name)
}

/// A file outside the repository. Every skip for want of one goes through here.
pub fn shared(name: &str) -> Option<PathBuf> {
    let base = std::env::var_os("ATTNSCOPE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let path = base.join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} not found", path.display());
    None
}
