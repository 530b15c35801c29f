//! Logits that do not depend on the order of words.

use attnscope_graph::{EntryStep, Role, Side};
use attnscope_run::{Capture, CheckedInput, Input, Rows, Sequence};

use crate::finding::Severity;
use crate::measure::Outcome;
use crate::rule::{Checked, NotChecked, Rule};
use crate::rule_context::RuleContext;

pub(super) const RULE: Rule = Rule {
    id: "position-ignored",
    severity: Severity::Warning,
    what: "Logits that stay the same when words of the source or of the target so far are exchanged.",
    why: "The model ignores the order of words: positions were not added, or the position table is empty.",
    how: "The tokens of the source before its last are reversed, and separately the first two target tokens after the start are exchanged; the largest movement of the last position's logits, as a share of their spread.",
    threshold: "A movement below position_effect = 1e-4 of the logits' standard deviation: f32 alone moves them by about 1e-6.",
    try_next: "Look at the position table with `attnscope inspect MODEL --stats`, and at position_offset and relative_bias in its wiring.",
    check,
};

/// The shortest row whose order can be changed.
const SHORTEST: usize = 4;

fn check(context: &RuleContext<'_>) -> Checked {
    let sample = context.sample()?;
    context.finite()?;
    let input = &sample.input;
    let before = last_logits(context, input)?;
    let (mut findings, mut measures) = (Vec::new(), Vec::new());
    for side in [Side::Source, Side::Target] {
        let Some((changed, rows)) = reordered(input, side, context.input.pad) else { continue };
        let after = last_logits(context, &changed)?;
        let moved = rows.iter().map(|&row| movement(&before[row], &after[row])).fold(0.0, f64::max);
        let limit = context.thresholds().position_effect;
        let node = Role::Entry(side, EntryStep::EmbedPos).to_string();
        let words = format!(
            "logits move by {moved:.2} of their spread when {} words are exchanged (threshold {limit:e})",
            side.word()
        );
        measures.push(RULE.measure("position_effect", moved).threshold(limit).at(&node).words(words));
        if moved < limit {
            let evidence = format!(
                "logits move by {moved:.1e} of their spread when {} words are exchanged",
                side.word()
            );
            findings.push(RULE.finding(evidence).at(node).number(moved, limit));
        }
    }
    match measures.is_empty() {
        true => Err(NotChecked::new("every row is too short to be reordered", "give a longer sentence")),
        false => Ok(Outcome::from(findings).measured(measures)),
    }
}

/// The input with words in another order, and the rows in which there were any.
fn reordered(input: &Input, side: Side, pad: u32) -> Option<(Input, Vec<usize>)> {
    let rows = input.rows(side)?;
    let before = rows.tokens();
    let mut after = before.clone();
    for row in after.iter_mut().filter(|row| row.len() >= SHORTEST) {
        match side {
            Side::Source => {
                let end = row.len() - 1;
                row[..end].reverse();
            }
            Side::Target => row.swap(1, 2),
        }
    }
    let changed: Vec<usize> = (0..before.len()).filter(|&i| before[i] != after[i]).collect();
    let input = input.clone().with(side, Sequence::Tokens(Rows::new(&after, pad)));
    (!changed.is_empty()).then_some((input, changed))
}

/// The logits at each row's last token.
fn last_logits(context: &RuleContext<'_>, input: &Input) -> Result<Vec<Vec<f64>>, NotChecked> {
    if context.model().graph.has_classifier() {
        let reason = "a classifier that counts words and not their order may be meant so";
        return Err(NotChecked::new(
            reason,
            "compare the scores of a text and of its words in another order",
        ));
    }
    let logits = context.model().graph.at(Role::Logits);
    let mut keep = Capture::new(|id| Some(id) == logits);
    let prepared = context.prepared()?;
    let checked = CheckedInput::new(context.model(), input.clone());
    checked.and_then(|input| prepared.run(&input, &mut keep)).map_err(|e| NotChecked::from(&e))?;
    let kept = keep
        .tensors
        .into_values()
        .next()
        .ok_or_else(|| NotChecked::new("there are no logits", "repair the model"))?
        .to_f64();
    let (length, width) = (kept.shape[1], kept.shape[2]);
    let row = |(row, tokens): (usize, Vec<u32>)| {
        let last = row * length + tokens.len().saturating_sub(1);
        kept.values[last * width..(last + 1) * width].to_vec()
    };
    let last = input.tokens().last().map(|(_, rows)| rows.tokens()).unwrap_or_default();
    Ok(last.into_iter().enumerate().map(row).collect())
}

/// The largest difference, as a share of the spread.
fn movement(before: &[f64], after: &[f64]) -> f64 {
    let n = before.len().max(1) as f64;
    let mean = before.iter().sum::<f64>() / n;
    let spread = (before.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    let most = before.iter().zip(after).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    most / spread.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_places_and_ends_stay() {
        let target = Rows::new(&[vec![0, 5, 6, 7], vec![0, 5]], 9);
        let input = Input::pair(Sequence::Tokens(Rows::new(&[vec![1, 2, 3, 4], vec![1, 4]], 9)), target);
        let (changed, rows) = reordered(&input, Side::Source, 9).unwrap();
        assert_eq!(changed.rows(Side::Source).unwrap().tokens(), [vec![3, 2, 1, 4], vec![1, 4]]);
        assert_eq!(rows, [0]);
        let (changed, _) = reordered(&input, Side::Target, 9).unwrap();
        assert_eq!(changed.rows(Side::Target).unwrap().tokens()[0], [0, 6, 5, 7]);
    }

    #[test]
    fn movement_is_measured_in_spreads() {
        assert!((movement(&[1.0, -1.0], &[1.5, -1.0]) - 0.5).abs() < 1e-12);
    }
}
