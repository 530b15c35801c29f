//! Explanations in print: text for a terminal, Markdown for a document.

use attnscope::answer::{Explanation, Page, Part};

use crate::glyphs::Glyphs;
use crate::layout::Options;
use crate::table::{Column, Table};
use crate::wrap::{shown, wrap_plain};

/// Sentences longer than this tire the eye, however wide the terminal is.
const MEASURE: usize = 96;
/// Formulas and drawings stand in from the words.
const INDENT: usize = 4;

/// An explanation for a terminal.
pub fn text(answer: &Explanation, options: Options) -> String {
    let pages: Vec<String> = answer.pages.iter().map(|page| page_text(page, options)).collect();
    pages.join("\n\n")
}

/// An explanation for a document.
pub fn markdown(answer: &Explanation) -> String {
    answer.pages.iter().map(page_markdown).collect::<Vec<_>>().join("\n")
}

fn page_text(page: &Page, options: Options) -> String {
    let rule = if options.glyphs == Glyphs::Ascii { "-" } else { "─" };
    let title = shown(&page.title, options.glyphs);
    let mut out = format!("{title}\n{}\n", rule.repeat(crate::wrap::width(&title).min(options.width)));
    for part in &page.parts {
        out.push('\n');
        out += &part_text(part, options);
    }
    out
}

fn page_markdown(page: &Page) -> String {
    let parts = page.parts.iter().map(part_markdown);
    std::iter::once(format!("# {}\n", escaped(&page.title))).chain(parts).collect::<Vec<_>>().join("\n")
}

fn part_text(part: &Part, options: Options) -> String {
    let measure = options.width.min(MEASURE);
    let show = |text: &str| shown(text, options.glyphs);
    match part {
        Part::Heading(text) => format!("{}\n", show(text)),
        Part::Words(text) => lines(&wrap_plain(&show(text), measure), 0),
        Part::Formula(text) => lines(&wrap_plain(&show(text), measure.saturating_sub(INDENT)), INDENT),
        Part::Facts(facts) => {
            let mut table = Table::new(vec![Column::left(""), Column::left("")], options.glyphs).flexible(1);
            facts.iter().for_each(|(name, value)| table.row([name.clone(), value.clone()]));
            table.render(options.width)
        }
        Part::Table { columns, rows } => {
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
        Part::Drawing(text) => lines(&text.lines().map(show_line(options)).collect::<Vec<_>>(), 0),
    }
}

fn part_markdown(part: &Part) -> String {
    match part {
        Part::Heading(text) => format!("## {}\n", escaped(text)),
        Part::Words(text) => format!("{}\n", escaped(text)),
        Part::Formula(text) => format!("    {text}\n"),
        Part::Facts(facts) => {
            let line =
                |(name, value): &(String, String)| format!("- {}: {}\n", escaped(name), escaped(value));
            facts.iter().map(line).collect()
        }
        Part::Table { columns, rows } => {
            let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
            let mut out = row(columns.iter().map(|(name, _)| cell(name)).collect());
            out += &row(columns.iter().map(|(_, n)| if *n { "---:" } else { "---" }.to_owned()).collect());
            rows.iter().for_each(|cells| out += &row(cells.iter().map(|c| cell(c)).collect()));
            out
        }
        Part::Drawing(text) => format!("```text\n{}\n```\n", text.trim_end()),
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
        insta::assert_snapshot!(page_text(&page(), Options { width: 40, ..Options::default() }), @r"
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
        insta::assert_snapshot!(page_markdown(&page()), @r"
        # heads

        Each of 4 heads has its own d\_head columns.

            softmax(q·kᵀ/√32)·v

        - shape: \[1, 4, 5, 6]

        | head | peak |
        | --- | ---: |
        | 0\|a | 2.5 |
        ");
        let json = serde_json::to_value(page()).unwrap();
        assert_eq!(json["parts"][2]["facts"], serde_json::json!({ "shape": "[1, 4, 5, 6]" }));
    }
}
