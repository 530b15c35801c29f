//! What a rule found in a model: one value for all renderers.

use serde::Serialize;
use serde_json::{Map, Value};

/// How bad it is. Errors come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The model cannot work as intended.
    Error,
    /// Something is wrong, and the output may suffer.
    Warning,
    /// Worth knowing, but not wrong by itself.
    Info,
}

impl Severity {
    /// Every severity, the worst first.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Info];

    /// Its name in JSON and in print.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// One thing that a rule has found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The rule's id.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where: a node's path, or a weight's.
    pub node: Option<String>,
    /// Which part of it: `head 2`, `[0, 3, 7]`.
    pub slice: Option<String>,
    /// What was measured.
    pub number: Option<f64>,
    /// The threshold.
    pub threshold: Option<f64>,
    /// What was seen, in a sentence.
    pub evidence: String,
    /// What to do next.
    pub try_next: String,
    /// More details for programs, under keys of the rule.
    pub extra: Map<String, Value>,
}

impl Finding {
    /// The finding at a node or a weight.
    pub(crate) fn at(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    pub(crate) fn slice(mut self, slice: impl Into<String>) -> Self {
        self.slice = Some(slice.into());
        self
    }

    /// What was measured, and against what.
    pub(crate) fn number(mut self, number: f64, threshold: f64) -> Self {
        (self.number, self.threshold) = (Some(number), Some(threshold));
        self
    }

    pub(crate) fn try_next(mut self, what: impl Into<String>) -> Self {
        self.try_next = what.into();
        self
    }

    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(key.to_owned(), value.into());
        self
    }
}
