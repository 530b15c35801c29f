//! A matrix of one repeated value.

use crate::finding::Severity;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::is_matrix;

pub(super) const RULE: Rule = Rule {
    id: "constant-weight",
    severity: Severity::Error,
    what: "A matrix or a table in which every value is the same.",
    why: "It maps every input to one direction, and after it all tokens or positions look the same.",
    how: "Every matrix that the model uses is read; its least value equals its greatest.",
    threshold: "None: there is one value. All zeros are zero-weight's.",
    try_next: "Compare with the file it was converted from; a tensor that was filled and never copied looks like this.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    context.each_weight(
        &RULE,
        ("matrices and tables", |id| is_matrix(&context.model().graph, id)),
        |weight, tensor, stats| {
            let one = stats.min == stats.max && stats.min != 0.0 && stats.nan + stats.inf == 0;
            let evidence =
                || format!("all {} values of {} are {}", stats.count, context.name(tensor), stats.min);
            (stats.count > 1 && one).then(|| RULE.finding(evidence()).at(&weight.path))
        },
    )
}
