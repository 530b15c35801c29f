//! A matrix or a norm that is all zero.

use attnscope_graph::{WeightId, WeightKind, WeightRole};

use crate::finding::Severity;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::is_matrix;

pub(super) const RULE: Rule = Rule {
    id: "zero-weight",
    severity: Severity::Error,
    what: "A matrix, a table or a norm's gain that is all zero.",
    why: "Everything that passes through it is lost: the branch adds nothing, or the stream ends there.",
    how: "Every tensor that the model uses is read; biases are left out, because many are zero from the start and stay so; misconverted-weight reports those of layers.",
    threshold: "None: every value is 0.",
    try_next: "Compare with the file it was converted from; a tensor that was allocated and never copied looks like this.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let graph = &context.model().graph;
    let is_gain = |role: WeightRole| role.kind == WeightKind::Weight && role.owner.is_norm();
    let counts = |id: WeightId| is_matrix(graph, id) || is_gain(graph.weight(id).role);
    context.each_weight(&RULE, ("matrices, tables and gains of norms", counts), |weight, tensor, stats| {
        let zero = stats.count > 0 && stats.zeros == stats.count;
        let evidence = || format!("all {} values of {} are 0", stats.count, context.name(tensor));
        zero.then(|| RULE.finding(evidence()).at(&weight.path))
    })
}
