//! A scene as lines of text.

use crate::canvas::{Canvas, DOWN, Ink, LEFT, RIGHT, UP};
use crate::diagram::{Diagram, Hole};
use crate::glyphs::Glyphs;
use crate::layout::{LayoutError, Options, layout, least};
use crate::scene::{Boxed, Role, Route, Scene};

/// How text is written out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// ANSI colours by kind of box. The visible text is the same with and without.
    pub color: bool,
}

/// Lays out a diagram and writes it as text, a line break at the end.
///
/// # Errors
/// As [`layout`].
pub fn draw(diagram: &Diagram, options: Options, style: Style) -> Result<String, LayoutError> {
    Ok(text(&layout(diagram, options)?, style))
}

/// A scene as text: title, facts, an empty line, the drawing.
pub fn text(scene: &Scene, style: Style) -> String {
    let head =
        scene.title.iter().map(|line| (line, true)).chain(scene.facts.iter().map(|line| (line, false)));
    let mut out = String::new();
    for (line, bold) in head {
        let line = line.trim_end();
        if bold && style.color {
            out.push_str(&format!("\x1b[1m{line}\x1b[0m\n"));
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    if !out.is_empty() && !scene.boxes.is_empty() {
        out.push('\n');
    }
    for row in paint(scene).rows(style.color) {
        out.push_str(&row);
        out.push('\n');
    }
    out
}

fn paint(scene: &Scene) -> Canvas {
    let mut canvas = Canvas::new(scene.width, scene.height, scene.glyphs);
    for route in &scene.arrows {
        trace(&mut canvas, route);
    }
    for boxed in &scene.boxes {
        frame(&mut canvas, boxed, scene.glyphs);
    }
    for route in &scene.arrows {
        ends(&mut canvas, route, scene);
    }
    canvas
}

/// The line of an arrow, cell by cell.
fn trace(canvas: &mut Canvas, route: &Route) {
    for pair in route.points.windows(2) {
        let &[(x0, y0), (x1, y1)] = pair else { continue };
        for y in y0.min(y1)..y0.max(y1) {
            canvas.line((x0, y), DOWN, route.from);
            canvas.line((x0, y + 1), UP, route.from);
        }
        for x in x0.min(x1)..x0.max(x1) {
            canvas.line((x, y0), RIGHT, route.from);
            canvas.line((x + 1, y0), LEFT, route.from);
        }
    }
}

/// Border characters: corners from the top left clockwise, horizontal, vertical, a line leaving downwards.
fn border(hole: Option<Hole>, glyphs: Glyphs) -> ([char; 4], char, char, char) {
    match (hole.is_some(), glyphs) {
        (false, Glyphs::Unicode) => (['┌', '┐', '┘', '└'], '─', '│', '┬'),
        (true, Glyphs::Unicode) => (['┏', '┓', '┛', '┗'], '╍', '╏', '┯'),
        (false, Glyphs::Ascii) => (['+', '+', '+', '+'], '-', '|', '+'),
        (true, Glyphs::Ascii) => (['#', '#', '#', '#'], '=', '#', '#'),
    }
}

fn frame(canvas: &mut Canvas, boxed: &Boxed, glyphs: Glyphs) {
    let (corners, across, down, _) = border(boxed.hole, glyphs);
    let ink = if boxed.hole.is_some() { Ink::Alarm } else { Ink::Border(boxed.kind) };
    let (left, right, top, bottom) = (boxed.x, boxed.right(), boxed.y, boxed.bottom());
    for x in left + 1..right {
        canvas.put(x, top, across, ink);
        canvas.put(x, bottom, across, ink);
    }
    for y in top + 1..bottom {
        canvas.put(left, y, down, ink);
        canvas.put(right, y, down, ink);
    }
    for ((x, y), corner) in
        [(left, top), (right, top), (right, bottom), (left, bottom)].into_iter().zip(corners)
    {
        canvas.put(x, y, corner, ink);
    }
    if let Some(hole) = boxed.hole.filter(|hole| boxed.width >= least(Some(*hole))) {
        canvas.text(left + 2, top, &format!(" {} ", hole.label()), ink);
    }
    for run in &boxed.runs {
        let ink = match run.role {
            Role::Title => Ink::Title(boxed.kind),
            Role::Shape => Ink::Faint,
            Role::Detail => Ink::Plain,
        };
        canvas.text(run.x, run.y, &run.text, ink);
    }
}

/// Where an arrow leaves its box, its head and what it carries.
fn ends(canvas: &mut Canvas, route: &Route, scene: &Scene) {
    if let (Some(&(x, y)), Some(from)) = (route.points.first(), scene.boxes.get(route.from)) {
        let ink = if from.hole.is_some() { Ink::Alarm } else { Ink::Border(from.kind) };
        canvas.put(x, y, border(from.hole, scene.glyphs).3, ink);
    }
    if let Some(&(x, y)) = route.points.last() {
        canvas.put(x, y, if scene.glyphs == Glyphs::Ascii { 'v' } else { '▼' }, Ink::Plain);
    }
    if let Some(label) = &route.label {
        canvas.text(label.x, label.y, &label.text, Ink::Faint);
    }
}
