//! A matrix or a norm that is all zero.

use crate::exam::Exam;
use crate::finding::Severity;
use crate::rule::{Checked, Rule};
use crate::rules::is_matrix;

pub(super) const RULE: Rule = Rule {
    id: "zero-weight",
    severity: Severity::Error,
    what: "A matrix, a table or a norm's gain that is all zero.",
    why: "What passes through it is gone: the branch adds nothing, or the stream ends there.",
    how: "Every tensor that the model uses is read; biases are left out, since many are zero from the start and stay so.",
    threshold: "None: every value is 0.",
    try_next: "Compare with the file it was converted from; a tensor that was allocated and never copied looks like this.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    exam.each_weight(&RULE, |weight, tensor, stats| {
        let counts = is_matrix(weight) || weight.path.ends_with("norm.weight");
        let zero = counts && stats.count > 0 && stats.zeros == stats.count;
        let evidence = || format!("all {} values of {} are 0", stats.count, exam.name(tensor));
        zero.then(|| RULE.finding(evidence()).at(&weight.path))
    })
}
