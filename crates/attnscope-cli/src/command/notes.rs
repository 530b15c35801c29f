//! What a user may not expect of an input. It is no part of the result, and is said on standard error.

use attnscope_graph::{ASSUMED, Contradiction, Dim, Model, PositionCount, Side};
use attnscope_run::{Input, Rows, Sequence, Shift};

use attnscope::{Note, Ready};

/// A remark of an answer.
pub(super) fn words(note: &Note) -> String {
    match note {
        Note::TooFewPositions { side, rows, length } => {
            format!("the model has {rows} {} positions: it does not run on {length}", side.word())
        }
    }
}

/// Of the model: where its config contradicts its tensors, which head is not run, and what nothing says.
pub(super) fn of_model(model: &Model) -> Vec<String> {
    let mut notes: Vec<String> = model.contradictions().iter().map(Contradiction::sentence).collect();
    notes.extend(model.task_head().map(|head| head.sentence()));
    let assumed = |name: &str| {
        let fact = model.facts.iter().find(|fact| fact.name == name && fact.source == ASSUMED)?;
        let value = fact.value.as_str().map_or_else(|| fact.value.to_string(), str::to_owned);
        Some(format!("{name}={value}"))
    };
    let assumed: Vec<String> = model.family.unsaid.iter().filter_map(|name| assumed(name)).collect();
    if !assumed.is_empty() {
        notes.push(format!(
            "assumed, since the file does not say: {}; set what is otherwise with --wiring, or let `attnscope doctor --pairs` \
             find it",
            assumed.join(", ")
        ));
    }
    notes
}

/// Of the model and of both sides; a target that the model wrote itself holds no ids that anybody gave.
pub(super) fn of_input(ready: &Ready<'_>, input: &Input, generated: bool) -> Vec<String> {
    let mut notes = of_model(ready.model);
    if let Some(source) = input.sequence(Side::Source) {
        notes.extend(of_source(ready, source));
    }
    if let Some(target) = input.rows(Side::Target) {
        if !generated {
            notes.extend(pads(ready, Side::Target, target));
        }
        notes.extend(beyond_positions(ready, Side::Target, target.length()));
    }
    notes
}

/// Of what the encoder reads.
pub(super) fn of_source(ready: &Ready<'_>, source: &Sequence) -> Vec<String> {
    let Sequence::Tokens(rows) = source else { return Vec::new() };
    let notes = [pads(ready, Side::Source, rows), beyond_positions(ready, Side::Source, rows.length())];
    notes.into_iter().flatten().collect()
}

/// Pad ids at the ends of rows, as they come with a batch of Hugging Face's: here they are tokens.
pub(super) fn pads(ready: &Ready<'_>, side: Side, rows: &Rows) -> Option<String> {
    let pad = ready.named_pad()?;
    let begins = side == Side::Target && ready.shift().is_ok_and(|shift| shift == Shift::Start(pad));
    let ends = ready.end_tokens().contains(&pad);
    let found: Vec<[usize; 2]> = rows.tokens().iter().map(|ids| at_ends(ids, pad, [begins, ends])).collect();
    let total = |end: usize| found.iter().map(|counts| counts[end]).sum::<usize>();
    let place = match (total(0), total(1)) {
        (0, 0) => return None,
        (0, _) => "end",
        (_, 0) => "start",
        _ => "start and end",
    };
    let (count, side) = (total(0) + total(1), side.word());
    let numbers = found.iter().enumerate().filter(|(_, counts)| **counts != [0, 0]);
    let numbers: Vec<String> = numbers.map(|(row, _)| row.to_string()).collect();
    let (s, tokens) =
        if count == 1 { ("", "is attended to as a token") } else { ("s", "are attended to as tokens") };
    let rows = if numbers.len() == 1 { "row" } else { "rows" };
    Some(format!(
        "{count} pad id{s} ({pad}) at the {place} of {side} {rows} {} {tokens}: ids are used as they \
         are, and Hugging Face's attention mask would hide them; for a padded batch leave them out and write `;` between \
         rows, as in 5,6,7;8,9: shorter rows are then padded and masked",
        numbers.join(", ")
    ))
}

/// How many pad ids a row starts and ends with, but for one that is the decoder's first token or the end of the sentence.
fn at_ends(ids: &[u32], pad: u32, [begins, ends]: [bool; 2]) -> [usize; 2] {
    let is_pad = |id: &&u32| **id == pad;
    let ids = match ids.split_first() {
        Some((first, rest)) if begins && *first == pad => rest,
        _ => ids,
    };
    let after = ids.iter().rev().take_while(is_pad).count();
    let before = if after == ids.len() { 0 } else { ids.iter().take_while(is_pad).count() };
    [before, after.saturating_sub(usize::from(ends))]
}

/// More positions than the model's documents speak of, where they are computed and so have no end.
pub(super) fn beyond_positions(ready: &Ready<'_>, side: Side, length: usize) -> Option<String> {
    let model = ready.model;
    let said = model.sizes.get(Dim::Positions(side)).filter(|&said| length > said)?;
    if !model.wiring.positions(side).is_sinusoid() {
        return None;
    }
    // Where padding takes positions, Hugging Face looks them up in a table; else it computes them as they come.
    let table = match model.wiring.position_count {
        PositionCount::Places => "; Hugging Face has them in a table and raises an error",
        PositionCount::Tokens => "",
    };
    let side = side.word();
    Some(format!(
        "the {side} has {length} positions, and the model's config speaks of {said}: the sinusoids go on here{table}"
    ))
}

#[cfg(test)]
mod tests {
    use super::at_ends;

    #[test]
    fn a_pad_that_has_a_use_is_none() {
        assert_eq!(at_ends(&[5, 6, 0, 0], 0, [false, false]), [0, 2]);
        assert_eq!(at_ends(&[0, 0, 5, 0], 0, [false, false]), [2, 1]);
        assert_eq!(at_ends(&[0, 0], 0, [false, false]), [0, 2]);
        // The decoder begins with it.
        assert_eq!(at_ends(&[0, 5], 0, [true, false]), [0, 0]);
        assert_eq!(at_ends(&[0], 0, [true, false]), [0, 0]);
        assert_eq!(at_ends(&[0, 0, 5], 0, [true, false]), [1, 0]);
        // It ends the sentence.
        assert_eq!(at_ends(&[5, 0, 0], 0, [false, true]), [0, 1]);
        assert_eq!(at_ends(&[5, 0], 0, [false, true]), [0, 0]);
        // Within a row it is what it is.
        assert_eq!(at_ends(&[5, 0, 6], 0, [false, false]), [0, 0]);
    }
}
