//! Prints the sample drawings: `cargo run -p attnscope-render --example gallery -- WIDTH [ascii] [color]`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "../tests/samples/mod.rs"]
mod samples;

use attnscope_render::{Glyphs, Options, Style, draw};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let width = args.first().and_then(|width| width.parse().ok()).unwrap_or(100);
    let glyphs = if args.iter().any(|arg| arg == "ascii") { Glyphs::Ascii } else { Glyphs::Unicode };
    let style = Style { color: args.iter().any(|arg| arg == "color") };
    let options = Options { width, glyphs };
    for diagram in [
        samples::cross_attention(""),
        samples::whole_model(),
        samples::self_attention(),
        samples::feed_forward(),
        samples::strange_names(),
    ] {
        println!("{}", draw(&diagram, options, style).unwrap());
    }
}
