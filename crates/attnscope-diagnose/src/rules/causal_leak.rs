//! The decoder sees tokens that it must predict.

use crate::finding::Severity;
use crate::masks::Claim;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::leak::prove;

pub(super) const RULE: Rule = Rule {
    id: "causal-leak",
    severity: Severity::Error,
    what: "A position of the decoder depends on a target token after it.",
    why: "In training the model learns to copy the tokens that it must predict; its loss falls to 0 and it cannot generate.",
    how: "One target token after another is replaced; the logits before it must stay. The first tensor that moves is named; the mask is the cause where that is scores, masked_scores or weights. A run that overflows, or in which nothing moves, is inconclusive.",
    threshold: "None: both runs have the same shapes, so that what does not depend on the token is equal to the bit.",
    try_next: "See M_d with `attnscope masks MODEL`; a mask that is built for another length, or multiplied instead of added, is the usual cause.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    if !context.model().graph.has_attention() {
        return Err(NotChecked::no_attention());
    }
    prove(context, &RULE, &[Claim::Causal])
}
