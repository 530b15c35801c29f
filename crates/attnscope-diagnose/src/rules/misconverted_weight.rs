//! Weights that were lost, or put in the wrong place or the wrong way round, on the way into the file.

use attnscope_graph::Stack;
use serde_json::Value;

use crate::exam::Exam;
use crate::finding::{Finding, Severity};
use crate::measure::{Measure, Outcome};
use crate::misconversion::{
    BesideWiring, Loss, Repair, RepairSearch, copied_layers, dropped_biases, missing_layers,
};
use crate::rule::{Checked, NotChecked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "misconverted-weight",
    severity: Severity::Error,
    what: "Weights that were lost, or put in the wrong place or the wrong way round, on the way into the file: layers, projections, norms, heads or tables exchanged, transposed, reordered, negated, scaled, moved by a row, copied or left out.",
    why: "Every shape still fits and nothing crashes, but the model is not the one that was trained. Converters and ports make such mistakes.",
    how: "What is lost is told from the file alone: a config that tells of more layers than the file has, a layer that equals another to the last bit (where three or more are all equal, they are shared by design), a bias that is all zero where most other layers' is not; a k bias of zeros is told of as information, since it adds the same to every score of a query and the softmax cancels it. Every other mistake is undone in turn, and the negative log-likelihood of the targets is measured: on 2 pairs for every repair, on 4, 16 and then 48 for those that may gain enough, all from two fifths of the pairs. At most 3, and what cannot be told from the best of them, are then tested on the other pairs, which the search has not seen. The search ends after the seconds of --repair-time, and says so if it was cut. docs/misconversions.md lists what is tried, what cannot be seen and what was measured.",
    threshold: "On the pairs that the search has not seen: a gain of at least repair_gain = 0.02 nats a token, and p of at most wiring_p = 0.01 after Bonferroni's correction for the repairs that are tested there. On all pairs, 20 pairs or more: a repaired model that works, as for wiring-mismatch, and gets more tokens right. Repairs that do not do surely worse are given as a set, and so is another wiring that explains the pairs as well. A factor of less than 1.9 is never reported, nor a factor of a projection that has the marks of noise: its rows' norms and products correlate with its partner's (q with k, v with the output projection) less than 0.75 times as well as in other layers.",
    try_next: "Compare these tensors with the file that they were converted from, and correct the converter.",
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
    let layers: usize = Stack::ALL.iter().map(|stack| model.graph.layers(*stack)).sum();
    let nothing_lost = format!("of {layers} layers none is missing or a copy, and no bias was dropped");
    let measure = RULE.measure("losses", losses.len() as f64).threshold(0.0);
    let outcome = Outcome::from(losses.iter().map(|loss| lost(exam, loss)).collect::<Vec<_>>());
    // What is lost explains the rest: no repair of other weights brings it back.
    if losses.iter().any(|loss| !loss.has_no_effect(model)) {
        return Ok(outcome.measured([measure]));
    }
    match exam.repairs() {
        Ok(search) => {
            let mut outcome = outcome.measured([measure, measured(exam, search, &nothing_lost)]);
            outcome.findings.extend(search.repair.as_ref().map(|repair| repaired(exam, repair)));
            Ok(outcome)
        }
        Err(missing) if losses.is_empty() => Err(NotChecked::new(
            format!(
                "{nothing_lost}; whether weights are in the wrong place was not checked: {}",
                missing.why
            ),
            missing.how,
        )),
        Err(_) => Ok(outcome.measured([measure])),
    }
}

/// What the best repair gains, and how many there was time for. Some repair is always the best; where the model works as it
/// is and none is believed, which one that is says nothing.
fn measured(exam: &Exam<'_>, search: &RepairSearch, nothing_lost: &str) -> Measure {
    let seconds = exam.patient.repair_time.as_secs_f64();
    let tried = match search.is_cut {
        true => format!(
            "the search was cut after {seconds} s: {} of {} repairs of the weights were tried",
            search.tried, search.hypotheses
        ),
        false => format!("{} repairs of the weights were tried", search.hypotheses),
    };
    let works = exam.search().is_ok_and(|wirings| wirings.fit.works().is_ok());
    let found = match (&search.repair, &search.refused) {
        (Some(repair), _) => format!("one gains {:.3} nats a token", repair.gain),
        (None, Some(refused)) if !works => {
            format!(
                "the best is not believed: it would undo that {}, but {}",
                refused.edit.mistake(),
                refused.why
            )
        }
        (None, _) => "none restores more than the model has".to_owned(),
    };
    let gain = search.best_gain.unwrap_or(f64::NEG_INFINITY);
    let measure = RULE
        .measure("repair_gain", gain)
        .threshold(exam.thresholds().repair_gain)
        .words(format!("{nothing_lost}; {tried}: {found}"))
        .with("hypotheses", search.hypotheses)
        .with("tried", search.tried);
    match &search.refused {
        Some(refused) => {
            measure.with("refused", refused.edit.json(exam.model())).with("why_refused", refused.why.as_str())
        }
        None => measure,
    }
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

/// "decoder.1.cross_attn.k and decoder.1.cross_attn.v are exchanged: undone, the NLL falls from 3.960 to 1.670 over 200 pairs
/// (p < 0.001 on the 100 that the search had not seen)"
fn repaired(exam: &Exam<'_>, repair: &Repair) -> Finding {
    let model = exam.model();
    let p = if repair.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", repair.p) };
    let others: Vec<String> = repair.as_good.iter().map(|edit| edit.mistake()).collect();
    let mut or = match others.is_empty() {
        true => String::new(),
        false => format!("; as good an explanation: {}", others.join("; or ")),
    };
    if repair.beside_wiring == BesideWiring::AsGood {
        or.push_str("; another wiring does as well: see wiring-mismatch");
    }
    let evidence = format!(
        "{}: undone, the NLL falls from {:.3} to {:.3} over {} pairs ({p} on the {} that the search had not seen){or}",
        repair.edit.mistake(),
        repair.nll_declared,
        repair.nll_best,
        repair.pairs,
        repair.unseen,
    );
    let as_good: Vec<Value> = repair.as_good.iter().map(|edit| edit.json(model)).collect();
    let finding = RULE
        .finding(evidence)
        .number(repair.gain, exam.thresholds().repair_gain)
        .with("repair", repair.edit.json(model))
        .with("nll_declared", repair.nll_declared)
        .with("nll_best", repair.nll_best)
        .with("p", repair.p)
        .with("pairs", repair.pairs)
        .with("unseen_pairs", repair.unseen)
        .with("as_good", as_good);
    match repair.edit.weights(model).into_iter().next() {
        Some(path) => finding.at(path),
        None => finding,
    }
}
