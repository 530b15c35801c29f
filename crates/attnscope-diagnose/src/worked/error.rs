//! Why a file is not a worked example.

use attnscope_checkpoint::Remedy;

/// What is wrong, and where. The file's name is the caller's to add.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", .place.as_deref().map(|p| format!("{p}: ")).unwrap_or_default())]
pub struct ExampleError {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// Which part of the example: `given.W_Q`.
    pub place: Option<String>,
    /// What was expected and what was found.
    pub what: String,
    /// What to do next.
    pub remedy: Remedy,
    /// For a name that is not known.
    pub unknown: Option<Box<UnknownName>>,
}

/// A name, and those that it could have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// As it was written.
    pub name: String,
    /// What is known there.
    pub known: Vec<&'static str>,
}

impl ExampleError {
    pub(super) fn new(
        line: Option<usize>,
        place: &str,
        what: impl Into<String>,
        remedy: impl Into<Remedy>,
    ) -> Self {
        let place = (!place.is_empty()).then(|| place.to_owned());
        Self { line, place, what: what.into(), remedy: remedy.into(), unknown: None }
    }
}
