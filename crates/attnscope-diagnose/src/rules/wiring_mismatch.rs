//! The weights make more sense joined in another way than the config or the family says.

use attnscope_graph::{ASSUMED, Model};
use serde_json::Value;

use crate::exam::Exam;
use crate::finding::Severity;
use crate::measure::{Measure, Outcome};
use crate::rule::{Checked, NotChecked, Rule};
use crate::wiring::{Better, Change, Search};

pub(super) const RULE: Rule = Rule {
    id: "wiring-mismatch",
    severity: Severity::Error,
    what: "The weights explain sentence pairs better when the model is joined in another way than its config or its family says.",
    why: "A model run with another activation, scale, mask or shift than it was trained with writes fluent nonsense or slightly worse text, and nothing crashes.",
    how: "The negative log-likelihood of every pair's target under every other plausible wiring of the same weights, against the declared one: paired bootstrap over sentences, each wiring at the temperature that suits it best, since a model trained with smoothed labels likes whatever makes it surer; hypotheses about padding are judged on rows padded well past their end. The best change is kept, and the next best of other fields are added to it as long as each explains more and makes more tokens right.",
    threshold: "A gain of at least wiring_gain = 0.01 nats a token, twice that for every further change, since faithful models were seen to gain up to 0.008 under a neighbouring wiring (computed positions moved by one), and p of at most wiring_p = 0.01 after Bonferroni's correction for the number of hypotheses, over 20 pairs or more.",
    try_next: "Correct the config, or the code that trained the model, so that both say the same.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    let search = exam.search()?;
    if !search.nll.is_finite() {
        return Err(NotChecked::new(
            "the declared wiring gives no finite likelihood",
            "see first-nan and nonfinite-weight, which come first",
        ));
    }
    let lost = search.pairs - search.finite;
    let Some(better) = &search.better else {
        return match lost {
            0 => Ok(Outcome::default().measured(measure(exam, search))),
            lost => Err(NotChecked::new(
                format!(
                    "{lost} of {} pairs have no finite likelihood as declared, and no other wiring is surely better on the rest",
                    search.pairs
                ),
                "see first-nan, which comes first",
            )),
        };
    };
    let evidence = sentence(exam.model(), better);
    let gain = better.nll_declared - better.nll_best;
    let ties: Vec<Value> = better.ties.iter().map(|tie| tie.value().clone()).collect();
    let finding = RULE
        .finding(evidence)
        .number(gain, exam.thresholds().wiring_gain)
        .with("declared", better.declared.clone())
        .with("best", better.best.clone())
        .with("nll_declared", better.nll_declared)
        .with("nll_best", better.nll_best)
        .with("p", better.p)
        .with("pairs", better.pairs)
        .with("as_good", ties);
    Ok(Outcome::from(vec![finding]).measured(measure(exam, search)))
}

/// What the declared wiring costs, and how much the best other one gains.
fn measure(exam: &Exam<'_>, search: &Search) -> Option<Measure> {
    let best = search.trials.iter().find(|trial| trial.nll.is_finite())?;
    let (gain, least) = (best.nll_declared - best.nll, exam.thresholds().wiring_gain);
    let words = format!(
        "NLL {:.3} nats a token as declared; the best of {} other wirings, {}, gains {gain:.4} (threshold {least})",
        search.nll,
        search.trials.len(),
        best.change.words(),
    );
    Some(RULE.measure("gain", gain).threshold(least).words(words))
}

/// "the config says swish; these weights were trained with relu (NLL 1.955 → 1.868, p < 0.001 over 200 pairs)"
fn sentence(model: &Model, better: &Better) -> String {
    let declared = |change: &Change| {
        let field = change.field();
        let value = better.declared.get(field).map(plain).unwrap_or_default();
        format!("{} {}", who(model, field), named(field, &value))
    };
    let best = |change: &Change| {
        let words = change.words();
        match change.field() {
            "activation" => plain(change.value()),
            _ => words,
        }
    };
    let said: Vec<String> = better.changes.iter().map(declared).collect();
    let trained: Vec<String> = better.changes.iter().map(best).collect();
    let p = if better.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", better.p) };
    let ties: Vec<String> = better.ties.iter().map(|tie| plain(tie.value())).collect();
    let tie = if ties.is_empty() { String::new() } else { format!("; {} does as well", ties.join(" or ")) };
    format!(
        "{}; these weights were trained with {} (NLL {:.3} → {:.3}, {p} over {} pairs){tie}",
        said.join(", "),
        trained.join(" and "),
        better.nll_declared,
        better.nll_best,
        better.pairs,
    )
}

/// A value of a field, with the field's name where the value alone says nothing.
fn named(field: &str, value: &str) -> String {
    if field == "activation" { value.to_owned() } else { format!("{field} {value}") }
}

/// Who declares a field, and the verb.
fn who(model: &Model, field: &str) -> String {
    let name = match field {
        "heads" => "decoder heads",
        "start_token" => "decoder_start_token_id",
        field => field,
    };
    let source = model.facts.iter().find(|fact| fact.name == name).map_or("", |fact| fact.source.as_str());
    match source {
        "" => format!("{}'s default is", model.family.title),
        "--heads" => "--heads says".into(),
        ASSUMED => "nothing says, and assumed is".into(),
        source if source.ends_with("'s default") => format!("{source} is"),
        source if source.contains("config") => "the config says".into(),
        source => format!("{source} says"),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        other => other.to_string(),
    }
}
