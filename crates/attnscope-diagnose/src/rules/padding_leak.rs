//! The output depends on padding.

use crate::finding::Severity;
use crate::masks::{Claim, shapes};
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::leak::prove;

pub(super) const RULE: Rule = Rule {
    id: "padding-leak",
    severity: Severity::Error,
    what: "The output of a row depends on its padding.",
    why: "The same sentence is translated differently in another batch; results change with the batch size.",
    how: "Every row alone against the same row in a padded batch; the embeddings of padding replaced; the encoder's output at padding overwritten; and a row of padding alone, whose output must be finite. The mask is the cause where the first movement is at scores, masked_scores or weights and, for a row alone, where tokens give weight to padding; an overflow, or growing rounding, is inconclusive.",
    threshold: concat!(
        "None where only the content of padding changes: the output must be equal to the bit. Where a row alone is compared with the same row in a batch, ",
        shapes!(),
        " of the tensor's largest value: the rounding of f32 sums in another order."
    ),
    try_next: "See M_e and M_x with `attnscope masks MODEL --pairs FILE`; a mask that is given to the encoder but not to cross-attention is the usual cause.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let model = context.model();
    if !model.graph.has_attention() {
        let reason = "the model has no attention, and reads padding as it reads tokens";
        return Err(NotChecked::new(reason, "pad to one length, in training and afterwards"));
    }
    // By design: such a model reads windows of one length only.
    if model.graph.reads_audio() && !model.graph.hides_padding() {
        let words = "audio fills its window: there is no padding that could leak";
        return Ok(Outcome::default().measured([RULE.measure("proofs", 0.0).words(words)]));
    }
    prove(
        context,
        &RULE,
        &[Claim::PaddingAlone, Claim::PaddingEmbeddings, Claim::PaddingStates, Claim::AllPadding],
    )
}
