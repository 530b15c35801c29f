//! A config that cannot be true of the tensors beside it.

use attnscope_graph::Contradiction;

use crate::finding::{Finding, Severity};
use crate::rule::{Checked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "config-contradicts-tensors",
    severity: Severity::Error,
    what: "A size, a number of layers, a gate, an output projection or a family that the config says and the tensors do not have.",
    why: "Hugging Face builds the model from its config: it refuses the file, leaves layers out, or fills missing weights with random numbers and a warning that is easy to miss. attnscope uses the tensors, so the two run different models.",
    how: "Every size that a config gives, or means by leaving its key out, against what the shapes and names of the tensors show; model_type against the families that the tensors can be of; and tie_word_embeddings: false against a file without an output projection. The number of heads is shown by tensors only where there is a relative bias.",
    threshold: "None: both agree or they do not.",
    try_next: "Write what the tensors show into the config, or look for the weights that the config belongs to.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    Ok(context.model().contradictions().iter().map(finding).collect())
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
