//! Files for tests: the repository's fixtures, and the larger shared ones that may be absent.

#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.

mod zip;

use std::path::{Path, PathBuf};

pub use zip::Zip;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of `fixtures/formats`.
pub fn fixture(name: &str) -> PathBuf {
    root().join("fixtures/formats").join(name)
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

/// A torch file with this pickle and one storage of 16 bytes.
pub fn torch(pickle: &[u8]) -> Vec<u8> {
    Zip::default().entry("a/data.pkl", pickle).entry("a/data/0", &[0; 16]).finish()
}

/// The pickle text that pushes a float tensor of storage 0 with this offset, shape and strides (protocol 0).
pub fn tensor(offset: &str, shape: &str, strides: &str) -> String {
    format!(
        "ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\ntQ\
         {offset}({shape}t({strides}tI00\nNtR"
    )
}

/// A safetensors file of this header and this many bytes of data.
pub fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}
