//! Weights that were lost on the way into the file.

use attnscope_graph::Stack;

use crate::exam::Exam;
use crate::finding::{Finding, Severity};
use crate::measure::Outcome;
use crate::misconversion::{Loss, copied_layers, dropped_biases, missing_layers};
use crate::rule::{Checked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "misconverted-weight",
    severity: Severity::Error,
    what: "Weights that a converter lost on the way into the file: a layer left out, a layer written over another, a bias dropped.",
    why: "Every shape still fits and nothing crashes, but the model is not the one that was trained.",
    how: "From the file alone: a config that tells of more layers than the file has, a layer that equals another to the last bit, a bias that is all zero where most other layers' is not. Where three or more layers of a stack are all equal, they are shared by design. A k bias of zeros is told of as information: it adds the same to every score of a query, and the softmax cancels it.",
    threshold: "None: values are equal, or zero, or they are not.",
    try_next: "Convert again from the file that the weights come from: what is lost here cannot be computed.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let model = exam.model();
    let mut losses = missing_layers(model);
    match exam.weights() {
        Ok(weights) => {
            losses.extend(copied_layers(model, weights));
            losses.extend(dropped_biases(model, weights));
        }
        Err(not_checked) if losses.is_empty() => return Err(not_checked),
        Err(_) => {}
    }
    let findings: Vec<Finding> = losses.iter().map(|loss| lost(exam, loss)).collect();
    let layers: usize = Stack::ALL.iter().map(|stack| model.graph.layers(*stack)).sum();
    let measure = RULE.measure("losses", findings.len() as f64).threshold(0.0);
    Ok(Outcome::from(findings).measured([measure.words(format!("nothing is lost from {layers} layers"))]))
}

fn lost(exam: &Exam<'_>, loss: &Loss) -> Finding {
    let model = exam.model();
    let finding = RULE.finding(loss.mistake()).with("repair", loss.json(&model.graph));
    let place = loss.weights(&model.graph).into_iter().next();
    let finding = match place {
        Some(path) => finding.at(path),
        None => finding,
    };
    if loss.has_no_effect(model) {
        let why = "Nothing needs to be done: k's bias adds the same to every score of a query, and the softmax cancels it.";
        return finding.severity(Severity::Info).try_next(why);
    }
    finding.try_next(
        "Convert again from the file that the weights come from: what is lost here cannot be computed.",
    )
}
