//! An attention whose heads all look at single keys.

use crate::exam::Exam;
use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, Rule};
use crate::rules::least;

pub(super) const RULE: Rule = Rule {
    id: "entropy-collapse",
    severity: Severity::Warning,
    what: "An attention in which every query of every head looks at one key only.",
    why: "Scores that have grown without bound make training unstable, and no gradient flows through a softmax that is all or nothing.",
    how: "The normalised entropy of the weights over the keys that a query may see, the mean over queries with at least four keys and over the heads. A single sharp head is common and no fault.",
    threshold: "A mean below collapsed_entropy = 0.05 (Zhai et al. 2023 describe the collapse; they give a trend, no number).",
    try_next: "Look at the largest scores with `attnscope trace MODEL --layer scores`; a scale that is too large, or q and k that have grown, lead there.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let (seen, limit) = (exam.behaviour()?, exam.thresholds().collapsed_entropy);
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
