//! Two heads that do the same.

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "duplicate-heads",
    severity: Severity::Warning,
    what: "Two heads of an attention that look at the same keys and add the same to the stream.",
    why: "One of them is not needed; where weights were copied or a head was stored twice, another is missing.",
    how: "The Jensen-Shannon divergence of their weights, the mean over queries, and the cosine of what they add through the output projection.",
    threshold: "A divergence below duplicate_divergence = 0.01 nats and a cosine above duplicate_cosine = 0.99, both.",
    try_next: "Compare the rows of both heads in q, k and v with the original; prune one if they were trained so.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let (seen, limits) = (context.behaviour()?, context.thresholds());
    let (mut findings, mut divergences, mut cosines) = (Vec::new(), Vec::new(), Vec::new());
    for attention in &seen.attentions {
        // The most similar pair of each attention.
        let Some(p) = attention.pairs.iter().min_by(|a, b| a.divergence.total_cmp(&b.divergence)) else {
            continue;
        };
        let of = |name, number, limit| {
            let measure = RULE.measure(name, number).threshold(limit).at(&attention.path);
            measure.slice(format!("heads {} and {}", p.first, p.second))
        };
        divergences.push(of("divergence", p.divergence, limits.duplicate_divergence));
        cosines.push(of("cosine", p.cosine, limits.duplicate_cosine));
        let alike = attention
            .pairs
            .iter()
            .filter(|p| p.divergence < limits.duplicate_divergence && p.cosine > limits.duplicate_cosine);
        findings.extend(alike.map(|p| {
            let evidence = format!(
                "their weights diverge by {:.4} nats and their outputs have a cosine of {:.4}",
                p.divergence, p.cosine
            );
            RULE.finding(evidence)
                .at(&attention.path)
                .slice(format!("heads {} and {}", p.first, p.second))
                .number(p.divergence, limits.duplicate_divergence)
                .with("cosine", p.cosine)
        }));
    }
    // Both thresholds must be passed: heads with the same weights may still have different outputs.
    let nearest = divergences.iter_mut().zip(&cosines).min_by(|(a, _), (b, _)| a.number.total_cmp(&b.number));
    if let Some((divergence, cosine)) = nearest {
        divergence.words = Some(format!(
            "the most similar heads diverge by {:.3} nats, and their outputs have a cosine of {:.2} (thresholds {} \
             and {}, both)",
            divergence.number, cosine.number, limits.duplicate_divergence, limits.duplicate_cosine
        ));
    }
    Ok(Outcome::from(findings).measured(divergences).measured(cosines))
}
