//! A config that cannot be true of the tensors beside it.

use attnscope_graph::Contradiction;

use crate::exam::Exam;
use crate::finding::{Finding, Severity};
use crate::rule::{Checked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "config-contradicts-tensors",
    severity: Severity::Error,
    what: "A size, a number of layers or a gate that the config says and the tensors do not have.",
    why: "Hugging Face builds the model from its config: it refuses the file, leaves layers out, or fills weights that are not there with random numbers and a warning that scrolls by. attnscope goes by the tensors, so the two run different models.",
    how: "Every size that a config gives, or means by leaving its key out, against what the shapes and names of the tensors show. The number of heads is shown by tensors only where there is a relative bias.",
    threshold: "None: both say the same or they do not.",
    try_next: "Write what the tensors show into the config, or look for the weights that the config belongs to.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    Ok(exam.model().contradictions().iter().map(finding).collect())
}

fn finding(contradiction: &Contradiction) -> Finding {
    let mut finding = RULE
        .finding(contradiction.sentence())
        .with("source", contradiction.source.clone())
        .with("said", contradiction.said.clone())
        .with("shown", contradiction.shown.clone())
        .with("facts", contradiction.facts.clone());
    if let Some(outcome) = contradiction.hugging_face {
        finding = finding.with("hugging_face", outcome.name());
    }
    match (contradiction.said.as_f64(), contradiction.shown.as_f64()) {
        (Some(said), Some(shown)) => finding.number(said, shown),
        _ => finding,
    }
}
