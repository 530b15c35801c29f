//! A small layered layout in character cells.
//!
//! Blocks get ranks ([`rank`]); long arrows get straight lanes through the ranks they pass ([`layers`]);
//! both get an order from left to right ([`order`]) and columns ([`place`]); arrows get the columns where
//! they leave and enter boxes ([`ports`]) and rows for their horizontal pieces ([`tracks`]). Where the
//! asked width is too small for that, [`layout`] gives way step by step: narrower boxes, then ranks in two
//! rows, then an arrow said in words in the box it goes to. What is drawn is always true.

mod content;
mod layers;
mod order;
mod place;
mod ports;
mod rank;
mod route;
mod tracks;

use crate::diagram::Diagram;
use crate::glyphs::Glyphs;
use crate::hint::Reader;
use crate::scene::Scene;
use crate::wrap::{brief, shown, width, wrap};
use content::Content;
pub(crate) use content::least;
use layers::Layers;
use std::fmt;

/// What a drawing has to keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Columns there are, brought between [`Options::NARROWEST`] and [`Options::WIDEST`].
    pub width: usize,
    /// The characters that may be used.
    pub glyphs: Glyphs,
    /// Who reads it: what there is more of is said in their words.
    pub reader: Reader,
}

impl Options {
    /// The smallest width a drawing can be made for.
    pub const NARROWEST: usize = 20;
    /// More columns than this are never used: a hostile name must not ask for a canvas of any size.
    pub const WIDEST: usize = 2000;
}

impl Default for Options {
    fn default() -> Self {
        Options { width: 100, glyphs: Glyphs::Unicode, reader: Reader::default() }
    }
}

/// Why a diagram cannot be drawn. Both are defects of the diagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// The arrows run in a circle.
    Cycle,
    /// An arrow starts or ends at a block that does not exist.
    NoSuchBlock {
        /// Index of the arrow.
        arrow: usize,
        /// The block it names.
        block: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Cycle => write!(f, "the arrows of the diagram run in a circle"),
            LayoutError::NoSuchBlock { arrow, block } => {
                write!(f, "arrow {arrow} of the diagram names block {block}, which does not exist")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

/// An arrow that is to be drawn as a line.
#[derive(Debug, Clone)]
struct Edge {
    arrow: usize,
    from: usize,
    to: usize,
    label: String,
}

impl Edge {
    /// Columns the label takes beside the arrowhead.
    fn label_room(&self) -> usize {
        if self.label.is_empty() { 0 } else { width(&self.label) + 2 }
    }
}

/// What did not fit.
enum Misfit {
    /// These items are too wide beside each other.
    Items(Vec<usize>),
    /// There is no path for this edge (index among the edges).
    Edge(usize),
}

/// How an arrow is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// A line with its label beside the arrowhead.
    Line,
    /// A line; its label is a line of text in the box it goes to.
    LabelInBox,
    /// No line: a line of text in the box it goes to says where the value comes from.
    InWords,
}

/// Gives every box, line and text of a diagram its place.
///
/// # Errors
/// If the arrows run in a circle or name a block that does not exist.
pub fn layout(diagram: &Diagram, options: Options) -> Result<Scene, LayoutError> {
    let blocks = diagram.blocks.len();
    for (index, arrow) in diagram.arrows.iter().enumerate() {
        if let Some(&block) = [arrow.from, arrow.to].iter().find(|&&block| block >= blocks) {
            return Err(LayoutError::NoSuchBlock { arrow: index, block });
        }
    }
    let mut draft = Draft {
        diagram,
        glyphs: options.glyphs,
        width: options.width.clamp(Options::NARROWEST, Options::WIDEST),
        shown: vec![Shown::Line; diagram.arrows.len()],
        rank: Vec::new(),
    };
    draft.rank = rank::ranks(blocks, &draft.edges()).ok_or(LayoutError::Cycle)?;
    // Every round adds a rank or removes an arrow, so this ends.
    loop {
        match draft.attempt() {
            Ok(scene) => return Ok(scene),
            Err(misfit) => draft.give_way(misfit),
        }
    }
}

/// The state of one layout: what has been given up so far.
struct Draft<'a> {
    diagram: &'a Diagram,
    glyphs: Glyphs,
    width: usize,
    shown: Vec<Shown>,
    rank: Vec<usize>,
}

impl Draft<'_> {
    fn edges(&self) -> Vec<Edge> {
        let lines =
            self.diagram.arrows.iter().enumerate().filter(|(index, _)| self.shown[*index] != Shown::InWords);
        lines
            .map(|(index, arrow)| Edge {
                arrow: index,
                from: arrow.from,
                to: arrow.to,
                label: match self.shown[index] {
                    Shown::Line => self.glyphs.text(&brief(arrow.label.trim())),
                    _ => String::new(),
                },
            })
            .collect()
    }

    fn contents(&self) -> Vec<Content> {
        let each = self.diagram.blocks.iter().enumerate();
        each.map(|(index, block)| Content::new(block, &self.words(index), self.glyphs)).collect()
    }

    /// Lines for the arrows into a block that are not drawn, or drawn without their label.
    fn words(&self, block: usize) -> Vec<String> {
        let into = self.diagram.arrows.iter().enumerate().filter(|(_, arrow)| arrow.to == block);
        into.filter_map(|(index, arrow)| {
            let from = &self.diagram.blocks[arrow.from];
            let from = if from.title.is_empty() { &from.path } else { &from.title };
            match (self.shown[index], arrow.label.trim()) {
                (Shown::Line, _) => None,
                (_, "") => Some(format!("← {from}")),
                (_, label) => Some(format!("← {from} ({label})")),
            }
        })
        .collect()
    }

    fn attempt(&self) -> Result<Scene, Misfit> {
        let edges = self.edges();
        let contents = self.contents();
        let blocks = &self.diagram.blocks;
        let mut layers = Layers::new(self.rank.clone(), &edges);
        order::arrange(&mut layers);
        let columns = place::place(&layers, &contents, blocks, &edges, self.width)
            .map_err(|place::TooWide(items)| Misfit::Items(items))?;
        let mut scene =
            route::scene(&layers, &columns, &contents, blocks, &edges, self.width).map_err(Misfit::Edge)?;
        scene.glyphs = self.glyphs;
        scene.title = wrap(&shown(&self.diagram.title, self.glyphs), self.width);
        scene.facts =
            self.diagram.facts.iter().flat_map(|fact| wrap(&shown(fact, self.glyphs), self.width)).collect();
        for boxed in &mut scene.boxes {
            boxed.path = self.glyphs.text(&boxed.path);
        }
        Ok(scene)
    }

    fn give_way(&mut self, misfit: Misfit) {
        let edges = self.edges();
        match misfit {
            Misfit::Edge(edge) => {
                let Some(edge) = edges.get(edge) else { return };
                let labelled = !edge.label.is_empty();
                self.shown[edge.arrow] = if labelled { Shown::LabelInBox } else { Shown::InWords };
            }
            Misfit::Items(items) => {
                let boxes: Vec<usize> =
                    items.iter().copied().filter(|&item| item < self.rank.len()).collect();
                if !self.split(&boxes) {
                    self.say_longest(&items, &edges);
                }
            }
        }
    }

    /// Puts the right half of the fullest rank among `boxes` into a rank of its own.
    fn split(&mut self, boxes: &[usize]) -> bool {
        let beside =
            |block: usize| boxes.iter().filter(|&&other| self.rank[other] == self.rank[block]).count();
        let Some(&fullest) =
            boxes.iter().max_by_key(|&&block| beside(block)).filter(|&&block| beside(block) > 1)
        else {
            return false;
        };
        let mut row: Vec<usize> =
            (0..self.rank.len()).filter(|&block| self.rank[block] == self.rank[fullest]).collect();
        let down = row.split_off(row.len().div_ceil(2));
        rank::split(&mut self.rank, &down);
        true
    }

    /// Turns the longest arrow that has a lane among `items`, or any, into words.
    fn say_longest(&mut self, items: &[usize], edges: &[Edge]) {
        let layers = Layers::new(self.rank.clone(), edges);
        let sources: Vec<usize> =
            items.iter().filter_map(|&item| layers.lane(item)).map(|lane| lane.source).collect();
        let span = |edge: &&Edge| self.rank[edge.to] - self.rank[edge.from];
        let laned = edges.iter().filter(|edge| sources.contains(&edge.from)).max_by_key(span);
        if let Some(edge) = laned.or(edges.iter().max_by_key(span)) {
            self.shown[edge.arrow] = Shown::InWords;
        }
    }
}
