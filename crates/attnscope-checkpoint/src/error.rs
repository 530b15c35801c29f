//! What can be wrong with a file, where in it, and what to do next.

use crate::remedy::Remedy;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::memory::Shortage;

/// A file that could not be opened or read, or that contradicts itself.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", shown(file))]
pub struct Error {
    /// The file at fault: a shard, not the folder it is in.
    pub file: PathBuf,
    /// What is wrong with it.
    pub kind: ErrorKind,
}

/// What can be wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The operating system refused to write.
    #[error("{0}")]
    Write(std::io::Error),
    /// No format in the table of formats starts like this.
    #[error("not a checkpoint: {found}")]
    Unrecognised {
        /// What the file looks like instead.
        found: String,
    },
    /// The file ends before something that its header announces.
    #[error("{place}: needs {need} bytes, {have} are there: the file is cut short or its header is wrong")]
    Truncated {
        /// The section or tensor that runs past the end.
        place: String,
        /// How many bytes it needs.
        need: u64,
        /// How many are left.
        have: u64,
    },
    /// The file ends before the table of its contents.
    #[error("the file is cut short: its {what}, which belongs at its end, is missing")]
    NoDirectory {
        /// What the format calls that part.
        what: &'static str,
    },
    /// A value that the format does not allow.
    #[error("{place}: expected {expected}, found {found}")]
    Invalid {
        /// The field, entry or tensor.
        place: String,
        /// What the format asks for there.
        expected: String,
        /// What the file holds.
        found: String,
    },
    /// Two entries under one name.
    #[error("tensor name {name:?} is given twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A length that the format allows, but more than this reader keeps in memory.
    #[error("{place}: {found} bytes, more than the {cap} allowed there")]
    TooLarge {
        /// The section.
        place: String,
        /// Its claimed size.
        found: u64,
        /// The most that is read.
        cap: u64,
    },
    /// Somebody wrote to the file while it was open.
    #[error("the file changed while it was read: {was} bytes when it was opened, {now} now{}", if was == now { ", written over" } else { "" })]
    Changed {
        /// Its length when it was opened.
        was: u64,
        /// Its length when the change was noticed.
        now: u64,
    },
    /// Allowed by the format, but more memory than this process may use.
    #[error("{place}: {shortage}")]
    Shortage {
        /// What the memory was for.
        place: String,
        /// What it needs and what is available.
        shortage: Shortage,
    },
    /// Memory that seemed to be free, but that the system did not give.
    #[error("{place}: there is no memory for its {need} bytes")]
    Memory {
        /// What the memory was for.
        place: String,
        /// Its bytes.
        need: u64,
    },
    /// The checksum does not match: the bytes changed since the file was written.
    #[error("{place}: checksum is {found:08x}, the file says {expected:08x}")]
    Checksum {
        /// Which of the checksums.
        place: String,
        /// The sum stored in the file.
        expected: u32,
        /// The sum of the bytes in the file.
        found: u32,
    },
    /// A file that an output must not replace.
    #[error("{what}, and is not overwritten")]
    Kept {
        /// Why not.
        what: String,
        /// Whether it is replaced where the user says so.
        may_be_replaced: bool,
    },
    /// A recipe, whose tensors have no values before training.
    #[error("this is a recipe: its tensors have shapes, and no values before they are trained")]
    Untrained,
    /// A well-formed file that this program does not read, or cannot write without loss.
    #[error("{what}")]
    Unsupported {
        /// What it is.
        what: String,
        /// What the user can do about it.
        help: String,
    },
}

impl Error {
    /// An error about `file`.
    pub fn new(file: impl AsRef<Path>, kind: impl Into<ErrorKind>) -> Self {
        Self { file: file.as_ref().to_owned(), kind: kind.into() }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match &self.kind {
            ErrorKind::Io(e) | ErrorKind::Write(e) if limit_help(e).is_some() => {
                limit_help(e).unwrap_or_default().into()
            }
            ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::NotFound => {
                "give a checkpoint file, a folder that holds one, or `demo`; a model of the Hugging Face hub is fetched first, \
                 with `hf download NAME --local-dir FOLDER`"
                    .into()
            }
            ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                "you may not read it: check the permissions of the file and of the folders above it".into()
            }
            ErrorKind::Io(_) => "check that the file can be read by you".into(),
            ErrorKind::Write(_) => {
                "check that the folder exists, that you may write to it, and that the disk has space".into()
            }
            ErrorKind::Unrecognised { .. } => {
                format!("formats that are read: {}", crate::Format::list()).into()
            }
            ErrorKind::NoDirectory { .. } => {
                "fetch or write the file again, to its end: compare its size with that of the original".into()
            }
            ErrorKind::Truncated { .. } | ErrorKind::Checksum { .. } => {
                "the copy is damaged: fetch or write the file again".into()
            }
            ErrorKind::Invalid { .. } | ErrorKind::Duplicate { .. } | ErrorKind::TooLarge { .. } => {
                "the file does not follow its format: write it again with the tool that made it".into()
            }
            ErrorKind::Changed { .. } => {
                "wait until the program that writes it is done, or give a copy, then run it again".into()
            }
            ErrorKind::Shortage { shortage, .. } => shortage.remedy(),
            ErrorKind::Memory { .. } => "free some memory, or run it on a machine with more".into(),
            ErrorKind::Kept { may_be_replaced: true, .. } => Remedy::OtherOutput,
            ErrorKind::Kept { may_be_replaced: false, .. } => {
                "give another name for the output, or move that file away first".into()
            }
            ErrorKind::Untrained => Remedy::TrainFirst(self.file.display().to_string()),
            ErrorKind::Unsupported { help, .. } => help.clone().into(),
        }
    }
}

/// A file's name in quotation marks where it is empty, so that it can be seen.
fn shown(file: &Path) -> std::path::Display<'_> {
    if file.as_os_str().is_empty() { Path::new("\"\"").display() } else { file.display() }
}

/// What to do where the disk is full or too many files are open, whatever the file is.
pub fn limit_help(e: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind as Kind;
    match e.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => {
            Some("free some space on that disk, or write to another one; no part of the file was left there")
        }
        Kind::FileTooLarge => Some(
            "raise the limit on the size of a file (`ulimit -f`), or write to a disk that holds larger ones; no part of the file was left there",
        ),
        _ if too_many_open(e) => Some(
            "raise the number of files that may be open at once, as with `ulimit -n 4096`, and run it again",
        ),
        _ => None,
    }
}

#[cfg(unix)]
fn too_many_open(e: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(not(unix))]
fn too_many_open(_: &std::io::Error) -> bool {
    false
}

impl ErrorKind {
    /// A field that does not hold what it must.
    pub(crate) fn invalid(
        place: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Self::Invalid { place: place.into(), expected: expected.to_string(), found: found.to_string() }
    }
}
