//! A sublayer whose output is far larger than its residual stream.

use crate::finding::Severity;
use crate::measure::{Measure, Outcome};
use crate::observe::Joined;
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;
use crate::rules::most;

pub(super) const RULE: Rule = Rule {
    id: "drowning-branch",
    severity: Severity::Warning,
    what: "A sublayer whose output is far larger than its residual stream.",
    why: "The output of the layers before is lost.",
    how: "The norm of the sublayer's output over that of the stream, over all positions that are tokens.",
    threshold: "A ratio above drowning_branch = 100; sublayers of trained models measured here have 0.05 to 5. This is our own number: the literature gives none.",
    try_next: "Look for a row or a matrix of unusual size with `attnscope inspect MODEL --stats`, and for a missing norm.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let (seen, limit) = (context.behaviour()?, context.thresholds().drowning_branch);
    let drowning = seen.residuals.iter().filter(|joined| joined.stream > 0.0 && joined.ratio() > limit);
    let finding = |joined: &Joined| {
        let evidence =
            format!("the sublayer has {:.0} times the norm of its residual stream", joined.ratio());
        RULE.finding(evidence).at(&joined.path).number(joined.ratio(), limit)
    };
    let ratio =
        |joined: &Joined| RULE.measure("branch_ratio", joined.ratio()).threshold(limit).at(&joined.path);
    let mut ratios: Vec<Measure> = seen.residuals.iter().map(ratio).collect();
    most(&mut ratios, |ratio| {
        format!("the largest sublayer output has {ratio:.3} times the norm of its stream (threshold {limit})")
    });
    Ok(drowning.map(finding).collect::<Outcome>().measured(ratios))
}
