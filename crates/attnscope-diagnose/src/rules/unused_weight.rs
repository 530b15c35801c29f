//! Tensors of the model that no node uses.

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "unused-weight",
    severity: Severity::Warning,
    what: "Tensors that are named like the model's own and that no node of it uses.",
    why: "Something that was trained is not used: an adapter, a bias or a layer that this wiring leaves out.",
    how: "Tensors under the model's prefix that are bound to no weight and are not a second name of one; single numbers and optimizer states are left out.",
    threshold: "None: a tensor is used or it is not.",
    try_next: "See which they are with `attnscope inspect MODEL --tensors`, and whether the family or the config is the right one.",
    check,
};

/// Names that are listed in the evidence.
const SHOWN: usize = 3;

fn check(context: &RuleContext<'_>) -> Checked {
    let model = context.model();
    let unused: Vec<&str> = model.unused_of_model().into_iter().map(|i| context.name(i)).collect();
    let count = unused.len() as f64;
    let measure = RULE
        .measure("tensors", count)
        .threshold(0.0)
        .words(format!("none of {} tensors", model.tensors.len()));
    if unused.is_empty() {
        return Ok(Outcome::default().measured([measure]));
    }
    let names = unused.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    let more =
        if unused.len() > SHOWN { format!(" and {} more", unused.len() - SHOWN) } else { String::new() };
    let evidence = match unused.len() {
        1 => format!("{names} is used by no node"),
        n => format!("{n} tensors are used by no node: {names}{more}"),
    };
    let finding = RULE.finding(evidence).number(count, 0.0).with("tensors", unused);
    Ok(Outcome::from(vec![finding]).measured([measure]))
}
