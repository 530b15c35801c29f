//! Weights that were lost, misplaced or transformed when the file was made.

use attnscope_graph::Stack;
use attnscope_graph::figures::{counted, trimmed};
use serde_json::Value;

use crate::finding::{Finding, Severity};
use crate::measure::{Measure, Outcome};
use crate::misconversion::{
    BesideWiring, Loss, Repair, RepairSearch, copied_layers, dropped_biases, missing_layers,
};
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "misconverted-weight",
    severity: Severity::Error,
    what: "Weights that were lost, misplaced or transformed when the file was made: layers, projections, norms, heads or tables exchanged, transposed, reordered, negated, scaled, shifted by a row, copied or left out.",
    why: "Every shape still fits and nothing crashes, but the model is not the one that was trained. Converters and ports make such mistakes.",
    how: "Lost weights are found in the file alone: a config with more layers than the file, a layer that equals another to the last bit (where three or more are all equal, they are shared by design), a bias that is all zero where most other layers' is not, and, as a warning, biases of one kind that are all zero in every layer though the gains of the norms were trained: some models are trained without them; a k bias of zeros is reported as information, because it adds the same to every score of a query and the softmax cancels it. Every other mistake is undone in turn, and the negative log-likelihood of the targets is measured: on 2 pairs for every repair, on 4, 16 and then 48 for those that may gain enough, all from two fifths of the pairs. At most 3, and those that cannot be distinguished from the best of them, are then tested on the other pairs, which the search has not seen. The search ends after the seconds of --repair-time, and the report says if it was cut. docs/misconversions.md lists what is tried, what cannot be seen and what was measured.",
    threshold: "On the pairs that the search has not seen: a gain of at least repair_gain = 0.02 nats a token, and p of at most wiring_p = 0.01 after Bonferroni's correction for the repairs that are tested there. On all pairs, 20 pairs or more: a repaired model that works, as for wiring-mismatch, gets more tokens right, and is significantly better than with the values of the same weights in random orders, and than with any matrix alone that is not exchanged with another in a random order: many edits mute a weight that is wrong in some other way. Repairs that are not significantly worse are given as a set, and so is another wiring that explains the pairs as well. A factor of less than 1.9 is never reported, nor a factor of a projection that looks like noise: its rows' norms and products correlate with its partner's (q with k, v with the output projection) less than 0.75 times as well as in other layers, and a feed-forward matrix is less than 0.6 times as far from the effective rank of noise.",
    try_next: "Compare these tensors with the file that they were converted from, and correct the converter.",
    check,
};

fn check(context: &RuleContext<'_>) -> Checked {
    let model = context.model();
    let mut losses = missing_layers(model);
    match context.weights() {
        Ok(weights) => {
            losses.extend(copied_layers(model, weights));
            losses.extend(dropped_biases(model, weights));
        }
        Err(not_checked) if losses.is_empty() => return Err(not_checked),
        Err(_) => {}
    }
    let layers: usize = Stack::ALL.iter().map(|stack| model.graph.layers(*stack)).sum();
    let biases = match losses.is_empty() {
        true => "no bias was dropped",
        false => "biases are 0",
    };
    let nothing_lost = format!("of {} none is missing or a copy, and {biases}", counted(layers, "layer"));
    let measure = RULE.measure("losses", losses.len() as f64).threshold(0.0);
    let outcome = Outcome::from(losses.iter().map(|loss| lost(context, loss)).collect::<Vec<_>>());
    // Lost weights explain the rest: no repair of other weights can restore them.
    if losses.iter().any(|loss| loss.is_sure() && !loss.has_no_effect(model)) {
        return Ok(outcome.measured([measure]));
    }
    let searched = context.repairs().and_then(|search| match context.edited_pairs()? {
        Some(edited) => {
            let how = format!("correct the {}: see ill-fitting-pairs", edited.fit.kind.many());
            Err(NotChecked::new(edited.words(), how))
        }
        None => Ok(search),
    });
    match searched {
        Ok(search) => {
            let mut outcome = outcome.measured([measure, measured(context, search, &nothing_lost)]);
            outcome.findings.extend(search.repair.as_ref().map(|repair| repaired(context, repair)));
            Ok(outcome)
        }
        Err(missing) if losses.is_empty() => Err(NotChecked::new(
            format!("{nothing_lost}; whether weights are misplaced was not checked: {}", missing.why),
            missing.how,
        )),
        Err(missing) => {
            let words = format!("whether weights are misplaced was not checked: {}", missing.why);
            Ok(outcome.measured([measure.words(words)]))
        }
    }
}

/// What the best repair gains, and how many were tried. Some repair is always the best; where the model works and no repair is
/// accepted, its name means nothing.
fn measured(context: &RuleContext<'_>, search: &RepairSearch, nothing_lost: &str) -> Measure {
    let seconds = trimmed(search.time.as_secs_f64(), 2);
    let tried = match search.is_cut {
        true if search.tried == search.hypotheses => format!(
            "all {} repairs of the weights were tried on the first {}, and the search was cut after {seconds} s, before the best were tried on all",
            search.hypotheses,
            search.kind.many()
        ),
        true => format!(
            "the search was cut after {seconds} s: {} of {} repairs of the weights were tried",
            search.tried, search.hypotheses
        ),
        false => format!("{} repairs of the weights were tried", search.hypotheses),
    };
    let works = context.search().is_ok_and(|wirings| wirings.fit.works().is_ok());
    let found = match (&search.repair, &search.refused) {
        (Some(repair), _) => format!("one gains {:.3} nats per token", repair.gain),
        (None, Some(refused)) if !works => {
            format!("the best candidate ({}) is not reported: {}", refused.edit.mistake(), refused.why)
        }
        (None, _) => "none surely improves the model".to_owned(),
    };
    let gain = search.best_gain.unwrap_or(f64::NEG_INFINITY);
    let measure = RULE
        .measure("repair_gain", gain)
        .threshold(context.thresholds().repair_gain)
        .words(format!("{nothing_lost}; {tried}: {found}"))
        .with("hypotheses", search.hypotheses)
        .with("tried", search.tried);
    match &search.refused {
        Some(refused) => measure
            .with("refused", refused.edit.json(context.model()))
            .with("why_refused", refused.why.as_str()),
        None => measure,
    }
}

fn lost(context: &RuleContext<'_>, loss: &Loss) -> Finding {
    let model = context.model();
    let finding = RULE.finding(loss.mistake()).with("repair", loss.json(&model.graph));
    let finding = match loss.place() {
        Some(place) => finding.at(place),
        None => finding,
    };
    if loss.has_no_effect(model) {
        let why = "Nothing needs to be done: k's bias adds the same to every score of a query, and the softmax cancels it.";
        return finding.severity(Severity::Info).try_next(why);
    }
    if !loss.is_sure() {
        let how = "Look at the file that the weights come from: if it has these biases with other values, the converter dropped them.";
        return finding.severity(Severity::Warning).try_next(how);
    }
    finding
        .try_next("Convert again from the file that the weights come from: lost weights cannot be computed.")
}

/// "decoder.1.cross_attn.k and decoder.1.cross_attn.v are exchanged: undone, the NLL falls from 3.960 to 1.670 over 200 pairs
/// (p < 0.001 on the 100 that the search had not seen)"
fn repaired(context: &RuleContext<'_>, repair: &Repair) -> Finding {
    let model = context.model();
    let p = if repair.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", repair.p) };
    let (mistake, others) = repair.mistakes();
    let mut or = match others.is_empty() {
        true => String::new(),
        false => format!("; as good an explanation: {}", others.join("; or ")),
    };
    if repair.beside_wiring == BesideWiring::AsGood {
        or.push_str("; another wiring is as good: see wiring-mismatch");
    }
    let evidence = format!(
        "{}: undone, the NLL falls from {:.3} to {:.3} over {} {} ({p} on the {} that the search had not seen){or}",
        mistake,
        repair.nll_declared,
        repair.nll_best,
        repair.pairs,
        repair.kind.many(),
        repair.unseen,
    );
    let as_good: Vec<Value> = repair.as_good.iter().map(|edit| edit.json(model)).collect();
    let finding = RULE
        .finding(evidence)
        .number(repair.gain, context.thresholds().repair_gain)
        .with("repair", repair.edit.json(model))
        .with("nll_declared", repair.nll_declared)
        .with("nll_best", repair.nll_best)
        .with("p", repair.p)
        .with("pairs", repair.pairs)
        .with("unseen_pairs", repair.unseen)
        .with("as_good", as_good);
    match repair.edit.place(model) {
        Some(place) => finding.at(place),
        None => finding,
    }
}
