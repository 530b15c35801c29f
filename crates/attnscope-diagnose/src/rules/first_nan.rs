//! The first number of a run that is none, and what made it.

use attnscope_graph::{Node, NodeId, Op};
use attnscope_run::{Keep, Kept, Native};

use crate::exam::Exam;
use crate::finding::{Finding, Severity};
use crate::measure::Outcome;
use crate::observe::Broken;
use crate::rule::{Checked, NotChecked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "first-nan",
    severity: Severity::Error,
    what: "The first tensor of a run that holds NaN or infinity, and what made it.",
    why: "Everything after it is lost, and the last tensor, which one looks at, says nothing of the first.",
    how: "Every tensor of a run is looked at in the order of computation. The cause is told from what entered the first broken one: a weight that is not finite, a product beyond f32, a norm of something without spread, a row in which a mask hides everything.",
    threshold: "None: one is too many. Masks and what they hide are −∞ by design.",
    try_next: "Mend the cause that is named; `attnscope trace MODEL --layer NODE --payload` shows the tensor.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let seen = exam.observed()?;
    if let Some(broken) = &seen.broken {
        return Ok(vec![finding(exam, broken)?].into());
    }
    let graph = &exam.model().graph;
    let blind = seen.blind.blind.iter().map(|&(node, rows)| {
        let evidence = format!(
            "{rows} rows are hidden entirely by the mask: 0 ÷ 0, which is NaN in most frameworks and taken as 0 here"
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
    Ok(blind.collect::<Outcome>().measured(measure))
}

fn finding(exam: &Exam<'_>, broken: &Broken) -> Result<Finding, NotChecked> {
    let node = exam.model().graph.node(broken.node);
    let (cause, because) = cause(exam, node, broken)?;
    let value = if broken.value.is_nan() { "NaN".to_owned() } else { format!("{}", broken.value) };
    let evidence = format!("{value} here first, {} of {} values; {because}", broken.count, broken.total);
    Ok(RULE
        .finding(evidence)
        .at(node.path.as_str())
        .slice(format!("{:?}", broken.at))
        .number(broken.count as f64, 0.0)
        .with("cause", cause))
}

/// What broke a node whose inputs are whole: a word for programs, and the reason in full.
fn cause(exam: &Exam<'_>, node: &Node, broken: &Broken) -> Result<(&'static str, String), NotChecked> {
    let (model, weights) = (exam.model(), exam.weights()?);
    for &id in &node.weights {
        let bad = weights.get(id).iter().filter(|x| !x.is_finite()).count();
        if bad > 0 {
            return Ok((
                "bad weight",
                format!("its weight {} holds {bad} that are not finite", model.graph.weight(id).path),
            ));
        }
    }
    let inputs = inputs(exam, node)?;
    let values = inputs.iter().flat_map(|kept| &kept.values).filter(|x| x.is_finite());
    let largest = values.fold(0.0, |most: f64, x| most.max(x.abs()));
    Ok(match node.op {
        Op::Ids(_) | Op::Features => ("input", "it is part of the input".into()),
        Op::Scores { .. } => {
            ("overflow in scores", format!("q·k of values up to {largest:.1e} is beyond f32's 3.4e38"))
        }
        Op::Squash(_) => ("overflow in scores", "a score was infinite before the softmax: ∞ − ∞".into()),
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

/// How a norm breaks on a position of whole values: their sums are beyond f32, or there is nothing to divide by.
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
fn inputs(exam: &Exam<'_>, node: &Node) -> Result<Vec<Kept>, NotChecked> {
    let (weights, sample) = (exam.weights()?, exam.sample()?);
    let wanted: Vec<NodeId> = node.inputs.clone();
    let mut keep = Keep::new(|id| wanted.contains(&id));
    let ran = Native::new().run(exam.model(), weights, &sample.input, &mut keep);
    ran.map_err(|e| NotChecked::from(&e))?;
    Ok(keep.tensors.into_values().collect())
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
