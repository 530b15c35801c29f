//! What a drawing of a model shows: a part of it, the selected layers, equal layers together.

use attnscope_checkpoint::Format;
use attnscope_graph::{AttentionKind, LayerPart, Model, Node, Role, Selector, Side, Stack};

use crate::answer::{DrawnPart, Flow};
use crate::failure::Failure;
use crate::layers::{LayerGroup, layer_groups};
use crate::note::{Note, Notes};
use crate::open::Opened;

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
    /// Which layers of it; all by default, equal ones drawn once.
    pub layer: Option<Selector>,
    /// Letters instead of numbers.
    pub symbolic: bool,
}

impl Default for FlowOptions {
    fn default() -> Self {
        Self { component: Component::Full, layer: None, symbolic: false }
    }
}

impl Component {
    /// Whether a node belongs to what is drawn.
    pub fn holds(self, model: &Model, node: &Node) -> bool {
        let of_stack = |stack: Stack| match node.role {
            Role::Entry(side, _) => side == stack.side(),
            Role::Audio(_) => stack.side() == Side::Source,
            Role::StackOut(of) => of == stack,
            Role::Head(_) | Role::Block(..) | Role::Logits => {
                model.architecture.stacks().next_back() == Some(stack)
            }
            Role::Layer(of, ..) => of == stack,
        };
        match (self, node.role.layer()) {
            (Self::Full, _) => true,
            (Self::Encoder, Some((stack, _))) => stack == Stack::Encoder,
            (Self::Decoder, Some((stack, _))) => stack == Stack::Decoder,
            (Self::Encoder, None) => of_stack(Stack::Encoder),
            (Self::Decoder, None) => of_stack(Stack::Decoder),
            (_, Some((stack, _))) => node.role.part().is_some_and(|part| self.draws(stack, part)),
            (_, None) => false,
        }
    }

    /// The stacks that are shown at a glance.
    fn overview(self) -> &'static [Stack] {
        match self {
            Self::Full => &Stack::ALL,
            Self::Encoder => &[Stack::Encoder],
            Self::Decoder => &[Stack::Decoder],
            Self::SelfAttention | Self::CrossAttention | Self::FeedForward => &[],
        }
    }

    fn draws(self, stack: Stack, part: LayerPart) -> bool {
        match self {
            Self::Full | Self::CrossAttention => part == LayerPart::Attention(AttentionKind::CrossAttention),
            Self::Encoder => stack == Stack::Encoder,
            Self::Decoder => stack == Stack::Decoder,
            Self::SelfAttention => part == LayerPart::Attention(AttentionKind::SelfAttention),
            Self::FeedForward => part == LayerPart::FeedForward,
        }
    }
}

/// Picks what is drawn.
pub(crate) fn flow(opened: &Opened, options: &FlowOptions, mut notes: Notes) -> Result<Flow, Failure> {
    let model = opened.model()?;
    let drawn = flow_of(&opened.name, opened.checkpoint.format(), model, options)?;
    notes.add(model.obstacles.iter().cloned().map(Note::DrawnOnly));
    notes.add(model.task_head().map(|head| Note::TaskHead(head.sentence())));
    notes.add(Some(model.unused_of_model().len()).filter(|&unused| unused > 0).map(Note::NotDrawn));
    Ok(Flow { notes: notes.all, ..drawn })
}

/// What is drawn of a model that was recognised, whatever it was read from.
///
/// # Errors
/// When the model does not have the part that is asked for.
pub fn flow_of(name: &str, format: Format, model: &Model, options: &FlowOptions) -> Result<Flow, Failure> {
    let (parts, loose) = picked(name, model, options)?;
    Ok(Flow {
        name: name.to_owned(),
        format,
        model: model.clone(),
        options: options.clone(),
        overview: if options.layer.is_none() { options.component.overview() } else { &[] },
        parts,
        loose,
        notes: Vec::new(),
    })
}

/// The error for a part that the model lacks names those that it has.
fn no_such_part(name: &str, model: &Model, component: Component) -> Failure {
    let stacks = model.architecture.stacks().map(Stack::name).collect::<Vec<_>>();
    if stacks.is_empty() {
        let error = format!("{name}: the model has no layers of attention: there is no such part to draw");
        return Failure::new(error, "draw the whole");
    }
    let lacks = match component {
        Component::Encoder => " and has no encoder",
        Component::Decoder => " and has no decoder",
        Component::CrossAttention => " and has no cross-attention",
        Component::Full | Component::SelfAttention | Component::FeedForward => "",
    };
    Failure::new(
        format!("{name}: the model is {}{lacks}: there is no such part to draw", model.architecture.kind()),
        format!("draw {}, self_attn, ffn or the whole", stacks.join(", ")),
    )
}

/// The parts of layers that are drawn, and whether nodes outside of all layers are instead.
fn picked(name: &str, model: &Model, options: &FlowOptions) -> Result<(Vec<DrawnPart>, bool), Failure> {
    let all: Vec<LayerGroup> = Stack::ALL.into_iter().flat_map(|s| layer_groups(model, s)).collect();
    let picked = |wanted: &dyn Fn(Stack, LayerPart) -> bool| -> Vec<DrawnPart> {
        let pairs = all.iter().flat_map(|group| LayerPart::ALL.map(|part| (group, part)));
        let wanted = pairs.filter(|(group, part)| wanted(group.stack, *part));
        let of_pair = |(group, part): (&LayerGroup, LayerPart)| {
            let layers = group.pick(model, part, options.layer.as_ref());
            layers.into_iter().map(move |layers| DrawnPart { layers, part })
        };
        wanted.flat_map(of_pair).collect()
    };
    let is_full = options.component == Component::Full;
    let mut parts = picked(&|stack, part| options.component.draws(stack, part));
    if parts.is_empty() && is_full {
        parts = picked(&|_, _| true);
    }
    let Some(selector) = options.layer.as_ref().filter(|_| parts.is_empty()) else {
        return if parts.is_empty() && !is_full {
            Err(no_such_part(name, model, options.component))
        } else {
            Ok((parts, false))
        };
    };
    let outside = |node: &Node| node.path.layer().is_none() && selector.matches(&node.path);
    if is_full && model.graph.nodes().iter().any(outside) {
        return Ok((parts, true));
    }
    let drawn = |g: &LayerGroup, part: LayerPart| options.component.draws(g.stack, part);
    let known =
        all.iter().filter(|g| LayerPart::ALL.into_iter().any(|part| drawn(g, part))).map(LayerGroup::path);
    Err(Failure::new(
        format!("{name}: no layer matches {:?}", selector.as_str()),
        format!("there are: {}", known.collect::<Vec<_>>().join(", ")),
    ))
}
