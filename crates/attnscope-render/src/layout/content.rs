//! The contents of a box, and its width and height.

use crate::diagram::{Block, Hole};
use crate::glyphs::Glyphs;
use crate::scene::Role;
use crate::wrap::{brief, long_texts, width, wrap, wrap_judged};

/// Columns a border and its padding take on both sides together.
pub(super) const FRAME: usize = 4;
/// Columns at least between a title and a shape on the same row.
const BETWEEN: usize = 2;

/// No box is narrower than this; the mark of a missing weight in the border needs its columns, with a space on either side.
pub(crate) fn least(hole: Option<Hole>) -> usize {
    FRAME + hole.map_or(2, |hole| hole.label().len() + 2)
}

/// The texts of one box, cleaned and transliterated.
#[derive(Debug, Clone)]
pub(super) struct Content {
    title: String,
    shape: String,
    lines: Vec<String>,
    /// What was too long, in full.
    pub(super) long: Vec<String>,
}

/// One text within a box, its place relative to the first column and row inside border and padding.
pub(super) struct Placed {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) text: String,
    pub(super) role: Role,
}

impl Content {
    /// `extra` are lines the layout adds: arrows that did not fit.
    pub(super) fn new(block: &Block, extra: &[String], glyphs: Glyphs) -> Self {
        let show = |text: &String| glyphs.text(&brief(text));
        let lines = block.lines.iter().chain(extra).map(show).collect();
        Content {
            title: show(&block.title),
            shape: show(&block.shape),
            lines,
            long: long_texts(block, glyphs),
        }
    }

    /// The box's width if nothing had to be wrapped.
    pub(super) fn natural_width(&self, hole: Option<Hole>) -> usize {
        let gap = if self.title.is_empty() || self.shape.is_empty() { 0 } else { BETWEEN };
        let head = width(&self.title) + gap + width(&self.shape);
        let lines = self.lines.iter().map(|line| width(line.trim())).max().unwrap_or(0);
        (head.max(lines) + FRAME).max(least(hole))
    }

    /// The texts wrapped to a box of `total` columns.
    pub(super) fn fill(&self, total: usize) -> Vec<Placed> {
        let columns = total.saturating_sub(FRAME).max(2);
        let mut placed = Vec::new();
        let mut y = 0;
        let mut put = |text: String, y: usize, role: Role| {
            let x = if role == Role::Shape { columns.saturating_sub(width(&text)) } else { 0 };
            placed.push(Placed { x, y, text, role });
        };
        let title = wrap(&self.title, columns);
        let last = title.last().map_or(0, |line| width(line));
        y += title.len();
        for (row, line) in title.into_iter().enumerate() {
            put(line, row, Role::Title);
        }
        if !self.shape.trim().is_empty() {
            let fits = y > 0 && last + BETWEEN + width(&self.shape) <= columns;
            if fits {
                put(self.shape.clone(), y - 1, Role::Shape);
            } else {
                for line in wrap(&self.shape, columns) {
                    put(line.trim_start().to_owned(), y, Role::Shape);
                    y += 1;
                }
            }
        }
        for line in self.lines.iter().flat_map(|line| wrap(line, columns)) {
            put(line, y, Role::Detail);
            y += 1;
        }
        placed
    }

    /// The narrowest box that needs no more rows and no worse breaks than one of `total` columns: wrapping often leaves an
    /// unneeded margin.
    pub(super) fn tight_width(&self, total: usize, hole: Option<Hole>) -> usize {
        if total >= self.natural_width(hole) {
            return self.natural_width(hole);
        }
        let judge = |columns: usize| (self.rows(columns), self.hurt(columns));
        let (rows, hurt) = judge(total);
        let narrower = (least(hole)..=total).rev().take_while(|&columns| {
            let (these_rows, this_hurt) = judge(columns);
            these_rows <= rows && this_hurt <= hurt
        });
        narrower.last().unwrap_or(total)
    }

    /// The penalty of the line breaks in a box of `total` columns.
    fn hurt(&self, total: usize) -> usize {
        let columns = total.saturating_sub(FRAME).max(2);
        let texts = self.lines.iter().chain([&self.title, &self.shape]);
        texts.map(|text| wrap_judged(text, columns).1).sum()
    }

    /// Rows of text in a box of `total` columns.
    pub(super) fn rows(&self, total: usize) -> usize {
        self.fill(total).iter().map(|placed| placed.y + 1).max().unwrap_or(0)
    }
}
