//! Masks with the tokens on both sides, proofs in a table, mistakes beside what is right.

mod mistake;
mod page;
mod proof;

use attnscope::figures::counted;
use attnscope_diagnose::masks::{Mask, MaskReason};

use crate::glyphs::Glyphs;
use crate::heatmap::{padded, short};
use crate::hint::Hint;
use crate::layout::Options;
use crate::tensor_table::shape_text;
use crate::text::Style;
use crate::wrap::{shown, width, wrap, wrap_plain};

use mistake::mistake;
pub use page::text;
use proof::{measure_note, proof_table, what_is_proved};

/// The most columns of a row's label.
const LABEL: usize = 16;
/// The most columns of a cell.
const CELL: usize = 7;
/// Cells of the largest mask that is drawn: 64 × 64.
const MOST_CELLS: usize = 4096;
/// And the most queries, a line each.
const MOST_QUERIES: usize = 64;

/// Cells of the largest that is drawn though all are open.
const PLAIN_CELLS: usize = 1024;

/// A matrix of short texts with a label for every row and column.
struct Grid<'a> {
    rows: &'a [String],
    columns: &'a [String],
    /// The least columns of a cell.
    least: usize,
    options: Options,
}

impl Grid<'_> {
    /// As lines, in several parts where it is too wide. `cell` writes a cell for a number of columns.
    fn lines(&self, cell: impl Fn(usize, usize, usize) -> String) -> Vec<String> {
        let label = |text: &String| short(&shown(text, self.options.glyphs), LABEL);
        let rows: Vec<String> = self.rows.iter().map(label).collect();
        let columns: Vec<String> = self.columns.iter().map(|c| shown(c, self.options.glyphs)).collect();
        let beside = rows.iter().map(|r| width(r)).max().unwrap_or(0);
        let room = self.options.width.saturating_sub(beside).max(self.least + 1);
        let widest = columns.iter().map(|c| width(c)).max().unwrap_or(0).clamp(self.least, CELL);
        let fits = (room / columns.len().max(1)).saturating_sub(1);
        let size = widest.min(fits.max(self.least));
        let at_once = (room / (size + 1)).max(1);
        let mut lines = Vec::new();
        for first in (0..columns.len()).step_by(at_once) {
            if first > 0 {
                lines.push(String::new());
            }
            let part = first..(first + at_once).min(columns.len());
            let heads = columns[part.clone()].iter().map(|c| format!(" {}", padded(&short(c, size), size)));
            lines.push(format!("{}{}", " ".repeat(beside), heads.collect::<String>()));
            for (r, row) in rows.iter().enumerate() {
                let cells = part.clone().map(|c| format!(" {}", cell(r, c, size)));
                lines.push(format!("{}{}", padded(row, beside), cells.collect::<String>()));
            }
        }
        lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// What a cell looks like: Unicode, ASCII, and a colour of the 256.
fn look(cell: Option<MaskReason>) -> (char, char, u8) {
    match cell {
        None => ('█', '#', 72),
        Some(MaskReason::Future) => ('·', '.', 240),
        Some(MaskReason::Padding | MaskReason::FuturePadding | MaskReason::WindowPadding) => ('×', 'x', 168),
        Some(MaskReason::Window) => ('-', '-', 110),
    }
}

fn glyph(cell: Option<MaskReason>, glyphs: Glyphs) -> char {
    let (unicode, ascii, _) = look(cell);
    if glyphs == Glyphs::Ascii { ascii } else { unicode }
}

/// What the cells of a mask mean, and the words for padding that stand at its sides: what was added, and the name of the
/// model's pad id where that was given as a token.
fn legend(masks: &[Mask], added: bool, given: Option<&str>, options: Options) -> String {
    let [visible, future, padding, window] =
        [None, Some(MaskReason::Future), Some(MaskReason::Padding), Some(MaskReason::Window)]
            .map(|cell| glyph(cell, options.glyphs));
    let mut text = format!(
        "Queries down, keys across: {visible} visible, {future} masked: future, {padding} masked: padding"
    );
    if masks.iter().any(|mask| mask.kind.is_some_and(|kind| kind.reach.is_some())) {
        text += &format!(", {window} masked: outside the window");
    }
    text += ".";
    if added {
        text += " (pad) was added to fill its row: masked.";
    }
    if let Some(name) = given {
        text += &format!(" {name}, the pad id as a token, is visible like any other.");
    }
    joined(&wrap_plain(&shown(&text, options.glyphs), options.width))
}

/// Whose mask it is, its shape, how heads and layers share it, and the reason of every rule.
fn mask_heading(mask: &Mask, options: Options) -> String {
    let attention = mask.attention;
    let title = format!("{}  {}", attention.symbol(), attention.title());
    let whole = vec![mask.shape[0], mask.heads, mask.shape[2], mask.shape[3]];
    let layers = match (mask.in_all_layers, mask.layers[..].iter().map(usize::to_string).collect::<Vec<_>>())
    {
        (true, layers) => format!("the same in {}", counted(layers.len(), "layer")),
        (false, layers) if layers.len() == 1 => format!("in layer {}", layers[0]),
        (false, layers) => format!("in layers {}", layers.join(", ")),
    };
    let shape = match mask.kind {
        Some(_) => format!(
            "  {} of shape {}, broadcast to {}: one for {}, {}",
            attention.path("*", "mask"),
            shape_text(&mask.shape),
            shape_text(&whole),
            counted(mask.heads, "head"),
            layers
        ),
        None => format!("  no mask: every cell of the scores, {}, is visible", shape_text(&whole)),
    };
    let mut out = format!("{title}\n");
    for line in std::iter::once(shape).chain(mask.reasons.iter().map(|reason| format!("  {reason}"))) {
        let text = shown(line.trim_start(), options.glyphs);
        let lines = wrap(&text, options.width.saturating_sub(2));
        out += &joined(&lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>());
    }
    out
}

/// One row of the batch of a mask, drawn; or why it is not.
fn mask_drawing(mask: &Mask, row: usize, labels: [&[String]; 2], options: Options, style: Style) -> String {
    let cells = mask.of_row(row);
    let [queries, keys] = labels;
    let large = cells.len() > PLAIN_CELLS || queries.len() > MOST_QUERIES;
    if large && cells.iter().all(Option::is_none) {
        return format!("  every one of its {} × {} cells is visible\n", mask.shape[2], mask.shape[3]);
    }
    if cells.len() > MOST_CELLS || queries.len() > MOST_QUERIES {
        let masked = cells.iter().filter(|cell| cell.is_some()).count();
        return format!(
            "  {masked} of {} cells are masked: too many to draw, {} has them\n",
            cells.len(),
            Hint::AllCells.words(options.reader)
        );
    }
    let grid = Grid { rows: queries, columns: keys, least: 2, options };
    let lines = grid.lines(|r, c, size| {
        let cell = cells.get(r * keys.len() + c).copied().flatten();
        let text = glyph(cell, options.glyphs).to_string().repeat(size);
        if style.color { format!("\x1b[38;5;{}m{text}\x1b[0m", look(cell).2) } else { text }
    });
    let mut out = joined(&lines);
    let fully_masked = mask.fully_masked_queries(row);
    if !fully_masked.is_empty() {
        let list: Vec<String> = fully_masked.iter().map(usize::to_string).collect();
        let text = format!(
            "! queries with no visible key: {}; by definition their weights are 0 (a softmax of −∞ alone is 0/0)",
            list.join(", ")
        );
        out += &joined(&wrap(&shown(&text, options.glyphs), options.width));
    }
    out
}
