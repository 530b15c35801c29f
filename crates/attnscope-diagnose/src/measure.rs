//! What a rule measured: reported whether or not it is a finding, so that a healthy model has numbers, too.

use serde_json::{Map, Value};

use crate::finding::Finding;

/// One number that a rule computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// The rule's id.
    pub rule: &'static str,
    /// What the number is: `source_cost`, `entropy`.
    pub name: &'static str,
    /// Where: a node's path, or a weight's.
    pub node: Option<String>,
    /// Which part of it: `head 2`.
    pub slice: Option<String>,
    /// The number.
    pub number: f64,
    /// The rule's threshold.
    pub threshold: Option<f64>,
    /// The same in words, for the one measure of a rule that a report prints; the others, one per head or sublayer, are printed
    /// on demand and have no words.
    pub words: Option<String>,
    /// More details, for programs.
    pub fields: Map<String, Value>,
}

impl Measure {
    pub(crate) fn at(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    pub(crate) fn slice(mut self, slice: impl Into<String>) -> Self {
        self.slice = Some(slice.into());
        self
    }

    pub(crate) fn threshold(mut self, threshold: f64) -> Self {
        self.threshold = Some(threshold);
        self
    }

    pub(crate) fn words(mut self, words: impl Into<String>) -> Self {
        self.words = Some(words.into());
        self
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }
}

/// The result of a rule.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) findings: Vec<Finding>,
    pub(crate) measures: Vec<Measure>,
}

impl Outcome {
    pub(crate) fn measured(mut self, measures: impl IntoIterator<Item = Measure>) -> Self {
        self.measures.extend(measures);
        self
    }
}

impl From<Vec<Finding>> for Outcome {
    fn from(findings: Vec<Finding>) -> Self {
        Self { findings, measures: Vec::new() }
    }
}

impl FromIterator<Finding> for Outcome {
    fn from_iter<I: IntoIterator<Item = Finding>>(findings: I) -> Self {
        findings.into_iter().collect::<Vec<_>>().into()
    }
}
