//! SentencePiece models, and how the families that use them number the pieces.

mod charsmap;
mod languages;
mod normalise;
mod pieces;
mod prefix;
pub(super) mod proto;
mod segment;

use std::collections::HashMap;
use std::path::Path;

use self::languages::Languages;
use self::pieces::{Assembly, Pieces};
use self::proto::{Kind, ModelProto};
use super::error::TokenError;

/// Text through SentencePiece, numbered as the model's embedding rows are.
#[derive(Debug)]
pub(super) struct SentencePiece {
    source: Pieces,
    /// Where the target has pieces of its own.
    target: Option<Pieces>,
    ids: Ids,
    /// What comes before a text, other than a language.
    bos: Option<u32>,
    eos: Option<u32>,
    /// Where each text begins with its language: M2M100.
    languages: Option<Languages>,
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
        Ok(Self { source, target: None, ids, bos: None, eos: None, languages: None }.with_eos())
    }

    /// A model that is numbered as it is, with what comes before and after a text.
    pub(super) fn of_model(
        file: &Path,
        model: ModelProto,
        [bos, eos]: [Option<u32>; 2],
    ) -> Result<Self, TokenError> {
        let source = Pieces::new(file, model)?;
        Ok(Self { source, target: None, ids: Ids::Own { extra: 0 }, bos, eos, languages: None })
    }

    /// Marian: a file for each side, and a list of rows.
    pub(super) fn marian(
        source: (&Path, &[u8]),
        target: (&Path, &[u8]),
        list: (&Path, &[u8]),
    ) -> Result<Self, TokenError> {
        let ids = Ids::listed(read_list(list)?, list.0)?;
        let target = Some(Pieces::read(target.0, target.1)?);
        let source = Pieces::read(source.0, source.1)?;
        Ok(Self { source, target, ids, bos: None, eos: None, languages: None }.with_eos())
    }

    /// M2M100: a list of rows, and a token for each language after it.
    pub(super) fn m2m100(
        model: (&Path, &[u8]),
        list: (&Path, &[u8]),
        wmt21: bool,
    ) -> Result<Self, TokenError> {
        let mut rows = read_list(list)?;
        let languages = Languages::list(&mut rows, wmt21);
        let ids = Ids::listed(rows, list.0)?;
        let source = Pieces::read(model.0, model.1)?;
        Ok(Self { source, target: None, ids, bos: None, eos: None, languages }.with_eos())
    }

    /// Sets the languages of the texts by their codes; false for a code that the model does not have.
    pub(super) fn set_language(&mut self, target: bool, code: &str) -> bool {
        let id = self.id(&languages::token(code));
        match (&mut self.languages, id) {
            (Some(languages), Some(id)) if target => languages.target = Some(id),
            (Some(languages), Some(id)) => languages.source = id,
            _ => return false,
        }
        true
    }

    fn with_eos(mut self) -> Self {
        self.eos = self.id(EOS);
        self
    }

    pub(super) fn encode_source(&self, text: &str) -> Vec<u32> {
        match &self.languages {
            Some(languages) => self.encode(&self.source, Some(languages.source), text),
            None => {
                let (language, text) = self.language(text);
                self.encode(&self.source, language, text)
            }
        }
    }

    pub(super) fn encode_target(&self, text: &str) -> Result<Vec<u32>, TokenError> {
        let pieces = self.target.as_ref().unwrap_or(&self.source);
        match &self.languages {
            Some(Languages { target: None, .. }) => Err(TokenError::NoLanguage),
            Some(languages) => Ok(self.encode(pieces, languages.target, text)),
            None => {
                let (language, text) = self.language(text);
                Ok(self.encode(pieces, language, text))
            }
        }
    }

    fn encode(&self, pieces: &Pieces, language: Option<u32>, text: &str) -> Vec<u32> {
        let found = pieces.encode(text).into_iter();
        let rows = found.map(|(id, unknown)| match (&self.ids, unknown) {
            // A piece that this side's model lacks may be in the list for the other side.
            (Ids::Listed { rows, unknown, .. }, Some(text)) => rows.get(&text).copied().unwrap_or(*unknown),
            _ => self.row(pieces, id),
        });
        language.or(self.bos).into_iter().chain(rows).chain(self.eos).collect()
    }

    /// Marian's multilingual models get the language as `>>fra<<` before the text.
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

    /// How many rows the numbering has.
    pub(super) fn len(&self) -> usize {
        match &self.ids {
            Ids::Own { extra } => self.source.all.len() + *extra as usize,
            Ids::Shifted { by, .. } => self.source.all.len() + *by as usize,
            Ids::Listed { pieces, .. } => pieces.keys().max().map_or(0, |&last| last as usize + 1),
        }
    }
}

impl Ids {
    fn listed(rows: HashMap<String, u32>, file: &Path) -> Result<Self, TokenError> {
        let unknown = *rows.get(UNKNOWN).ok_or_else(|| invalid_list(file, UNKNOWN, "none".into()))?;
        let pieces = rows.iter().map(|(piece, &row)| (row, piece.clone())).collect();
        Ok(Self::Listed { rows, pieces, unknown })
    }
}

fn read_list((file, bytes): (&Path, &[u8])) -> Result<HashMap<String, u32>, TokenError> {
    serde_json::from_slice(bytes)
        .map_err(|e| invalid_list(file, "an object from pieces to ids", e.to_string()))
}

fn invalid_list(file: &Path, expected: &str, found: String) -> TokenError {
    TokenError::Invalid {
        file: file.to_owned(),
        place: "the list of pieces".into(),
        expected: expected.to_owned(),
        found,
    }
}
