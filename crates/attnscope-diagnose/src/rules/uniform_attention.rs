//! Cross-attention with uniform weights.

use attnscope_graph::AttentionKind;

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::most;

pub(super) const RULE: Rule = Rule {
    id: "uniform-attention",
    severity: Severity::Info,
    what: "Cross-attention whose weights are nearly the same for every source token.",
    why: "The decoder gets the mean of the source, not its words. Untrained models look like this; trained ones that ignore their source often do not, so this proves nothing: source-ignored decides by intervention.",
    how: "The normalised entropy of the weights over the source's tokens, the mean over queries and heads.",
    threshold: "A mean above uniform_entropy = 0.98. No validated number exists; this one is for illustration.",
    try_next: "Run with --pairs, so that source-ignored can decide.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    if !context.model().architecture.has_cross_attention() {
        return Err(NotChecked::no_cross_attention());
    }
    let (seen, limit) = (context.behaviour()?, context.thresholds().uniform_entropy);
    let (mut findings, mut measures) = (Vec::new(), Vec::new());
    for attention in seen.attentions.iter().filter(|a| a.place.kind == AttentionKind::CrossAttention) {
        let Some(mean) = attention.mean_entropy() else { continue };
        measures.push(RULE.measure("cross_entropy", mean).threshold(limit).at(&attention.path));
        if mean <= limit {
            continue;
        }
        let evidence = format!(
            "the mean entropy of its {} heads is {mean:.3} of what is possible",
            attention.heads.len()
        );
        findings.push(RULE.finding(evidence).at(&attention.path).number(mean, limit));
    }
    most(&mut measures, |mean| {
        format!(
            "the flattest cross-attention has a mean entropy of {mean:.2} of what is possible (threshold {limit})"
        )
    });
    Ok(Outcome::from(findings).measured(measures))
}
