//! An attention in which every head attends to single keys.

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::least;

pub(super) const RULE: Rule = Rule {
    id: "entropy-collapse",
    severity: Severity::Warning,
    what: "An attention in which every query of every head attends to one key only.",
    why: "Very large scores make training unstable, and no gradient flows through a saturated softmax.",
    how: "The normalised entropy of the weights over the visible keys, the mean over queries with at least four keys and over the heads. A single sharp head is common and not an error.",
    threshold: "A mean below collapsed_entropy = 0.05 (Zhai et al. 2023 describe the collapse; they give a trend, no number).",
    try_next: "Look at the largest scores with `attnscope trace MODEL --layer scores`; a scale that is too large, or large q and k, are the usual causes.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let (seen, limit) = (context.behaviour()?, context.thresholds().collapsed_entropy);
    let (mut findings, mut means, mut heads) = (Vec::new(), Vec::new(), Vec::new());
    for attention in &seen.attentions {
        let entropy = |number| RULE.measure("entropy", number).at(&attention.path);
        heads.extend(
            attention
                .heads
                .iter()
                .enumerate()
                .filter_map(|(h, head)| Some(entropy(head.entropy?).slice(format!("head {h}")))),
        );
        let Some(mean) = attention.mean_entropy() else { continue };
        means.push(entropy(mean).threshold(limit));
        if mean >= limit {
            continue;
        }
        let evidence = format!(
            "the mean entropy of its {} heads is {mean:.3} of what is possible",
            attention.heads.len()
        );
        findings.push(RULE.finding(evidence).at(&attention.path).number(mean, limit));
    }
    least(&mut means, |mean| {
        format!(
            "the sharpest attention has a mean entropy of {mean:.2} of what is possible (threshold {limit})"
        )
    });
    Ok(Outcome::from(findings).measured(means).measured(heads))
}
