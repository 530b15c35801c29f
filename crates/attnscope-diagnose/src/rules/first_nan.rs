//! The first number of a run that is none, and what made it.

use attnscope_graph::{Node, NodeId, Op};
use attnscope_run::{Keep, Native};

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
    let largest = largest_input(exam, node)?;
    Ok(match node.op {
        Op::Ids(_) | Op::Features => ("input", "it is part of the input".into()),
        Op::Scores { .. } => {
            ("overflow in scores", format!("q·k of values up to {largest:.1e} is beyond f32's 3.4e38"))
        }
        Op::Squash(_) => ("overflow in scores", "a score was infinite before the softmax: ∞ − ∞".into()),
        Op::Norm { eps, .. } => (
            "division in a norm",
            format!(
                "a position of values up to {largest:.1e} has a variance that f32 cannot hold, with eps {eps:e}"
            ),
        ),
        _ => {
            let what =
                if broken.value.is_nan() { "∞ − ∞ or 0 · ∞" } else { "a sum beyond f32's 3.4e38" };
            ("overflow", format!("{what} from inputs up to {largest:.1e}"))
        }
    })
}

/// The largest finite magnitude among a node's inputs, by a run that keeps them.
fn largest_input(exam: &Exam<'_>, node: &Node) -> Result<f64, NotChecked> {
    let (weights, sample) = (exam.weights()?, exam.sample()?);
    let inputs: Vec<NodeId> = node.inputs.clone();
    let mut keep = Keep::new(|id| inputs.contains(&id));
    let ran = Native::new().run(exam.model(), weights, &sample.input, &mut keep);
    ran.map_err(|e| NotChecked::from(&e))?;
    let values = keep.tensors.values().flat_map(|kept| &kept.values).filter(|x| x.is_finite());
    Ok(values.fold(0.0, |most, x| most.max(x.abs())))
}
