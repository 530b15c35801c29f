//! A head that adds almost nothing and is not needed.

use attnscope_graph::{AttentionStep, Dim};
use attnscope_run::Weights;

use crate::corpus::Corpus;
use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::least;
use crate::score::{Candidate, Padding, Scores, score};

pub(super) const RULE: Rule = Rule {
    id: "dead-head",
    severity: Severity::Warning,
    what: "A head that adds almost nothing to the stream and whose removal changes almost nothing.",
    why: "Its parameters are useless: a part of training went wrong, or the model is wider than its task needs.",
    how: "The norm of each head's contribution through its columns of the output projection, relative to the mean over the heads of its attention; then the negative log-likelihood of the pairs with those columns set to 0.",
    threshold: "A norm below dead_norm = 0.1 of the mean and a change below dead_cost = 0.001 nats per token, on 20 pairs or more. These are our own numbers: such a head can be removed without a loss that the pairs would show.",
    try_next: "Look at its weights with `attnscope trace MODEL --layer ATTENTION`; prune it, or train on with more regularisation of the rest.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let seen = context.behaviour()?;
    let limit = context.thresholds().dead_norm;
    let (mut suspects, mut measures) = (Vec::new(), Vec::new());
    for attention in &seen.attentions {
        let out = attention.place.step(AttentionStep::Out).weight();
        let Some(out) = context.model().graph.weight_at(out) else { continue };
        let mean = attention.heads.iter().map(|h| h.norm).sum::<f64>() / attention.heads.len().max(1) as f64;
        measures.extend(attention.heads.iter().enumerate().map(|(h, head)| {
            let share = RULE.measure("output_share", head.norm / mean).threshold(limit);
            share.at(&attention.path).slice(format!("head {h}"))
        }));
        let weak = attention.heads.iter().enumerate().filter(|(_, head)| head.norm < limit * mean);
        suspects.extend(weak.map(|(h, head)| (attention, h, out, head.norm / mean)));
    }
    least(&mut measures, |share| {
        let (share, limit) = (100.0 * share, 100.0 * limit);
        format!(
            "the weakest head adds {share:.0} % of the mean of its attention's heads (threshold {limit:.0} %)"
        )
    });
    if suspects.is_empty() {
        return Ok(Outcome::default().measured(measures));
    }
    let (corpus, weights) = (context.corpus()?, context.weights()?);
    let mut candidates = vec![candidate(context, corpus, weights.clone())?];
    for (attention, head, out, _) in &suspects {
        let inner = context.model().sizes.get(Dim::Inner(attention.place.stack)).unwrap_or(1);
        let heads = attention.heads.len();
        let values = weights.get(*out).map_err(|e| NotChecked::from(&e))?;
        let without = weights.with(*out, without_head(&values, inner, heads, *head));
        candidates.push(candidate(context, corpus, without)?);
    }
    let all: Vec<&Candidate> = candidates.iter().collect();
    let scores = score(&all, corpus, &|_, _| ()).map_err(|e| NotChecked::from(&e))?;
    let tokens = corpus.tokens().iter().sum::<usize>().max(1);
    let nll = |scores: &Scores| scores.nll().iter().sum::<f64>() / tokens as f64;
    let whole = scores.first().map_or(f64::NAN, nll);
    let mut findings = Vec::new();
    for ((attention, head, _, norm), scores) in suspects.iter().zip(scores.iter().skip(1)) {
        let cost = nll(scores) - whole;
        if cost.abs() < context.thresholds().dead_cost {
            let evidence = format!(
                "adds {:.1} % of the mean of its {} heads, and removing it changes the NLL by {cost:+.4} nats per token",
                100.0 * norm,
                attention.heads.len()
            );
            findings.push(
                RULE.finding(evidence)
                    .at(&attention.path)
                    .slice(format!("head {head}"))
                    .number(*norm, limit)
                    .with("cost", cost),
            );
        }
    }
    Ok(Outcome::from(findings).measured(measures))
}

/// The model as it is with other weights.
fn candidate(context: &RuleContext<'_>, corpus: &Corpus, weights: Weights) -> Result<Candidate, NotChecked> {
    let model = context.model().rewired(&context.model().wiring, None);
    let weights = weights.reordered(&context.model().graph, &model.graph).unwrap_or(weights);
    let prepared = context.prepared()?.again(model.into(), weights).map_err(|e| NotChecked::from(&e))?;
    Ok(Candidate { prepared, shift: corpus.shift.clone(), padding: Padding::None })
}

/// An output projection, [width, head · size], with the columns of one head set to 0.
fn without_head(weights: &[f32], inner: usize, heads: usize, head: usize) -> Vec<f32> {
    let size = inner / heads.max(1);
    let mut weights = weights.to_vec();
    weights.chunks_mut(inner.max(1)).for_each(|row| row[head * size..(head + 1) * size].fill(0.0));
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_columns_of_the_head_go() {
        assert_eq!(
            without_head(&[1., 2., 3., 4., 5., 6., 7., 8.], 4, 2, 1),
            [1., 2., 0., 0., 5., 6., 0., 0.]
        );
    }
}
