//! The weights make more sense joined in another way than the config or the family says.

use attnscope_graph::{ASSUMED, Model};
use serde_json::{Map, Value, json};

use crate::exam::Exam;
use crate::finding::Severity;
use crate::measure::{Measure, Outcome};
use crate::rule::{Checked, NotChecked, Rule};
use crate::wiring::{Better, Search, Singled, WiringEdit, plain};

pub(super) const RULE: Rule = Rule {
    id: "wiring-mismatch",
    severity: Severity::Error,
    what: "The weights explain sentence pairs better when the model is joined in another way than its config or its family says.",
    why: "A model run with another activation, scale, mask or shift than it was trained with generates fluent nonsense or slightly worse text, and nothing crashes.",
    how: "The negative log-likelihood of every distinct pair's target under every other plausible wiring of the same weights, fields that can differ by stack a stack at a time and together, against the declared one: a paired t-test over pairs, each wiring at the temperature that suits it best, since a model trained with smoothed labels likes whatever makes it surer; hypotheses about padding are judged on rows padded well past their end. The best edit is kept, and the next best of other fields are added to it as long as each explains more and makes more tokens right. The result is believed only if it leads to a working model: better than guessing, as sure of itself as it is right, the right source saving at least 55 % of what the target costs behind another one, and sentences generated from the sources that have more in common with their own targets than with others. Where the decoder sees the token that it predicts (decoder_shift off, causal_mask off) a low likelihood proves little: there it must copy at least 90 % of the tokens, and the declared wiring must fail. If neither the declared wiring nor another one leads to a working model, the wiring is left undecided.",
    threshold: "A gain of at least wiring_gain = 0.01 nats a token, twice that for every further edit, since faithful models were seen to gain up to 0.008 under a neighbouring wiring (computed positions moved by one), and p of at most wiring_p = 0.01 after Bonferroni's correction for all hypotheses tried, over 20 pairs or more. A value is asserted where it beats the others of its field by that p and 0.001 nats; else all that do as well are given.",
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
            0 if search.is_decided() => Ok(Outcome::default().measured(measure(exam, search))),
            0 => Err(undecided(search)),
            lost => Err(NotChecked::new(
                format!(
                    "{lost} of {} pairs have no finite likelihood as declared, and no other wiring is surely better on the rest",
                    search.pairs
                ),
                "see first-nan, which comes first",
            )),
        };
    };
    // A mistake of a converter may explain the pairs better; then the wiring is right.
    if exam.is_repaired_better() {
        return Ok(Outcome::default().measured(measure(exam, search)));
    }
    let gain = better.nll_declared - better.nll_best;
    let values = |edits: &[WiringEdit]| edits.iter().map(WiringEdit::value).collect::<Vec<Value>>();
    let of_each = |list: &dyn Fn(&Singled) -> Vec<Value>| -> Map<String, Value> {
        better.changes.iter().map(|c| (c.edit.field().to_owned(), json!(list(c)))).collect()
    };
    let finding = RULE
        .finding(sentence(exam.model(), better))
        .number(gain, exam.thresholds().wiring_gain)
        .with("declared", better.declared.clone())
        .with("best", better.best.clone())
        .with("nll_declared", better.nll_declared)
        .with("nll_best", better.nll_best)
        .with("p", better.p)
        .with("pairs", better.pairs)
        .with("as_good", better.changes.first().map(|c| values(&c.as_good)).unwrap_or_default())
        .with("possible", of_each(&|c| [vec![c.edit.value()], values(&c.as_good)].concat()))
        .with("excluded", of_each(&|c| values(&c.excluded)))
        .with("fit", json!(better.fit))
        .with("generated", json!(better.generated));
    Ok(Outcome::from(vec![finding]).measured(measure(exam, search)))
}

/// What the declared wiring costs, and how much the best other one gains.
fn measure(exam: &Exam<'_>, search: &Search) -> Option<Measure> {
    let best = search.trials.iter().find(|trial| trial.gain.is_finite())?;
    let least = exam.thresholds().wiring_gain;
    let swapped = search.fit.swapped.map_or(String::new(), |nll| format!(", {nll:.3} behind another source"));
    let words = format!(
        "NLL {:.3} nats a token as declared (the model expects {:.3}{swapped}); the best of {} other wirings, {}, gains {:.4} (threshold {least})",
        search.nll,
        search.fit.expected,
        search.trials.len(),
        best.edit.words(),
        best.gain,
    );
    Some(RULE.measure("gain", best.gain).threshold(least).words(words))
}

/// Why nothing can be said of the wiring.
fn undecided(search: &Search) -> NotChecked {
    let why = search.fit.works().err().map(|misfit| misfit.words(&search.fit)).unwrap_or_default();
    let best = match &search.refused {
        Some((words, nll)) => format!(
            "; the best other wiring, {words}, costs {nll:.2} and does not lead to a working model either"
        ),
        None => "; no other wiring is surely better".to_owned(),
    };
    NotChecked::new(
        format!("the wiring is left undecided: {why}{best}"),
        "give pairs of the kind that the model was trained for, or see the findings about its weights",
    )
}

/// "the config says swish; these weights were trained with relu (NLL 1.955 → 1.868, p < 0.001 over 200 pairs)"
fn sentence(model: &Model, better: &Better) -> String {
    let said: Vec<String> =
        better.changes.iter().map(|change| declared(model, better, &change.edit)).collect();
    let trained: Vec<String> = better.changes.iter().map(trained_with).collect();
    let p = if better.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", better.p) };
    format!(
        "{}; these weights were trained with {} (NLL {:.3} → {:.3}, {p} over {} pairs)",
        said.join(", "),
        trained.join(" and "),
        better.nll_declared,
        better.nll_best,
        better.pairs,
    )
}

/// "the config says activation swish"
fn declared(model: &Model, better: &Better, edit: &WiringEdit) -> String {
    let field = edit.field();
    let value = better.declared.get(field).map(plain).unwrap_or_default();
    let shown = match edit {
        WiringEdit::Activation(_) => value,
        WiringEdit::Heads(Some(stack), _) => format!("{value} {} heads", stack.name()),
        _ => format!("{field} {value}"),
    };
    format!("{} {shown}", who(model, edit))
}

/// "relu", or "activation gelu, gelu_tanh or quick_gelu, not relu" where several values do as well.
fn trained_with(change: &Singled) -> String {
    let list = |edits: &[WiringEdit]| edits.iter().map(|e| plain(&e.value())).collect::<Vec<_>>();
    let first = plain(&change.edit.value());
    let values = match list(&change.as_good).split_last() {
        None => first,
        Some((last, others)) => format!("{} or {last}", [&[first], others].concat().join(", ")),
    };
    let words = match change.edit {
        WiringEdit::Activation(_) => values,
        edit => edit.words_with(&values),
    };
    match list(&change.excluded).join(", ") {
        excluded if change.as_good.is_empty() || excluded.is_empty() => words,
        excluded => format!("{words}, not {excluded}"),
    }
}

/// Who declares a field, and the verb.
fn who(model: &Model, edit: &WiringEdit) -> String {
    let name = match edit {
        WiringEdit::Heads(Some(stack), _) => format!("{} heads", stack.name()),
        WiringEdit::Heads(None, _) => "decoder heads".to_owned(),
        WiringEdit::StartToken(_) => "decoder_start_token_id".to_owned(),
        edit => edit.field().to_owned(),
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
