//! Display width, and breaking text into lines that fit a box.

use crate::diagram::Block;
use crate::glyphs::{Glyphs, clean};
use unicode_width::UnicodeWidthChar;

/// Columns a character takes in a terminal: 0 for a combining mark, 2 for CJK.
pub(crate) fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Columns a text takes, counted character by character as the canvas does.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Lines after the first of one wrapped text start this far in, so that a name over two lines reads as one.
const HANG: usize = 2;

/// Breaks `text` into lines of at most `columns`: at spaces, else after dots, underscores and the like,
/// else between the words of a `CamelCase` name, else anywhere. Nothing but the spaces at a break is lost.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    wrap_judged(text, columns).0
}

/// Breaks a sentence into lines of at most `columns`, at spaces where it can. Nothing but the spaces at a break is lost.
pub fn wrap_plain(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(cut(rest, columns.max(2)).0);
        lines.push(head.trim_end().to_owned());
        rest = tail.trim_start();
    }
    lines
}

/// The lines, and how much the breaks hurt: nothing at spaces between words, most within a word.
pub(crate) fn wrap_judged(text: &str, columns: usize) -> (Vec<String>, usize) {
    let columns = columns.max(2);
    // A hanging indent in a very narrow box would leave no room for the text itself.
    let hang = if columns >= 4 * HANG { HANG } else { 0 };
    let (mut lines, mut hurt) = (Vec::new(), 0);
    let mut rest = text.trim();
    while !rest.is_empty() {
        let indent = if lines.is_empty() { 0 } else { hang };
        let (at, cost) = cut(rest, columns - indent);
        let (head, tail) = rest.split_at(at);
        lines.push(format!("{}{}", " ".repeat(indent), head.trim_end()));
        rest = tail.trim_start();
        hurt += cost;
    }
    (lines, hurt)
}

/// The byte at which the first line of `text` ends, and how much that hurts.
fn cut(text: &str, columns: usize) -> (usize, usize) {
    let (mut used, mut hard, mut depth) = (0, 0, 0_usize);
    // A space between words, a space within brackets (a shape is better kept whole), a joint between the
    // parts of a path, one within a part.
    let (mut space, mut inner, mut part, mut joint, mut camel) = (None, None, None, None, None);
    let mut before = None::<char>;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            // A space may hang over the edge: it is dropped there.
            ' ' if depth == 0 => space = Some((at, 0)),
            ' ' => inner = Some((at, 1)),
            _ => {}
        }
        if c.is_uppercase() && before.is_some_and(char::is_lowercase) && 2 * used >= columns {
            camel = Some((at, 4));
        }
        before = Some(c);
        used += char_width(c);
        if used > columns {
            let first = text.chars().next().map_or(1, char::len_utf8);
            return space.or(inner).or(part).or(joint).or(camel).unwrap_or((hard.max(first), 8));
        }
        hard = at + c.len_utf8();
        match c {
            // Not too early, or a line would be left nearly empty.
            '.' | '/' if 3 * used >= columns => part = Some((hard, 2)),
            '.' | '/' | '_' | '-' | ':' | ',' => joint = Some((hard, 3)),
            _ => {}
        }
    }
    (text.len(), 0)
}

/// A name of more columns than this loses its middle: nobody reads it to the end, and no box is to be
/// filled with a hundred lines of it.
const LONGEST_NAME: usize = 160;
/// The same for a whole text in a box: a name may have spaces in it.
const LONGEST_TEXT: usize = 2 * LONGEST_NAME;

/// `text` as a table or a heading shows it: in its characters, overlong names shortened.
pub(crate) fn shown(text: &str, glyphs: Glyphs) -> String {
    glyphs.text(&short_names(&clean(text)))
}

/// `text` as a box shows it: cleaned, overlong names shortened, and never more than a few lines.
pub(crate) fn brief(text: &str) -> String {
    ellipsis(&short_names(&clean(text)), LONGEST_TEXT)
}

/// The texts of a block that [`brief`] shortens, in full.
pub(crate) fn long_texts(block: &Block, glyphs: Glyphs) -> Vec<String> {
    let texts = [&block.title, &block.shape].into_iter().chain(&block.lines);
    texts.filter(|text| brief(text) != clean(text)).map(|text| glyphs.text(text)).collect()
}

/// `text` with every overlong name in it shortened.
pub(crate) fn short_names(text: &str) -> String {
    text.split(' ').map(|word| ellipsis(word, LONGEST_NAME)).collect::<Vec<_>>().join(" ")
}

/// `text` shortened in the middle to at most `columns`. The two ends of a tensor's name say most about it.
fn ellipsis(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let head = take(text.chars(), room.div_ceil(2));
    let tail: String = take(text.chars().rev(), room - width(&head)).chars().rev().collect();
    format!("{head}…{tail}")
}

fn take(chars: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += char_width(*c);
            used <= columns
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_at_spaces_then_joints_then_anywhere() {
        assert_eq!(wrap("q_proj.weight [128, 128] f16", 20), ["q_proj.weight", "  [128, 128] f16"]);
        assert_eq!(wrap("[128, 128, 64] f16", 12), ["[128, 128,", "  64] f16"]);
        assert_eq!(wrap("model.decoder.layers.0.q_proj", 16), ["model.decoder.", "  layers.0.", "  q_proj"]);
        assert_eq!(wrap("aaaaaaaaaaaa", 8), ["aaaaaaaa", "  aaaa"]);
        assert_eq!(wrap("重重重", 5), ["重重", "重"]);
        assert_eq!(wrap("T5ForConditionalGeneration", 25), ["T5ForConditional", "  Generation"]);
        assert!(wrap("", 5).is_empty());
    }

    #[test]
    fn the_middle_goes_first() {
        assert_eq!(ellipsis("model.decoder.weight", 9), "mode…ight");
        assert_eq!(ellipsis("short", 9), "short");
        assert_eq!(ellipsis("重重重重", 5), "重…重");
    }

    #[test]
    fn only_what_nobody_would_read_is_left_out() {
        let name = "layer.".repeat(26);
        assert_eq!(brief(&format!("{name} [2]  f16")), format!("{name} [2]  f16"));
        let long = "x".repeat(5000);
        assert_eq!(width(&brief(&format!("{long} [2]"))), LONGEST_NAME + 4);
        assert!(brief(&format!("{long} [2]")).ends_with("x [2]"));
        assert_eq!(width(&brief(&"x ".repeat(5000))), LONGEST_TEXT);
        assert!(shown(&"重".repeat(5000), Glyphs::Ascii).contains("}...\\u{"));
    }
}
