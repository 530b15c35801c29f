//! What is written depends on padding.

use attnscope_graph::{Front, Switch};

use crate::exam::Exam;
use crate::finding::Severity;
use crate::masks::{Claim, shapes};
use crate::measure::Outcome;
use crate::rule::{Checked, Rule};
use crate::rules::leak::prove;

pub(super) const RULE: Rule = Rule {
    id: "padding-leak",
    severity: Severity::Error,
    what: "The output of a row depends on the padding beside it.",
    why: "The same sentence is translated differently in another batch; results change with the batch size.",
    how: "Every row alone against the same row in a padded batch; the embeddings of padding replaced; the encoder's output at padding overwritten; and a row of nothing but padding, which must give numbers. A mask is blamed where the first movement is at scores, masked_scores or weights and, for a row alone, where tokens give weight to padding; an overflow, or rounding that grows, is inconclusive.",
    threshold: concat!(
        "None where only the content of padding changes: what does not depend on it is equal to the bit. Where a row alone is compared with the same row in a batch, ",
        shapes!(),
        " of the tensor's largest value: what f32 loses in sums that are taken in another order."
    ),
    try_next: "See M_e and M_x with `attnscope masks MODEL --pairs FILE`; a mask that reaches the encoder and not cross-attention is the usual cause.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let wiring = &exam.model().wiring;
    // By design: such a model hears windows of one length only.
    if wiring.front == Front::Audio && wiring.padding_mask == Switch::Off {
        let words = "audio fills its window: there is no padding that could leak";
        return Ok(Outcome::default().measured([RULE.measure("proofs", 0.0).words(words)]));
    }
    prove(
        exam,
        &RULE,
        &[Claim::PaddingAlone, Claim::PaddingEmbeddings, Claim::PaddingStates, Claim::AllPadding],
    )
}
