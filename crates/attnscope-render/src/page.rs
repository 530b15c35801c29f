//! An explanation as a value: headings, sentences, formulas, tables. Lowered to text, Markdown and JSON.

use serde_json::{Value, json};

use crate::glyphs::Glyphs;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::wrap::{shown, wrap_plain};

/// Something to be read from top to bottom.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A heading within the page.
    Heading(String),
    /// Sentences.
    Words(String),
    /// A line of mathematics.
    Formula(String),
    /// Names and what they are, one a line.
    Facts(Vec<(String, String)>),
    /// Rows under headings; the flag of a column says whether it holds numbers.
    Table {
        /// What stands above each column, and whether it holds numbers.
        columns: Vec<(String, bool)>,
        /// The cells.
        rows: Vec<Vec<String>>,
    },
    /// Lines that are set already: a drawing.
    Drawing(String),
}

/// Sentences longer than this tire the eye, however wide the terminal is.
const MEASURE: usize = 96;
/// Formulas and drawings stand in from the words.
const INDENT: usize = 4;

impl Page {
    /// A page without parts.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), parts: Vec::new() }
    }

    /// Adds sentences.
    pub fn words(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Words(text.into()))
    }

    /// Adds a line of mathematics.
    pub fn formula(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Formula(text.into()))
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Heading(text.into()))
    }

    /// Adds names and what they are; those without a value are left out.
    pub fn facts<'n>(&mut self, facts: impl IntoIterator<Item = (&'n str, Option<String>)>) -> &mut Self {
        let known = facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.add(Part::Facts(known.collect()))
    }

    /// Adds a table: columns that begin with `#` hold numbers.
    pub fn table(&mut self, columns: &[&str], rows: Vec<Vec<String>>) -> &mut Self {
        let column = |name: &&str| match name.strip_prefix('#') {
            Some(name) => (name.to_owned(), true),
            None => ((*name).to_owned(), false),
        };
        self.add(Part::Table { columns: columns.iter().map(column).collect(), rows })
    }

    /// Adds lines as they are.
    pub fn drawing(&mut self, text: impl Into<String>) -> &mut Self {
        self.add(Part::Drawing(text.into()))
    }

    fn add(&mut self, part: Part) -> &mut Self {
        self.parts.push(part);
        self
    }

    /// For a terminal.
    pub fn text(&self, options: Options) -> String {
        let rule = if options.glyphs == Glyphs::Ascii { "-" } else { "─" };
        let title = shown(&self.title, options.glyphs);
        let mut out = format!("{title}\n{}\n", rule.repeat(crate::wrap::width(&title).min(options.width)));
        for part in &self.parts {
            out.push('\n');
            out += &part.text(options);
        }
        out
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let parts = self.parts.iter().map(Part::markdown);
        std::iter::once(format!("# {}\n", escaped(&self.title))).chain(parts).collect::<Vec<_>>().join("\n")
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({ "title": self.title, "parts": self.parts.iter().map(Part::json).collect::<Vec<_>>() })
    }
}

impl Part {
    fn text(&self, options: Options) -> String {
        let measure = options.width.min(MEASURE);
        let show = |text: &str| shown(text, options.glyphs);
        match self {
            Self::Heading(text) => format!("{}\n", show(text)),
            Self::Words(text) => lines(&wrap_plain(&show(text), measure), 0),
            Self::Formula(text) => lines(&wrap_plain(&show(text), measure.saturating_sub(INDENT)), INDENT),
            Self::Facts(facts) => {
                let mut table =
                    Table::new(vec![Column::left(""), Column::left("")], options.glyphs).flexible(1);
                facts.iter().for_each(|(name, value)| table.row([name.clone(), value.clone()]));
                table.render(options.width)
            }
            Self::Table { columns, rows } => {
                let column = |(name, number): &(String, bool)| {
                    if *number { Column::right(name) } else { Column::left(name) }
                };
                // The last column of words is where sentences stand.
                let words = columns.iter().rposition(|(_, number)| !number).unwrap_or(0);
                let columns = columns.iter().map(column).collect();
                let mut table = Table::new(columns, options.glyphs).flexible(words);
                rows.iter().for_each(|row| table.row(row.clone()));
                table.render(options.width)
            }
            Self::Drawing(text) => lines(&text.lines().map(show_line(options)).collect::<Vec<_>>(), 0),
        }
    }

    fn markdown(&self) -> String {
        match self {
            Self::Heading(text) => format!("## {}\n", escaped(text)),
            Self::Words(text) => format!("{}\n", escaped(text)),
            Self::Formula(text) => format!("    {text}\n"),
            Self::Facts(facts) => {
                let line =
                    |(name, value): &(String, String)| format!("- {}: {}\n", escaped(name), escaped(value));
                facts.iter().map(line).collect()
            }
            Self::Table { columns, rows } => {
                let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
                let mut out = row(columns.iter().map(|(name, _)| cell(name)).collect());
                out +=
                    &row(columns.iter().map(|(_, n)| if *n { "---:" } else { "---" }.to_owned()).collect());
                rows.iter().for_each(|cells| out += &row(cells.iter().map(|c| cell(c)).collect()));
                out
            }
            Self::Drawing(text) => format!("```text\n{}\n```\n", text.trim_end()),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Heading(text) => json!({ "heading": text }),
            Self::Words(text) => json!({ "words": text }),
            Self::Formula(text) => json!({ "formula": text }),
            Self::Facts(facts) => {
                let facts: serde_json::Map<String, Value> =
                    facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
                json!({ "facts": facts })
            }
            Self::Table { columns, rows } => {
                let names: Vec<&String> = columns.iter().map(|(name, _)| name).collect();
                json!({ "columns": names, "rows": rows })
            }
            Self::Drawing(text) => json!({ "drawing": text }),
        }
    }
}

/// A line of a drawing: its spaces are its shape.
fn show_line(options: Options) -> impl Fn(&str) -> String {
    move |line| options.glyphs.text(line)
}

fn lines(lines: &[String], indent: usize) -> String {
    lines.iter().map(|line| format!("{:indent$}{line}\n", "").trim_end().to_owned() + "\n").collect()
}

/// Text that Markdown would read as markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '_' | '`' | '<' | '[' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The same in a cell, where a bar would begin the next one.
fn cell(text: &str) -> String {
    escaped(text).replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let mut page = Page::new("heads");
        page.words("Each of 4 heads has its own d_head columns.").formula("softmax(q·kᵀ/√32)·v");
        page.facts([("shape", Some("[1, 4, 5, 6]".to_owned())), ("unknown", None)]);
        page.table(&["head", "#peak"], vec![vec!["0|a".into(), "2.5".into()]]);
        page
    }

    #[test]
    fn a_page_reads_well_in_each_form() {
        insta::assert_snapshot!(page().text(Options { width: 40, glyphs: Glyphs::Unicode }), @r"
        heads
        ─────

        Each of 4 heads has its own d_head
        columns.

            softmax(q·kᵀ/√32)·v

        shape  [1, 4, 5, 6]

        head  peak
        ────  ────
        0|a    2.5
        ");
        insta::assert_snapshot!(page().markdown(), @r"
        # heads

        Each of 4 heads has its own d\_head columns.

            softmax(q·kᵀ/√32)·v

        - shape: \[1, 4, 5, 6]

        | head | peak |
        | --- | ---: |
        | 0\|a | 2.5 |
        ");
        assert_eq!(page().json()["parts"][2]["facts"], json!({ "shape": "[1, 4, 5, 6]" }));
    }
}
