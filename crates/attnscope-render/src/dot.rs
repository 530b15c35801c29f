//! A diagram for Graphviz. `dot -Tpdf` lays it out.

use crate::diagram::{Block, Diagram};
use crate::glyphs::{Glyphs, clean};
use crate::palette::{HOLE, hue};
use crate::wrap::{brief, long_texts, short_names};
use std::fmt::Write as _;

/// Writes one directed graph from top to bottom, a cluster for each diagram. Arrows that name no block are left out.
pub fn dot(title: &str, diagrams: &[Diagram]) -> String {
    let mut out = String::from("digraph attnscope {\n");
    // Writing to a string cannot fail; the result is dropped here and below.
    let _ = writeln!(
        out,
        "  graph [rankdir=TB, labelloc=t, labeljust=l, fontname=\"Helvetica\", label=\"{}\"];",
        escape(&clean(title))
    );
    out.push_str("  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11];\n");
    out.push_str("  edge [color=\"#4a4a4a\", fontname=\"Helvetica\", fontsize=10, arrowsize=0.7];\n");
    for (number, diagram) in diagrams.iter().enumerate() {
        cluster(&mut out, number, diagram);
    }
    out.push_str("}\n");
    out
}

fn cluster(out: &mut String, number: usize, diagram: &Diagram) {
    let head = std::iter::once(&diagram.title).chain(&diagram.facts).filter(|line| !line.is_empty());
    let head: String = head.map(|line| format!("{}\\l", escape(&short_names(&clean(line))))).collect();
    let _ = writeln!(out, "  subgraph cluster{number} {{\n    label=\"{head}\"; color=\"#b0b0b0\";");
    for (index, block) in diagram.blocks.iter().enumerate() {
        let _ = writeln!(out, "    d{number}n{index} [{}];", attributes(block));
    }
    let blocks = diagram.blocks.len();
    for arrow in diagram.arrows.iter().filter(|arrow| arrow.from < blocks && arrow.to < blocks) {
        let label = escape(&brief(arrow.label.trim()));
        let label = if label.is_empty() { label } else { format!(" [label=\"{label}\"]") };
        let _ = writeln!(out, "    d{number}n{} -> d{number}n{}{label};", arrow.from, arrow.to);
    }
    out.push_str("  }\n");
}

fn attributes(block: &Block) -> String {
    let head = format!("{}  {}", brief(&block.title), brief(&block.shape));
    let mark = block.hole.map(|hole| hole.label().to_owned());
    let lines = block.lines.iter().map(|line| brief(line));
    let lines = mark.into_iter().chain([head.trim().to_owned()]).chain(lines);
    let label: String = lines.map(|line| format!("{}\\l", escape(&line))).collect();
    let looks = if block.hole.is_some() {
        format!("fillcolor=\"#ffffff\", color=\"{HOLE}\", style=\"rounded,filled,dashed\", penwidth=2.5")
    } else {
        let hue = hue(block.kind);
        format!("fillcolor=\"{}\", color=\"{}\"", hue.fill, hue.line)
    };
    let tip: Vec<String> = [clean(&block.path)]
        .iter()
        .chain(&long_texts(block, Glyphs::Unicode))
        .map(|line| escape(line))
        .collect();
    format!("label=\"{label}\", tooltip=\"{}\", {looks}", tip.join("\\n"))
}

/// A backslash would start one of Graphviz's own escapes, an `&` an HTML entity.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('&', "&amp;")
}
