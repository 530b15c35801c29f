//! Masks with the tokens on both sides, proofs in a table, mistakes beside what is right.

use attnscope_diagnose::masks::{Claim, Compared, Mask, Proof, Shut, Verdict};
use serde_json::{Value, json};

use crate::glyphs::Glyphs;
use crate::heatmap::{padded, short};
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::text::Style;
use crate::trace::{number, shape_text};
use crate::wrap::{shown, width, wrap};

/// The most columns of a row's label.
const LABEL: usize = 16;
/// The most columns of a cell.
const CELL: usize = 7;
/// Cells of the largest mask that is drawn: 64 × 64.
const MOST_CELLS: usize = 4096;

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

/// What a cell looks like: Unicode, ASCII, a colour of the 256, and its letter in JSON.
fn look(cell: Option<Shut>) -> (char, char, u8, char) {
    match cell {
        None => ('█', '#', 72, 'o'),
        Some(Shut::Future) => ('·', '.', 240, 'f'),
        Some(Shut::Padding) => ('×', 'x', 168, 'p'),
        Some(Shut::FuturePadding) => ('×', 'x', 168, 'b'),
    }
}

fn glyph(cell: Option<Shut>, glyphs: Glyphs) -> char {
    let (unicode, ascii, _, _) = look(cell);
    if glyphs == Glyphs::Ascii { ascii } else { unicode }
}

/// What the cells of a mask mean, in a line.
pub fn legend(glyphs: Glyphs) -> String {
    let [open, future, padding] =
        [None, Some(Shut::Future), Some(Shut::Padding)].map(|cell| glyph(cell, glyphs));
    format!("Queries down, keys across: {open} open, {future} shut: future, {padding} shut: padding.\n")
}

/// Whose mask it is, its shape, how heads and layers share it, and the reason of every rule.
pub fn mask_heading(mask: &Mask, options: Options) -> String {
    let attention = mask.attention;
    let title = format!("{}  {}", attention.symbol(), attention.title());
    let whole = vec![mask.shape[0], mask.heads, mask.shape[2], mask.shape[3]];
    let shape = match mask.kind {
        Some(_) => format!(
            "  {} of shape {}, broadcast to {}: one for {} heads, the same in {} layers",
            attention.path("*", "mask"),
            shape_text(&mask.shape),
            shape_text(&whole),
            mask.heads,
            mask.layers
        ),
        None => format!("  no mask: every cell of the scores, {}, is open", shape_text(&whole)),
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
pub fn mask_drawing(
    mask: &Mask,
    row: usize,
    labels: [&[String]; 2],
    options: Options,
    style: Style,
) -> String {
    let cells = mask.of_row(row);
    let [queries, keys] = labels;
    if cells.len() > PLAIN_CELLS && cells.iter().all(Option::is_none) {
        return format!("  every one of its {} × {} cells is open\n", mask.shape[2], mask.shape[3]);
    }
    if cells.len() > MOST_CELLS {
        let shut = cells.iter().filter(|cell| cell.is_some()).count();
        return format!(
            "  {shut} of {} cells are shut: too many to draw, --format json has them\n",
            cells.len()
        );
    }
    let grid = Grid { rows: queries, columns: keys, least: 2, options };
    let lines = grid.lines(|r, c, size| {
        let cell = cells.get(r * keys.len() + c).copied().flatten();
        let text = glyph(cell, options.glyphs).to_string().repeat(size);
        if style.color { format!("\x1b[38;5;{}m{text}\x1b[0m", look(cell).2) } else { text }
    });
    let mut out = joined(&lines);
    let blind = mask.blind(row);
    if !blind.is_empty() {
        let list: Vec<String> = blind.iter().map(usize::to_string).collect();
        let text = format!(
            "! queries with nothing to see: {}; by definition their weights are 0 (a softmax of −∞ alone is 0/0)",
            list.join(", ")
        );
        out += &joined(&wrap(&shown(&text, options.glyphs), options.width));
    }
    out
}

/// The proofs: what was perturbed, what must or must not move, how many cells, how far, the verdict.
pub fn proof_table(proofs: &[Proof], options: Options) -> String {
    let columns = vec![
        Column::left("perturbed"),
        Column::left("must"),
        Column::right("cells"),
        Column::right("movement"),
        Column::left("verdict"),
    ];
    let mut table = Table::new(columns, options.glyphs).flexible(0);
    for proof in proofs {
        let ran = !matches!(proof.verdict, Verdict::NotRun(_));
        let cells = match ran {
            false => "–".to_owned(),
            true if proof.cells == proof.cells_in_all => crate::thousands(proof.cells as u64),
            true => format!(
                "{} of {}",
                crate::thousands(proof.cells as u64),
                crate::thousands(proof.cells_in_all as u64)
            ),
        };
        let movement = match (&proof.verdict, proof.claim.must_move()) {
            (Verdict::NotRun(_), _) => "–".to_owned(),
            (Verdict::Holds, true) => format!("≥ {}", number(proof.movement)),
            _ => number(proof.movement),
        };
        table.row([
            proof.claim.perturbed(),
            proof.claim.expected(),
            &cells,
            &movement,
            verdict_word(&proof.verdict),
        ]);
    }
    let mut out = table.render(options.width);
    for proof in proofs {
        if let Some(text) = remark(proof) {
            out.push('\n');
            out += &joined(&wrap(&shown(&text, options.glyphs), options.width));
        }
    }
    out
}

fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails(_) => "FAILS",
        Verdict::NotRun(_) => "not run",
    }
}

/// What there is to say besides the line of the table.
fn remark(proof: &Proof) -> Option<String> {
    let claim = proof.claim;
    match &proof.verdict {
        Verdict::Holds => None,
        Verdict::NotRun(why) => Some(format!("not run: {}: {why}.", claim.perturbed())),
        Verdict::Fails(leak) if claim.must_move() => {
            Some(format!("FAILS: {}. {} is the first tensor in which it stays.", leak.cause, leak.node))
        }
        Verdict::Fails(leak) if claim == Claim::AllPadding => {
            Some(format!("FAILS: {}, and {} is not what it must be.", leak.cause, leak.node))
        }
        Verdict::Fails(leak) => {
            let renumbered =
                "Positions count places here, so padding before a token gives it another number. ";
            Some(format!(
                "FAILS: {}, and {} is the first tensor that moves: by {} of its largest value at {}. {}",
                leak.cause,
                leak.node,
                number(leak.movement),
                shape_text(&leak.at),
                if leak.node.ends_with(".positions") { renumbered } else { "" }
            ))
        }
    }
}

/// How movements are measured, in a sentence or two.
pub fn measure_note(proofs: &[Proof], options: Options) -> String {
    let loose = proofs.iter().find(|proof| proof.threshold > 0.0 && proof.cells > 0);
    let loose = loose.map(|proof| {
        format!(
            " Where the shape of the batch changes, so does rounding, and {} is allowed.",
            number(proof.threshold)
        )
    });
    let text = format!(
        "Cells are pairs of a query and a key. A movement is a share of the largest value of encoder.out or of the logits; \
         what stays is equal to the bit.{}",
        loose.unwrap_or_default()
    );
    joined(&wrap(&shown(&text, options.glyphs), options.width))
}

/// A mistake: the right weights and the wrong ones on the same scores, beside each other where there is room.
pub fn mistake(
    compared: &Compared,
    place: &str,
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
    if side_by_side.iter().all(fits) {
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
    out + &joined(&wrap(&shown(&compared.difference(), options.glyphs), options.width))
}

/// A matrix of weights with the sum of every row; what should be shut and has weight is marked.
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
    let shut = |cell: usize| compared.shut.get(cell).copied().flatten();
    let mut lines = vec![shown(formula, options.glyphs)];
    lines.extend(grid.lines(|r, c, size| {
        if c == keys.len() {
            return padded(&format!("{:.2}", sums.get(r).copied().unwrap_or(0.0)), size);
        }
        let cell = r * keys.len() + c;
        let value = values.get(cell).copied().unwrap_or(0.0);
        let (text, alarm) = match shut(cell) {
            Some(why) if value == 0.0 => (glyph(Some(why), options.glyphs).to_string(), false),
            Some(_) => (format!("{value:.2}!"), true),
            None => (format!("{value:.2}"), false),
        };
        let text = padded(&text, size);
        if style.color && alarm { format!("\x1b[1;38;5;168m{text}\x1b[0m") } else { text }
    }));
    lines
}

/// A mask for programs: a string for every query, a letter for every key.
pub fn mask_json(mask: &Mask) -> Value {
    let row = |row: usize| -> Value {
        let queries = mask.of_row(row).chunks(mask.shape[3].max(1));
        queries.map(|keys| Value::String(keys.iter().map(|&cell| look(cell).3).collect())).collect()
    };
    json!({
        "name": mask.attention.symbol(),
        "attention": mask.attention.title(),
        "nodes": mask.kind.map(|_| mask.attention.path("*", "mask")),
        "causal": mask.kind.is_some_and(|kind| kind.causal),
        "padding": mask.kind.is_some_and(|kind| kind.padding),
        "shape": mask.shape,
        "heads": mask.heads,
        "layers": mask.layers,
        "reasons": mask.reasons,
        "rows": (0..mask.shape[0]).map(row).collect::<Vec<_>>(),
        "blind": (0..mask.shape[0]).map(|row| mask.blind(row)).collect::<Vec<_>>(),
    })
}

/// A proof for programs.
pub fn proof_json(proof: &Proof) -> Value {
    let mut value = json!({
        "claim": proof.claim.id(),
        "perturbed": proof.claim.perturbed(),
        "expected": proof.claim.expected(),
        "verdict": match proof.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails(_) => "fails",
            Verdict::NotRun(_) => "not_run",
        },
        "runs": proof.runs,
        "cells": proof.cells,
        "cells_in_all": proof.cells_in_all,
        "movement": proof.movement,
        "felt": proof.felt,
        "threshold": proof.threshold,
    });
    match &proof.verdict {
        Verdict::Holds => {}
        Verdict::Fails(leak) => {
            value["leak"] = json!({
                "node": leak.node, "at": leak.at, "movement": leak.movement, "cause": leak.cause,
            });
        }
        Verdict::NotRun(why) => value["why"] = json!(why),
    }
    value
}

/// A mistake for programs.
pub fn mistake_json(compared: &Compared, (layer, head, row): (usize, usize, usize)) -> Value {
    let matrix = |values: &[f64]| -> Vec<Vec<f64>> {
        values.chunks(compared.keys.max(1)).map(<[f64]>::to_vec).collect()
    };
    let rows: Vec<Value> = compared
        .rows
        .iter()
        .map(|row| json!({ "sum": row.sum, "leaked": row.leaked, "lost": row.lost }))
        .collect();
    json!({
        "mistake": compared.mistake.id(),
        "node": compared.mistake.attention().path(&layer.to_string(), "scores"),
        "head": head,
        "row": row,
        "formula": compared.mistake.formula(),
        "right": matrix(&compared.right),
        "wrong": matrix(&compared.wrong),
        "rows": rows,
        "difference": compared.difference(),
    })
}
