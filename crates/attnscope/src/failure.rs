//! Why something could not be done, and what the user can do.

use std::fmt;

use attnscope_checkpoint::{ErrorKind, Remedy};
use attnscope_diagnose::diff::DiffError;
use attnscope_diagnose::recompute::RecomputeError;
use attnscope_run::RunError;

/// An error; a command ends with exit code 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The file or the model, where the argument comes after it.
    pub place: Option<String>,
    /// Which argument of the call it is about; the front end puts its name for it before the error.
    pub argument: Option<Argument>,
    /// The place, what was expected and what was found.
    pub error: String,
    /// What to do next.
    pub remedy: Remedy,
    /// What kind of failure it is, for a caller that acts on it.
    pub kind: FailureKind,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// What was asked for cannot be done: a file, an input or an argument is not what is needed.
    #[default]
    Refused,
    /// There is not enough memory for it.
    Memory,
    /// It was ended from outside: [`Cancel::cancel`](crate::Cancel::cancel).
    Cancelled,
}

/// An argument of a call, with what was given. Which flag it is, only the command line knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// The row of a batch.
    Row(usize),
    /// The head of an attention.
    Head(usize),
    /// The layer that a walk opens.
    LayerIndex(usize),
    /// A selector of nodes.
    Selector(String),
    /// The stops of a walk.
    Stops,
    /// The indices of a cell.
    Cell,
    /// Edits of the wiring; one of them, where it is about one.
    Wiring(Option<String>),
    /// The language of the source.
    SourceLanguage(String),
    /// The language of the target.
    TargetLanguage(String),
    /// Times in a transcript.
    Times,
    /// The heads of an alignment.
    AlignmentHeads,
    /// A recording.
    Audio,
    /// Features of a recording.
    Features,
    /// The pairs, in the middle of a sentence.
    Pairs,
    /// All pairs together.
    AllPairs,
    /// The rules to check; one of them, where it is about one.
    Rule(Option<String>),
    /// The tolerance of a comparison, as text.
    Tolerance(String),
    /// The sentences that are followed at once.
    Beams(usize),
    /// The most tokens that are written.
    MaxLength(usize),
    /// The gradients of tensors.
    Gradients,
    /// The class of each row.
    Classes,
}

impl Failure {
    /// A failure with its remedy.
    pub fn new(error: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self {
            place: None,
            argument: None,
            error: error.into(),
            remedy: remedy.into(),
            kind: FailureKind::default(),
        }
    }

    /// The same about an argument.
    #[must_use]
    pub fn about(self, argument: Argument) -> Self {
        Self { argument: Some(argument), ..self }
    }

    /// The same of a file or model, which is named first.
    #[must_use]
    pub fn of(self, place: &str) -> Self {
        Self { place: Some(place.to_owned()), ..self }
    }

    /// The same with another remedy.
    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<Remedy>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if let Some(argument) = &self.argument {
            write!(f, "{argument} ")?;
        }
        f.write_str(&self.error)
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(row) => write!(f, "row {row}:"),
            Self::Head(head) => write!(f, "head {head}:"),
            Self::LayerIndex(index) => write!(f, "layer {index}:"),
            Self::Selector(pattern) => write!(f, "the selector {pattern:?}"),
            Self::Stops => f.write_str("the stops of the walk:"),
            Self::Cell => f.write_str("the cell:"),
            Self::Wiring(None) => f.write_str("the wiring:"),
            Self::Wiring(Some(edit)) => write!(f, "the wiring {edit}:"),
            Self::SourceLanguage(code) => write!(f, "the source's language {code}:"),
            Self::TargetLanguage(code) => write!(f, "the target's language {code}:"),
            Self::Times => f.write_str("a transcript with times"),
            Self::AlignmentHeads => f.write_str("the alignment's heads:"),
            Self::Audio => f.write_str("a recording"),
            Self::Features => f.write_str("a file of features"),
            Self::Pairs => f.write_str("a file of clips"),
            Self::AllPairs => f.write_str("the pairs:"),
            Self::Rule(None) => f.write_str("the rules:"),
            Self::Rule(Some(rule)) => write!(f, "the rule {rule}:"),
            Self::Tolerance(tolerance) => write!(f, "the tolerance {tolerance}:"),
            Self::Beams(beams) => write!(f, "{beams} beams:"),
            Self::MaxLength(length) => write!(f, "at most {length} tokens:"),
            Self::Gradients => f.write_str("gradients:"),
            Self::Classes => f.write_str("the classes:"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        Self { kind: kind_of(&e), ..Self::new(e.to_string(), e.remedy()) }
    }
}

impl From<RecomputeError> for Failure {
    fn from(e: RecomputeError) -> Self {
        let kind = if let RecomputeError::Run(e) = &e { kind_of(e) } else { FailureKind::default() };
        Self { kind, ..Self::new(e.to_string(), e.remedy()) }
    }
}

impl From<attnscope_corpus::AuditError> for Failure {
    fn from(e: attnscope_corpus::AuditError) -> Self {
        let kind = match &e {
            attnscope_corpus::AuditError::Run(e) => kind_of(e),
            _ => FailureKind::default(),
        };
        Self { kind, ..Self::new(e.to_string(), e.remedy()) }
    }
}

impl From<DiffError> for Failure {
    fn from(e: DiffError) -> Self {
        let kind = if let DiffError::Cancelled = e { FailureKind::Cancelled } else { FailureKind::default() };
        Self { kind, ..Self::new(e.to_string(), e.remedy()) }
    }
}

fn kind_of(error: &RunError) -> FailureKind {
    match error {
        RunError::Cancelled => FailureKind::Cancelled,
        RunError::Memory(_) | RunError::OutOfMemory { .. } => FailureKind::Memory,
        RunError::Checkpoint(e)
            if matches!(e.kind, ErrorKind::Shortage { .. } | ErrorKind::Memory { .. }) =>
        {
            FailureKind::Memory
        }
        _ => FailureKind::Refused,
    }
}

/// Errors of the libraries have their own remedy.
macro_rules! from {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(e: $error) -> Self {
                Self::new(e.to_string(), e.remedy())
            }
        }
    )+};
}

from!(
    attnscope_checkpoint::Error,
    attnscope_run::InputError,
    attnscope_run::ShiftError,
    attnscope_run::TokenError,
    attnscope_run::audio::AudioError,
    attnscope_run::generate::SettingsError,
    attnscope_run::trace::TraceError,
    attnscope_train::TrainError,
);
