//! From a model to the diagrams that show how data flows through it.
//!
//! Nothing here knows a family: boxes, arrows and words follow from the nodes, their operations and what the
//! checkpoint bound to them. A model that lacks a tensor is drawn with the hole marked.

mod block;
mod layers;
mod legend;
mod overview;
mod part;

use attnscope_graph::{Model, Node, Role, Selector, ShapeText, Side, Stack};

use crate::diagram::Diagram;
use layers::{LayerGroup, layer_groups};
pub use legend::{fill, legend};

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The whole model at a glance, then its cross-attention.
    Full,
    /// The encoder and the parts of its layers.
    Encoder,
    /// The decoder and the parts of its layers.
    Decoder,
    /// Self-attention of both stacks.
    SelfAttention,
    /// Cross-attention.
    CrossAttention,
    /// Feed-forward layers of both stacks.
    FeedForward,
}

/// What to draw and how.
#[derive(Debug, Clone)]
pub struct FlowOptions {
    /// Which part of the model.
    pub component: Component,
    /// Which layers of it; all by default, those that are alike drawn once.
    pub layer: Option<Selector>,
    /// Letters instead of numbers.
    pub symbolic: bool,
}

/// A selector that picked nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no layer matches {selector:?}")]
pub struct NothingSelected {
    /// The selector as given.
    pub selector: String,
    /// Names that would have matched something.
    pub known: Vec<String>,
}

/// The parts of a layer, in the order in which data meets them.
const PARTS: [&str; 3] = ["self_attn", "cross_attn", "ffn"];

impl Component {
    /// Whether a node belongs to what is drawn.
    pub fn holds(self, model: &Model, node: &Node) -> bool {
        let of_stack = |stack: Stack| match node.role {
            Role::Entry(side, _) => side == stack.side(),
            Role::Audio(_) => stack.side() == Side::Source,
            Role::StackOut(of) => of == stack,
            Role::Head(_) | Role::Logits => model.architecture.stacks().next_back() == Some(stack),
            Role::Layer(of, ..) => of == stack,
        };
        match (self, node.role.layer()) {
            (Self::Full, _) => true,
            (Self::Encoder, Some((stack, _))) => stack == Stack::Encoder,
            (Self::Decoder, Some((stack, _))) => stack == Stack::Decoder,
            (Self::Encoder, None) => of_stack(Stack::Encoder),
            (Self::Decoder, None) => of_stack(Stack::Decoder),
            (_, Some((stack, _))) => self.draws(stack, node.path.part()),
            (_, None) => false,
        }
    }

    fn overview(self) -> Option<&'static [Stack]> {
        match self {
            Self::Full => Some(&Stack::ALL),
            Self::Encoder => Some(&[Stack::Encoder]),
            Self::Decoder => Some(&[Stack::Decoder]),
            Self::SelfAttention | Self::CrossAttention | Self::FeedForward => None,
        }
    }

    fn draws(self, stack: Stack, part: &str) -> bool {
        match self {
            Self::Full | Self::CrossAttention => part == "cross_attn",
            Self::Encoder => stack == Stack::Encoder,
            Self::Decoder => stack == Stack::Decoder,
            Self::SelfAttention => part == "self_attn",
            Self::FeedForward => part == "ffn",
        }
    }
}

/// The diagrams of a model, in reading order.
pub fn flow(model: &Model, options: &FlowOptions) -> Result<Vec<Diagram>, NothingSelected> {
    let view = View { model, symbolic: options.symbolic };
    let mut diagrams = Vec::new();
    if let (Some(stacks), None) = (options.component.overview(), &options.layer) {
        diagrams.push(overview::diagram(&view, stacks));
    }
    let all: Vec<LayerGroup> = Stack::ALL.into_iter().flat_map(|s| layer_groups(model, s)).collect();
    let picked = |wanted: &dyn Fn(Stack, &str) -> bool| -> Vec<Diagram> {
        let pairs = all.iter().flat_map(|group| PARTS.map(|part| (group, part)));
        pairs
            .filter(|(group, part)| wanted(group.stack, part))
            .flat_map(|(group, part)| {
                let picked = group.pick(model, part, options.layer.as_ref());
                picked.into_iter().map(move |g| (g, part))
            })
            .map(|(group, part)| part::diagram(&view, &group, part))
            .collect()
    };
    let mut parts = picked(&|stack, part| options.component.draws(stack, part));
    if parts.is_empty() && options.component == Component::Full {
        parts = picked(&|_, _| true);
    }
    if let Some(selector) = &options.layer {
        if parts.is_empty() && options.component == Component::Full {
            parts.extend(part::loose(&view, selector));
        }
        if parts.is_empty() {
            let drawn = |g: &LayerGroup, part: &&str| options.component.draws(g.stack, part);
            let known = all.iter().filter(|g| PARTS.iter().any(|part| drawn(g, part)));
            let known = known.map(LayerGroup::path).collect();
            return Err(NothingSelected { selector: selector.as_str().into(), known });
        }
    }
    diagrams.extend(parts);
    Ok(diagrams)
}

/// A model and the way in which its numbers are written.
pub(crate) struct View<'a> {
    pub(crate) model: &'a Model,
    pub(crate) symbolic: bool,
}

impl View<'_> {
    /// A shape without its batch, which is the same everywhere.
    pub(crate) fn shape(&self, dims: &[attnscope_graph::Dim]) -> String {
        use attnscope_graph::Dim;
        let dims = match dims {
            [Dim::Batch | Dim::Fixed(1), rest @ ..] if !rest.is_empty() => rest,
            _ => dims,
        };
        ShapeText { dims, sizes: &self.model.sizes, symbolic: self.symbolic }.to_string()
    }

    /// One dimension.
    pub(crate) fn dim(&self, dim: attnscope_graph::Dim) -> String {
        match self.model.sizes.get(dim) {
            Some(n) if !self.symbolic => n.to_string(),
            _ => dim.symbol(&self.model.sizes),
        }
    }
}

/// A number with commas between thousands.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}
