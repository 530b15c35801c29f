//! The first NaN or infinity of a run, and what made it.

use attnscope_graph::figures::counted;
use attnscope_graph::{Node, NodeId, Op};
use attnscope_run::{Capture, CheckedInput, Kept, Tensor};

use crate::finding::{Finding, Severity};
use crate::measure::Outcome;
use crate::observe::Broken;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "first-nan",
    severity: Severity::Error,
    what: "The first tensor of a run that holds NaN or infinity, and what made it.",
    why: "Everything after it is lost, and the last tensor, which is usually looked at, says nothing about the first.",
    how: "Every tensor of a run is checked in the order of computation. The cause is found from the inputs of the first bad one: a weight that is not finite, a product beyond f32, a norm of values without spread, a fully masked row.",
    threshold: "None: one is too many. Masks and masked scores are −∞ by design.",
    try_next: "Fix the named cause; `attnscope trace MODEL --layer NODE --payload` shows the tensor.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let seen = context.observed()?;
    if let Some(broken) = &seen.broken {
        return Ok(vec![finding(context, broken)?].into());
    }
    let graph = &context.model().graph;
    let fully_masked = seen.report.fully_masked.iter().map(|&(node, rows)| {
        let evidence = format!(
            "fully masked: {}: 0 ÷ 0, which is NaN in most frameworks and 0 here",
            counted(rows, "row")
        );
        RULE.finding(evidence)
            .severity(Severity::Warning)
            .at(graph.node(node).path.as_str())
            .number(rows as f64, 0.0)
            .with("cause", "fully masked row")
            .try_next("Give every row at least one token, or mask it out of the loss.")
    });
    let measure = seen.largest.map(|(node, largest)| {
        let path = graph.node(node).path.as_str();
        let words = format!("every tensor is finite; the largest value is {largest:.1} (f32 ends at 3.4e38)");
        let limit = f64::from(f32::MAX);
        RULE.measure("largest_value", f64::from(largest)).threshold(limit).at(path).words(words)
    });
    Ok(fully_masked.collect::<Outcome>().measured(measure))
}

fn finding(context: &RuleContext<'_>, broken: &Broken) -> Result<Finding, NotChecked> {
    let node = context.model().graph.node(broken.node);
    let (cause, because) = cause(context, node, broken)?;
    let value = if broken.value.is_nan() { "NaN".to_owned() } else { format!("{}", broken.value) };
    let evidence = format!("{value} here first, {} of {} values; {because}", broken.count, broken.total);
    Ok(RULE
        .finding(evidence)
        .at(node.path.as_str())
        .slice(format!("{:?}", broken.at))
        .number(broken.count as f64, 0.0)
        .with("cause", cause))
}

/// Why a node with finite inputs is not finite: a word for programs, and the reason in full.
fn cause(
    context: &RuleContext<'_>,
    node: &Node,
    broken: &Broken,
) -> Result<(&'static str, String), NotChecked> {
    let (model, weights) = (context.model(), context.weights()?);
    for &id in &node.weights {
        let values = weights.get(id).map_err(|e| NotChecked::from(&e))?;
        let bad = values.iter().filter(|x| !x.is_finite()).count();
        if bad > 0 {
            return Ok((
                "bad weight",
                format!("its weight {} holds {bad} that are not finite", model.graph.weight(id).path),
            ));
        }
    }
    let inputs = inputs(context, node)?;
    let values = inputs.iter().flat_map(|kept| &kept.values).filter(|x| x.is_finite());
    let largest = values.fold(0.0, |most: f64, x| most.max(x.abs()));
    Ok(match node.op {
        Op::Ids(_) | Op::Features => ("input", "it is part of the input".into()),
        Op::Scores { .. } => {
            ("overflow in scores", format!("q·k of values up to {largest:.1e} is beyond f32's 3.4e38"))
        }
        Op::Normalise(_) => ("overflow in scores", "a score was infinite before the softmax: ∞ − ∞".into()),
        Op::Norm { eps, .. } => {
            let values = inputs.first().map(|kept| position(kept, &broken.at)).unwrap_or_default();
            ("division in a norm", norm_words(values, eps, broken.value))
        }
        _ => {
            let what =
                if broken.value.is_nan() { "∞ − ∞ or 0 · ∞" } else { "a sum beyond f32's 3.4e38" };
            ("overflow", format!("{what} from inputs up to {largest:.1e}"))
        }
    })
}

/// Why a norm of finite values is not finite: sums overflow f32, or it divides by 0.
fn norm_words(values: &[f64], eps: f64, broken: f32) -> String {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    if variance + eps < f64::from(f32::MIN_POSITIVE) && (mean * n).abs() < f64::from(f32::MAX) {
        let division = if broken.is_nan() { "0 ÷ 0" } else { "a division by 0" };
        format!("a position without spread, and eps {eps:e} that adds nothing to its variance: {division}")
    } else {
        let largest = values.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        format!(
            "a position of values up to {largest:.1e}, whose sums are beyond f32's 3.4e38, with eps {eps:e}"
        )
    }
}

/// The features of the position that a cell is in.
fn position<'k>(kept: &'k Kept, at: &[usize]) -> &'k [f64] {
    let Some((&width, rows)) = kept.shape.split_last() else { return &[] };
    let row = rows.iter().zip(at).fold(0, |row, (n, at)| row * n + at);
    kept.values.chunks(width.max(1)).nth(row).unwrap_or_default()
}

/// A node's inputs, by a run that keeps them.
fn inputs(context: &RuleContext<'_>, node: &Node) -> Result<Vec<Kept>, NotChecked> {
    let (prepared, sample) = (context.prepared()?, context.sample()?);
    let wanted: Vec<NodeId> = node.inputs.clone();
    let mut keep = Capture::new(|id| wanted.contains(&id));
    let input = CheckedInput::new(context.model(), sample.input.clone());
    let ran = input.and_then(|input| prepared.run(&input, &mut keep));
    ran.map_err(|e| NotChecked::from(&e))?;
    Ok(keep.tensors.values().map(Tensor::to_f64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_norm_breaks_by_too_much_or_by_nothing() {
        assert!(norm_words(&[3e38, 3e38, 2e38], 1e-5, f32::NAN).contains("beyond f32"));
        assert!(norm_words(&[3e38; 4], 1e-5, f32::NAN).contains("beyond f32"));
        assert!(norm_words(&[2.0; 4], 0.0, f32::NAN).contains("without spread, and eps 0e0"));
        assert!(norm_words(&[2.0; 4], 0.0, f32::INFINITY).contains("a division by 0"));
    }

    #[test]
    fn a_position_is_that_of_its_cell() {
        let kept = Kept { shape: vec![2, 2, 2], values: (0..8).map(f64::from).collect() };
        assert_eq!(position(&kept, &[1, 0, 1]), [4.0, 5.0]);
    }
}
