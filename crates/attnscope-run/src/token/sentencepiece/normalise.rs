//! Normalises text before it is cut into pieces.

use super::charsmap::Charsmap;
use super::prefix::Prefixes;
use super::proto::NormaliserSpec;

/// The character for a space inside pieces.
pub(super) const SPACE: &str = "▁";

#[derive(Debug)]
pub(super) struct TextNormaliser {
    pub(super) spec: NormaliserSpec,
    pub(super) charsmap: Option<Charsmap>,
    pub(super) whitespace_as_suffix: bool,
}

impl TextNormaliser {
    /// `keep` are the pieces that no rule changes.
    pub(super) fn normalise(&self, text: &str, keep: &Prefixes) -> String {
        let mut rest = text;
        if self.spec.remove_extra_whitespaces {
            while let (" ", length) = self.first(rest, keep) {
                rest = &rest[length..];
            }
        }
        if rest.is_empty() {
            return String::new();
        }
        let space = if self.spec.escape_whitespaces { SPACE } else { " " };
        let mut out = String::with_capacity(rest.len() * 2);
        if self.spec.add_dummy_prefix && !self.whitespace_as_suffix {
            out.push_str(space);
        }
        let mut after_space = self.spec.remove_extra_whitespaces;
        while !rest.is_empty() {
            let (mut piece, length) = self.first(rest, keep);
            if after_space {
                piece = piece.trim_start_matches(' ');
            }
            if !piece.is_empty() {
                piece.split(' ').enumerate().for_each(|(i, part)| {
                    out.push_str(if i > 0 { space } else { "" });
                    out.push_str(part);
                });
                after_space = piece.ends_with(' ') && self.spec.remove_extra_whitespaces;
            }
            rest = &rest[length..];
        }
        if self.spec.remove_extra_whitespaces {
            out.truncate(out.trim_end_matches(space).len());
        }
        if self.spec.add_dummy_prefix && self.whitespace_as_suffix {
            out.push_str(space);
        }
        out
    }

    /// What the beginning of the text becomes, and how much of the text that is.
    fn first<'a>(&'a self, text: &'a str, keep: &Prefixes) -> (&'a str, usize) {
        if let Some((length, _)) = keep.matches(text).last() {
            return (&text[..length], length);
        }
        if let Some((length, replacement)) = self.charsmap.as_ref().and_then(|map| map.longest(text)) {
            return (replacement, length);
        }
        let length = text.chars().next().map_or(0, char::len_utf8);
        (&text[..length], length)
    }
}
