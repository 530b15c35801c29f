//! The bytes of one file, mapped or in memory.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};

/// A file's bytes and the name under which errors speak of them.
#[derive(Debug)]
pub(crate) struct Source {
    name: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped { map: memmap2::Mmap, file: File },
    Memory(Cow<'static, [u8]>),
}

impl Source {
    /// Maps a file; nothing is read yet.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let at = |e| Error::new(path, ErrorKind::Io(e));
        // Asked before opening: opening a pipe would wait for a writer.
        let meta = std::fs::metadata(path).map_err(at)?;
        if !meta.is_file() {
            return Err(Error::new(path, ErrorKind::Unrecognised { found: "not a regular file".into() }));
        }
        if meta.len() == 0 {
            return Err(Error::new(path, ErrorKind::Unrecognised { found: "the file is empty".into() }));
        }
        let file = File::open(path).map_err(at)?;
        Ok(Self { name: path.to_owned(), bytes: Bytes::Mapped { map: map(&file).map_err(at)?, file } })
    }

    /// Bytes that are already here: the embedded model, a fuzzer's input.
    pub(crate) fn memory(name: impl Into<PathBuf>, bytes: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { name: name.into(), bytes: Bytes::Memory(bytes.into()) }
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped { map, .. } => map,
            Bytes::Memory(bytes) => bytes,
        }
    }

    /// The file behind a map, for reads that should not leave its pages resident in this process.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.bytes {
            Bytes::Mapped { file, .. } => Some(file),
            Bytes::Memory(_) => None,
        }
    }

    /// An error about this file.
    pub(crate) fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(&self.name, kind)
    }
}

/// The one `unsafe` of this crate's readers. A map is undefined behaviour if another process changes the file
/// while it is mapped; every reader of large checkpoints takes that risk, since the alternative is to copy
/// gigabytes in order to read a header.
#[allow(unsafe_code)]
fn map(file: &File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: the file is opened for reading only and is not written by this process.
    unsafe { memmap2::Mmap::map(file) }
}
