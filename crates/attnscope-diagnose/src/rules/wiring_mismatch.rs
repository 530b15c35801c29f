//! The weights fit another wiring better than that of the config or the family.

use attnscope_graph::{ASSUMED, Model, RotaryPairs};
use serde_json::{Map, Value, json};

use crate::finding::Severity;
use crate::measure::{Measure, Outcome};
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;
use crate::wiring::{Better, Search, Singled, Trial, WiringEdit, heads_of, plain};

pub(super) const RULE: Rule = Rule {
    id: "wiring-mismatch",
    severity: Severity::Error,
    what: "The weights explain sentence pairs, or texts, better with another wiring than that of the config or the family.",
    why: "A model run with another activation, scale, mask or shift than it was trained with generates fluent nonsense or slightly worse text, and nothing crashes.",
    how: "The negative log-likelihood of every distinct pair's target under every other plausible wiring of the same weights, fields that can differ by stack for each stack and for both together, compared with the declared one: a paired t-test over pairs, each wiring at its best temperature, because for a model trained with label smoothing everything that makes it more confident would seem a gain; hypotheses about padding are judged on rows padded well past their end. The best edit is kept, and the next best of other fields are added to it as long as each explains more and makes more tokens right. The result is accepted only if it gives a working model: better than guessing, well calibrated, the right source saving at least 55 % of the cost of the target with another one, and generated sentences that have more in common with their own targets than with others. A decoder alone is judged on texts, each token after those before it: in place of the source, the words before a token must save at least 40 % of what it costs by knowing only how often it occurs; of rotary positions the layout, theta, share and scaling are tried, which heads of queries share keys and values, gains of 1 + weight, windows, caps, parallel sublayers, and the embedding table as output projection. Where the decoder sees the token that it predicts (decoder_shift off, causal_mask off) a low likelihood proves little: there it must copy at least 90 % of the tokens, and the declared wiring must fail. For an audio model, whose encoder takes long, wirings that fail on the first clip are not run on the others, and --repair-time limits this search and that for repairs together: the report says how many wirings were not tried. If neither the declared wiring nor another one gives a working model, the wiring is left undecided; so it is where a mistake in the pairs explains them as well (see ill-fitting-pairs), or where a repair of the weights explains them better but not significantly.",
    threshold: "A gain of at least wiring_gain = 0.01 nats a token, twice that for every further edit, because correct models gained up to 0.008 with a similar wiring (computed positions shifted by one), and p of at most wiring_p = 0.01 after Bonferroni's correction for all hypotheses tried, over 20 pairs or more. A single value is reported where it beats the others of its field by that p and 0.001 nats; else all values that are as good are given.",
    try_next: "Correct the source of this value: the config, an option that was given, or the code that runs the model.",
    check,
};

/// What to do about rows of q and k that are in another order than they are rotated in.
const LAYOUT: &str = "Rotate the features that these weights pair, or put the rows of every q and k into the order that is declared: a converter left them in pairs where halves are rotated, or moved them where they should have stayed. Both are the same.";

fn check(context: &RuleContext<'_>) -> Checked {
    let search = context.search()?;
    let many = search.fit.kind.many();
    if !search.nll.is_finite() {
        return Err(NotChecked::new(
            "the declared wiring gives no finite likelihood",
            "see first-nan and nonfinite-weight, which come first",
        ));
    }
    if let Some(edited) = context.edited_pairs()? {
        return Err(NotChecked::new(
            format!("the wiring is left undecided: {}", edited.words()),
            format!("correct the {many}: see ill-fitting-pairs"),
        ));
    }
    if search.trials.is_empty() && search.untried > 0 {
        return Err(NotChecked::new(
            format!(
                "NLL {:.3} nats per token as declared; there was no time for any of {} other wirings",
                search.nll, search.untried
            ),
            "give the searches more seconds with --repair-time",
        ));
    }
    let lost = search.pairs - search.finite;
    let Some(better) = &search.better else {
        return match lost {
            0 if search.is_decided() => Ok(Outcome::default().measured(measure(context, search))),
            0 => Err(undecided(search)),
            lost => Err(NotChecked::new(
                format!(
                    "{lost} of {} {many} have no finite likelihood as declared, and no other wiring is significantly better on the rest",
                    search.pairs
                ),
                "see first-nan, which comes first",
            )),
        };
    };
    // If a mistake of a converter explains the pairs better, the wiring is right.
    if context.is_repaired_better() {
        return Ok(Outcome::default().measured(measure(context, search)));
    }
    if let Some(repair) = context.repair_beyond_wiring() {
        return Err(NotChecked::new(
            format!(
                "the wiring is left undecided: {} explains the {many} better than what is declared (NLL {:.3} → {:.3}), and so does undoing that {} ({:.3}); so few {many} cannot tell which",
                better.words(),
                better.nll_declared,
                better.nll_best,
                repair.edit.mistake(),
                repair.nll
            ),
            format!("give more {many}"),
        ));
    }
    let gain = better.nll_declared - better.nll_best;
    let values = |edits: &[WiringEdit]| edits.iter().map(WiringEdit::value).collect::<Vec<Value>>();
    let of_each = |list: &dyn Fn(&Singled) -> Vec<Value>| -> Map<String, Value> {
        better.changes.iter().map(|c| (c.edit.field().to_owned(), json!(list(c)))).collect()
    };
    let is_layout = |change: &Singled| matches!(change.edit, WiringEdit::RotaryLayout(_));
    let try_next = match better.changes.iter().any(is_layout) {
        true => LAYOUT,
        false => RULE.try_next,
    };
    let finding = RULE
        .finding(sentence(context.model(), better))
        .try_next(try_next)
        .number(gain, context.thresholds().wiring_gain)
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
    Ok(Outcome::from(vec![finding]).measured(measure(context, search)))
}

/// What the declared wiring costs, and how much the best other one gains.
fn measure(context: &RuleContext<'_>, search: &Search) -> Option<Measure> {
    let best = search.trials.iter().find(|trial| trial.gain.is_finite())?;
    let least = context.thresholds().wiring_gain;
    let swapped =
        search.fit.swapped.map_or(String::new(), |nll| format!(", NLL with another pair's source {nll:.3}"));
    let untried = match search.untried {
        0 => String::new(),
        n => format!("; there was no time to try {n} more on all clips (--repair-time)"),
    };
    let words = format!(
        "NLL {:.3} nats a token as declared (entropy of its predictions {:.3}{swapped}); the best of {} other wirings, {}, gains {:.4} (threshold {least}){}{untried}",
        search.nll,
        search.fit.expected,
        search.trials.len(),
        best.edit.words(),
        best.gain,
        not_reported(context, search, best),
    );
    Some(RULE.measure("gain", best.gain).threshold(least).words(words).with("p", corrected(search, best)))
}

/// The p of a single edit, after Bonferroni's correction for every hypothesis that was tried.
fn corrected(search: &Search, trial: &Trial) -> f64 {
    (trial.p * search.hypotheses as f64).min(1.0)
}

/// Why an edit that gains enough is not reported; nothing where it gains too little, or is.
fn not_reported(context: &RuleContext<'_>, search: &Search, best: &Trial) -> String {
    let thresholds = context.thresholds();
    if search.better.is_some() || best.gain < thresholds.wiring_gain {
        return String::new();
    }
    let (p, most, many) = (corrected(search, best), thresholds.wiring_p, search.fit.kind.many());
    if p > most {
        return format!(
            ", which {} {many} do not make sure: p = {p:.2}, corrected for {} hypotheses, and at most {most} is reported; give more {many}",
            best.pairs, search.hypotheses
        );
    }
    if best.nll >= best.nll_declared {
        return format!(
            ", but only at another temperature: as it is, the NLL does not fall ({:.3})",
            best.nll
        );
    }
    match search.refused {
        Some(_) => ", but does not lead to a working model".to_owned(),
        // The scale of logits, or a decoder that sees what it is to predict: both need more than the threshold.
        None => ", which is too little for a change of this kind".to_owned(),
    }
}

/// Why nothing can be said about the wiring.
fn undecided(search: &Search) -> NotChecked {
    let why = search.fit.works().err().map(|misfit| misfit.words(&search.fit)).unwrap_or_default();
    let best = match &search.refused {
        Some((words, nll)) => format!(
            "; the best other wiring, {words}, has an NLL of {nll:.2} and does not lead to a working model either"
        ),
        None if search.untried > 0 => format!(
            "; of the other wirings that there was time for none is surely better, and {} were not tried on all clips (--repair-time)",
            search.untried
        ),
        None => "; no other wiring is significantly better".to_owned(),
    };
    NotChecked::new(
        format!("the wiring is left undecided: {why}{best}"),
        format!(
            "give {} of the kind that the model was trained for, or see the findings about its weights",
            search.fit.kind.many()
        ),
    )
}

/// "the config says swish; these weights were trained with relu (NLL 1.955 → 1.868, p < 0.001 over 200 pairs)"
fn sentence(model: &Model, better: &Better) -> String {
    let said: Vec<String> =
        better.changes.iter().map(|change| declared(model, better, &change.edit)).collect();
    let trained: Vec<String> = better.changes.iter().map(trained_with).collect();
    let p = if better.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", better.p) };
    format!(
        "{}; these weights were trained with {} (NLL {:.3} → {:.3}, {p} over {} {})",
        said.join(", "),
        trained.join(" and "),
        better.nll_declared,
        better.nll_best,
        better.pairs,
        better.fit.kind.many(),
    )
}

/// "the config says activation swish"
fn declared(model: &Model, better: &Better, edit: &WiringEdit) -> String {
    let field = edit.field();
    let value = better.declared.get(field).map(plain).unwrap_or_default();
    let shown = match edit {
        WiringEdit::Activation(_) => value,
        WiringEdit::Heads(Some(stack), _) => heads_of(*stack, &value),
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
        WiringEdit::RotaryLayout(pairs) => {
            format!("{} ({})", change.edit.words_with(&values), rows_of(pairs))
        }
        edit => edit.words_with(&values),
    };
    match list(&change.excluded).join(", ") {
        excluded if change.as_good.is_empty() || excluded.is_empty() => words,
        excluded => format!("{words}, not {excluded}"),
    }
}

/// In which order the rows of q and k stand.
fn rows_of(pairs: RotaryPairs) -> &'static str {
    match pairs {
        RotaryPairs::Halves => "the rows of q and k stand in two halves",
        RotaryPairs::Neighbours => "the rows of q and k stand in pairs",
    }
}

/// The source of a field, and the verb.
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
        "tensors" => "the tensors say".into(),
        ASSUMED => "no file says it, and the assumed value is".into(),
        source if source.ends_with("'s default") => format!("{source} is"),
        source if source.contains("config") => "the config says".into(),
        source => format!("{source} says"),
    }
}
