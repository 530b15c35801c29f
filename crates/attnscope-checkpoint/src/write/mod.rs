//! Writes checkpoints, a piece of a tensor at a time, to a temporary file that takes its name only when it is
//! whole.

mod apr;
mod file;
mod npz;
mod safetensors;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value};

pub use file::write_file;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::read::fields::elements;
use crate::values::Sink;

/// A format that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Hugging Face's safetensors, in one file.
    Safetensors,
    /// `.apr`, version 2, with both checksums.
    Apr,
    /// NumPy's zip of arrays, not compressed.
    Npz,
}

impl Target {
    /// Whether the format can hold elements of this type as they are.
    pub fn holds(self, dtype: DType) -> bool {
        match self {
            Self::Safetensors => safetensors::name(dtype).is_some(),
            Self::Apr => apr::holds(dtype),
            Self::Npz => npz::name(dtype).is_some(),
        }
    }

    /// Whether the format has a place for metadata.
    pub fn holds_metadata(self) -> bool {
        self != Self::Npz
    }

    /// The name shown to the user.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Apr => "apr",
            Self::Npz => "npz",
        }
    }
}

/// Writes a tensor's bytes, row-major and contiguous, to a sink. It is called once, when the tensor is written.
pub type Provider<'a> = Box<dyn Fn(&mut Sink<'_>) -> Result<(), Error> + 'a>;

/// A tensor to be written.
pub struct Entry<'a> {
    /// Its name.
    pub name: String,
    /// How its elements are stored, before and after.
    pub dtype: DType,
    /// Its shape, slowest dimension first.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub bytes: Provider<'a>,
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {} {:?}", self.name, self.dtype, self.shape)
    }
}

impl Entry<'_> {
    fn size(&self) -> Result<u64, ErrorKind> {
        let place = format!("tensor {:?}", self.name);
        let size = self.dtype.bytes_for(elements(&self.shape, &place)?);
        size.map(|n| n as u64).ok_or_else(|| {
            let expected = format!("a shape that fills whole blocks of {}", self.dtype);
            ErrorKind::invalid(place, expected, format!("{:?}", self.shape))
        })
    }
}

/// Writes `entries` and `metadata` to `path`. Nothing is left behind on an error, and a file that was there
/// before stays as it was. Whether it may be replaced is for [`crate::check_output`] to say.
pub fn write(
    target: Target,
    path: &Path,
    entries: Vec<Entry<'_>>,
    metadata: &Map<String, Value>,
) -> Result<(), Error> {
    check(target, &entries, metadata).map_err(|kind| Error::new(path, kind))?;
    write_file(path, |file| {
        let mut out = Out { file: BufWriter::with_capacity(1 << 20, file), path, written: 0 };
        match target {
            Target::Safetensors => safetensors::write(&mut out, entries, metadata)?,
            Target::Apr => apr::write(&mut out, entries, metadata)?,
            Target::Npz => npz::write(&mut out, &entries)?,
        }
        out.file.flush().map_err(|e| Error::new(path, ErrorKind::Write(e)))
    })
}

/// Everything that can be refused before a byte is written.
fn check(target: Target, entries: &[Entry<'_>], metadata: &Map<String, Value>) -> Result<(), ErrorKind> {
    if !metadata.is_empty() && !target.holds_metadata() {
        let what = format!("{} has no place for metadata ({} keys)", target.name(), metadata.len());
        return Err(ErrorKind::Unsupported { what, help: "choose safetensors or apr".into() });
    }
    let mut seen = HashSet::new();
    for entry in entries {
        if !seen.insert(entry.name.as_str()) {
            return Err(ErrorKind::Duplicate { name: entry.name.clone() });
        }
        if !target.holds(entry.dtype) {
            let what = format!("{} cannot hold tensor {:?} of {}", target.name(), entry.name, entry.dtype);
            let help = "choose a format that holds it, or allow its values to be widened".into();
            return Err(ErrorKind::Unsupported { what, help });
        }
        entry.size()?;
    }
    Ok(())
}

/// The file being written. Its errors are about the target, not about a tensor's source.
struct Out<'a> {
    file: BufWriter<&'a File>,
    path: &'a Path,
    written: u64,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|e| self.error(ErrorKind::Write(e)))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(self.path, kind)
    }
}

/// Writes an entry to `put` and checks that it has the size given in the headers.
fn pour(entry: &Entry<'_>, path: &Path, put: &mut Sink<'_>) -> Result<(), Error> {
    let size = entry.size().map_err(|kind| Error::new(path, kind))?;
    let mut poured = 0;
    (entry.bytes)(&mut |bytes| {
        poured += bytes.len() as u64;
        put(bytes)
    })?;
    if poured == size {
        return Ok(());
    }
    let place = format!("tensor {:?}", entry.name);
    Err(Error::new(path, ErrorKind::invalid(place, format!("{size} bytes"), poured)))
}

#[cfg(test)]
mod tests;
