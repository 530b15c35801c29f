//! A rule: what it reports, why, how it is measured, by which number it decides, what to try; and its check.

use attnscope_checkpoint::Remedy;
use serde_json::Map;

use crate::finding::{Finding, Severity};
use crate::measure::{Measure, Outcome};
use crate::rule_context::RuleContext;

/// One rule. Its texts are what `explain RULE` says and what the rules' page is made of.
#[derive(Debug)]
pub struct Rule {
    /// Its name: the defect, in kebab case.
    pub id: &'static str,
    /// How bad its findings are, unless one says otherwise.
    pub severity: Severity,
    /// What it reports.
    pub what: &'static str,
    /// Why that matters.
    pub why: &'static str,
    /// How it is measured.
    pub how: &'static str,
    /// The number that it decides by, and where that comes from.
    pub threshold: &'static str,
    /// What to try.
    pub try_next: &'static str,
    pub(crate) check: for<'a> fn(&RuleContext<'a>) -> Checked,
}

/// What a check gives: findings, perhaps none, and what was measured; or why it could not be made.
pub(crate) type Checked = Result<Outcome, NotChecked>;

/// A rule that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotChecked {
    /// What is missing.
    pub why: String,
    /// How to have it checked.
    pub how: Remedy,
}

impl NotChecked {
    pub(crate) fn new(why: impl Into<String>, how: impl Into<Remedy>) -> Self {
        Self { why: why.into(), how: how.into() }
    }

    /// A rule about attention, of a model that has none.
    pub(crate) fn no_attention() -> Self {
        Self::new("the model has no attention", "the rule is for models with attention")
    }

    /// A rule about cross-attention, of a model that has none.
    pub(crate) fn no_cross_attention() -> Self {
        Self::new("the model has no cross-attention", "the rule is for encoder-decoders")
    }
}

impl From<&attnscope_run::RunError> for NotChecked {
    fn from(e: &attnscope_run::RunError) -> Self {
        Self::new(e.to_string(), e.remedy())
    }
}

impl Rule {
    /// A number that this rule computed, reported with its findings.
    pub(crate) fn measure(&self, name: &'static str, number: f64) -> Measure {
        Measure {
            rule: self.id,
            name,
            node: None,
            slice: None,
            number,
            threshold: None,
            words: None,
            fields: Map::new(),
        }
    }

    /// A finding of this rule, with the rule's own severity and advice.
    pub(crate) fn finding(&self, evidence: impl Into<String>) -> Finding {
        Finding {
            rule: self.id,
            severity: self.severity,
            node: None,
            slice: None,
            number: None,
            threshold: None,
            evidence: evidence.into(),
            try_next: self.try_next.to_owned(),
            extra: Map::new(),
        }
    }
}
