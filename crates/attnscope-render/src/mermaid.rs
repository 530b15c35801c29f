//! A diagram as a Mermaid flowchart. Mermaid lays it out.

use crate::diagram::{Block, Diagram};
use crate::glyphs::clean;
use crate::palette::{HOLE, KINDS, hue};
use crate::wrap::{brief, short_names};
use std::fmt::Write as _;

/// Writes one flowchart from top to bottom, a subgraph for each diagram. Arrows that name no block are left out.
pub fn mermaid(title: &str, diagrams: &[Diagram]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail; the result is dropped here and below.
    if !title.is_empty() {
        let _ = writeln!(out, "---\ntitle: \"{}\"\n---", yaml(&clean(title)));
    }
    out.push_str("flowchart TB\n");
    for (number, diagram) in diagrams.iter().enumerate() {
        subgraph(&mut out, number, diagram);
    }
    let blocks = || diagrams.iter().flat_map(|d| &d.blocks);
    for kind in KINDS.into_iter().filter(|kind| blocks().any(|b| b.kind == *kind && b.hole.is_none())) {
        let hue = hue(kind);
        let _ = writeln!(out, "  classDef {} fill:{},stroke:{},color:#1a1a1a", hue.name, hue.fill, hue.line);
    }
    if blocks().any(|block| block.hole.is_some()) {
        let _ = writeln!(
            out,
            "  classDef hole fill:#ffffff,stroke:{HOLE},color:#1a1a1a,stroke-width:3px,stroke-dasharray:6 4"
        );
    }
    out
}

fn subgraph(out: &mut String, number: usize, diagram: &Diagram) {
    let _ = writeln!(out, "  subgraph d{number}[\"{}\"]", escape(&short_names(&clean(&diagram.title))));
    for fact in &diagram.facts {
        let _ = writeln!(out, "    %% {}", escape(&short_names(&clean(fact))).replace(['{', '}'], ""));
    }
    for (index, block) in diagram.blocks.iter().enumerate() {
        let class = if block.hole.is_some() { "hole" } else { hue(block.kind).name };
        let _ = writeln!(out, "    d{number}n{index}[\"{}\"]:::{class}", label(block));
    }
    let blocks = diagram.blocks.len();
    for arrow in diagram.arrows.iter().filter(|arrow| arrow.from < blocks && arrow.to < blocks) {
        let (from, to) = (format!("d{number}n{}", arrow.from), format!("d{number}n{}", arrow.to));
        let _ = match brief(arrow.label.trim()).as_str() {
            "" => writeln!(out, "    {from} --> {to}"),
            carries => writeln!(out, "    {from} -->|\"{}\"| {to}", escape(carries)),
        };
    }
    out.push_str("  end\n");
}

fn label(block: &Block) -> String {
    let mut lines = Vec::new();
    lines.extend(block.hole.map(|hole| hole.label().to_owned()));
    lines.push(
        format!("<b>{}</b> {}", escape(&brief(&block.title)), escape(&brief(&block.shape)))
            .trim_end()
            .to_owned(),
    );
    lines.extend(block.lines.iter().map(|line| escape(&brief(line))));
    lines.join("<br>")
}

/// Mermaid's own escapes: `#` and a number. For what its parser would act on within quotes: markup, Markdown,
/// formulas, directives.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | '%' | '$' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// For a quoted string. A page may hold the chart as it is: no markup there either.
fn yaml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '"' | '<' | '>' | '&' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}
