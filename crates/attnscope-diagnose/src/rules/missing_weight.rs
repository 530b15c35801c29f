//! A weight that the model needs and the file does not have.

use crate::finding::Severity;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "missing-weight",
    severity: Severity::Error,
    what: "A weight that the model needs and the file does not have.",
    why: "Frameworks fill missing weights with random numbers and a warning that is easy to miss; the output is then noise.",
    how: "The graph of the family, with the sizes that the tensors show, is bound to the file name by name.",
    threshold: "None: a weight exists or it does not.",
    try_next: "Look for the tensor under another name with `attnscope inspect MODEL --tensors`, or for a part of the checkpoint that was not copied.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let model = context.model();
    let finding = |(id, name): (_, &str)| {
        let path = &model.graph.weight(id).path;
        RULE.finding(format!("{name} is not among the {} tensors of the file", model.tensors.len())).at(path)
    };
    Ok(model.binding.missing().map(finding).collect())
}
