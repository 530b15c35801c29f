//! A scene as a self-contained SVG.
//!
//! Looks are presentation attributes, not a stylesheet: every converter on the way into a paper understands
//! them, and a page that embeds the drawing can still override them by class.

use crate::glyphs::{Glyphs, clean};
use crate::markup::escape;
use crate::palette::{HOLE, hue};
use crate::scene::{Boxed, Role, Route, Run, Scene};
use crate::wrap::{shown, width, wrap};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Pixels a column takes. A monospaced character at [`FONT`] is 7.2 to 7.8 wide: the rest is slack for
/// fonts that run wide.
const COLUMN: f64 = 8.0;
/// Pixels a row takes.
const ROW: f64 = 18.0;
/// Pixels around the drawing.
const MARGIN: f64 = 12.0;
/// Radius of a bend of an arrow and of a box's corner.
const ROUND: f64 = 6.0;
/// Columns of a sheet at least, however narrow its drawings: room for its heading.
const LEAST_HEADING: usize = 60;
const FONT: f64 = 12.5;
const MONO: &str = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace";
const SANS: &str = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const INK: &str = "#1a1a1a";
const MUTED: &str = "#5c5c5c";
const LINE: &str = "#4a4a4a";

/// Draws scenes below each other in one file, under a heading and lines that explain their letters.
pub fn svg_sheet(title: &str, legend: &[String], scenes: &[Scene]) -> String {
    let legend: Vec<String> = legend.iter().map(|line| clean(line)).collect();
    let columns = scenes.iter().map(Extent::columns).chain(legend.iter().map(|line| width(line)));
    let columns = columns.max().unwrap_or(0).max(LEAST_HEADING);
    let across = MARGIN * 2.0 + columns as f64 * COLUMN;
    // The heading's letters are larger than the columns it is counted in.
    let heading = wrap(&shown(title, Glyphs::Unicode), columns * 4 / 5);
    let lines = heading.len() + legend.len();
    let top = if lines > 0 { MARGIN + lines as f64 * ROW + ROW / 2.0 } else { 0.0 };
    let down = top + scenes.iter().map(|s| Extent::of(s).down).sum::<f64>();
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="attnscope" width="{across}" height="{down}" viewBox="0 0 {across} {down}">"#
    );
    let _ = write!(out, "\n<title>{}</title>\n", escape(&clean(title)));
    let _ = writeln!(out, r##"<rect class="page" width="{across}" height="{down}" fill="#ffffff"/>"##);
    head_lines(&mut out, &heading, &legend, 17.0);
    let mut y = top;
    for (i, scene) in scenes.iter().enumerate() {
        let drawn = svg(scene, &format!("flow{i}"));
        let _ = write!(out, r#"<svg y="{y}" {}"#, drawn.strip_prefix("<svg ").unwrap_or(&drawn));
        y += Extent::of(scene).down;
    }
    out.push_str("</svg>\n");
    out
}

/// The size of a drawing in pixels.
struct Extent {
    /// Where the boxes begin, under the heading.
    top: f64,
    across: f64,
    down: f64,
}

impl Extent {
    fn of(scene: &Scene) -> Self {
        let header = (scene.title.len() + scene.facts.len()) as f64 * ROW;
        let top = MARGIN + if header > 0.0 { header + ROW / 2.0 } else { 0.0 };
        let across = MARGIN * 2.0 + Self::columns(scene) as f64 * COLUMN;
        Self { top, across, down: top + scene.height as f64 * ROW + MARGIN }
    }

    fn columns(scene: &Scene) -> usize {
        let headline = scene.title.iter().chain(&scene.facts).map(|line| width(line)).max().unwrap_or(0);
        scene.width.max(headline)
    }
}

/// Draws a scene. `id` goes before every id in the drawing: two drawings in one page need two of them.
pub fn svg(scene: &Scene, id: &str) -> String {
    let id: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    let Extent { top, across, down } = Extent::of(scene);
    let mut out = String::new();
    // Writing to a string cannot fail; the result is dropped here and below.
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="attnscope" width="{across}" height="{down}" viewBox="0 0 {across} {down}" role="img" aria-labelledby="{id}-title {id}-desc">"#
    );
    let _ = writeln!(out, r#"<title id="{id}-title">{}</title>"#, escape(&joined(&scene.title)));
    let _ = writeln!(out, r#"<desc id="{id}-desc">{}</desc>"#, escape(&description(scene)));
    let _ = writeln!(
        out,
        r##"<defs><marker id="{id}-head" viewBox="0 0 10 10" refX="9.5" refY="5" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0.8 10 5 0 9.2 2.2 5z" fill="{LINE}"/></marker></defs>"##
    );
    let _ = writeln!(out, r##"<rect class="page" width="{across}" height="{down}" fill="#ffffff"/>"##);
    head_lines(&mut out, &scene.title, &scene.facts, 15.0);
    let _ =
        writeln!(out, r#"<g transform="translate({MARGIN} {top})" font-family="{MONO}" font-size="{FONT}">"#);
    arrows(&mut out, scene, &id);
    for boxed in &scene.boxes {
        draw_box(&mut out, boxed);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The drawing in words, for readers who cannot see it.
fn description(scene: &Scene) -> String {
    let mut said = joined(&scene.facts);
    for route in &scene.arrows {
        if let (Some(from), Some(to)) = (scene.boxes.get(route.from), scene.boxes.get(route.to)) {
            let _ = write!(said, "{}{} → {}", if said.is_empty() { "" } else { "; " }, from.path, to.path);
        }
    }
    said
}

/// A title, its letters `size` high, and lines under it.
fn head_lines(out: &mut String, title: &[String], under: &[String], size: f64) {
    let lines = title.iter().map(|line| (line, true)).chain(under.iter().map(|line| (line, false)));
    for (row, (line, title)) in lines.enumerate() {
        let y = MARGIN + (row as f64 + 0.75) * ROW;
        let looks = if title {
            format!(r#"class="ink" font-size="{size}" font-weight="600" fill="{INK}""#)
        } else {
            format!(r#"class="muted" font-size="{FONT}" fill="{MUTED}""#)
        };
        let _ = writeln!(
            out,
            r#"<text x="{MARGIN}" y="{y}" font-family="{SANS}" {looks}>{}</text>"#,
            escape(line)
        );
    }
}

/// The middle of a cell.
fn cell((x, y): (usize, usize)) -> (f64, f64) {
    ((x as f64 + 0.5) * COLUMN, (y as f64 + 0.5) * ROW)
}

fn arrows(out: &mut String, scene: &Scene, id: &str) {
    let _ = writeln!(out, r#"<g class="arrows" fill="none" stroke="{LINE}" stroke-width="1.3">"#);
    for route in &scene.arrows {
        let _ = writeln!(out, r#"<path d="{}" marker-end="url(#{id}-head)"/>"#, path(route));
    }
    // Where two values cross without meeting, the vertical one passes over.
    for point in crossings(scene) {
        let (x, y) = cell(point);
        let (from, to) = (y - 6.0, y + 6.0);
        let _ = writeln!(
            out,
            r##"<path class="gap" d="M{x} {from}V{to}" stroke="#ffffff" stroke-width="6"/><path d="M{x} {}V{}"/>"##,
            from - 0.5,
            to + 0.5
        );
    }
    out.push_str("</g>\n");
    for label in scene.arrows.iter().filter_map(|route| route.label.as_ref()) {
        let (x, y) = cell((label.x, label.y));
        let _ = writeln!(
            out,
            r#"<text class="muted" x="{}" y="{}" font-family="{SANS}" font-size="11.5" font-style="italic" fill="{MUTED}">{}</text>"#,
            x - COLUMN,
            y + 4.0,
            escape(&label.text)
        );
    }
}

/// An arrow's corners rounded off.
fn path(route: &Route) -> String {
    let mut points: Vec<(f64, f64)> = route.points.iter().map(|&point| cell(point)).collect();
    if let Some(last) = points.last_mut() {
        // In text the head has a cell of its own; here it touches the box.
        last.1 += ROW - 0.8;
    }
    let mut d = String::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        let around = index.checked_sub(1).and_then(|before| points.get(before)).zip(points.get(index + 1));
        match around {
            None => {
                let _ = write!(d, "{}{x} {y}", if index == 0 { "M" } else { "L" });
            }
            Some((&before, &after)) => {
                let (x0, y0) = towards((x, y), before);
                let (x1, y1) = towards((x, y), after);
                let _ = write!(d, "L{x0} {y0}Q{x} {y} {x1} {y1}");
            }
        }
    }
    d
}

/// The point where a bend at `corner` starts on the way to `other`.
fn towards(corner: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (other.0 - corner.0, other.1 - corner.1);
    let length = (dx.abs() + dy.abs()).max(1.0);
    let part = ROUND.min(length / 2.0) / length;
    (corner.0 + dx * part, corner.1 + dy * part)
}

/// Cells where a vertical piece of one source's arrow crosses a horizontal piece of another's.
fn crossings(scene: &Scene) -> BTreeSet<(usize, usize)> {
    let pieces: Vec<_> = scene
        .arrows
        .iter()
        .flat_map(|route| route.points.windows(2).map(move |pair| (route.from, pair[0], pair[1])))
        .collect();
    let mut found = BTreeSet::new();
    for &(owner, (x, y0), (_, y1)) in pieces.iter().filter(|(_, a, b)| a.0 == b.0) {
        for &(other, (left, y), (right, _)) in pieces.iter().filter(|(_, a, b)| a.1 == b.1) {
            let within = y0 < y && y < y1 && left.min(right) < x && x < left.max(right);
            if owner != other && within {
                found.insert((x, y));
            }
        }
    }
    found
}

fn draw_box(out: &mut String, boxed: &Boxed) {
    let hue = hue(boxed.kind);
    let (x, y) = cell((boxed.x, boxed.y));
    let (across, down) = ((boxed.width as f64 - 1.0) * COLUMN, (boxed.height as f64 - 1.0) * ROW);
    let class = if boxed.hole.is_some() { "hole" } else { hue.name };
    let mark = boxed.hole.map(|hole| format!(" ({})", hole.label().to_lowercase())).unwrap_or_default();
    let _ = write!(out, r#"<g class="box {class}" data-path="{0}"><title>{0}{mark}"#, escape(&boxed.path));
    for text in &boxed.long {
        let _ = write!(out, "\n{}", escape(text));
    }
    out.push_str("</title>");
    let looks = if boxed.hole.is_some() {
        format!(r##"fill="#ffffff" stroke="{HOLE}" stroke-width="2.2" stroke-dasharray="6 3.5""##)
    } else {
        format!(r#"fill="{}" stroke="{}" stroke-width="1.2""#, hue.fill, hue.line)
    };
    let _ = writeln!(out, r#"<rect x="{x}" y="{y}" width="{across}" height="{down}" rx="{ROUND}" {looks}/>"#);
    if let Some(hole) = boxed.hole {
        let label = hole.label();
        let _ = writeln!(
            out,
            r##"<rect class="page" x="{}" y="{}" width="{}" height="14" fill="#ffffff"/><text class="alarm" x="{}" y="{}" font-family="{SANS}" font-size="10.5" font-weight="700" letter-spacing="0.8" fill="{HOLE}">{label}</text>"##,
            x + 10.0,
            y - 7.0,
            10 + 8 * label.len(),
            x + 13.0,
            y + 3.8
        );
    }
    for run in &boxed.runs {
        draw_run(out, run, boxed);
    }
    out.push_str("</g>\n");
}

fn draw_run(out: &mut String, run: &Run, boxed: &Boxed) {
    let text = run.text.trim_start();
    let indent = run.text.len() - text.len();
    let y = (run.y as f64 + 0.5) * ROW + 4.3;
    let x = (run.x + indent) as f64 * COLUMN;
    let _ = match run.role {
        Role::Title => writeln!(
            out,
            r#"<text class="ink" x="{x}" y="{y}" font-family="{SANS}" font-size="13" font-weight="600" fill="{INK}">{}</text>"#,
            escape(text)
        ),
        // Anchored at the right, so that it lines up there whatever the font's width.
        Role::Shape => writeln!(
            out,
            r#"<text class="muted" x="{}" y="{y}" text-anchor="end" fill="{MUTED}">{}</text>"#,
            (boxed.right() as f64 - 0.8) * COLUMN,
            escape(text)
        ),
        Role::Detail => {
            writeln!(out, r#"<text class="ink" x="{x}" y="{y}" fill="{INK}">{}</text>"#, escape(text))
        }
    };
}
