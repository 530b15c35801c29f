//! Why a trace could not be written or read.

use attnscope_checkpoint::Remedy;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::limit_help;

/// What went wrong, and with which file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Something with the trace's name already exists.
    #[error("{}: expected nothing there, found {found}", .path.display())]
    Exists {
        /// The folder that was to be made.
        path: PathBuf,
        /// What was found there.
        found: &'static str,
    },
    /// The operating system refused.
    #[error("{}: {why}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        why: std::io::Error,
    },
    /// A folder that is not a trace, or a damaged one.
    #[error("{}: {place}: expected {expected}, found {found}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: String,
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: String,
    },
    /// A planned tensor was never computed.
    #[error("{}: the run ended before every tensor was written", .path.display())]
    Incomplete {
        /// The folder that was to be made.
        path: PathBuf,
    },
    /// The tensors could not be read.
    #[error(transparent)]
    Tensors(#[from] attnscope_checkpoint::Error),
}

impl TraceError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |why| Self::Io { path, why }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Exists { .. } => {
                "give the name of a folder that does not exist yet, or remove this one".into()
            }
            Self::Io { why, .. } if why.kind() == std::io::ErrorKind::StorageFull => Remedy::SaveLess,
            Self::Io { why, .. } if limit_help(why).is_some() => limit_help(why).unwrap_or_default().into(),
            Self::Io { .. } => "check the path and that you may read and write there".into(),
            Self::Invalid { .. } => Remedy::SavedTrace,
            Self::Incomplete { .. } => "run it again; nothing was left behind".into(),
            Self::Tensors(e) => e.remedy(),
        }
    }
}
