//! The first number of a run that is none, and what made it.

use attnscope_graph::{Dim, Node, NodeId, Op};
use attnscope_run::{Keep, Kept, Native};

use crate::exam::Exam;
use crate::finding::{Finding, Severity};
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
        return Ok(vec![finding(exam, broken)?]);
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
    Ok(blind.collect())
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
    let largest = largest_input(exam, node, &broken.at)?;
    Ok(match node.op {
        Op::Ids(_) | Op::Features => ("input", "it is part of the input".into()),
        Op::Scores { .. } => {
            ("overflow in scores", format!("q·k of values up to {largest:.1e} is beyond f32's 3.4e38"))
        }
        Op::Squash(_) => ("overflow in scores", "a score was infinite before the softmax: ∞ − ∞".into()),
        Op::Norm { eps, .. } => {
            ("division in a norm", norm_words(model.sizes.get(Dim::Model), largest, eps, broken.value))
        }
        _ => {
            let what =
                if broken.value.is_nan() { "∞ − ∞ or 0 · ∞" } else { "a sum beyond f32's 3.4e38" };
            ("overflow", format!("{what} from inputs up to {largest:.1e}"))
        }
    })
}

/// How a norm breaks on a position of `width` whole values up to `largest`: their squares add up to more than f32 holds,
/// or to nothing that could be divided by.
fn norm_words(width: Option<usize>, largest: f64, eps: f64, value: f32) -> String {
    if largest * largest * width.unwrap_or(1) as f64 > f64::from(f32::MAX) {
        format!(
            "a position of values up to {largest:.1e} has a variance beyond f32's 3.4e38, with eps {eps:e}"
        )
    } else {
        let division = if value.is_nan() { "0 ÷ 0" } else { "a division by 0" };
        format!("a position without spread, and eps {eps:e} that adds nothing to its variance: {division}")
    }
}

/// The largest finite magnitude among a node's inputs, by a run that keeps them. A norm looks at one position only.
fn largest_input(exam: &Exam<'_>, node: &Node, at: &[usize]) -> Result<f64, NotChecked> {
    let (weights, sample) = (exam.weights()?, exam.sample()?);
    let inputs: Vec<NodeId> = node.inputs.clone();
    let mut keep = Keep::new(|id| inputs.contains(&id));
    let ran = Native::new().run(exam.model(), weights, &sample.input, &mut keep);
    ran.map_err(|e| NotChecked::from(&e))?;
    let seen = |kept| match node.op {
        Op::Norm { .. } => position(kept, at),
        _ => &kept.values[..],
    };
    let values = keep.tensors.values().flat_map(seen).filter(|x| x.is_finite());
    Ok(values.fold(0.0, |most, x| most.max(x.abs())))
}

/// The features of the position that a cell is in.
fn position<'k>(kept: &'k Kept, at: &[usize]) -> &'k [f64] {
    let Some((&width, rows)) = kept.shape.split_last() else { return &[] };
    let row = rows.iter().zip(at).fold(0, |row, (n, at)| row * n + at);
    kept.values.chunks(width.max(1)).nth(row).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_norm_breaks_by_too_much_or_by_nothing() {
        let kept = Kept { shape: vec![2, 2, 2], values: (0..8).map(f64::from).collect() };
        assert_eq!(position(&kept, &[1, 0, 1]), [4.0, 5.0]);
        assert!(norm_words(Some(8), 1e30, 1e-5, f32::NAN).contains("beyond f32"));
        assert!(norm_words(Some(128), 1e19, 1e-5, f32::NAN).contains("beyond f32"));
        assert!(norm_words(Some(8), 2.0, 0.0, f32::NAN).contains("without spread, and eps 0e0"));
        assert!(norm_words(Some(8), 2.0, 0.0, f32::INFINITY).contains("a division by 0"));
    }
}
