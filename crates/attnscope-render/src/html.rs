//! Drawings as one page: everything inline, nothing fetched.

use crate::diagram::Diagram;
use crate::glyphs::{Glyphs, clean};
use crate::layout::{LayoutError, Options, layout};
use crate::markup::escape;
use crate::svg::svg;
use std::fmt::Write as _;

/// A part of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The heading; may be empty.
    pub heading: String,
    /// The drawings under it.
    pub diagrams: Vec<Diagram>,
}

/// Columns the drawings are laid out for: about what fits a laptop's window unscaled.
const WIDTH: usize = 120;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// One HTML file with all drawings, stacked, under a heading and lines that explain their letters; a click
/// on a box copies its path.
///
/// # Errors
/// As [`layout`].
pub fn page(title: &str, legend: &[String], sections: &[Section]) -> Result<String, LayoutError> {
    let title = escape(&clean(title));
    // A page without a title is not valid.
    let title = if title.trim().is_empty() { "attnscope".to_owned() } else { title };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    // Writing to a string cannot fail; the result is dropped here and below.
    if !legend.is_empty() {
        let lines: Vec<String> = legend.iter().map(|line| escape(&clean(line))).collect();
        let _ = writeln!(out, "<p class=\"legend\">{}</p>", lines.join("<br>\n"));
    }
    let mut drawn = 0;
    for section in sections {
        out.push_str("<section>\n");
        if !section.heading.trim().is_empty() {
            let _ = writeln!(out, "<h2>{}</h2>", escape(&clean(&section.heading)));
        }
        for diagram in &section.diagrams {
            let scene = layout(diagram, Options { width: WIDTH, glyphs: Glyphs::Unicode })?;
            let _ = write!(out, "<figure>\n{}</figure>\n", svg(&scene, &format!("flow{drawn}")));
            drawn += 1;
        }
        out.push_str("</section>\n");
    }
    let _ = write!(
        out,
        "</main>\n<p id=\"copied\" role=\"status\" aria-live=\"polite\"></p>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    );
    Ok(out)
}
