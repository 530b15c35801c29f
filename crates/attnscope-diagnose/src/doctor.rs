//! Every rule on one model: what was found, what was checked, what was not and why.

use crate::exam::{Exam, Patient};
use crate::finding::{Finding, Severity};
use crate::measure::Measure;
use crate::rule::{NotChecked, Rule};
use crate::wiring::Search;

/// What came of an examination.
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
    /// How the declared wiring and every other did, where that was looked at.
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

/// Checks the rules on a patient, in their order.
pub fn examine(patient: &Patient<'_>, rules: &[&'static Rule]) -> Diagnosis {
    let exam = Exam::new(patient);
    let mut diagnosis = Diagnosis {
        findings: Vec::new(),
        measures: Vec::new(),
        checked: Vec::new(),
        not_checked: Vec::new(),
        search: None,
    };
    for rule in rules {
        match (rule.check)(&exam) {
            Ok(outcome) => {
                diagnosis.checked.push(rule.id);
                diagnosis.findings.extend(outcome.findings);
                diagnosis.measures.extend(outcome.measures);
            }
            Err(not_checked) => diagnosis.not_checked.push((rule.id, not_checked)),
        }
    }
    diagnosis.search = exam.into_search();
    // Within a severity, the order of the rules: causes come before what follows from them.
    diagnosis.findings.sort_by_key(|f| f.severity);
    diagnosis
}
