//! The pairs are not what the model was trained on, or the model is broken in a way that nothing here explains.

use serde_json::json;

use crate::exam::Exam;
use crate::finding::Severity;
use crate::fit::Misfit;
use crate::measure::Outcome;
use crate::rule::{Checked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "ill-fitting-pairs",
    severity: Severity::Warning,
    what: "The model does not predict the targets of the pairs, under the declared wiring or any other, and no repair of its weights makes it.",
    why: "Pairs in another language, direction, casing or order than the model was trained on, or pairs whose lines have slipped, make every other measurement on them meaningless. A damaged model looks the same on good pairs.",
    how: "The negative log-likelihood of the targets is held against finding every token alike (ln V), against knowing only how often each token occurs in the other targets, and against what the model itself expects: the entropy of its predictions. Duplicate pairs count once.",
    threshold: "No better than one of the two guesses, or more than 1.5 times the expected cost and 0.2 nats. Measured on four trained models: 0.5 to 1.3 times the expected cost on pairs of their kind, 0.8 to 2.8 times on others. Over 20 pairs or more.",
    try_next: "Check the pairs: language, direction, casing, that each line's source and target belong together. If they are right, the weights are damaged: compare the file with its origin.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let search = exam.search()?;
    let fit = &search.fit;
    let words = format!(
        "the targets cost {:.2} nats a token, where the model expects {:.2} and guessing costs {:.2}",
        fit.nll,
        fit.expected,
        fit.guessing()
    );
    let measure = RULE.measure("nll", fit.nll).threshold(fit.guessing()).words(words);
    let misfit = match fit.predicts() {
        Ok(()) => return Ok(Outcome::default().measured([measure])),
        // What is not finite is a finding of its own.
        Err(Misfit::NotFinite) => return Ok(Outcome::default()),
        Err(_) if search.better.is_some() || exam.repair().is_some() => return Ok(Outcome::default()),
        Err(misfit) => misfit,
    };
    let evidence =
        format!("the pairs do not look like what this model was trained on: {}", misfit.words(fit));
    let limit = misfit.limit(fit);
    let finding = RULE.finding(evidence).number(fit.nll, limit).with("fit", json!(fit));
    Ok(Outcome::from(vec![finding]).measured([measure]))
}
