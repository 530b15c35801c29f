//! Shows the sample drawings: `cargo run -p attnscope-render --example gallery -- WIDTH [ascii] [color]`, or
//! writes them as pictures into a folder: `… -- WIDTH --to DIR`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "../tests/samples/mod.rs"]
mod samples;

use attnscope_render::{Glyphs, Options, Style, dot, draw, layout, mermaid, svg, svg_sheet};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let width = args.first().and_then(|width| width.parse().ok()).unwrap_or(100);
    let glyphs = if args.iter().any(|arg| arg == "ascii") { Glyphs::Ascii } else { Glyphs::Unicode };
    let style = Style { color: args.iter().any(|arg| arg == "color") };
    let options = Options { width, glyphs, ..Options::default() };
    let diagrams = samples::all();
    let Some(folder) = args.iter().position(|arg| arg == "--to").and_then(|at| args.get(at + 1)) else {
        for (_, diagram) in &diagrams {
            println!("{}", draw(diagram, options, style).unwrap());
        }
        return;
    };
    for (name, diagram) in &diagrams {
        let write =
            |kind: &str, text: String| std::fs::write(format!("{folder}/{name}.{kind}"), text).unwrap();
        write("svg", svg(&layout(diagram, options).unwrap(), name));
        write("mmd", mermaid(&diagram.title, std::slice::from_ref(diagram)));
        write("dot", dot(&diagram.title, std::slice::from_ref(diagram)));
    }
    let legend = ["S source positions · T target positions · every other number is a size".to_owned()];
    let scenes: Vec<_> = diagrams.iter().map(|(_, diagram)| layout(diagram, options).unwrap()).collect();
    std::fs::write(format!("{folder}/sheet.svg"), svg_sheet("Samples", &legend, &scenes)).unwrap();
}
