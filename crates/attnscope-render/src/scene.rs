//! A diagram with its places: what [`crate::layout()`] gives and what text and SVG are drawn from.

use crate::diagram::{Hole, Kind};
use crate::glyphs::Glyphs;

/// Everything that is drawn, in character cells; (0, 0) is the top left corner.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// The characters the texts were prepared for.
    pub glyphs: Glyphs,
    /// The title, wrapped to the width.
    pub title: Vec<String>,
    /// The facts under the title, wrapped to the width.
    pub facts: Vec<String>,
    /// Columns of the drawing; never more than was asked for.
    pub width: usize,
    /// Rows of the drawing, without title and facts.
    pub height: usize,
    /// One for every block, in the diagram's order.
    pub boxes: Vec<Boxed>,
    /// One for every arrow that is drawn as a line. An arrow there was no room for is a line of text in
    /// the box it goes to.
    pub arrows: Vec<Route>,
}

/// A block's rectangle and what stands in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Boxed {
    /// Leftmost column, the border.
    pub x: usize,
    /// Top row, the border.
    pub y: usize,
    /// Columns with both borders.
    pub width: usize,
    /// Rows with both borders.
    pub height: usize,
    /// The node path, cleaned.
    pub path: String,
    /// Decides the colour.
    pub kind: Kind,
    /// What is wrong with its weights.
    pub hole: Option<Hole>,
    /// Texts that are too long for any box, in full and cleaned.
    pub long: Vec<String>,
    /// The texts, each at its place.
    pub runs: Vec<Run>,
}

impl Boxed {
    /// The column of the right border.
    pub fn right(&self) -> usize {
        self.x + self.width.saturating_sub(1)
    }

    /// The row of the bottom border.
    pub fn bottom(&self) -> usize {
        self.y + self.height.saturating_sub(1)
    }
}

/// One piece of text on one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// First column.
    pub x: usize,
    /// Row.
    pub y: usize,
    /// What it says.
    pub text: String,
    /// What it is.
    pub role: Role,
}

/// What a text in a box is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What the reader calls the box.
    Title,
    /// The shape that leaves the box; stands at the right.
    Shape,
    /// Anything else.
    Detail,
}

/// An arrow's way: horizontal and vertical pieces from the bottom border of one box to the cell above the
/// top border of another, where the arrowhead is.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Index of the box it leaves. Routes with the same origin may share a trunk.
    pub from: usize,
    /// Index of the box it enters.
    pub to: usize,
    /// Corners as (column, row).
    pub points: Vec<(usize, usize)>,
    /// What it carries, if said, and where that stands: beside the arrowhead.
    pub label: Option<Run>,
}
