//! A weight whose tensor has another shape than the rest of the model needs.

use crate::finding::Severity;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "mismatched-weight",
    severity: Severity::Error,
    what: "A weight whose tensor has another shape than the rest of the model needs.",
    why: "The model cannot run with it; a loader that ignores mismatched sizes leaves random numbers there.",
    how: "Every tensor votes for the dimensions it shows; the one that the majority contradicts is reported.",
    threshold: "None: shapes agree, but for dimensions of length 1, or they do not.",
    try_next: "Compare with the file it was converted from: a transposed or padded matrix, or one of another model size.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let model = context.model();
    let findings = model.binding.mismatched().map(|(id, tensor, expected, found)| {
        let evidence =
            format!("{} is {found:?}; the rest of the model needs {expected:?}", context.name(tensor));
        RULE.finding(evidence).at(&model.graph.weight(id).path)
    });
    Ok(findings.collect())
}
