//! Tables for the terminal.

use crate::glyphs::Glyphs;
use crate::wrap::{ellipsis, width};

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

/// Rows under headings. One column may be flexible: its cells lose their middle when the table is too wide.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    flexible: Option<usize>,
    glyphs: Glyphs,
}

/// A flexible column keeps at least this: less would leave nothing of a name.
const LEAST: usize = 8;
/// Spaces between columns.
const BETWEEN: usize = 2;

impl Table {
    /// An empty table.
    pub fn new(columns: Vec<Column>, glyphs: Glyphs) -> Self {
        Table { columns, glyphs, ..Table::default() }
    }

    /// The column (from 0) that gives way when the table is too wide.
    #[must_use]
    pub fn flexible(mut self, column: usize) -> Self {
        self.flexible = Some(column);
        self
    }

    /// Adds a row. Cells there is no column for are dropped, missing ones are empty.
    pub fn row<I, S>(&mut self, cells: I)
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let mut row: Vec<String> = cells.into_iter().map(|cell| self.glyphs.text(cell.as_ref())).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// The table as text, fitted to `total` columns as far as the flexible column allows; no spaces at the
    /// ends of lines, a line break at the end.
    pub fn render(&self, total: usize) -> String {
        let headings: Vec<String> =
            self.columns.iter().map(|column| self.glyphs.text(&column.heading)).collect();
        let widths = self.widths(&headings, total);
        let (rule, dots) = match self.glyphs {
            Glyphs::Unicode => ("─", "…"),
            Glyphs::Ascii => ("-", "..."),
        };
        let mut out = String::new();
        let mut line = |cells: Vec<String>| {
            out.push_str(cells.join(&" ".repeat(BETWEEN)).trim_end());
            out.push('\n');
        };
        let set = |row: &[String]| {
            let cells = row.iter().zip(&self.columns).zip(&widths);
            cells
                .map(|((cell, column), &columns)| pad(&ellipsis(cell, columns, dots), columns, column.align))
                .collect()
        };
        if headings.iter().any(|heading| !heading.is_empty()) {
            line(set(&headings));
            line(widths.iter().map(|&columns| rule.repeat(columns)).collect());
        }
        for row in &self.rows {
            line(set(row));
        }
        out
    }

    fn widths(&self, headings: &[String], total: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| width(&row[column]));
                cells.chain([width(&headings[column])]).max().unwrap_or(0)
            })
            .collect();
        let needed = widths.iter().sum::<usize>() + BETWEEN * widths.len().saturating_sub(1);
        if let Some(flexible) = self.flexible.and_then(|column| widths.get_mut(column)) {
            let over = needed.saturating_sub(total);
            *flexible = flexible.saturating_sub(over).max(LEAST.min(*flexible));
        }
        widths
    }
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

    #[test]
    fn the_flexible_column_gives_way_in_the_middle() {
        insta::assert_snapshot!(tensors(Glyphs::Unicode).render(50), @r"
        tensor                      shape       parameters
        ──────────────────────────  ──────────  ──────────
        model.decoder…_proj.weight  [128, 128]      16,384
        重み.注意機構               [128]              128
        bias\u{1b}[31m
        ");
    }

    #[test]
    fn ascii_is_ascii() {
        let text = tensors(Glyphs::Ascii).render(60);
        assert!(text.is_ascii());
        insta::assert_snapshot!(text, @r"
        tensor                                shape       parameters
        ------------------------------------  ----------  ----------
        model.decoder.lay...tn.q_proj.weight  [128, 128]      16,384
        \u{91cd}\u{307f}....\u{6a5f}\u{69cb}  [128]              128
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
    fn an_empty_table_is_empty() {
        assert_eq!(Table::new(Vec::new(), Glyphs::Unicode).render(10), "");
    }
}
