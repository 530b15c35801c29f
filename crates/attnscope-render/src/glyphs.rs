//! Which characters a drawing may use, and what is done to text before any of it is measured.
//!
//! Text is cleaned and transliterated *before* layout, so that a column counted is a column printed.

use crate::wrap::char_width;
use std::fmt::Write as _;

/// The set of characters a drawing is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Glyphs {
    /// Box-drawing characters; text as it is.
    #[default]
    Unicode,
    /// Bytes below 128 only, for logs and terminals that cannot do better.
    Ascii,
}

impl Glyphs {
    /// `text` as this set can show it, with nothing in it that a terminal would act on.
    pub fn text(self, text: &str) -> String {
        let cleaned = clean(text);
        match self {
            Glyphs::Unicode => cleaned,
            Glyphs::Ascii => ascii(&cleaned),
        }
    }

    /// Cleaned lines of text, as this set can show them. Colours are kept.
    pub fn lines(self, text: &str) -> String {
        match self {
            Glyphs::Unicode => text.to_owned(),
            Glyphs::Ascii => {
                // An escape that is left is a colour.
                let line = |line: &str| {
                    line.split('\x1b').map(|part| self.text(part)).collect::<Vec<_>>().join("\x1b")
                };
                text.split('\n').map(line).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// Escapes characters that are invisible or control a terminal: control characters (a tensor name
/// could carry an escape sequence), bidirectional overrides (a name could be shown reversed), and other
/// characters without a width of their own that would put columns out of line.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Combining marks the last letter may still take; a mark needs a letter to stand on.
    let mut room = 0_u8;
    for c in text.chars() {
        let mark = char_width(c) == 0;
        let fits = !mark || room > 0;
        room = match (mark, c.is_alphanumeric()) {
            (true, _) => room.saturating_sub(1),
            (false, true) => MARKS,
            (false, false) => 0,
        };
        match c {
            // A tab has no fixed width, and a line break would tear a box open.
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if !fits || c.is_control() || is_invisible(c) => {
                escape(&mut out, c);
                room = 0;
            }
            c => out.push(c),
        }
    }
    out
}

/// Vietnamese needs two on one letter; towers of them reach into the lines above.
const MARKS: u8 = 3;

fn escape(out: &mut String, c: char) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
}

/// Format characters: they control the display instead of being displayed.
fn is_invisible(c: char) -> bool {
    matches!(u32::from(c),
        0x00AD | 0x034F | 0x061C | 0x115F | 0x1160 | 0x17B4 | 0x17B5 | 0x180B..=0x180F
        | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF
        | 0xFFA0 | 0xFFF0..=0xFFFB | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
}

/// Transliterates to ASCII. Letters without a convention become `\u{..}`, so that different names stay different.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else if let Some(known) = transliteration(c) {
            out.push_str(known);
        } else {
            escape(&mut out, c);
        }
    }
    out
}

fn transliteration(c: char) -> Option<&'static str> {
    Some(match c {
        '√' => "sqrt",
        '×' | '⨯' | '✕' => "x",
        '·' | '•' | '⋅' | '∙' => ".",
        'ᵀ' | '⊤' => "^T",
        '→' | '⟶' => "->",
        '←' | '⟵' => "<-",
        '↔' => "<->",
        '⇒' => "=>",
        '↓' | '▼' | '▾' => "v",
        '↑' | '▲' | '▴' => "^",
        '–' | '—' | '−' | '‐' | '‑' => "-",
        '…' => "...",
        // A space in a token.
        '▁' => "_",
        '≥' => ">=",
        '≤' => "<=",
        '≠' => "!=",
        '≈' => "~=",
        '±' => "+-",
        '∞' => "inf",
        '⊙' | '∘' | '∗' => "*",
        '⊕' => "+",
        '÷' => "/",
        '∈' => "in",
        'Σ' | '∑' => "sum",
        '²' => "^2",
        '³' => "^3",
        'α' => "alpha",
        'β' => "beta",
        'γ' => "gamma",
        'ε' | 'ϵ' => "eps",
        'μ' | 'µ' => "mu",
        'σ' => "sigma",
        'λ' => "lambda",
        'π' => "pi",
        '‘' | '’' => "'",
        '“' | '”' | '«' | '»' => "\"",
        '\u{a0}' => " ",
        '✓' | '✔' => "ok",
        '✗' | '✘' => "x",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_stay_readable_in_ascii() {
        assert_eq!(Glyphs::Ascii.text("q·kᵀ × 1/√32 → weights…"), "q.k^T x 1/sqrt32 -> weights...");
        assert_eq!(Glyphs::Ascii.text("重み"), "\\u{91cd}\\u{307f}");
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(clean("w\u{1b}[31m"), "w\\u{1b}[31m");
        assert_eq!(clean("a\u{202e}b\u{9b}c\r\n\t"), "a\\u{202e}b\\u{9b}c\\r\\n\\t");
        assert_eq!(clean("plain 重み √ e\u{301}"), "plain 重み √ e\u{301}");
        assert_eq!(clean("\u{301}.\u{301}"), "\\u{301}.\\u{301}");
    }
}
