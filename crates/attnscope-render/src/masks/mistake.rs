//! A mistake compared with the right mask.

use attnscope_diagnose::masks::{Compared, MaskReason};

use super::{Grid, glyph, joined};
use crate::heatmap::padded;
use crate::hint::Hint;
use crate::layout::Options;
use crate::text::Style;
use crate::wrap::{shown, width, wrap};

/// The most keys whose weights are printed.
const MOST_KEYS: usize = 64;

/// A mistake: the right weights and the wrong ones on the same scores, beside each other where there is room. `added` is how
/// many positions of padding the source was given to show it.
pub(super) fn mistake(
    compared: &Compared,
    (place, added): (&str, usize),
    labels: [&[String]; 2],
    options: Options,
    style: Style,
) -> String {
    let [queries, keys] = labels;
    let title = format!("{} in {place}", compared.mistake.id());
    let rights = compared.right.chunks(compared.keys.max(1)).map(|row| row.iter().sum::<f64>());
    let right_sums: Vec<f64> = rights.collect();
    let wrong_sums: Vec<f64> = compared.rows.iter().map(|row| row.sum).collect();
    let half = Options { width: (options.width.saturating_sub(4)) / 2, ..options };
    let draw = |options: Options, values: &[f64], sums: &[f64], formula: &str, style: Style| {
        numbers(compared, values, sums, formula, [queries, keys], options, style)
    };
    let right_formula = "softmax(scores + mask)";
    let wrong_formula = compared.mistake.formula();
    let plain = Style::default();
    let side_by_side = [
        draw(half, &compared.right, &right_sums, right_formula, plain),
        draw(half, &compared.wrong, &wrong_sums, wrong_formula, plain),
    ];
    let one_part = |lines: &Vec<String>| !lines.iter().any(String::is_empty);
    let fits = |lines: &Vec<String>| one_part(lines) && lines.iter().all(|l| width(l) <= half.width);
    let mut out = format!("{title}\n");
    if added > 0 {
        let text = format!(
            "this source has no padding: {added} {} of it, (pad), added to show the mistake",
            if added == 1 { "position" } else { "positions" }
        );
        out += &joined(&wrap(&shown(&text, options.glyphs), options.width));
    }
    if compared.keys > MOST_KEYS {
        let (queries, keys) = (compared.queries, compared.keys);
        let all = Hint::AllCells.words(options.reader);
        out += &format!("{queries} × {keys} weights are too many to print: {all} has them\n");
    } else if side_by_side.iter().all(fits) {
        let [left, _] = &side_by_side;
        let column = left.iter().map(|line| width(line)).max().unwrap_or(0);
        let coloured = [
            draw(half, &compared.right, &right_sums, right_formula, style),
            draw(half, &compared.wrong, &wrong_sums, wrong_formula, style),
        ];
        let [a, b] = &coloured;
        for ((plain, a), b) in left.iter().zip(a).zip(b) {
            out += &format!("{a}{}    {b}\n", " ".repeat(column - width(plain)));
        }
    } else {
        out += &joined(&draw(options, &compared.right, &right_sums, right_formula, style));
        out.push('\n');
        out += &joined(&draw(options, &compared.wrong, &wrong_sums, wrong_formula, style));
    }
    let leaks = compared.rows.iter().any(|row| row.leaked > 0.0);
    let mark = if leaks { "; ! marks weight on keys that should be masked" } else { "" };
    let difference = format!("{}{mark}", compared.difference());
    out + &joined(&wrap(&shown(&difference, options.glyphs), options.width))
}

/// A matrix of weights with the sum of every row; a masked key that has weight is marked.
fn numbers(
    compared: &Compared,
    values: &[f64],
    sums: &[f64],
    formula: &str,
    [queries, keys]: [&[String]; 2],
    options: Options,
    style: Style,
) -> Vec<String> {
    let columns: Vec<String> = keys.iter().cloned().chain(["sum".to_owned()]).collect();
    let grid = Grid { rows: queries, columns: &columns, least: 5, options };
    let masked = |cell: usize| compared.masked.get(cell).copied().flatten();
    let mut lines = vec![shown(formula, options.glyphs)];
    lines.extend(grid.lines(|r, c, size| {
        if c == keys.len() {
            return padded(&format!("{:.2}", sums.get(r).copied().unwrap_or(0.0)), size);
        }
        let cell = r * keys.len() + c;
        let value = values.get(cell).copied().unwrap_or(0.0);
        let (text, alarm) = match masked(cell) {
            Some(why) if value == 0.0 => (glyph(Some(why), options.glyphs).to_string(), false),
            Some(_) => (format!("{value:.2}!"), true),
            // Masked by the mistake alone.
            None if value == 0.0 && compared.hides(cell) => {
                (glyph(Some(MaskReason::Future), options.glyphs).to_string(), false)
            }
            None => (format!("{value:.2}"), false),
        };
        let text = padded(&text, size);
        if style.color && alarm { format!("\x1b[1;38;5;168m{text}\x1b[0m") } else { text }
    }));
    lines
}
