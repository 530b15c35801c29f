//! Two heads that do the same.

use crate::exam::Exam;
use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, Rule};
use crate::rules::least;

pub(super) const RULE: Rule = Rule {
    id: "duplicate-heads",
    severity: Severity::Warning,
    what: "Two heads of an attention that look at the same keys and add the same to the stream.",
    why: "One of them is not needed; where weights were copied or a head was written twice, another is missing.",
    how: "The Jensen-Shannon divergence of their weights, the mean over queries, and the cosine of what they add through the output projection.",
    threshold: "A divergence below duplicate_divergence = 0.01 nats and a cosine above duplicate_cosine = 0.99, both.",
    try_next: "Compare the rows of both heads in q, k and v with the original; prune one if they were trained so.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let (seen, limits) = (exam.behaviour()?, exam.thresholds());
    let (mut findings, mut measures) = (Vec::new(), Vec::new());
    for attention in &seen.attentions {
        // Of each attention the pair that is most alike.
        let nearest = attention.pairs.iter().min_by(|a, b| a.divergence.total_cmp(&b.divergence));
        measures.extend(nearest.map(|p| {
            let measure = RULE.measure("divergence", p.divergence).threshold(limits.duplicate_divergence);
            measure.at(&attention.path).slice(format!("heads {} and {}", p.first, p.second))
        }));
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
    least(&mut measures, |divergence| {
        let limit = limits.duplicate_divergence;
        format!("the heads that are most alike diverge by {divergence:.3} nats (threshold {limit})")
    });
    Ok(Outcome::from(findings).measured(measures))
}
