//! Which files this process has read, so that no output overwrites one of them.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{Error, ErrorKind};
use crate::format;

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

/// Opens a file for reading and notes it: [`check_output`] refuses it from then on.
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

/// Whether a result may be written to a file: it must not overwrite an input of this process, a model or tensors.
///
/// # Errors
/// When it is one of these, or a folder.
pub fn check_output(path: &Path) -> Result<(), Error> {
    let refused = |what: String, help: &str| {
        Err(Error::new(path, ErrorKind::Unsupported { what, help: help.to_owned() }))
    };
    // A file that does not exist or cannot be read is left to the writer.
    let Ok(meta) = fs::metadata(path) else { return Ok(()) };
    if meta.is_dir() {
        return refused(
            "expected the name of a file, found a folder".into(),
            "give the name of a file in it",
        );
    }
    let Some(identity) = Identity::of(path, &meta) else { return Ok(()) };
    if noted().contains(&identity) {
        let what = "it is an input of this command or a file of its model, and is not overwritten";
        return refused(what.into(), "give another name for the output");
    }
    match format::tensors_in(path) {
        Some(format) => refused(
            format!("it holds a model or tensors ({format}), and is not overwritten"),
            "give another name for the output, or move that file away first",
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_refused_under_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("read"), "text").unwrap();
        fs::write(at("other"), "text").unwrap();
        fs::hard_link(at("read"), at("link")).unwrap();
        check_output(&at("read")).unwrap();
        open_input(&at("read")).unwrap();
        for name in ["read", "link", "./read"] {
            let error = check_output(&at(name)).unwrap_err();
            assert!(error.to_string().contains("an input of this command"), "{error}");
        }
        check_output(&at("other")).unwrap();
        check_output(&at("absent")).unwrap();
        assert!(check_output(folder.path()).unwrap_err().to_string().contains("a folder"));
    }

    #[test]
    fn tensors_of_any_program_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cases: [(&[u8], &str); 5] = [
            (b"GGUF\x03\0\0\0", "gguf"),
            (b"\x93NUMPY\x01\0", "npy"),
            (b"\x89HDF\r\n\x1a\n", "HDF5"),
            (b"\x08\x07\x12\x07pytorch\x3a\x02", "ONNX"),
            (b"APRN\x01\0", "apr"),
        ];
        for (bytes, name) in cases {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let error = check_output(&path).unwrap_err();
            assert!(error.to_string().contains(&format!("({name})")), "{error}");
        }
        for text in ["", "{\"schema\": 1}", "plain text"] {
            let path = folder.path().join("text");
            fs::write(&path, text).unwrap();
            check_output(&path).unwrap();
        }
    }
}
