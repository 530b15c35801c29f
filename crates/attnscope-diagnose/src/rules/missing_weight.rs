//! A weight that the model needs and the file does not have.

use crate::exam::Exam;
use crate::finding::Severity;
use crate::rule::{Checked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "missing-weight",
    severity: Severity::Error,
    what: "A weight that the model needs and the file does not have.",
    why: "Frameworks fill such holes with random numbers and a warning that scrolls by; the output is then noise.",
    how: "The graph of the family, with the sizes that the tensors show, is bound to the file name by name.",
    threshold: "None: a weight is there or it is not.",
    try_next: "Look for the tensor under another name with `attnscope inspect MODEL --tensors`, or for a part of the checkpoint that was not copied.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let model = exam.model();
    let finding = |(id, name): (_, &str)| {
        let path = &model.graph.weight(id).path;
        RULE.finding(format!("{name} is not among the {} tensors of the file", model.tensors.len())).at(path)
    };
    Ok(model.binding.missing().map(finding).collect())
}
