//! Display width, and breaking text into lines that fit a box.

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
/// else anywhere. Nothing but the spaces at a break is lost.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    wrap_judged(text, columns).0
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
    let (mut space, mut inner, mut part, mut joint) = (None, None, None, None);
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            // A space may hang over the edge: it is dropped there.
            ' ' if depth == 0 => space = Some((at, 0)),
            ' ' => inner = Some((at, 1)),
            _ => {}
        }
        used += char_width(c);
        if used > columns {
            let first = text.chars().next().map_or(1, char::len_utf8);
            return space.or(inner).or(part).or(joint).unwrap_or((hard.max(first), 8));
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

/// `text` shortened in the middle to at most `columns`, `dots` standing for what is left out. The two ends
/// of a tensor's name say most about it.
pub(crate) fn ellipsis(text: &str, columns: usize, dots: &str) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(width(dots));
    if room == 0 {
        return take(text.chars(), columns);
    }
    let head = take(text.chars(), room.div_ceil(2));
    let tail: String = take(text.chars().rev(), room - width(&head)).chars().rev().collect();
    format!("{head}{dots}{tail}")
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
        assert!(wrap("", 5).is_empty());
    }

    #[test]
    fn the_middle_goes_first() {
        assert_eq!(ellipsis("model.decoder.weight", 9, "…"), "mode…ight");
        assert_eq!(ellipsis("short", 9, "…"), "short");
        assert_eq!(ellipsis("重重重重", 5, "…"), "重…重");
        assert_eq!(ellipsis("abcdef", 1, "…"), "a");
    }
}
