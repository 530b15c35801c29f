//! A matrix of weights as shades: keys across, queries down, the strongest key of every query with its number.

use crate::glyphs::Glyphs;
use crate::layout::Options;
use crate::text::Style;
use crate::wrap::{shown, width};

/// A matrix with a label for every row and column.
#[derive(Debug, Clone, Copy)]
pub struct Heatmap<'a> {
    /// What stands beside each row.
    pub rows: &'a [String],
    /// The heading of each column.
    pub columns: &'a [String],
    /// [row, column], row-major, each from 0 to 1.
    pub values: &'a [f64],
}

/// From which weight on a cell has which shade: Unicode, ASCII, and a colour of the 256.
const SHADES: [(f64, char, char, u8); 5] = [
    (0.5, '█', '@', 226),
    (0.25, '▓', '#', 214),
    (0.1, '▒', '=', 168),
    (0.02, '░', '-', 97),
    (0.0, '·', '.', 240),
];

/// The least and most columns of a cell, the space beside it not counted.
const CELL: (usize, usize) = (3, 9);
/// The most columns of a row's label.
const LABEL: usize = 24;

impl Heatmap<'_> {
    /// As text no wider than the options say: in several parts, one below the other, where it has too many columns.
    pub fn text(&self, options: Options, style: Style) -> String {
        let label = |text: &String| short(&shown(text, options.glyphs), LABEL);
        let rows: Vec<String> = self.rows.iter().map(label).collect();
        let columns: Vec<String> = self.columns.iter().map(|c| shown(c, options.glyphs)).collect();
        let beside = rows.iter().map(|r| width(r)).max().unwrap_or(0);
        let room = options.width.saturating_sub(beside).max(CELL.0 + 1);
        let widest = columns.iter().map(|c| width(c)).max().unwrap_or(0).clamp(CELL.0, CELL.1);
        // Shorter labels in one part read better than whole ones in two.
        let fits = room / columns.len().max(1);
        let cell = widest.min(fits.saturating_sub(1).max(CELL.0));
        let at_once = (room / (cell + 1)).max(1);
        let paint = Paint { options, style, beside, cell };
        let mut out = String::new();
        for first in (0..columns.len()).step_by(at_once) {
            if first > 0 {
                out.push('\n');
            }
            let part = first..(first + at_once).min(columns.len());
            paint.heading(&columns[part.clone()], &mut out);
            for (r, row) in rows.iter().enumerate() {
                let Some(values) = self.values.get(r * columns.len()..(r + 1) * columns.len()) else { break };
                paint.row(row, values, part.clone(), &mut out);
            }
        }
        out
    }

    /// What the shades mean, in a line.
    pub fn legend(glyphs: Glyphs) -> String {
        let shade = |s: &(f64, char, char, u8)| format!("{} ≥ {:.0} %", glyph(s, glyphs), s.0 * 100.0);
        let parts: Vec<String> = SHADES.iter().take(4).map(shade).collect();
        glyphs.text(&format!("{}; the strongest of each row in per cent", parts.join(", ")))
    }
}

struct Paint {
    options: Options,
    style: Style,
    beside: usize,
    cell: usize,
}

impl Paint {
    fn heading(&self, columns: &[String], out: &mut String) {
        let mut line = " ".repeat(self.beside);
        for column in columns {
            line.push(' ');
            line.push_str(&padded(&short(column, self.cell), self.cell));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }

    fn row(&self, label: &str, values: &[f64], part: std::ops::Range<usize>, out: &mut String) {
        let strongest = strongest(values);
        let mut line = padded(label, self.beside);
        for (c, &value) in values.iter().enumerate().take(part.end).skip(part.start) {
            line.push(' ');
            line.push_str(&self.value(value, Some(c) == strongest));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }

    fn value(&self, value: f64, strongest: bool) -> String {
        if !value.is_finite() {
            return padded("nan", self.cell);
        }
        // By the whole per cent that is printed, so that number and shade agree.
        let rounded = (value * 100.0).round() / 100.0;
        let shade = SHADES.iter().find(|s| rounded >= s.0).unwrap_or(&SHADES[SHADES.len() - 1]);
        let mark = glyph(shade, self.options.glyphs);
        let text = if strongest {
            let number = format!("{:.0}", value * 100.0);
            let around = self.cell.saturating_sub(number.len());
            let before = around / 2;
            format!("{}{number}{}", mark.to_string().repeat(before), mark.to_string().repeat(around - before))
        } else {
            mark.to_string().repeat(self.cell)
        };
        match (self.style.color, strongest) {
            (false, _) => text,
            (true, false) => format!("\x1b[38;5;{}m{text}\x1b[0m", shade.3),
            (true, true) => format!("\x1b[1;38;5;{}m{text}\x1b[0m", shade.3),
        }
    }
}

fn glyph(shade: &(f64, char, char, u8), glyphs: Glyphs) -> char {
    match glyphs {
        Glyphs::Unicode => shade.1,
        Glyphs::Ascii => shade.2,
    }
}

/// The largest value's place; none where all are zero or one is not a number.
pub(crate) fn strongest(values: &[f64]) -> Option<usize> {
    let most = values.iter().copied().fold(0.0, f64::max);
    let place = values.iter().position(|&v| v == most);
    place.filter(|_| most > 0.0 && values.iter().all(|v| v.is_finite()))
}

pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// The beginning of a label, with a sign that it goes on.
pub(crate) fn short(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        let w = crate::wrap::char_width(c);
        if used + w + 1 > columns {
            break;
        }
        out.push(c);
        used += w;
    }
    out.push('~');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(words: &[&str]) -> Vec<String> {
        words.iter().map(|&w| w.to_owned()).collect()
    }

    fn options(width: usize) -> Options {
        Options { width, ..Options::default() }
    }

    #[test]
    fn the_strongest_cell_of_a_row_has_its_number() {
        let (rows, columns) = (labels(&["▁Ein", "▁Mann"]), labels(&["▁A", "▁man", "</s>"]));
        let values = [0.9, 0.05, 0.05, 0.3, 0.69, 0.01];
        let map = Heatmap { rows: &rows, columns: &columns, values: &values };
        let expected = ["      ▁A   ▁man </s>", "▁Ein  █90█ ░░░░ ░░░░", "▁Mann ▓▓▓▓ █69█ ····", ""];
        assert_eq!(map.text(options(80), Style::default()), expected.join("\n"));
        let ascii =
            map.text(Options { width: 80, glyphs: Glyphs::Ascii, ..Options::default() }, Style::default());
        assert!(ascii.is_ascii() && ascii.contains("@90@"), "{ascii}");
    }

    #[test]
    fn wide_matrices_are_cut_into_parts_and_hold_the_width() {
        let rows = labels(&["a", "b"]);
        let columns: Vec<String> = (0..60).map(|i| format!("token{i}")).collect();
        let values = vec![1.0 / 60.0; 120];
        for width in [40, 80, 120] {
            let text = Heatmap { rows: &rows, columns: &columns, values: &values }
                .text(options(width), Style::default());
            assert!(text.lines().all(|l| super::width(l) <= width), "{text}");
            assert_eq!(
                text.matches("\na ").count() + usize::from(text.starts_with("a ")),
                text.split("\n\n").count()
            );
        }
    }

    #[test]
    fn what_is_not_a_number_says_so() {
        let (rows, columns) = (labels(&["a"]), labels(&["x", "y"]));
        let map = Heatmap { rows: &rows, columns: &columns, values: &[f64::NAN, 0.5] };
        assert!(map.text(options(80), Style::default()).contains("nan ███"));
        let dark = Heatmap { rows: &rows, columns: &columns, values: &[0.0, 0.0] };
        assert!(dark.text(options(80), Style::default()).contains("··· ···"));
    }
}
