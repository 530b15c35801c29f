//! The neutral view: what is drawn, with nothing said about columns, pixels or markup.
//!
//! Every picture this program makes starts as a [`Diagram`]. Text and SVG share one layout of it
//! ([`crate::layout`]); Mermaid and DOT bring their own.

/// Blocks and the arrows between them. Arrows go from lower ranks to higher ones: a diagram has no cycle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagram {
    /// One line above the drawing.
    pub title: String,
    /// Facts under the title, a line each.
    pub facts: Vec<String>,
    /// The boxes.
    pub blocks: Vec<Block>,
    /// What flows from box to box.
    pub arrows: Vec<Arrow>,
}

/// One box: a node of the graph, a few nodes that are one step to a reader, or a stack of layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The node path (`decoder.0.cross_attn.q`), or the range of paths it stands for (`decoder.0–1`).
    pub path: String,
    /// What the reader calls it.
    pub title: String,
    /// The shape that leaves the box, as text; drawn at the right of the title. May be empty.
    pub shape: String,
    /// Everything else that is known: weights, scale, bias, mask, parameters.
    pub lines: Vec<String>,
    /// What kind of step it is: decides the colour.
    pub kind: Kind,
    /// What is wrong with the weights of this box, if anything is.
    pub hole: Option<Hole>,
}

/// What is wrong with a weight. Of two, the greater one is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hole {
    /// It is in the checkpoint, with another shape than the rest of the model needs.
    WrongShape,
    /// It is not in the checkpoint.
    Missing,
}

impl Hole {
    /// The mark on the box.
    pub fn label(self) -> &'static str {
        match self {
            Hole::WrongShape => "WRONG SHAPE",
            Hole::Missing => "MISSING",
        }
    }
}

/// Groups of operations that a reader tells apart at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Token ids, audio: what the user gives.
    Input,
    /// A value that comes from outside the part that is drawn.
    Outside,
    /// Lookup tables and positions.
    Embedding,
    /// A learned linear map.
    Linear,
    /// A step of attention: scores, mask, softmax, weighted sum.
    Attention,
    /// A mask or a bias that is added to the scores.
    Mask,
    /// A normalisation or a residual sum.
    Stream,
    /// An activation or a gate.
    Activation,
    /// A whole stack of layers.
    Stack,
    /// What the model gives back.
    Output,
}

/// One value on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrow {
    /// Index into [`Diagram::blocks`].
    pub from: usize,
    /// Index into [`Diagram::blocks`].
    pub to: usize,
    /// What the arrow carries, where that is not plain from the box it leaves (`k, v`, `residual`).
    pub label: String,
}
