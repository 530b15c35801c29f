//! Sentences that are longer than the model has positions for.

use crate::exam::Exam;
use crate::finding::Severity;
use crate::rule::{Checked, Rule};

pub(super) const RULE: Rule = Rule {
    id: "past-positions",
    severity: Severity::Error,
    what: "Sentences that are longer than the position table.",
    why: "Past its end there is nothing to add: a crash, a read of foreign memory, or a silent cut.",
    how: "The length of every given sentence in tokens against the rows of the table, without those that an offset skips. Computed and relative positions have no end.",
    threshold: "None: there is a row for a position or there is not.",
    try_next: "Split the sentences that are named, or cut them where the model's own tokenizer does.",
    check,
};

/// Rows that are named in the evidence.
const SHOWN: usize = 5;

fn check(exam: &Exam<'_>) -> Checked {
    let long = exam.patient.too_long;
    let Some(first) = long.first() else { return Ok(Vec::new()) };
    let lines: Vec<String> = long.iter().take(SHOWN).map(|l| l.line.to_string()).collect();
    let more = if long.len() > SHOWN { " and others" } else { "" };
    let evidence = format!(
        "{} of the pairs are past the {} table of {} positions and were left out: line {}{more}",
        long.len(),
        first.side.word(),
        first.room,
        lines.join(", ")
    );
    let longest = long.iter().map(|l| l.length).max().unwrap_or(0);
    let node = format!("{}.positions", first.side.name());
    Ok(vec![RULE.finding(evidence).at(node).number(longest as f64, first.room as f64)])
}
