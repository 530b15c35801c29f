//! Cross-attention masks a part of the source, or shows what it should not.

use crate::finding::Severity;
use crate::masks::Claim;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::leak::prove;

pub(super) const RULE: Rule = Rule {
    id: "cross-mask-fault",
    severity: Severity::Error,
    what: "Cross-attention masks tokens of the source, or the source's keys depend on the target.",
    why: "The whole source is known before the first token is generated: a decoder that cannot see its end translates half sentences.",
    how: "The encoder's output is overwritten at one token after another, and every target position must move; every target token is replaced, and keys and values of the source must stay. The mask is the cause where the movement is in the scores and gone after the mask; where it ends elsewhere, such as at a projection of zeros, the proof is inconclusive.",
    threshold: "A position that does not move at all cannot see the token; keys and values of the source must stay equal to the bit.",
    try_next: "See M_x with `attnscope masks MODEL`; a causal mask that was handed to cross-attention is the usual cause.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    if !context.model().graph.has_attention() {
        return Err(NotChecked::no_attention());
    }
    prove(context, &RULE, &[Claim::CrossReach, Claim::CrossFuture])
}
