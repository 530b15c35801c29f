//! Cross-attention hides a part of the source, or shows what it should not.

use crate::exam::Exam;
use crate::finding::Severity;
use crate::masks::Claim;
use crate::rule::{Checked, Rule};
use crate::rules::leak::prove;

pub(super) const RULE: Rule = Rule {
    id: "cross-mask-fault",
    severity: Severity::Error,
    what: "Cross-attention hides tokens of the source, or the source's keys depend on the target.",
    why: "The whole source is known before the first word is written: a decoder that is kept from the end of it translates half-sentences.",
    how: "The encoder's output is overwritten at one token after another, and every target position must feel it; every target token is replaced, and keys and values of the source must stay. A mask is blamed where the movement is in the scores and gone behind the mask; where it ends elsewhere, as at a projection of zeros, the proof is inconclusive.",
    threshold: "A position that does not move at all has no way to see the token; keys and values of the source must stay equal to the bit.",
    try_next: "See M_x with `attnscope masks MODEL`; a causal mask that was handed to cross-attention is the usual cause.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    prove(exam, &RULE, &[Claim::CrossReach, Claim::CrossFuture])
}
