//! The table of character replacements in a SentencePiece model: a double array over the bytes of what is
//! replaced, and the replacements, each ended by a zero byte.

use std::path::Path;

use crate::token::error::TokenError;

/// As many matches as SentencePiece itself looks at.
const MOST_MATCHES: usize = 32;

/// The longest replacement that is accepted: Unicode's longest is 18 characters.
const MOST_REPLACEMENT: usize = 4096;

#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    replacements: String,
}

impl Charsmap {
    /// None where the model replaces nothing.
    pub(super) fn read(file: &Path, blob: &[u8]) -> Result<Option<Self>, TokenError> {
        if blob.is_empty() {
            return Ok(None);
        }
        let wrong = |expected: String, found: String| TokenError::Invalid {
            file: file.to_owned(),
            place: "precompiled_charsmap".into(),
            expected,
            found,
        };
        let parts = blob.split_first_chunk().and_then(|(size, rest)| {
            let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
            rest.split_at_checked(size).filter(|_| size.is_multiple_of(4))
        });
        let Some((trie, replacements)) = parts else {
            let expected = "a table of whole 4-byte units and its size before it".to_owned();
            return Err(wrong(expected, format!("{} bytes that do not fit", blob.len())));
        };
        let Ok(replacements) = String::from_utf8(replacements.to_vec()) else {
            return Err(wrong("replacements in UTF-8".into(), "other bytes".into()));
        };
        let longest = replacements.split('\0').map(str::len).max().unwrap_or(0);
        if longest > MOST_REPLACEMENT {
            return Err(wrong(
                format!("replacements of at most {MOST_REPLACEMENT} bytes"),
                longest.to_string(),
            ));
        }
        let unit = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok(Some(Self { units: trie.chunks_exact(4).map(unit).collect(), replacements }))
    }

    /// The longest beginning of `text` that is replaced: its length and its replacement. A table that points outside itself, or
    /// into the middle of a character, replaces nothing.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut node = offset(*self.units.first()?);
        let mut found = None;
        let mut matches = 0;
        for (i, &byte) in text.as_bytes().iter().enumerate() {
            node ^= usize::from(byte);
            let Some(&unit) = self.units.get(node) else { break };
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            let has_leaf = unit >> 8 & 1 == 1;
            if has_leaf {
                let Some(&leaf) = self.units.get(node) else { break };
                found = Some((i + 1, (leaf & 0x7fff_ffff) as usize));
                matches += 1;
                if matches == MOST_MATCHES {
                    break;
                }
            }
        }
        let (length, start) = found.filter(|(length, _)| text.is_char_boundary(*length))?;
        let replacement = self.replacements.get(start..)?;
        Some((length, replacement.split('\0').next().unwrap_or_default()))
    }
}

/// Where the children of a unit are, relative to it, by exclusive or.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}
