//! Why two runs could not be compared.

use std::path::PathBuf;

use attnscope_checkpoint::Remedy;
use attnscope_run::RunError;
use attnscope_run::trace::TraceError;

/// Why a comparison failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A side could not be read.
    #[error(transparent)]
    Side(#[from] TraceError),
    /// A tensor could not be read.
    #[error(transparent)]
    Tensor(#[from] attnscope_checkpoint::Error),
    /// A weight could not be read.
    #[error(transparent)]
    Weight(#[from] RunError),
    /// It was ended from outside.
    #[error("this comparison was cancelled")]
    Cancelled,
    /// No tensor of one side belongs to a tensor of the other.
    #[error("{} and {} have no tensor in common: the one begins {}, the other {}", .a.0.display(), .b.0.display(), .a.1, .b.1)]
    NothingMatched {
        /// A, and its first names.
        a: (PathBuf, String),
        /// B, and its first names.
        b: (PathBuf, String),
        /// Lines of a map that may fit.
        proposal: Vec<String>,
    },
    /// Names match, but no shape fits.
    #[error("{} and {} have tensors of the same names, and none of a shape that fits: {} has the shape {:?} in one and {:?} in the other", .a.display(), .b.display(), .differing.0, .differing.1[0], .differing.1[1])]
    OtherShapes {
        /// A.
        a: PathBuf,
        /// B.
        b: PathBuf,
        /// One of them, and its shape in A, or in the model, and in B.
        differing: (String, [Vec<usize>; 2]),
    },
    /// A map that cannot be understood.
    #[error("{}: {place}: expected {expected}, found {found}", .path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: String,
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: String,
    },
}

impl DiffError {
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Side(e) => e.remedy(),
            Self::Tensor(e) => e.remedy(),
            Self::Weight(e) => e.remedy(),
            Self::Cancelled => "start it again".into(),
            Self::NothingMatched { .. } => Remedy::NameMap,
            Self::OtherShapes { .. } => Remedy::SameModel,
            Self::Map { .. } => "write two names per line, with `=` or spaces between them".into(),
        }
    }
}
