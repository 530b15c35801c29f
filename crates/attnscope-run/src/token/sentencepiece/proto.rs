//! The few fields of a SentencePiece model file that segmentation needs, read with every length checked.

use std::path::Path;

use crate::token::error::TokenError;

/// More pieces than any vocabulary has.
const MOST_PIECES: usize = 4_000_000;

/// What a piece is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::token) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    /// By SentencePiece's number, which GGUF has kept.
    pub(in crate::token) fn numbered(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone)]
pub(in crate::token) struct Piece {
    pub(in crate::token) text: String,
    pub(in crate::token) score: f32,
    pub(in crate::token) kind: Kind,
}

/// How text is cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::token) enum Algorithm {
    Unigram,
    Bpe,
}

/// How text is changed before it is cut.
#[derive(Debug, Clone)]
pub(in crate::token) struct NormaliserSpec {
    pub(in crate::token) charsmap: Vec<u8>,
    pub(in crate::token) add_dummy_prefix: bool,
    pub(in crate::token) remove_extra_whitespaces: bool,
    pub(in crate::token) escape_whitespaces: bool,
}

#[derive(Debug)]
pub(in crate::token) struct ModelProto {
    pub(in crate::token) pieces: Vec<Piece>,
    pub(in crate::token) algorithm: Algorithm,
    pub(in crate::token) byte_fallback: bool,
    pub(in crate::token) whitespace_as_suffix: bool,
    pub(in crate::token) normaliser: NormaliserSpec,
}

/// One field's value, as the wire has it.
enum Value<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
    /// Eight bytes; no field that is read has this type.
    Fixed64,
}

/// A position in a message. `what` names the message in errors.
struct Reader<'a> {
    file: &'a Path,
    what: String,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn wrong(&self, expected: &str, found: impl Into<String>) -> TokenError {
        TokenError::Invalid {
            file: self.file.to_owned(),
            place: self.what.clone(),
            expected: expected.to_owned(),
            found: found.into(),
        }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], TokenError> {
        let Some((head, tail)) = self.bytes.split_at_checked(n) else {
            return Err(self.wrong(&format!("{n} more bytes"), format!("{}", self.bytes.len())));
        };
        self.bytes = tail;
        Ok(head)
    }

    fn varint(&mut self) -> Result<u64, TokenError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.wrong("a number of at most 10 bytes", "a longer one"))
    }

    /// The next field's number and value; none at the end of the message.
    fn field(&mut self) -> Result<Option<(u64, Value<'a>)>, TokenError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = self.varint()?;
                // A length beyond the address space is also more than is left.
                Value::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed32([bytes[0], bytes[1], bytes[2], bytes[3]])
            }
            wire => return Err(self.wrong("wire type 0, 1, 2 or 5", wire.to_string())),
        };
        Ok(Some((key >> 3, value)))
    }

    fn inner(&self, what: String, bytes: &'a [u8]) -> Self {
        Self { file: self.file, what, bytes }
    }

    fn text(&self, bytes: &[u8]) -> Result<String, TokenError> {
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned)
            .map_err(|e| self.wrong("UTF-8", format!("other bytes at {}", e.valid_up_to())))
    }
}

impl ModelProto {
    pub(super) fn read(file: &Path, bytes: &[u8]) -> Result<Self, TokenError> {
        let mut reader = Reader { file, what: "SentencePiece model".into(), bytes };
        let normaliser = NormaliserSpec {
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        };
        let mut model = Self {
            pieces: Vec::new(),
            algorithm: Algorithm::Unigram,
            byte_fallback: false,
            whitespace_as_suffix: false,
            normaliser,
        };
        while let Some((number, value)) = reader.field()? {
            match (number, value) {
                (1, Value::Bytes(bytes)) => {
                    let what = format!("piece {}", model.pieces.len());
                    model.pieces.push(read_piece(reader.inner(what, bytes))?);
                    if model.pieces.len() > MOST_PIECES {
                        return Err(reader.wrong(&format!("at most {MOST_PIECES} pieces"), "more"));
                    }
                }
                (2, Value::Bytes(bytes)) => {
                    model.read_trainer(reader.inner("trainer_spec".into(), bytes))?;
                }
                (3, Value::Bytes(bytes)) => {
                    model.normaliser.read(reader.inner("normalizer_spec".into(), bytes))?;
                }
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err(reader.wrong("pieces", "none"));
        }
        Ok(model)
    }

    fn read_trainer(&mut self, mut reader: Reader<'_>) -> Result<(), TokenError> {
        while let Some((number, value)) = reader.field()? {
            match (number, value) {
                (3, Value::Varint(1)) => self.algorithm = Algorithm::Unigram,
                (3, Value::Varint(2)) => self.algorithm = Algorithm::Bpe,
                (3, Value::Varint(other)) => {
                    let name = match other {
                        3 => "whole words".to_owned(),
                        4 => "single characters".to_owned(),
                        n => format!("model type {n}"),
                    };
                    let what = format!("a SentencePiece model of {name}; unigram and BPE are read");
                    return Err(TokenError::Unsupported { file: reader.file.to_owned(), what });
                }
                (24, Value::Varint(flag)) => self.whitespace_as_suffix = flag != 0,
                (35, Value::Varint(flag)) => self.byte_fallback = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

impl NormaliserSpec {
    fn read(&mut self, mut reader: Reader<'_>) -> Result<(), TokenError> {
        while let Some((number, value)) = reader.field()? {
            match (number, value) {
                (2, Value::Bytes(bytes)) => self.charsmap = bytes.to_vec(),
                (3, Value::Varint(flag)) => self.add_dummy_prefix = flag != 0,
                (4, Value::Varint(flag)) => self.remove_extra_whitespaces = flag != 0,
                (5, Value::Varint(flag)) => self.escape_whitespaces = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

fn read_piece(mut reader: Reader<'_>) -> Result<Piece, TokenError> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: Kind::Normal };
    while let Some((number, value)) = reader.field()? {
        match (number, value) {
            (1, Value::Bytes(bytes)) => piece.text = reader.text(bytes)?,
            (2, Value::Fixed32(bytes)) => piece.score = f32::from_le_bytes(bytes),
            (3, Value::Varint(kind)) => {
                let known = Kind::numbered(kind);
                piece.kind = known.ok_or_else(|| reader.wrong("a type from 1 to 6", kind.to_string()))?;
            }
            _ => {}
        }
    }
    if piece.text.is_empty() {
        return Err(reader.wrong("a text", "none"));
    }
    if !piece.score.is_finite() {
        return Err(reader.wrong("a finite score", piece.score.to_string()));
    }
    Ok(piece)
}
