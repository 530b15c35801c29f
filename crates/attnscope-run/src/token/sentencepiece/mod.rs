//! SentencePiece models, and how the families that use them number the pieces.

mod charsmap;
mod normalise;
mod pieces;
mod prefix;
mod proto;
mod segment;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use self::pieces::{Assembly, Pieces};
use self::proto::Kind;
use super::error::TokenError;

/// Text through SentencePiece, numbered as the model's embedding rows are.
#[derive(Debug)]
pub(super) struct SentencePiece {
    source: Pieces,
    /// Where the target has pieces of its own.
    target: Option<Pieces>,
    ids: Ids,
    eos: Option<u32>,
}

/// From a piece's number in its file to its row in the model.
#[derive(Debug)]
enum Ids {
    /// The same, with so many `<extra_id_N>` after the last piece: T5.
    Own { extra: u32 },
    /// Special tokens come first, and pieces are moved up: mBART, Pegasus.
    Shifted { by: u32, first: Vec<String>, unknown: u32 },
    /// A list of pieces and rows beside it: Marian, M2M100.
    Listed { rows: HashMap<String, u32>, pieces: HashMap<u32, String>, unknown: u32 },
}

/// What is beside a SentencePiece file that says how its pieces are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbering {
    /// T5's.
    Own { extra: u32 },
    /// fairseq's four special tokens first: mBART, NLLB.
    Fairseq,
    /// Pegasus's special tokens first, and so many numbers for them.
    Pegasus { offset: u32 },
}

const EOS: &str = "</s>";
const UNKNOWN: &str = "<unk>";
const SPECIAL: [&str; 4] = ["<s>", "<pad>", EOS, UNKNOWN];

impl SentencePiece {
    /// One file for both sides.
    pub(super) fn read(file: &Path, bytes: &[u8], numbering: Numbering) -> Result<Self, TokenError> {
        let source = Pieces::read(file, bytes)?;
        let ids = match numbering {
            Numbering::Own { extra } => Ids::Own { extra },
            Numbering::Fairseq => {
                Ids::Shifted { by: 1, first: SPECIAL.map(str::to_owned).to_vec(), unknown: 3 }
            }
            Numbering::Pegasus { offset } => {
                let mut first: Vec<String> =
                    ["<pad>", EOS, "<mask_1>", "<mask_2>"].map(str::to_owned).to_vec();
                first.extend((2..offset).map(|i| format!("<unk_{i}>")));
                first.truncate(offset as usize);
                Ids::Shifted { by: offset, first, unknown: source.unknown.saturating_add(offset) }
            }
        };
        Ok(Self { source, target: None, ids, eos: None }.with_eos())
    }

    /// A list of rows, and a file for each side or one for both.
    pub(super) fn listed(
        source: (&Path, &[u8]),
        target: Option<(&Path, &[u8])>,
        vocabulary: (&Path, &[u8]),
    ) -> Result<Self, TokenError> {
        let invalid = |expected: &str, found: String| TokenError::Invalid {
            file: PathBuf::from(vocabulary.0),
            place: "the list of pieces".into(),
            expected: expected.to_owned(),
            found,
        };
        let rows: HashMap<String, u32> = serde_json::from_slice(vocabulary.1)
            .map_err(|e| invalid("an object from pieces to ids", e.to_string()))?;
        let unknown = *rows.get(UNKNOWN).ok_or_else(|| invalid(UNKNOWN, "none".into()))?;
        let pieces = rows.iter().map(|(piece, &row)| (row, piece.clone())).collect();
        let source = Pieces::read(source.0, source.1)?;
        let target = target.map(|(file, bytes)| Pieces::read(file, bytes)).transpose()?;
        Ok(Self { source, target, ids: Ids::Listed { rows, pieces, unknown }, eos: None }.with_eos())
    }

    fn with_eos(mut self) -> Self {
        self.eos = self.id(EOS);
        self
    }

    pub(super) fn encode_source(&self, text: &str) -> Vec<u32> {
        self.encode(&self.source, text)
    }

    pub(super) fn encode_target(&self, text: &str) -> Vec<u32> {
        self.encode(self.target.as_ref().unwrap_or(&self.source), text)
    }

    fn encode(&self, pieces: &Pieces, text: &str) -> Vec<u32> {
        let (language, text) = self.language(text);
        let found = pieces.encode(text).into_iter();
        let rows = found.map(|(id, unknown)| match (&self.ids, unknown) {
            // What this side's model does not know, the list may have from the other side's.
            (Ids::Listed { rows, unknown, .. }, Some(text)) => rows.get(&text).copied().unwrap_or(*unknown),
            _ => self.row(pieces, id),
        });
        language.into_iter().chain(rows).chain(self.eos).collect()
    }

    /// Marian's models of several languages are told which one by `>>fra<<` before the text.
    fn language<'a>(&self, text: &'a str) -> (Option<u32>, &'a str) {
        let end = text.find("<<").map(|at| at + 2);
        match (&self.ids, end) {
            (Ids::Listed { rows, unknown, .. }, Some(end)) if text.starts_with(">>") => {
                let (code, rest) = text.split_at(end);
                (Some(rows.get(code).copied().unwrap_or(*unknown)), rest)
            }
            _ => (None, text),
        }
    }

    fn row(&self, pieces: &Pieces, id: u32) -> u32 {
        match &self.ids {
            Ids::Own { .. } => id,
            Ids::Shifted { unknown, .. } if id == pieces.unknown => *unknown,
            Ids::Shifted { by, .. } => id.saturating_add(*by),
            Ids::Listed { rows, unknown, .. } => {
                pieces.get(id).and_then(|piece| rows.get(&piece.text)).copied().unwrap_or(*unknown)
            }
        }
    }

    pub(super) fn id(&self, piece: &str) -> Option<u32> {
        match &self.ids {
            Ids::Own { extra } => self.source.id(piece).or_else(|| {
                let n: u32 = piece.strip_prefix("<extra_id_")?.strip_suffix('>')?.parse().ok()?;
                let from_end = extra.checked_sub(n.checked_add(1)?)?;
                u32::try_from(self.source.all.len()).ok()?.checked_add(from_end)
            }),
            Ids::Shifted { first, .. } => match first.iter().position(|p| p == piece) {
                Some(at) => u32::try_from(at).ok(),
                None => self.source.id(piece).map(|id| self.row(&self.source, id)),
            },
            Ids::Listed { rows, .. } => rows.get(piece).copied(),
        }
    }

    pub(super) fn piece(&self, row: u32) -> Option<String> {
        match &self.ids {
            Ids::Own { extra } => self.source.get(row).map(|p| p.text.clone()).or_else(|| {
                let past = row.checked_sub(u32::try_from(self.source.all.len()).ok()?)?;
                extra.checked_sub(past.checked_add(1)?).map(|n| format!("<extra_id_{n}>"))
            }),
            Ids::Shifted { by, first, .. } => match first.get(row as usize) {
                Some(piece) => Some(piece.clone()),
                None => self.source.get(row.checked_sub(*by)?).map(|p| p.text.clone()),
            },
            Ids::Listed { pieces, .. } => pieces.get(&row).cloned(),
        }
    }

    /// Special tokens are written out, or left out.
    pub(super) fn decode(&self, rows: &[u32], skip_special: bool) -> String {
        let model = self.target.as_ref().unwrap_or(&self.source);
        let mut out = String::new();
        let mut text = Assembly::default();
        for &row in rows {
            let piece = self.piece(row).unwrap_or_else(|| UNKNOWN.to_owned());
            let own =
                [Some(model), Some(&self.source)].into_iter().flatten().find_map(|m| m.get(m.id(&piece)?));
            match own.filter(|p| !matches!(p.kind, Kind::Control | Kind::Unknown)) {
                Some(own) => model.append(&mut text, own),
                None if skip_special => {}
                None => {
                    out.push_str(&std::mem::take(&mut text).finish());
                    out.push_str(&piece);
                }
            }
        }
        out + &text.finish()
    }

    /// How many rows the numbering speaks of.
    pub(super) fn len(&self) -> usize {
        match &self.ids {
            Ids::Own { extra } => self.source.all.len() + *extra as usize,
            Ids::Shifted { by, .. } => self.source.all.len() + *by as usize,
            Ids::Listed { pieces, .. } => pieces.keys().max().map_or(0, |&last| last as usize + 1),
        }
    }
}
