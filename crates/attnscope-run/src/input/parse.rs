//! Inputs as text, from a front end or a file, checked before anything is run.

use attnscope_checkpoint::Remedy;
use std::path::{Path, PathBuf};

use attnscope_graph::{Dim, Model, PositionCount, Positions, Side};

use super::Rows;

/// An input that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// Not a token id.
    #[error("row {row}: expected a token id, found {found:?}")]
    NotAnId {
        /// Which row, from 0.
        row: usize,
        /// The text in its place.
        found: String,
    },
    /// An empty row, or an empty input.
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
    #[error("row {row} of the {side}: {length} tokens, and the model's position table has {limit} positions")]
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
    /// A file of pairs with an invalid line.
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
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
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
            Self::Line { .. } => "write one pair per line: the source, a tab, the target; in UTF-8".into(),
        }
    }
}

/// Ids with commas or spaces between them and `;` between rows. A `;` at the end does not begin a new row.
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
            // Rust parses "+3" as a number, but it is not an id.
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
    /// What it should generate.
    pub target: String,
}

/// More than any file of pairs needs.
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

/// Source, tab, target, one pair per line. Empty lines are skipped; a side may be empty. A byte
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

/// Whether a model can read these rows: every id has a row in its embedding, and every token a position.
pub fn check_rows(model: &Model, side: Side, rows: &[Vec<u32>]) -> Result<(), InputError> {
    SideLimits::of(model, side).check(side, rows)
}

/// The same for rows that are padded: padding is also looked up, and takes positions where all positions are counted.
pub(crate) fn check_padded(model: &Model, side: Side, rows: &Rows) -> Result<(), InputError> {
    let room = SideLimits::of(model, side);
    room.check(side, &rows.tokens())?;
    let counted = model.graph.positions(side).is_none_or(|added| added.count == PositionCount::Places);
    let positions = room.positions.filter(|_| counted);
    SideLimits { positions, ..room }.check(side, &rows.padded_rows())
}

/// For how many tokens a side has positions; `None` where there is no limit.
pub fn position_limit(model: &Model, side: Side) -> Option<usize> {
    SideLimits::of(model, side).positions
}

/// The rows of the table that Hugging Face makes for computed positions of a side, beyond which it raises an error. Here such
/// positions have no limit.
pub fn computed_positions(model: &Model, side: Side) -> Option<usize> {
    let added = model.graph.positions(side)?;
    let table = added.kind.is_sinusoid() && added.count == PositionCount::Places;
    model.sizes.get(Dim::Positions(side)).filter(|_| table)
}

/// The largest ids and lengths that a side of a model can read. `None` means no limit, as with computed or relative positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SideLimits {
    vocabulary: Option<usize>,
    positions: Option<usize>,
}

impl SideLimits {
    pub(crate) fn of(model: &Model, side: Side) -> Self {
        let table = model.graph.positions(side).filter(|added| added.kind == Positions::Table);
        // The encoder of an audio model has no token ids, and its length is fixed elsewhere.
        let table = table.filter(|_| side == Side::Target || !model.graph.reads_audio());
        let rows = model.sizes.get(Dim::Positions(side)).zip(table);
        Self {
            vocabulary: model.sizes.get(Dim::Vocab(side)),
            positions: rows.map(|(rows, table)| rows.saturating_sub(table.offset)),
        }
    }

    fn check(self, side: Side, rows: &[Vec<u32>]) -> Result<(), InputError> {
        self.check_after(0, side, rows)
    }

    /// The same for rows that go on after so many tokens, which were checked before.
    pub(crate) fn check_after(self, past: usize, side: Side, rows: &[Vec<u32>]) -> Result<(), InputError> {
        let side = side.word();
        for (row, ids) in rows.iter().enumerate() {
            let length = past + ids.len();
            if let Some(limit) = self.positions.filter(|&limit| length > limit) {
                return Err(InputError::TooLong { row, side, length, limit });
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
