//! NaN or infinity in a weight.

use crate::finding::Severity;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;
use crate::unravel;

pub(super) const RULE: Rule = Rule {
    id: "nonfinite-weight",
    severity: Severity::Error,
    what: "NaN or infinity in a weight.",
    why: "One such number spreads to every output that depends on it, which soon is all of them.",
    how: "Every tensor that the model uses is read and its values are counted.",
    threshold: "None: one is too many.",
    try_next: "Go back to the last checkpoint without them; training in f16 without loss scaling, or a cast to f16, is the usual cause.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    context.each_weight(&RULE, ("weights", |_| true), |weight, tensor, stats| {
        let bad = stats.nan + stats.inf;
        if bad == 0 {
            return None;
        }
        let evidence = format!(
            "{} holds {} NaN and {} infinite of {} values",
            context.name(tensor),
            stats.nan,
            stats.inf,
            stats.count
        );
        let finding = RULE.finding(evidence).at(&weight.path).number(bad as f64, 0.0);
        Some(match first_bad(context, tensor) {
            Some(at) => finding.slice(format!("{at:?}")),
            None => finding,
        })
    })
}

/// Where the first one is.
fn first_bad(context: &RuleContext<'_>, tensor: usize) -> Option<Vec<usize>> {
    let info = context.input.checkpoint.tensors().get(tensor)?;
    let values = context.input.checkpoint.read_f32(info).ok()?;
    let at = values.iter().position(|x| !x.is_finite())?;
    Some(unravel(at, &info.shape))
}
