//! Inputs as they are written on a command line or in a file, checked before anything is run.

use std::path::{Path, PathBuf};

use attnscope_graph::{Dim, Front, Model, PositionCount, Positions, Side};

use super::Rows;

/// An input that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// Something else where an id should be.
    #[error("row {row}: expected a token id, found {found:?}")]
    NotAnId {
        /// Which row, from 0.
        row: usize,
        /// The text in its place.
        found: String,
    },
    /// A row, or a whole input, in which there is nothing.
    #[error("row {row}: expected token ids, found none")]
    Empty {
        /// Which row, from 0.
        row: usize,
    },
    /// An id without a row in the embedding.
    #[error("row {row} of the {side}: id {id} is outside the vocabulary of {limit} (0 to {})", limit.saturating_sub(1))]
    OutsideVocabulary {
        /// Which row, from 0.
        row: usize,
        /// `source` or `target`.
        side: &'static str,
        /// The id.
        id: u32,
        /// How many rows the embedding has.
        limit: usize,
    },
    /// More tokens than there are positions.
    #[error("row {row} of the {side}: {length} tokens, and the model's position table has room for {limit}")]
    TooLong {
        /// Which row, from 0.
        row: usize,
        /// `source` or `target`.
        side: &'static str,
        /// How many tokens.
        length: usize,
        /// How many positions.
        limit: usize,
    },
    /// A file of pairs that could not be read.
    #[error("{}: {why}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        why: std::io::Error,
    },
    /// A file of pairs with something else in it.
    #[error("{}: line {line}: expected {expected}, found {found}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: String,
    },
}

impl InputError {
    /// What the user can do next, for the `help:` line.
    pub fn help(&self) -> String {
        match self {
            Self::NotAnId { .. } | Self::Empty { .. } => {
                "write ids as \"3,2,0\", and a batch as \"3,2,0;1,5\": rows are counted from 0".into()
            }
            Self::OutsideVocabulary { .. } => {
                "check that the ids, or the tokenizer, belong to this model; rows are counted from 0".into()
            }
            Self::TooLong { .. } => "give a shorter text; rows are counted from 0".into(),
            Self::Io { why, .. } => {
                attnscope_checkpoint::limit_help(why).unwrap_or("give a file that you can read").into()
            }
            Self::Line { .. } => "write one pair a line: the source, a tab, the target; in UTF-8".into(),
        }
    }
}

/// Ids with commas or spaces between them and `;` between rows. A `;` at the end begins no row.
pub fn parse_ids(text: &str) -> Result<Vec<Vec<u32>>, InputError> {
    let trimmed = text.trim();
    let rows = trimmed.strip_suffix(';').unwrap_or(trimmed).split(';');
    rows.enumerate().map(|(i, row)| parse_row(i, row)).collect()
}

fn parse_row(number: usize, text: &str) -> Result<Vec<u32>, InputError> {
    if text.trim().is_empty() {
        return Err(InputError::Empty { row: number });
    }
    let text = text.trim();
    let text = text.strip_suffix(',').unwrap_or(text);
    let mut ids = Vec::new();
    for part in text.split(',') {
        let words = part.split_whitespace();
        let before = ids.len();
        for word in words {
            // "+3" is a number to Rust, and no id.
            let id =
                Some(word).filter(|w| w.bytes().all(|b| b.is_ascii_digit())).and_then(|w| w.parse().ok());
            ids.push(id.ok_or_else(|| InputError::NotAnId { row: number, found: word.to_owned() })?);
        }
        if ids.len() == before {
            return Err(InputError::NotAnId { row: number, found: part.to_owned() });
        }
    }
    Ok(ids)
}

/// A sentence and its translation, either of which may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Where it stands, from 1.
    pub line: usize,
    /// What the model reads.
    pub source: String,
    /// What it should write.
    pub target: String,
}

/// More than any file of examples for a debugger.
const MOST_PAIR_BYTES: u64 = 256 << 20;

/// Reads a file of pairs.
pub fn read_pairs(file: &Path) -> Result<Vec<Pair>, InputError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = attnscope_checkpoint::open_input(file)
        .and_then(|f| f.take(MOST_PAIR_BYTES + 1).read_to_end(&mut bytes));
    let too_large = || std::io::Error::other(format!("more than {MOST_PAIR_BYTES} bytes"));
    read.and_then(|n| if n as u64 > MOST_PAIR_BYTES { Err(too_large()) } else { Ok(()) })
        .map_err(|why| InputError::Io { file: file.to_owned(), why })?;
    parse_pairs(file, &bytes)
}

/// Source, tab, target, a line each. Lines in which there is nothing are passed over; a side may be empty. A byte
/// order mark and Windows line ends are no part of a text.
pub fn parse_pairs(file: &Path, bytes: &[u8]) -> Result<Vec<Pair>, InputError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut pairs = Vec::new();
    for (i, line) in bytes.split(|&b| b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let wrong = |expected, found: String| InputError::Line {
            file: file.to_owned(),
            line: i + 1,
            expected,
            found,
        };
        let text = std::str::from_utf8(line)
            .map_err(|e| wrong("UTF-8", format!("other bytes at byte {}", e.valid_up_to() + 1)))?;
        if text.trim_matches(' ').is_empty() {
            continue;
        }
        let mut sides = text.split('\t');
        match (sides.next(), sides.next(), sides.count()) {
            (Some(source), Some(target), 0) => {
                pairs.push(Pair { line: i + 1, source: source.into(), target: target.into() });
            }
            (_, None, _) => return Err(wrong("a source, a tab and a target", "no tab".into())),
            (_, _, more) => return Err(wrong("one tab", format!("{}", more + 1))),
        }
    }
    if pairs.is_empty() {
        let found = "nothing but empty lines".to_owned();
        return Err(InputError::Line { file: file.to_owned(), line: 1, expected: "a pair", found });
    }
    Ok(pairs)
}

/// Whether a model can read these rows: every id has a row in its embedding, every place a position.
pub fn check_rows(model: &Model, side: Side, rows: &[Vec<u32>]) -> Result<(), InputError> {
    Limits::of(model, side).check(side, rows)
}

/// The same for rows that are padded: padding is looked up as well, and takes positions where they count places.
pub(crate) fn check_padded(model: &Model, side: Side, rows: &Rows) -> Result<(), InputError> {
    let limits = Limits::of(model, side);
    limits.check(side, &rows.tokens())?;
    let counted = model.wiring.position_count == PositionCount::Places;
    let positions = limits.positions.filter(|_| counted);
    Limits { positions, ..limits }.check(side, &rows.padded_rows())
}

/// How many tokens a side has positions for; `None` where there is no end to them.
pub fn position_room(model: &Model, side: Side) -> Option<usize> {
    Limits::of(model, side).positions
}

/// Positions of a side that are computed, and go on here without end, where Hugging Face makes a table of so many rows and
/// raises an error beyond it.
pub fn computed_positions(model: &Model, side: Side) -> Option<usize> {
    let wiring = &model.wiring;
    let table = wiring.positions(side).is_sinusoid() && wiring.position_count == PositionCount::Places;
    model.sizes.get(Dim::Positions(side)).filter(|_| table)
}

/// What a side of a model has room for. None: no limit, as with computed or relative positions.
#[derive(Debug, Clone, Copy)]
struct Limits {
    vocabulary: Option<usize>,
    positions: Option<usize>,
}

impl Limits {
    fn of(model: &Model, side: Side) -> Self {
        let table = model.wiring.positions(side) == Positions::Table;
        // The encoder of an audio model has no token ids, and its length is fixed elsewhere.
        let tokens = side == Side::Target || model.wiring.front == Front::Tokens;
        let positions = model.sizes.get(Dim::Positions(side)).filter(|_| table && tokens);
        Self {
            vocabulary: model.sizes.get(Dim::Vocab(side)),
            positions: positions.map(|rows| rows.saturating_sub(model.wiring.position_offset)),
        }
    }

    fn check(self, side: Side, rows: &[Vec<u32>]) -> Result<(), InputError> {
        let side = side.word();
        for (row, ids) in rows.iter().enumerate() {
            if let Some(limit) = self.positions.filter(|&limit| ids.len() > limit) {
                return Err(InputError::TooLong { row, side, length: ids.len(), limit });
            }
            let Some(limit) = self.vocabulary else { continue };
            if let Some(&id) = ids.iter().find(|&&id| id as usize >= limit) {
                return Err(InputError::OutsideVocabulary { row, side, id, limit });
            }
        }
        Ok(())
    }
}

impl Rows {
    /// Rows that the model can read, padded with its own padding.
    pub fn checked(model: &Model, side: Side, rows: &[Vec<u32>], pad: u32) -> Result<Self, InputError> {
        check_rows(model, side, rows)?;
        Ok(Self::new(rows, pad))
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
