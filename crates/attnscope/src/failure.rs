//! Why a command could not be carried out, and what the user can do.

use std::fmt;

/// What ends a command with exit code 2: an `error:` line and a `help:` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The file, the place, what was expected and what was found.
    pub error: String,
    /// What to do next.
    pub help: String,
}

impl Failure {
    /// A failure with its way out.
    pub fn new(error: impl Into<String>, help: impl Into<String>) -> Self {
        Self { error: error.into(), help: help.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl std::error::Error for Failure {}

/// Errors of the libraries know their own way out.
macro_rules! from {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(e: $error) -> Self {
                Self::new(e.to_string(), e.help())
            }
        }
    )+};
}

from!(
    attnscope_checkpoint::Error,
    attnscope_diagnose::diff::DiffError,
    attnscope_diagnose::audit::AuditError,
    attnscope_run::InputError,
    attnscope_run::RunError,
    attnscope_run::ShiftError,
    attnscope_run::TokenError,
    attnscope_run::audio::AudioError,
    attnscope_run::generate::SettingsError,
    attnscope_run::trace::TraceError,
);
