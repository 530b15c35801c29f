//! A grid of character cells that lines and text are painted on.

use crate::diagram::Kind;
use crate::glyphs::Glyphs;
use crate::wrap::char_width;

pub(crate) const UP: u8 = 1;
pub(crate) const DOWN: u8 = 2;
pub(crate) const LEFT: u8 = 4;
pub(crate) const RIGHT: u8 = 8;

/// How a cell is coloured, if colour is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Ink {
    /// The terminal's own colour.
    #[default]
    Plain,
    /// Dimmed: lines, shapes.
    Faint,
    /// A border of this kind of box.
    Border(Kind),
    /// A title in this kind of box.
    Title(Kind),
    /// A hole.
    Alarm,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    /// A character with the combining marks that belong to it; empty for a line or nothing.
    text: String,
    /// The right half of a wide character.
    covered: bool,
    /// Directions in which a line leaves the cell.
    line: u8,
    /// The source of the line: lines of one source join, others cross.
    owner: usize,
    /// A line of another owner passes across.
    crossed: bool,
    ink: Ink,
}

/// The grid. Everything outside it is silently left out, so that no place can be out of bounds.
pub(crate) struct Canvas {
    width: usize,
    cells: Vec<Cell>,
    glyphs: Glyphs,
}

impl Canvas {
    pub(crate) fn new(width: usize, height: usize, glyphs: Glyphs) -> Self {
        Canvas { width, cells: vec![Cell::default(); width * height], glyphs }
    }

    fn cell(&mut self, x: usize, y: usize) -> Option<&mut Cell> {
        if x >= self.width { None } else { self.cells.get_mut(y * self.width + x) }
    }

    /// Adds line directions to a cell.
    pub(crate) fn line(&mut self, (x, y): (usize, usize), directions: u8, owner: usize) {
        let Some(cell) = self.cell(x, y) else { return };
        if cell.line != 0 && cell.owner != owner {
            cell.crossed = true;
        }
        cell.line |= directions;
        cell.owner = owner;
        cell.ink = Ink::Faint;
    }

    /// Puts one character over whatever is there.
    pub(crate) fn put(&mut self, x: usize, y: usize, c: char, ink: Ink) {
        let Some(cell) = self.cell(x, y) else { return };
        *cell = Cell { text: c.to_string(), ink, ..Cell::default() };
    }

    /// Writes text; wide characters take two cells, combining marks none.
    pub(crate) fn text(&mut self, x: usize, y: usize, text: &str, ink: Ink) {
        let mut at = x;
        for c in text.chars() {
            let width = char_width(c);
            if width == 0 {
                if let Some(cell) = at.checked_sub(1).and_then(|before| self.cell(before, y)) {
                    cell.text.push(c);
                }
                continue;
            }
            self.put(at, y, c, ink);
            for covered in at + 1..at + width {
                if let Some(cell) = self.cell(covered, y) {
                    *cell = Cell { covered: true, ink, ..Cell::default() };
                }
            }
            at += width;
        }
    }

    /// The rows as text, with colour or without, no spaces at their ends.
    pub(crate) fn rows(&self, color: bool) -> Vec<String> {
        self.cells.chunks(self.width.max(1)).map(|row| self.row(row, color)).collect()
    }

    fn row(&self, row: &[Cell], color: bool) -> String {
        let used = row.iter().rposition(|cell| !cell.is_blank()).map_or(0, |last| last + 1);
        let mut out = String::new();
        let mut ink = Ink::Plain;
        for cell in row[..used].iter().filter(|cell| !cell.covered) {
            // A blank has no colour: leaving it as it is saves escapes.
            if color && cell.ink != ink && !cell.is_blank() {
                out.push_str(escape(cell.ink));
                ink = cell.ink;
            }
            match (cell.text.as_str(), cell.line) {
                ("", 0) => out.push(' '),
                ("", line) if cell.crossed => out.push(join(line & (UP | DOWN), self.glyphs)),
                ("", line) => out.push(join(line, self.glyphs)),
                (text, _) => out.push_str(text),
            }
        }
        if color && ink != Ink::Plain {
            out.push_str("\x1b[0m");
        }
        out
    }
}

impl Cell {
    fn is_blank(&self) -> bool {
        !self.covered && self.line == 0 && (self.text.is_empty() || self.text == " ")
    }
}

/// The character for a line that leaves a cell in these directions. Arrows bend round, boxes have square
/// corners: the two can be told apart even where they touch.
fn join(line: u8, glyphs: Glyphs) -> char {
    const DR: u8 = DOWN | RIGHT;
    const DL: u8 = DOWN | LEFT;
    const UR: u8 = UP | RIGHT;
    const UL: u8 = UP | LEFT;
    const UDR: u8 = UP | DR;
    const UDL: u8 = UP | DL;
    const DLR: u8 = LEFT | DR;
    const ULR: u8 = LEFT | UR;
    if glyphs == Glyphs::Ascii {
        return match (line & (UP | DOWN) != 0, line & (LEFT | RIGHT) != 0) {
            (true, false) => '|',
            (false, true) => '-',
            _ => '+',
        };
    }
    match line {
        DR => '╭',
        DL => '╮',
        UR => '╰',
        UL => '╯',
        UDR => '├',
        UDL => '┤',
        DLR => '┬',
        ULR => '┴',
        15 => '┼',
        _ if line & (UP | DOWN) != 0 => '│',
        _ => '─',
    }
}

fn escape(to: Ink) -> &'static str {
    match to {
        Ink::Plain => "\x1b[0m",
        Ink::Faint => "\x1b[0;2m",
        Ink::Alarm => "\x1b[0;1;31m",
        Ink::Border(kind) => hue(kind, false),
        Ink::Title(kind) => hue(kind, true),
    }
}

/// Plain 16-colour codes: they follow the user's theme, light or dark. anstyle would name them at run time; these are all there
/// are, and drawings are tested byte for byte.
fn hue(kind: Kind, bold: bool) -> &'static str {
    match (kind, bold) {
        (Kind::Input | Kind::Output, false) => "\x1b[0;36m",
        (Kind::Input | Kind::Output, true) => "\x1b[0;1;36m",
        (Kind::Embedding, false) => "\x1b[0;34m",
        (Kind::Embedding, true) => "\x1b[0;1;34m",
        (Kind::Linear, false) => "\x1b[0;33m",
        (Kind::Linear, true) => "\x1b[0;1;33m",
        (Kind::Attention | Kind::Stack, false) => "\x1b[0;35m",
        (Kind::Attention | Kind::Stack, true) => "\x1b[0;1;35m",
        (Kind::Stream | Kind::Activation, false) => "\x1b[0;32m",
        (Kind::Stream | Kind::Activation, true) => "\x1b[0;1;32m",
        (Kind::Outside | Kind::Mask, false) => "\x1b[0;2m",
        (Kind::Outside | Kind::Mask, true) => "\x1b[0;1m",
    }
}
