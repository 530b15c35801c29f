//! Runs every rule on one model: what was found, what was checked, what was not and why.

use attnscope_run::RunError;

use crate::finding::{Finding, Severity};
use crate::measure::Measure;
use crate::rule::{NotChecked, Rule};
use crate::rule_context::{RuleContext, RuleInput};
use crate::wiring::Search;

/// The result of all rules.
#[derive(Debug)]
pub struct Diagnosis {
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What the rules measured, in their order, whatever they found.
    pub measures: Vec<Measure>,
    /// The rules that were checked.
    pub checked: Vec<&'static str>,
    /// Those that were not, and why.
    pub not_checked: Vec<(&'static str, NotChecked)>,
    /// The results of the declared wiring and of all others, where they were tried.
    pub search: Option<Search>,
}

impl Diagnosis {
    /// How many findings are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.severity == severity).count()
    }

    /// Whether some finding is at least as bad.
    pub fn reaches(&self, severity: Severity) -> bool {
        self.findings.iter().any(|f| f.severity <= severity)
    }
}

/// Checks the rules on a model, in their order.
///
/// # Errors
/// When it is cancelled.
pub fn examine(input: &RuleInput<'_>, rules: &[&'static Rule]) -> Result<Diagnosis, RunError> {
    let context = RuleContext::new(input);
    let mut diagnosis = Diagnosis {
        findings: Vec::new(),
        measures: Vec::new(),
        checked: Vec::new(),
        not_checked: Vec::new(),
        search: None,
    };
    for rule in rules {
        let checked = (rule.check)(&context);
        // A rule whose runs were ended says that it was not checked: nothing of that is an answer.
        input.cancel.check()?;
        match checked {
            Ok(outcome) => {
                diagnosis.checked.push(rule.id);
                diagnosis.findings.extend(outcome.findings);
                diagnosis.measures.extend(outcome.measures);
            }
            Err(not_checked) => diagnosis.not_checked.push((rule.id, not_checked)),
        }
    }
    diagnosis.search = context.into_search();
    // Within a severity, the order of the rules: causes come before their effects.
    diagnosis.findings.sort_by_key(|f| f.severity);
    Ok(diagnosis)
}
