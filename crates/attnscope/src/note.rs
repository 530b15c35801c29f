//! What a user may not expect of a model or of an input.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_graph::{ASSUMED, Contradiction, Dim, Model, PositionCount, Side};
use attnscope_run::{Input, Rows, Sequence, Shift};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::ready::Ready;

/// Each remark's `about` is described by the remark itself, which a doc comment cannot reach.
fn describe_about(schema: &mut schemars::Schema) {
    let remarks = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    for remark in remarks.into_iter().flatten() {
        let words = remark.get("description").cloned();
        let about = remark.pointer_mut("/properties/about").and_then(Value::as_object_mut);
        if let (Some(words), Some(about)) = (words, about) {
            about.insert("description".into(), words);
        }
    }
}

/// A remark. Which it is says `note`, what it is about `about`, where there is more to say.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "note", content = "about", rename_all = "snake_case")]
#[schemars(transform = describe_about)]
pub enum Note {
    /// A side is longer than the model's position table, so the model cannot run on it.
    TooFewPositions {
        /// The side: `source` or `target`.
        #[serde(serialize_with = "side_word")]
        #[schemars(with = "String")]
        side: Side,
        /// Positions that the model has.
        rows: usize,
        /// Positions that were asked for.
        length: usize,
    },
    /// Texts with more tokens than the classifier reads: the rest of each is left out.
    TextsCut {
        /// Tokens that it reads.
        length: usize,
        /// The rows that were cut.
        rows: Vec<usize>,
    },
    /// The config says what cannot be true of the tensors.
    Contradiction(String),
    /// The file has a head for another task, which is not run.
    TaskHead(String),
    /// Fields of the wiring that neither file nor family gives and that were assumed, such as `norm_place=post`.
    Assumed(Vec<String>),
    /// Pad ids at the ends of rows of ids: they are attended to like any token.
    PadsAsTokens {
        /// The side: `source` or `target`.
        #[serde(serialize_with = "side_word")]
        #[schemars(with = "String")]
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
    /// More positions than the config has, where they are computed and so have no limit.
    BeyondPositions {
        /// The side: `source` or `target`.
        #[serde(serialize_with = "side_word")]
        #[schemars(with = "String")]
        side: Side,
        /// Positions of the input.
        length: usize,
        /// Positions in the config.
        said: usize,
        /// Whether Hugging Face has them in a table, and raises an error.
        table: bool,
    },
    /// The model can be drawn but not run, and why.
    DrawnOnly(String),
    /// So many tensors of the model are not in its drawing.
    NotDrawn(usize),
    /// A trace is about to be written.
    Saving {
        /// How many tensors.
        tensors: usize,
        /// Their bytes.
        bytes: u64,
        /// Where to.
        #[serde(serialize_with = "path_text")]
        #[schemars(with = "String")]
        folder: PathBuf,
    },
    /// A trace was written to this folder.
    Saved(
        #[serde(serialize_with = "path_text")]
        #[schemars(with = "String")]
        PathBuf,
    ),
    /// What the model's documents ask for and is not done.
    NotDone(String),
    /// The weights do not fit in the memory that is left, so that every run reads them from the file, a layer at a time.
    WeightsInFile {
        /// Their bytes.
        bytes: u64,
    },
    /// The channels of a recording cancel each other: every sample of their mean is 0.
    ChannelsCancel,
    /// A recording is longer than the model's window.
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

fn side_word<S: Serializer>(side: &Side, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(side.word())
}

/// A path that is not UTF-8 is shown as well as it can be.
fn path_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
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

/// Notes about the model: where its config contradicts its tensors, which head is not run, and what was assumed.
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

/// Notes about the model and both sides; a generated target has no given ids.
pub(crate) fn notes_of_input(ready: &Ready<'_>, input: &Input, generated: bool) -> Vec<Note> {
    let mut notes = notes_of_model(ready.model);
    notes.extend(weights_in_file(ready));
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

/// A note about weights that do not fit in memory.
pub(crate) fn weights_in_file(ready: &Ready<'_>) -> Option<Note> {
    Some(Note::WeightsInFile { bytes: ready.weights().unread()? })
}

/// Notes about the source.
pub(crate) fn of_source(ready: &Ready<'_>, source: &Sequence) -> Vec<Note> {
    let Sequence::Tokens(rows) = source else { return Vec::new() };
    let notes = [
        ready.texts_cut(),
        pads(ready, Side::Source, rows),
        beyond_positions(ready, Side::Source, rows.length()),
    ];
    notes.into_iter().flatten().collect()
}

/// Pad ids at the ends of rows, as in a batch of Hugging Face: here they are tokens.
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

/// How many pad ids a row starts and ends with, except one that is the decoder's first token or the end of the sentence.
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

/// More positions than the model's documents give, where they are computed and so have no limit.
pub(crate) fn beyond_positions(ready: &Ready<'_>, side: Side, length: usize) -> Option<Note> {
    let model = ready.model;
    let said = model.sizes.get(Dim::Positions(side)).filter(|&said| length > said)?;
    let positions = model.graph.positions(side).filter(|added| added.kind.is_sinusoid())?;
    // Where padding takes positions, Hugging Face looks them up in a table; else it computes them on demand.
    let table = positions.count == PositionCount::Places;
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
        // Within a row it is an ordinary token.
        assert_eq!(at_ends(&[5, 0, 6], 0, [false, false]), [0, 0]);
    }
}
