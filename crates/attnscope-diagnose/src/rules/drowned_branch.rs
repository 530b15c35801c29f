//! A sublayer whose output is negligible in its residual stream.

use crate::finding::Severity;
use crate::measure::{Measure, Outcome};
use crate::observe::Joined;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::least;

pub(super) const RULE: Rule = Rule {
    id: "drowned-branch",
    severity: Severity::Warning,
    what: "A sublayer whose output is negligible compared with its residual stream.",
    why: "The layer does nothing: its output projection is near 0, or the stream has grown too large.",
    how: "The norm of the sublayer's output over that of the stream, over all positions that are tokens.",
    threshold: "A ratio below drowned_branch = 0.003; sublayers of trained models measured here have 0.05 to 5. This is our own number: the literature gives none.",
    try_next: "Compare the output projection and the norm before it with the original; look for a scale that was applied twice.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let (seen, limit) = (context.behaviour()?, context.thresholds().drowned_branch);
    let drowned = seen.residuals.iter().filter(|joined| joined.stream > 0.0 && joined.ratio() < limit);
    let finding = |joined: &Joined| {
        let evidence = format!("the sublayer has {:.5} of the norm of its residual stream", joined.ratio());
        RULE.finding(evidence).at(&joined.path).number(joined.ratio(), limit)
    };
    let ratio =
        |joined: &Joined| RULE.measure("branch_ratio", joined.ratio()).threshold(limit).at(&joined.path);
    let mut ratios: Vec<Measure> = seen.residuals.iter().map(ratio).collect();
    least(&mut ratios, |ratio| {
        format!("the smallest sublayer output has {ratio:.3} of the norm of its stream (threshold {limit})")
    });
    Ok(drowned.map(finding).collect::<Outcome>().measured(ratios))
}
