//! Everything as one page: drawings, data, style and script inline, nothing fetched; or the same page of a server, which keeps
//! style and script apart.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use attnscope::answer::{DrawnPart, Report};

use crate::diagram::Diagram;
use crate::flow;
use crate::glyphs::clean;
use crate::layout::{LayoutError, Options, layout};
use crate::markup::escape;
use crate::svg::svg;

/// The page's style, as `page/` builds it.
pub const STYLE: &str = include_str!("../page/page.css");
/// The page's script, as `page/` builds it.
pub const SCRIPT: &str = include_str!("../page/page.js");

/// Columns the drawings are laid out for: about what fits a laptop's window unscaled.
const WIDTH: usize = 120;

/// A drawing of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    /// What is drawn.
    pub diagram: Diagram,
    /// The layers and the part of them that it shows; a glance at the model shows no single part.
    pub of: Option<DrawnPart>,
}

/// What a page is made of.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// Its heading.
    pub title: &'a str,
    /// Lines that explain the letters of the drawings.
    pub legend: &'a [String],
    /// The drawings.
    pub drawings: &'a [Drawing],
    /// The answers that it shows, as JSON: an object with the keys of a report, not necessarily all of them.
    pub data: &'a str,
    /// Where it is shown.
    pub place: Place<'a>,
}

/// Where a page is shown.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// In a file: nothing else is there. A command, as JSON, tells a reader how to see what is not in the file.
    File {
        /// An object with the commands `explain`, `trace`, `keep` (one tensor), `save` (all), `masks` and `align`; `{node}` and
        /// `{at}` stand for a node and a cell.
        commands: &'a str,
    },
    /// On a server, which answers questions.
    Server,
}

/// The page of a report; `json` is the report's JSON.
///
/// # Errors
/// As [`layout`], here and below.
pub fn report(report: &Report, json: &str, place: Place<'_>) -> Result<String, LayoutError> {
    page(&Contents {
        title: &flow::headline(&report.flow),
        legend: &flow::legend_lines(&report.flow),
        drawings: &flow::every_drawing(&report.flow),
        data: json,
        place,
    })
}

/// One HTML document. Without a script it shows its drawings.
pub fn page(contents: &Contents<'_>) -> Result<String, LayoutError> {
    let title = escape(&clean(contents.title));
    // A page without a title is not valid.
    let title = if title.trim().is_empty() { "attnscope".to_owned() } else { title };
    let (live, style, script, commands) = match contents.place {
        Place::File { commands } => (
            "",
            format!("{}<style>{STYLE}</style>", policy(STYLE, Some(SCRIPT))),
            format!("<script>{SCRIPT}</script>"),
            commands,
        ),
        Place::Server => (
            " data-live",
            r#"<link rel="stylesheet" href="/page.css">"#.to_owned(),
            r#"<script src="/page.js"></script>"#.to_owned(),
            "{}",
        ),
    };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"{live}>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"attnscope\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n{style}\n<title>{title}</title>\n</head>\n<body>\n\
         <header id=\"top\"><h1>{title}</h1></header>\n<main id=\"parts\">\n<section id=\"drawings\">\n"
    );
    // Writing to a string cannot fail; the result is dropped here and below.
    if !contents.legend.is_empty() {
        let lines: Vec<String> = contents.legend.iter().map(|line| escape(&clean(line))).collect();
        let _ = writeln!(out, "<p class=\"legend\">{}</p>", lines.join("<br>\n"));
    }
    for (i, drawing) in contents.drawings.iter().enumerate() {
        let scene = layout(&drawing.diagram, Options { width: WIDTH, ..Options::default() })?;
        let _ = write!(out, "<figure{}>\n{}</figure>\n", place_of(drawing), svg(&scene, &format!("flow{i}")));
    }
    let _ = write!(
        out,
        "</section>\n</main>\n<script type=\"application/json\" id=\"data\">{}</script>\n\
         <script type=\"application/json\" id=\"commands\">{}</script>\n{script}\n</body>\n</html>\n",
        in_script(contents.data),
        in_script(commands),
    );
    Ok(out)
}

/// What a drawing shows, for the script.
fn place_of(drawing: &Drawing) -> String {
    let part = |DrawnPart { layers, part }: DrawnPart| {
        let (stack, first, last, part) = (layers.stack.name(), layers.first, layers.last, part.name());
        format!(" data-stack=\"{stack}\" data-first=\"{first}\" data-last=\"{last}\" data-part=\"{part}\"")
    };
    drawing.of.map(part).unwrap_or_default()
}

/// JSON that cannot end the element it stands in.
fn in_script(json: &str) -> String {
    json.trim_end().replace('<', "\\u003c")
}

/// What the file may do: run its own script, where it has one, use its own style, draw. Nothing can be fetched.
pub(crate) fn policy(style: &str, script: Option<&str>) -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())));
    format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {}; \
         style-src {}; img-src data: blob:; base-uri 'none'; form-action 'none'\">\n",
        script.map_or_else(|| "'none'".to_owned(), hash),
        hash(style)
    )
}
