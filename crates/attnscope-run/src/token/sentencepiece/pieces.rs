//! One SentencePiece model: text to pieces and back.

use std::collections::HashMap;
use std::path::Path;

use super::charsmap::Charsmap;
use super::normalise::{SPACE, TextNormaliser};
use super::prefix::Prefixes;
use super::proto::{Algorithm, Kind, ModelProto, Piece};
use super::segment;
use crate::token::error::TokenError;

#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) all: Vec<Piece>,
    /// Pieces that text can be cut into.
    pub(super) usable: Prefixes,
    /// Pieces that are never normalised or cut.
    pub(super) fixed: Prefixes,
    /// Pieces that text is never cut into: `</s>`, `<unk>`, `<0x0A>`.
    reserved: HashMap<String, u32>,
    pub(super) unknown: u32,
    /// The piece of each byte, where the model has them.
    bytes: Option<Box<[u32; 256]>>,
    algorithm: Algorithm,
    normaliser: TextNormaliser,
}

impl Pieces {
    pub(super) fn read(file: &Path, bytes: &[u8]) -> Result<Self, TokenError> {
        Self::new(file, ModelProto::read(file, bytes)?)
    }

    pub(super) fn new(file: &Path, proto: ModelProto) -> Result<Self, TokenError> {
        let wrong = |place: String, expected: &str, found: &str| TokenError::Invalid {
            file: file.to_owned(),
            place,
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        let numbered = || proto.pieces.iter().zip(0u32..);
        let mut seen = HashMap::new();
        for (piece, id) in numbered() {
            if let Some(first) = seen.insert(piece.text.as_str(), id) {
                let found = format!("{:?} again, which is piece {first}", piece.text);
                return Err(wrong(format!("piece {id}"), "a piece of its own", &found));
            }
        }
        let of = |kinds: &[Kind]| {
            let chosen = numbered().filter(|(p, _)| kinds.contains(&p.kind));
            chosen.map(|(p, id)| (Box::from(p.text.as_str()), id)).collect::<Vec<_>>()
        };
        let unknown = of(&[Kind::Unknown]);
        let [(_, unknown)] = unknown[..] else {
            let found = unknown.len().to_string();
            return Err(wrong("pieces".into(), "one of type unknown", &found));
        };
        let bytes = if proto.byte_fallback {
            Some(byte_pieces(&seen).map_err(|byte| {
                wrong("pieces".into(), &format!("<0x{byte:02X}>, since byte_fallback is set"), "none")
            })?)
        } else {
            None
        };
        let reserved = of(&[Kind::Control, Kind::Unknown, Kind::Byte]);
        Ok(Self {
            usable: Prefixes::new(of(&[Kind::Normal, Kind::UserDefined, Kind::Unused]).into_iter()),
            fixed: Prefixes::new(of(&[Kind::UserDefined]).into_iter()),
            reserved: reserved.into_iter().map(|(text, id)| (text.into(), id)).collect(),
            unknown,
            bytes,
            algorithm: proto.algorithm,
            normaliser: TextNormaliser {
                charsmap: Charsmap::read(file, &proto.normaliser.charsmap)?,
                spec: proto.normaliser,
                whitespace_as_suffix: proto.whitespace_as_suffix,
            },
            all: proto.pieces,
        })
    }

    pub(super) fn id(&self, piece: &str) -> Option<u32> {
        self.reserved.get(piece).copied().or_else(|| self.usable.id(piece))
    }

    pub(super) fn get(&self, id: u32) -> Option<&Piece> {
        self.all.get(id as usize)
    }

    /// The ids of a text's pieces. A run of unknown characters is one unknown piece, with its text, or the bytes it
    /// consists of.
    pub(super) fn encode(&self, text: &str) -> Vec<(u32, Option<String>)> {
        let text = self.normaliser.normalise(text, &self.fixed);
        let found = match self.algorithm {
            Algorithm::Unigram => segment::unigram(self, &text),
            Algorithm::Bpe => segment::bpe(self, &text),
        };
        let mut ids: Vec<(u32, Option<String>)> = Vec::with_capacity(found.len());
        for (range, id) in found {
            if id != self.unknown {
                ids.push((id, None));
                continue;
            }
            match (&self.bytes, ids.last_mut()) {
                (Some(bytes), _) => {
                    ids.extend(text.as_bytes()[range].iter().map(|&b| (bytes[usize::from(b)], None)));
                }
                (None, Some((_, Some(run)))) => run.push_str(&text[range]),
                _ => ids.push((id, Some(text[range].to_owned()))),
            }
        }
        ids
    }

    /// Adds a piece to a text that is being put together.
    pub(super) fn append(&self, text: &mut Assembly, piece: &Piece) {
        if let (Kind::Byte, Some(byte)) = (piece.kind, byte_of(&piece.text)) {
            text.bytes.push(byte);
            return;
        }
        text.flush();
        let mut shown = piece.text.as_str();
        let spec = &self.normaliser.spec;
        let at_start = text.done.is_empty() && !text.space_taken;
        let drops = spec.add_dummy_prefix || spec.remove_extra_whitespaces;
        text.space_taken = false;
        if let (true, Some(rest)) = (at_start && drops, shown.strip_prefix(SPACE)) {
            shown = rest;
            // Only the space that was added is removed, unless the model removes all spaces at the start.
            text.space_taken = !spec.remove_extra_whitespaces;
        }
        text.done.push_str(&shown.replace(SPACE, " "));
    }
}

/// A text that is being put together from pieces.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    done: String,
    /// Bytes that may become characters.
    bytes: Vec<u8>,
    space_taken: bool,
}

impl Assembly {
    fn flush(&mut self) {
        for chunk in self.bytes.utf8_chunks() {
            self.done.push_str(chunk.valid());
            self.done.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        self.bytes.clear();
    }

    pub(super) fn finish(mut self) -> String {
        self.flush();
        self.done
    }
}

fn byte_pieces(ids: &HashMap<&str, u32>) -> Result<Box<[u32; 256]>, u8> {
    let mut pieces = Box::new([0; 256]);
    for byte in 0..=u8::MAX {
        pieces[usize::from(byte)] = *ids.get(format!("<0x{byte:02X}>").as_str()).ok_or(byte)?;
    }
    Ok(pieces)
}

fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}
