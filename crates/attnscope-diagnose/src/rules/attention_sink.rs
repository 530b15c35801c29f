//! Heads that put much of their attention on one position.

use attnscope_graph::AttentionKind;

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::observe::AttentionSeen;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::most;

pub(super) const RULE: Rule = Rule {
    id: "attention-sink",
    severity: Severity::Info,
    what: "Heads that put much of their attention on one position, whatever is there.",
    why: "A head with nothing to do puts its attention on one token, often the first or the last. This is not an error, but a picture of its weights says little about the sentence.",
    how: "The mean weight on each position over all queries that are tokens; a head counts where the largest mean is above the threshold.",
    threshold: "A mean above sink = 0.3 (Xiao et al. 2023 speak of sinks from about there).",
    try_next: "Look at the head: `attnscope trace --layer ATTENTION.weights` draws its weights.",
    check,
};

/// Heads that are named in the evidence.
const SHOWN: usize = 4;

fn check(context: &RuleContext<'_>) -> Checked {
    let (seen, limit) = (context.behaviour()?, context.thresholds().sink);
    let total: usize = seen.attentions.iter().map(|a| a.heads.len()).sum();
    let (mut sinks, mut measures) = (Vec::new(), Vec::new());
    for attention in &seen.attentions {
        measures.extend(attention.heads.iter().enumerate().map(|(h, head)| {
            let measure = RULE.measure("sink_weight", head.sink.1).threshold(limit);
            measure.at(&attention.path).slice(format!("head {h}"))
        }));
        for (h, head) in attention.heads.iter().enumerate().filter(|(_, head)| head.sink.1 > limit) {
            sinks.push((head.sink.1, format!("{} head {h}", attention.path), head.sink.0, attention));
        }
    }
    most(&mut measures, |weight| {
        format!("the largest mean weight on one position is {weight:.2} (threshold {limit})")
    });
    if sinks.is_empty() {
        return Ok(Outcome::default().measured(measures));
    }
    sinks.sort_by(|a, b| b.0.total_cmp(&a.0));
    let share = sinks.len() as f64 / total.max(1) as f64;
    let named: Vec<String> = sinks
        .iter()
        .take(SHOWN)
        .map(|(mean, head, position, _)| format!("{head} ({mean:.2} on position {position})"))
        .collect();
    let more = if sinks.len() > SHOWN { format!(" and {} more", sinks.len() - SHOWN) } else { String::new() };
    let evidence = format!("{} of {total} heads: {}{more}", sinks.len(), named.join(", "));
    let largest = sinks.first().map_or(0.0, |sink| sink.0);
    let finding = RULE.finding(evidence).number(largest, limit).with("share", share);
    let finding = match sinks.first() {
        Some((_, _, _, most)) => finding.try_next(advice(most)),
        None => finding,
    };
    Ok(Outcome::from(vec![finding]).measured(measures))
}

/// What to look at in the attention with the largest sink.
fn advice(most: &AttentionSeen) -> String {
    let look = format!("Look at it: `attnscope trace --layer {}.weights` draws its weights.", most.path);
    match most.place.kind {
        AttentionKind::CrossAttention => {
            format!("{look} How much of each head goes to the end token is in `attnscope trace`.")
        }
        AttentionKind::SelfAttention => look,
    }
}
