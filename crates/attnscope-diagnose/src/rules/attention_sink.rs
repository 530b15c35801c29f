//! Heads that put much of their attention on one position.

use attnscope_graph::AttentionKind;

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::observe::AttentionSeen;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::most;

pub(super) const RULE: Rule = Rule {
    id: "attention-sink",
    severity: Severity::Info,
    what: "Heads that put much of their attention on one position, whatever is there.",
    why: "A head with nothing to do puts its attention on one token, often the first or the last. This is not an error, but a picture of its weights says little about the sentence.",
    how: "The mean weight on each position over all queries that are tokens and see at least four keys, compared with what uniform attention under the same mask puts there: on short inputs, and on the first positions of a causal mask, that is much.",
    threshold: "A mean that gathers more than sink = 0.3 of what uniform attention gives to other positions: 0.3 itself where there are many keys (Xiao et al. 2023 speak of sinks from about there), 0.48 where there are four.",
    try_next: "Look at the head: `attnscope trace --layer ATTENTION.weights` draws its weights.",
    check,
};

/// Heads that are named in the evidence.
const SHOWN: usize = 4;

fn check(context: &RuleContext<'_>) -> Checked {
    if !context.model().graph.has_attention() {
        return Err(NotChecked::no_attention());
    }
    let (seen, share) = (context.behaviour()?, context.thresholds().sink);
    let (mut sinks, mut measures) = (Vec::new(), Vec::new());
    for attention in &seen.attentions {
        for (h, head) in attention.heads.iter().enumerate() {
            let Some(sink) = head.sink else { continue };
            let limit = sink.limit(share);
            let measure = RULE.measure("sink_weight", sink.weight).threshold(limit).at(&attention.path);
            measures.push(measure.slice(format!("head {h}")).with("uniform", sink.uniform));
            if sink.weight > limit {
                sinks.push((sink, format!("{} head {h}", attention.path), attention));
            }
        }
    }
    if measures.is_empty() {
        return Err(NotChecked::new("no query sees four keys or more", "give a longer input"));
    }
    let total = measures.len();
    most(&mut measures, |weight| {
        format!(
            "the largest mean weight on one position is {weight:.2} (threshold {share} beyond uniform attention)"
        )
    });
    sinks.sort_by(|a, b| b.0.weight.total_cmp(&a.0.weight));
    let Some((largest, _, most)) = sinks.first() else {
        return Ok(Outcome::default().measured(measures));
    };
    let named: Vec<String> = sinks
        .iter()
        .take(SHOWN)
        .map(|(sink, head, _)| {
            format!(
                "{head} ({:.2} on position {}, {:.2} if uniform)",
                sink.weight, sink.position, sink.uniform
            )
        })
        .collect();
    let more = if sinks.len() > SHOWN { format!(" and {} more", sinks.len() - SHOWN) } else { String::new() };
    let evidence = format!("{} of {total} heads: {}{more}", sinks.len(), named.join(", "));
    let finding = RULE
        .finding(evidence)
        .number(largest.weight, largest.limit(share))
        .with("share", sinks.len() as f64 / total as f64)
        .try_next(advice(most));
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
