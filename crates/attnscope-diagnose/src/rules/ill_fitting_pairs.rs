//! The pairs are not of the kind that the model was trained on, or the model is broken in a way that no rule explains.

use serde_json::{Value, json};

use crate::corpus::CorpusKind;
use crate::finding::{Finding, Severity};
use crate::fit::{Fit, Misfit};
use crate::measure::Outcome;
use crate::pair_edit::EditedPairs;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "ill-fitting-pairs",
    severity: Severity::Warning,
    what: "The model does not predict the targets of the pairs, or the texts of a decoder alone, under the declared wiring or any other, and no repair of its weights makes it; or it predicts them where a mistake in the pairs is undone.",
    why: "Pairs in another language, direction, casing or order than the model was trained on, or pairs whose lines are shifted, make every other measurement on them meaningless. A damaged model looks the same on good pairs.",
    how: "The negative log-likelihood of the targets is held against finding every token alike (ln V), against knowing only how often each token occurs in the other targets, and against the mean entropy of the model's own predictions, which is what it expects the targets to cost. Duplicate pairs count once. Where another wiring or a repair of the weights would be accepted, and where the model does not work on the pairs, mistakes of pairs are undone in turn and the declared model is run on the result: words in reverse order, lower and upper case (sources, targets, both), source and target exchanged, targets shifted by a line. Of the texts of a decoder alone, reverse order and case are undone. If it works there, as for wiring-mismatch, and neither the wiring nor the repair is significantly better, the pairs are wrong, and wiring and weights are left undecided: with exchanged q and k a model reads a reversed source nearly as well as a normal one.",
    threshold: "No better than one of the two guesses, or more than 1.5 times the expected cost and 0.2 nats. Measured on four trained models: 0.5 to 1.3 times the expected cost on pairs of their kind, 0.8 to 2.8 times on others. An edit of the pairs must gain at least pairs_gain = 0.1 nats a token with p of at most wiring_p = 0.01 after Bonferroni's correction for the edits that were tried; a wiring or a repair is significantly better with a p of at most 0.01, a repair on the pairs that its search has not seen. Over 20 pairs or more.",
    try_next: "Check the pairs: language, direction, casing, that each line's source and target belong together. If they are right, the weights are damaged: compare the file with its origin.",
    check,
};

/// What to try where a decoder alone was judged on texts.
const TEXTS: &str = "Check the texts: language, casing, the order of words, that a line is what the model reads at once. If they are right, the weights are damaged: compare the file with its origin.";

fn check(context: &RuleContext<'_>) -> Checked {
    let search = context.search()?;
    let fit = &search.fit;
    let words = format!(
        "NLL {:.2} nats per token; the mean entropy of the model's predictions is {:.2}, and guessing costs {:.2}",
        fit.nll,
        fit.expected,
        fit.guessing()
    );
    let measure = RULE.measure("nll", fit.nll).threshold(fit.guessing()).words(words);
    if let Some(edited) = context.edited_pairs()? {
        return Ok(Outcome::from(vec![explained(fit, edited)]).measured([measure]));
    }
    let misfit = match fit.predicts() {
        Ok(()) => return Ok(Outcome::default().measured([measure])),
        // A NaN is a separate finding.
        Err(Misfit::NotFinite) => return Ok(Outcome::default()),
        // Another wiring may explain them.
        Err(misfit) if search.better.is_none() && search.untried > 0 => {
            return Err(NotChecked::new(
                format!(
                    "{}, and there was no time to try {} other wirings on all clips",
                    misfit.words(fit),
                    search.untried
                ),
                "give the searches more seconds with --repair-time",
            ));
        }
        Err(_) if search.better.is_some() || context.repair().is_some() => return Ok(Outcome::default()),
        Err(misfit) => misfit,
    };
    let evidence = format!(
        "the {} do not look like what this model was trained on: {}",
        fit.kind.many(),
        misfit.words(fit)
    );
    let limit = misfit.limit(fit);
    let finding = RULE.finding(evidence).number(fit.nll, limit).with("fit", json!(fit));
    let finding = match fit.kind {
        CorpusKind::Pairs => finding,
        CorpusKind::Texts => finding.try_next(TEXTS),
    };
    Ok(Outcome::from(vec![finding]).measured([measure]))
}

/// "the pairs do not look like what this model was trained on: the words of the sources are reversed. The model as declared
/// costs 1.80 nats per token on the sources with their words in reverse order, and 3.36 on the pairs as they are (p < 0.001
/// over 25
/// pairs)"
fn explained(fit: &Fit, edited: &EditedPairs) -> Finding {
    let p = if edited.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", edited.p) };
    let many = fit.kind.many();
    let mut evidence = format!(
        "the {many} do not look like what this model was trained on: {}: {} ({p} over {} {many})",
        edited.edit.mistake(),
        edited.words(),
        fit.pairs
    );
    let others: Vec<String> = edited.as_good.iter().map(|other| other.mistake()).collect();
    if !others.is_empty() {
        evidence += &format!("; as good an explanation: {}", others.join("; or "));
    }
    for rival in &edited.rivals {
        evidence +=
            &format!("; not surely worse, but less likely: {} ({:.2} nats a token)", rival.what, rival.nll);
    }
    let as_good: Vec<Value> = edited.as_good.iter().map(|other| other.json()).collect();
    let rivals: Vec<Value> = edited
        .rivals
        .iter()
        .map(|rival| json!({ "rule": rival.rule, "what": rival.what, "nll": rival.nll }))
        .collect();
    RULE.finding(evidence)
        .number(edited.nll_declared, edited.nll_best)
        .with("fit", json!(fit))
        .with("edit", edited.edit.json())
        .with("nll_declared", edited.nll_declared)
        .with("nll_best", edited.nll_best)
        .with("p", edited.p)
        .with("pairs", fit.pairs)
        .with("edited_fit", json!(edited.fit))
        .with("as_good", as_good)
        .with("rivals", rivals)
        .try_next(format!(
            "Correct the {many} and run again: wiring and weights can be judged only on {many} that fit."
        ))
}
