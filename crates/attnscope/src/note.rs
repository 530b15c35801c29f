//! What a user may not expect of a model or of an input. It is no part of an answer's JSON.

use std::sync::Arc;

use attnscope_graph::{ASSUMED, Contradiction, Dim, Model, PositionCount, Side};
use attnscope_run::{Input, Rows, Sequence, Shift};

use crate::ready::Ready;

/// A remark.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// A side is longer than the model's table of positions: it does not run on that.
    TooFewPositions {
        /// The side.
        side: Side,
        /// Positions that the model has.
        rows: usize,
        /// Positions that were asked for.
        length: usize,
    },
    /// The config says what cannot be true of the tensors.
    Contradiction(String),
    /// The file has a head for another task, which is not run.
    TaskHead(String),
    /// What neither file nor family says and was assumed: fields of the wiring, as `norm_place=post`.
    Assumed(Vec<String>),
    /// Pad ids at the ends of rows of ids: they are attended to like any token.
    PadsAsTokens {
        /// The side.
        side: Side,
        /// The model's pad id.
        pad: u32,
        /// How many at the start of rows.
        before: usize,
        /// How many at the end.
        after: usize,
        /// The rows that have any.
        rows: Vec<usize>,
    },
    /// More positions than the config speaks of, where they are computed and so have no end.
    BeyondPositions {
        /// The side.
        side: Side,
        /// Positions of the input.
        length: usize,
        /// Positions that the config speaks of.
        said: usize,
        /// Whether Hugging Face has them in a table, and raises an error.
        table: bool,
    },
    /// What the model's documents ask for and is not done.
    NotDone(String),
    /// The channels of a recording cancel each other: every sample of their mean is 0.
    ChannelsCancel,
    /// A recording is longer than what the model hears at once.
    Windows {
        /// Seconds of the recording.
        seconds: f64,
        /// Seconds of a window.
        window: f64,
        /// Whether a window begins where the last segment ended; else each is transcribed by itself.
        by_segments: bool,
    },
    /// The model that a trace names has changed since, and is not used.
    TracedModelChanged(String),
    /// The model that a trace names cannot be opened: why.
    TracedModelAbsent(String),
    /// No name of one dump fits the other, but these lines of a map may.
    ProposedMap(Vec<String>),
}

/// Who is told of a note at once.
pub(crate) type Listener = Arc<dyn Fn(&Note) + Send + Sync>;

/// The notes of one answer.
#[derive(Default)]
pub(crate) struct Notes {
    listener: Option<Listener>,
    pub(crate) all: Vec<Note>,
}

impl Notes {
    pub(crate) fn new(listener: Option<Listener>) -> Self {
        Self { listener, all: Vec::new() }
    }

    pub(crate) fn add(&mut self, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            if let Some(listener) = &self.listener {
                listener(&note);
            }
            self.all.push(note);
        }
    }
}

/// Of the model: where its config contradicts its tensors, which head is not run, and what nothing says.
pub(crate) fn notes_of_model(model: &Model) -> Vec<Note> {
    let contradiction = |found: &Contradiction| Note::Contradiction(found.sentence());
    let mut notes: Vec<Note> = model.contradictions().iter().map(contradiction).collect();
    notes.extend(model.task_head().map(|head| Note::TaskHead(head.sentence())));
    let assumed = |name: &str| {
        let fact = model.facts.iter().find(|fact| fact.name == name && fact.source == ASSUMED)?;
        let value = fact.value.as_str().map_or_else(|| fact.value.to_string(), str::to_owned);
        Some(format!("{name}={value}"))
    };
    let assumed: Vec<String> = model.family.unsaid.iter().filter_map(|name| assumed(name)).collect();
    if !assumed.is_empty() {
        notes.push(Note::Assumed(assumed));
    }
    notes
}

/// Of the model and of both sides; a target that the model wrote itself holds no ids that anybody gave.
pub fn notes_of_input(ready: &Ready<'_>, input: &Input, generated: bool) -> Vec<Note> {
    let mut notes = notes_of_model(ready.model);
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
pub(crate) fn of_source(ready: &Ready<'_>, source: &Sequence) -> Vec<Note> {
    let Sequence::Tokens(rows) = source else { return Vec::new() };
    let notes = [pads(ready, Side::Source, rows), beyond_positions(ready, Side::Source, rows.length())];
    notes.into_iter().flatten().collect()
}

/// Pad ids at the ends of rows, as they come with a batch of Hugging Face's: here they are tokens.
pub(crate) fn pads(ready: &Ready<'_>, side: Side, rows: &Rows) -> Option<Note> {
    let pad = ready.named_pad()?;
    let begins = side == Side::Target && ready.shift().is_ok_and(|shift| shift == Shift::Start(pad));
    let ends = ready.end_tokens().contains(&pad);
    let found: Vec<[usize; 2]> = rows.tokens().iter().map(|ids| at_ends(ids, pad, [begins, ends])).collect();
    let total = |end: usize| found.iter().map(|counts| counts[end]).sum::<usize>();
    let (before, after) = (total(0), total(1));
    let with_pads = found.iter().enumerate().filter(|(_, counts)| **counts != [0, 0]);
    let rows = with_pads.map(|(row, _)| row).collect();
    (before + after > 0).then_some(Note::PadsAsTokens { side, pad, before, after, rows })
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
pub(crate) fn beyond_positions(ready: &Ready<'_>, side: Side, length: usize) -> Option<Note> {
    let model = ready.model;
    let said = model.sizes.get(Dim::Positions(side)).filter(|&said| length > said)?;
    if !model.wiring.positions(side).is_sinusoid() {
        return None;
    }
    // Where padding takes positions, Hugging Face looks them up in a table; else it computes them as they come.
    let table = model.wiring.position_count == PositionCount::Places;
    Some(Note::BeyondPositions { side, length, said, table })
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
