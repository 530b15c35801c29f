//! NaN or infinity in a weight.

use crate::exam::Exam;
use crate::finding::Severity;
use crate::place::place;
use crate::rule::{Checked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "nonfinite-weight",
    severity: Severity::Error,
    what: "NaN or infinity in a weight.",
    why: "One such number spreads to every output that depends on it, which soon is all of them.",
    how: "Every tensor that the model uses is read and its values are counted.",
    threshold: "None: one is too many.",
    try_next: "Go back to the last checkpoint without them; training in f16 without loss scaling, or a cast to f16, is the usual cause.",
    check,
};

fn check(exam: &Exam<'_>) -> Checked {
    exam.each_weight(&RULE, |weight, tensor, stats| {
        let bad = stats.nan + stats.inf;
        if bad == 0 {
            return None;
        }
        let evidence = format!(
            "{} holds {} NaN and {} infinite of {} values",
            exam.name(tensor),
            stats.nan,
            stats.inf,
            stats.count
        );
        let finding = RULE.finding(evidence).at(&weight.path).number(bad as f64, 0.0);
        Some(match first_bad(exam, tensor) {
            Some(at) => finding.slice(format!("{at:?}")),
            None => finding,
        })
    })
}

/// Where the first one is.
fn first_bad(exam: &Exam<'_>, tensor: usize) -> Option<Vec<usize>> {
    let info = exam.patient.checkpoint.tensors().get(tensor)?;
    let values = exam.patient.checkpoint.read_f32(info).ok()?;
    let at = values.iter().position(|x| !x.is_finite())?;
    Some(place(at, &info.shape))
}
