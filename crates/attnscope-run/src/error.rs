//! Why a run could not be made.

use attnscope_checkpoint::Error as CheckpointError;

/// What stands in the way of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The checkpoint draws and does not run.
    #[error("this model does not run: {0}")]
    Obstacle(String),
    /// A tensor could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Token ids that the model cannot read.
    #[error(transparent)]
    Tokens(#[from] crate::input::InputError),
    /// The input does not fit the model.
    #[error("{place}: {found}, but {expected}")]
    Input {
        /// Which part of the input.
        place: String,
        /// What was given.
        found: String,
        /// What the model can take.
        expected: String,
        /// What to do next.
        help: String,
    },
    /// A captured tensor could not be put where it should go.
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
}

impl RunError {
    /// What the user can do next, for the `help:` line.
    pub fn help(&self) -> String {
        match self {
            Self::Obstacle(_) => "`attnscope inspect` lists what is missing, and who says what".into(),
            Self::Checkpoint(e) => e.help(),
            Self::Tokens(e) => e.help(),
            Self::Input { help, .. } => help.clone(),
            Self::Trace(e) => e.help(),
        }
    }
}
