//! Tables for the terminal.

use crate::glyphs::Glyphs;
use crate::wrap::{shown, width, wrap};

/// At which side of its column a cell stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Align {
    /// Names, words.
    #[default]
    Left,
    /// Numbers.
    Right,
}

/// A column's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What stands above it.
    pub heading: String,
    /// Where its cells stand.
    pub align: Align,
}

impl Column {
    /// A column of words.
    pub fn left(heading: &str) -> Self {
        Column { heading: heading.to_owned(), align: Align::Left }
    }

    /// A column of numbers.
    pub fn right(heading: &str) -> Self {
        Column { heading: heading.to_owned(), align: Align::Right }
    }
}

/// Rows under headings. One column may be flexible: its cells go on over several lines when the table is too
/// wide. Where that does not help, a row becomes several lines, some of its columns in each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    flexible: usize,
    glyphs: Glyphs,
}

/// A flexible column beside others keeps at least this: less would tear every name apart.
const LEAST: usize = 16;
/// Spaces between columns.
const BETWEEN: usize = 2;
/// Spaces before the lines of a row after its first, where a row is several.
const INDENT: usize = 4;
/// No table is made for fewer columns than this.
const NARROWEST: usize = 20;

/// Columns that stand beside each other: the index and the width of each.
struct Band {
    indent: usize,
    columns: Vec<(usize, usize)>,
}

impl Band {
    fn width(&self) -> usize {
        let cells: usize = self.columns.iter().map(|(_, width)| width).sum();
        self.indent + cells + BETWEEN * self.columns.len().saturating_sub(1)
    }
}

impl Table {
    /// An empty table.
    pub fn new(columns: Vec<Column>, glyphs: Glyphs) -> Self {
        Table { columns, glyphs, ..Table::default() }
    }

    /// The column (from 0) that gives way when the table is too wide; the first if nothing is said.
    #[must_use]
    pub fn flexible(mut self, column: usize) -> Self {
        self.flexible = column;
        self
    }

    /// Adds a row. Cells there is no column for are dropped, missing ones are empty.
    pub fn row<I, S>(&mut self, cells: I)
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let mut row: Vec<String> = cells.into_iter().map(|cell| shown(cell.as_ref(), self.glyphs)).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// The table as text, no line wider than `total` columns (of which it takes 20 at least); no spaces at
    /// the ends of lines, a line break at the end.
    pub fn render(&self, total: usize) -> String {
        let total = total.max(NARROWEST);
        let headings: Vec<String> =
            self.columns.iter().map(|column| shown(&column.heading, self.glyphs)).collect();
        let natural: Vec<usize> = (0..self.columns.len())
            .map(|column| self.cells(column, &headings).map(width).max().unwrap_or(0))
            .collect();
        let plain = Band { indent: 0, columns: natural.iter().copied().enumerate().collect() };
        if plain.width() <= total {
            return self.set(&headings, &[plain]);
        }
        let stacked = self.set(&headings, &self.stacked(&natural, total));
        let Some(beside) = self.beside(plain, &headings, total) else { return stacked };
        let beside = self.set(&headings, &[beside]);
        // Names over three and more lines each are harder to read than a row in two.
        if beside.lines().count() <= stacked.lines().count() { beside } else { stacked }
    }

    fn cells<'a>(&'a self, column: usize, headings: &'a [String]) -> impl Iterator<Item = &'a str> {
        self.rows.iter().map(Vec::as_slice).chain([headings]).map(move |row| row[column].as_str())
    }

    /// All columns beside each other, the flexible one narrower; nothing if that leaves too little of it.
    fn beside(&self, mut plain: Band, headings: &[String], total: usize) -> Option<Band> {
        let all = plain.width();
        let (column, columns) = plain.columns.get_mut(self.flexible)?;
        let room = total.checked_sub(all - *columns).filter(|&room| room >= LEAST)?;
        // What no line needs is given back.
        let lines = self.cells(*column, headings).flat_map(|cell| broken(cell, room));
        *columns = lines.map(|line| width(&line)).max().unwrap_or(0);
        Some(plain)
    }

    /// The flexible column in a line of its own, the others in as many as they need: under it, or above it if
    /// it is the last.
    fn stacked(&self, natural: &[usize], total: usize) -> Vec<Band> {
        let last = natural.len() > 1 && self.flexible + 1 == natural.len();
        let (first, second) = if last { (INDENT, 0) } else { (0, INDENT) };
        let own = natural.get(self.flexible).map(|&columns| Band {
            indent: first,
            columns: vec![(self.flexible, columns.min(total - first))],
        });
        let mut others: Vec<Band> = Vec::new();
        for (column, &columns) in natural.iter().enumerate().filter(|(column, _)| *column != self.flexible) {
            let columns = columns.min(total - INDENT);
            match others.last_mut() {
                Some(band) if band.width() + BETWEEN + columns <= total => {
                    band.columns.push((column, columns));
                }
                _ => {
                    let indent = if others.is_empty() { second } else { INDENT };
                    others.push(Band { indent, columns: vec![(column, columns)] });
                }
            }
        }
        if last { others.into_iter().chain(own).collect() } else { own.into_iter().chain(others).collect() }
    }

    fn set(&self, headings: &[String], bands: &[Band]) -> String {
        let mut out = String::new();
        if headings.iter().any(|heading| !heading.is_empty()) {
            self.set_row(&mut out, headings, bands);
            let rule = |columns: usize| if self.glyphs == Glyphs::Ascii { "-" } else { "─" }.repeat(columns);
            let rules: Vec<String> = match bands {
                [band] => band.columns.iter().map(|&(_, columns)| rule(columns)).collect(),
                _ => vec![rule(bands.iter().map(Band::width).max().unwrap_or(0))],
            };
            push_line(&mut out, &rules.join(&" ".repeat(BETWEEN)));
        }
        for row in &self.rows {
            self.set_row(&mut out, row, bands);
        }
        out
    }

    fn set_row(&self, out: &mut String, row: &[String], bands: &[Band]) {
        if row.iter().all(String::is_empty) {
            push_line(out, "");
            return;
        }
        for band in bands {
            let cells: Vec<Vec<String>> =
                band.columns.iter().map(|&(column, columns)| broken(&row[column], columns)).collect();
            let high = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..high {
                let cells = cells.iter().zip(&band.columns).map(|(lines, &(column, columns))| {
                    pad(lines.get(line).map_or("", String::as_str), columns, self.columns[column].align)
                });
                let cells = cells.collect::<Vec<_>>().join(&" ".repeat(BETWEEN));
                push_line(out, &format!("{}{cells}", " ".repeat(band.indent)));
            }
        }
    }
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// The lines of a cell. Spaces before a text (a tree's) are kept and stand before all its lines.
fn broken(cell: &str, columns: usize) -> Vec<String> {
    if cell.is_empty() {
        return Vec::new();
    }
    if width(cell) <= columns {
        return vec![cell.to_owned()];
    }
    let text = cell.trim_start();
    let indent = (cell.len() - text.len()).min(columns / 2);
    wrap(text, columns - indent).into_iter().map(|line| format!("{}{line}", " ".repeat(indent))).collect()
}

fn pad(cell: &str, columns: usize, align: Align) -> String {
    let blank = " ".repeat(columns.saturating_sub(width(cell)));
    match align {
        Align::Left => format!("{cell}{blank}"),
        Align::Right => format!("{blank}{cell}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(glyphs: Glyphs) -> Table {
        let columns = vec![Column::left("tensor"), Column::left("shape"), Column::right("parameters")];
        let mut table = Table::new(columns, glyphs).flexible(0);
        table.row(["model.decoder.layers.0.encoder_attn.q_proj.weight", "[128, 128]", "16,384"]);
        table.row(["重み.注意機構", "[128]", "128"]);
        table.row(["bias\u{1b}[31m"]);
        table
    }

    fn facts() -> Table {
        let columns = vec![Column::left("Fact"), Column::left("Value"), Column::left("Source")];
        let mut table = Table::new(columns, Glyphs::Unicode).flexible(2);
        table.row(["family", "bart", "names of the tensors"]);
        table.row(["", "", "! config.json: architectures says T5ForConditionalGeneration"]);
        table.row([""]);
        table.row(["decoder.cross_attn.heads", "4", "config.json: decoder_attention_heads"]);
        table
    }

    fn summary() -> Table {
        let numbers = ["Params", "Mult-adds", "MACs"].map(Column::right);
        let columns = [Column::left("Layer (type:depth-index)"), Column::left("Output shape")];
        let mut table = Table::new(columns.into_iter().chain(numbers).collect(), Glyphs::Unicode);
        table.row(["  encoder (Stack:2-1)", "", "1,234,567", "–", "–"]);
        table.row(["    self_attn (MultiheadAttention:3-1)", "[1, 7, 512]", "1,050,624", "1,050,624", "9"]);
        table
    }

    #[test]
    fn the_flexible_column_goes_on_below() {
        insta::assert_snapshot!(tensors(Glyphs::Unicode).render(50), @r"
        tensor                   shape       parameters
        ───────────────────────  ──────────  ──────────
        model.decoder.layers.0.  [128, 128]      16,384
          encoder_attn.q_proj.
          weight
        重み.注意機構            [128]              128
        bias\u{1b}[31m
        ");
        insta::assert_snapshot!(facts().render(60), @r"
        Fact                      Value  Source
        ────────────────────────  ─────  ─────────────────────────
        family                    bart   names of the tensors
                                         ! config.json:
                                           architectures says
                                           T5ForConditional
                                           Generation

        decoder.cross_attn.heads  4      config.json:
                                           decoder_attention_heads
        ");
        insta::assert_snapshot!(summary().render(80), @r"
        Layer (type:depth-index)                Output shape     Params  Mult-adds  MACs
        ──────────────────────────────────────  ────────────  ─────────  ─────────  ────
          encoder (Stack:2-1)                                 1,234,567          –     –
            self_attn (MultiheadAttention:3-1)  [1, 7, 512]   1,050,624  1,050,624     9
        ");
    }

    #[test]
    fn a_row_that_is_too_wide_becomes_several_lines() {
        insta::assert_snapshot!(tensors(Glyphs::Unicode).render(30), @r"
        tensor
            shape       parameters
        ──────────────────────────────
        model.decoder.layers.0.
          encoder_attn.q_proj.weight
            [128, 128]      16,384
        重み.注意機構
            [128]              128
        bias\u{1b}[31m
        ");
        insta::assert_snapshot!(facts().render(40), @r"
        Fact                      Value
            Source
        ────────────────────────────────────────
        family                    bart
            names of the tensors
            ! config.json: architectures says
              T5ForConditionalGeneration

        decoder.cross_attn.heads  4
            config.json: decoder_attention_heads
        ");
        insta::assert_snapshot!(summary().render(60), @r"
        Layer (type:depth-index)
            Output shape     Params  Mult-adds  MACs
        ────────────────────────────────────────────
          encoder (Stack:2-1)
                          1,234,567          –     –
            self_attn (MultiheadAttention:3-1)
            [1, 7, 512]   1,050,624  1,050,624     9
        ");
        insta::assert_snapshot!(summary().render(30), @r"
        Layer (type:depth-index)
            Output shape     Params
            Mult-adds  MACs
        ──────────────────────────────
          encoder (Stack:2-1)
                          1,234,567
                    –     –
            self_attn
              (MultiheadAttention:3-1)
            [1, 7, 512]   1,050,624
            1,050,624     9
        ");
    }

    #[test]
    fn ascii_is_ascii() {
        let text = tensors(Glyphs::Ascii).render(60);
        assert!(text.is_ascii());
        insta::assert_snapshot!(text, @r"
        tensor                                shape       parameters
        ------------------------------------  ----------  ----------
        model.decoder.layers.0.encoder_attn.  [128, 128]      16,384
          q_proj.weight
        \u{91cd}\u{307f}.                     [128]              128
          \u{6ce8}\u{610f}\u{6a5f}\u{69cb}
        bias\u{1b}[31m
        ");
    }

    #[test]
    fn wide_enough_is_left_alone() {
        insta::assert_snapshot!(tensors(Glyphs::Unicode).render(200), @r"
        tensor                                             shape       parameters
        ─────────────────────────────────────────────────  ──────────  ──────────
        model.decoder.layers.0.encoder_attn.q_proj.weight  [128, 128]      16,384
        重み.注意機構                                      [128]              128
        bias\u{1b}[31m
        ");
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for total in 20..=160 {
            for table in [tensors(Glyphs::Unicode), tensors(Glyphs::Ascii), facts(), summary()] {
                let text = table.render(total);
                assert!(text.lines().all(|line| width(line) <= total), "{total}\n{text}");
                assert!(!text.contains('…'));
            }
        }
    }

    #[test]
    fn a_name_without_end_is_shortened() {
        let mut table = Table::new(vec![Column::left("tensor"), Column::right("bytes")], Glyphs::Unicode);
        table.row(["x".repeat(5000).as_str(), "1"]);
        assert_eq!(table.render(60).lines().count(), 2 + 4);
    }

    #[test]
    fn an_empty_table_is_empty() {
        assert_eq!(Table::new(Vec::new(), Glyphs::Unicode).render(10), "");
        assert_eq!(Table::new(vec![Column::left("")], Glyphs::Unicode).flexible(9).render(10), "");
    }
}
