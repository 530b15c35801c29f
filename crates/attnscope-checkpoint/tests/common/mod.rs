//! Files for tests: the repository's fixtures, and the larger shared ones that may be absent.

#![allow(dead_code, unreachable_pub)] // Each test binary uses its part.

use std::path::{Path, PathBuf};

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

/// A zip of stored entries, built by hand so that it can also be wrong.
#[derive(Default)]
pub struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    entries: u16,
}

impl Zip {
    pub fn entry(self, name: &str, data: &[u8]) -> Self {
        let n = data.len() as u32;
        self.raw(name, data, 0, n, n)
    }

    /// An entry with any method and any sizes in the directory.
    pub fn raw(mut self, name: &str, data: &[u8], method: u16, packed: u32, size: u32) -> Self {
        let offset = self.bytes.len() as u32;
        let mut fields = Vec::new();
        for word in [20, 0, method, 0, 0] {
            fields.extend(u16::to_le_bytes(word));
        }
        fields.extend([0; 4]);
        fields.extend(packed.to_le_bytes());
        fields.extend(size.to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend(0u16.to_le_bytes());
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&fields);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(data);
        self.directory.extend(b"PK\x01\x02\x14\x00");
        self.directory.extend(&fields);
        self.directory.extend([0; 10]);
        self.directory.extend(offset.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.entries += 1;
        self
    }

    pub fn finish(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        let offset = bytes.len() as u32;
        bytes.extend(&self.directory);
        bytes.extend(b"PK\x05\x06\0\0\0\0");
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend((self.directory.len() as u32).to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend([0, 0]);
        bytes
    }
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
