//! The input of a run: token ids or audio features, in batches, with padding marked.

mod parse;
mod shift;

pub use parse::{
    InputError, Pair, check_rows, computed_positions, parse_ids, parse_pairs, position_limit, read_pairs,
};
pub(crate) use parse::{SideLimits, check_padded};
pub(crate) use shift::token_ids;
pub use shift::{Shift, ShiftError, pad_token};

use std::collections::BTreeMap;

use attnscope_graph::Side;

use crate::position::places;

/// On which side of a row padding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadSide {
    /// Before the tokens.
    Left,
    /// After the tokens, as encoder-decoders are trained.
    Right,
}

/// Token ids of a batch, one row per sentence, padded to a common length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// [batch, length], row-major.
    ids: Vec<u32>,
    /// [batch, length]: true for a token, false for padding.
    open: Vec<bool>,
    batch: usize,
    length: usize,
}

impl Rows {
    /// Pads rows of any lengths with `pad`, on the right. Only positions that are added here count as padding: an id inside a
    /// row that equals `pad` is an ordinary token.
    pub fn new(rows: &[Vec<u32>], pad: u32) -> Self {
        Self::padded(rows, pad, PadSide::Right, 0)
    }

    /// The same, on either side, and to a length of at least `least`.
    pub fn padded(rows: &[Vec<u32>], pad: u32, side: PadSide, least: usize) -> Self {
        let length = rows.iter().map(Vec::len).max().unwrap_or(0).max(least);
        let mut ids = Vec::with_capacity(rows.len() * length);
        let mut open = Vec::with_capacity(rows.len() * length);
        for row in rows {
            let padding = length - row.len();
            let (before, after) = if side == PadSide::Left { (padding, 0) } else { (0, padding) };
            ids.extend(std::iter::repeat_n(pad, before).chain(row.iter().copied()));
            ids.extend(std::iter::repeat_n(pad, after));
            open.extend((0..length).map(|i| (before..length - after).contains(&i)));
        }
        Self { ids, open, batch: rows.len(), length }
    }

    /// How many sentences.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The common length.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The tokens of each row, without padding.
    pub fn tokens(&self) -> Vec<Vec<u32>> {
        let row = |b: usize| {
            let row = b * self.length..(b + 1) * self.length;
            row.filter(|&i| self.open[i]).map(|i| self.ids[i]).collect()
        };
        (0..self.batch).map(row).collect()
    }

    /// The ids of each row, with padding.
    pub(crate) fn padded_rows(&self) -> Vec<Vec<u32>> {
        self.ids.chunks(self.length.max(1)).map(<[u32]>::to_vec).collect()
    }

    /// Some of the rows, in the given order; a row may appear several times or not at all.
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        let span = |&row: &usize| row * self.length..(row + 1) * self.length;
        Self {
            ids: rows.iter().flat_map(|row| &self.ids[span(row)]).copied().collect(),
            open: rows.iter().flat_map(|row| &self.open[span(row)]).copied().collect(),
            batch: rows.len(),
            length: self.length,
        }
    }

    /// Which token of its row each position is, where the position before the first is the pad id's; none for padding.
    pub fn token_numbers(&self, row: usize, offset: usize) -> Vec<Option<usize>> {
        let span = row * self.length..(row + 1) * self.length;
        let (ids, open) = (self.ids.get(span.clone()), self.open.get(span));
        let open = open.unwrap_or_default().iter().copied();
        places(ids.unwrap_or_default(), open, offset, 0).collect()
    }

    /// All ids, [batch, length].
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// What is a token and what is padding, [batch, length].
    pub fn open(&self) -> &[bool] {
        &self.open
    }
}

/// Log-mel features of a batch. A run refuses features whose number of values does not fit their sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    /// [batch, mels, frames], row-major.
    pub values: Vec<f32>,
    /// Recordings in the batch.
    pub batch: usize,
    /// Mel bands.
    pub mels: usize,
    /// Frames.
    pub frames: usize,
}

/// A sequence that a model reads.
#[derive(Debug, Clone, PartialEq)]
pub enum Sequence {
    /// Text.
    Tokens(Rows),
    /// Audio.
    Features(Features),
}

impl Sequence {
    /// How many sentences or recordings.
    pub fn batch(&self) -> usize {
        match self {
            Self::Tokens(rows) => rows.batch(),
            Self::Features(features) => features.batch,
        }
    }

    /// Its tokens, if it has any.
    pub fn rows(&self) -> Option<&Rows> {
        match self {
            Self::Tokens(rows) => Some(rows),
            Self::Features(_) => None,
        }
    }

    /// Some of the rows, in the order given.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, rows: &[usize]) -> Self {
        match self {
            Self::Tokens(tokens) => Self::Tokens(tokens.select(rows)),
            Self::Features(all) => {
                let size = all.mels * all.frames;
                // [mels, frames]
                let row = |&row: &usize| {
                    assert!(row < all.batch, "row {row} of {}", all.batch);
                    all.values.get(row * size..(row + 1) * size).unwrap_or_default()
                };
                let values = rows.iter().flat_map(row).copied().collect();
                Self::Features(Features { values, batch: rows.len(), ..*all })
            }
        }
    }
}

/// One run's input: the sequences that the model's stacks work on. The target is what the decoder reads, after the shift.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    batch: usize,
    sequences: BTreeMap<Side, Sequence>,
}

impl Input {
    /// No sequence yet, for so many rows.
    pub fn empty(batch: usize) -> Self {
        Self { batch, sequences: BTreeMap::new() }
    }

    /// One sequence, of this side.
    pub fn of(side: Side, sequence: Sequence) -> Self {
        Self { batch: sequence.batch(), sequences: BTreeMap::from([(side, sequence)]) }
    }

    /// Several sequences; `None` where there are none.
    pub fn of_all(sequences: impl IntoIterator<Item = (Side, Sequence)>) -> Option<Self> {
        let mut sequences = sequences.into_iter();
        let (side, first) = sequences.next()?;
        Some(sequences.fold(Self::of(side, first), |input, (side, sequence)| input.with(side, sequence)))
    }

    /// A source, and what the decoder reads.
    pub fn pair(source: Sequence, target: Rows) -> Self {
        Self::of(Side::Source, source).with_target(target)
    }

    /// The same input with another sequence for a side.
    pub fn with(mut self, side: Side, sequence: Sequence) -> Self {
        self.sequences.insert(side, sequence);
        self
    }

    /// The same input without a side's sequence.
    pub fn without(mut self, side: Side) -> Self {
        self.sequences.remove(&side);
        self
    }

    /// The same input with these tokens for the decoder to read.
    pub fn with_target(self, target: Rows) -> Self {
        self.with(Side::Target, Sequence::Tokens(target))
    }

    /// How many sentences or recordings.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// A side's sequence.
    pub fn sequence(&self, side: Side) -> Option<&Sequence> {
        self.sequences.get(&side)
    }

    /// The tokens of a side, if it has any.
    pub fn rows(&self, side: Side) -> Option<&Rows> {
        self.sequence(side)?.rows()
    }

    /// The sides that are token ids, each with its tokens, the source first.
    pub fn tokens(&self) -> impl Iterator<Item = (Side, &Rows)> {
        self.sequences.iter().filter_map(|(&side, sequence)| Some((side, sequence.rows()?)))
    }

    /// The audio features, if it has any.
    pub fn features(&self) -> Option<&Features> {
        self.sequences.values().find_map(|sequence| match sequence {
            Sequence::Features(features) => Some(features),
            Sequence::Tokens(_) => None,
        })
    }

    /// Every sequence with its side, the source first.
    pub fn sequences(&self) -> impl Iterator<Item = (Side, &Sequence)> {
        self.sequences.iter().map(|(&side, sequence)| (side, sequence))
    }

    /// Some of the rows, in the order given.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, rows: &[usize]) -> Self {
        let select = |(&side, sequence): (&Side, &Sequence)| (side, sequence.select(rows));
        Self { batch: rows.len(), sequences: self.sequences.iter().map(select).collect() }
    }
}
