//! Sentences that are longer than the model's positions.

use attnscope_graph::{EntryStep, Role, Side};

use crate::corpus::{Corpus, CorpusKind};
use crate::finding::{Finding, Severity};
use crate::rule::{Checked, Rule};
use crate::rule_context::{RuleContext, TooLong};

pub(super) const RULE: Rule = Rule {
    id: "past-positions",
    severity: Severity::Error,
    what: "Sentences or clips that are longer than the position table, or than the table that Hugging Face makes of computed positions.",
    why: "Past its end there is no position: the result is a crash, a read of other memory, or a silent cut.",
    how: "The length of every given sentence in tokens, or of every clip in encoder positions, against the rows of the table, without those that an offset skips. Computed positions have no limit here; where Hugging Face computes them once, into a table of max_position_embeddings rows (Marian), that is the limit. M2M-100's and relative positions have no limit.",
    threshold: "None: a position has a row or it has not.",
    try_next: "Split the sentences that are named, or cut them where the model's own tokenizer does.",
    check,
};

/// Rows that are named in the evidence.
const SHOWN: usize = 5;

fn check(context: &RuleContext<'_>) -> Checked {
    let on =
        |side: Side| context.input.too_long.iter().copied().filter(|l| l.side == side).collect::<Vec<_>>();
    let word = |side: Side| match (context.input.corpus.map(Corpus::kind), side) {
        (Some(CorpusKind::Texts), _) => "text",
        _ => side.word(),
    };
    Ok([Side::Source, Side::Target]
        .into_iter()
        .filter_map(|side| finding((side, word(side)), &on(side)))
        .collect())
}

/// The finding for one side, which has its own table.
fn finding((side, side_word): (Side, &str), long: &[TooLong]) -> Option<Finding> {
    let room = long.first()?.room;
    let lines: Vec<String> = long.iter().take(SHOWN).map(|l| l.line.to_string()).collect();
    let more = if long.len() > SHOWN { " and others" } else { "" };
    let longest = long.iter().map(|l| l.length).max().unwrap_or(0);
    let are = if long.len() == 1 { " is" } else { "s are" };
    let (count, lines) = (long.len(), lines.join(", "));
    let evidence = match long.iter().all(|l| l.computed) {
        false => format!(
            "{count} {side_word}{are} longer than the table of {room} positions (the longest needs {longest}) and left \
             out: line {lines}{more}"
        ),
        true => format!(
            "{count} {side_word}{are} longer than the {room} positions of the config (the longest needs {longest}): attnscope computes further sinusoids, but Hugging Face raises an error beyond its table: line {lines}{more}"
        ),
    };
    let node = Role::Entry(side, EntryStep::Positions).to_string();
    Some(RULE.finding(evidence).at(node).number(longest as f64, room as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_is_measured_by_its_own_table() {
        let long = |line, side, length, room| TooLong { line, side, length, room, computed: false };
        let (source, target) = ((Side::Source, "source"), (Side::Target, "target"));
        assert_eq!(finding(source, &[]), None);
        let found = finding(target, &[long(3, Side::Target, 12, 9), long(7, Side::Target, 10, 9)]).unwrap();
        assert_eq!((found.number, found.threshold), (Some(12.0), Some(9.0)));
        assert!(found.evidence.starts_with("2 targets are longer than the table of 9"), "{}", found.evidence);
        assert!(found.evidence.ends_with("line 3, 7"), "{}", found.evidence);
        let computed = TooLong { computed: true, ..long(2, Side::Source, 12, 9) };
        let found = finding(source, &[computed]).unwrap();
        assert!(found.evidence.contains("Hugging Face raises an error"), "{}", found.evidence);
    }
}
