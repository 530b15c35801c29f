//! Groups of equal layers, which are shown once.

use attnscope_graph::{LayerPart, Model, Selector, Slot, Stack};

/// Layers `first..=last` of a stack, equal in everything that a drawing shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerGroup {
    /// The stack.
    pub stack: Stack,
    /// The first of them.
    pub first: usize,
    /// The last of them.
    pub last: usize,
    /// False for the rest of a stack with too many kinds of layers.
    pub alike: bool,
}

/// Kinds of layers that are drawn of a stack; real models have one or two.
const MOST_GROUPS: usize = 32;

impl LayerGroup {
    /// How many layers are in it.
    pub fn count(&self) -> usize {
        self.last - self.first + 1
    }

    /// `encoder.0`, or `encoder.0–5`.
    pub fn path(&self) -> String {
        match self.count() {
            1 => format!("{}.{}", self.stack.name(), self.first),
            _ => format!("{}.{}–{}", self.stack.name(), self.first, self.last),
        }
    }

    /// A path of the first layer, generalised to all: `decoder.N.cross_attn.q`.
    pub fn general(&self, path: &str) -> String {
        let own = format!("{}.{}.", self.stack.name(), self.first);
        match path.strip_prefix(&own) {
            Some(rest) if self.count() > 1 => format!("{}.N.{rest}", self.stack.name()),
            _ => path.to_owned(),
        }
    }

    /// A tensor's name of the first layer, generalised to all: after the model's prefix, the first number is the layer's; later
    /// ones count parts of it (T5's layer.1, Whisper's mlp.0).
    pub fn general_name(&self, prefix: &str, name: &str, in_layer: bool) -> String {
        if self.count() == 1 || !in_layer {
            return name.to_owned();
        }
        let (prefix, rest) = name.strip_prefix(prefix).map_or(("", name), |rest| (prefix, rest));
        let number = self.first.to_string();
        let mut segments: Vec<&str> = rest.split('.').collect();
        if let Some(layer) = segments.iter_mut().find(|s| **s == number) {
            *layer = "N";
        }
        format!("{prefix}{}", segments.join("."))
    }

    /// The layers of the group that a selector picks in one part; alike, so drawn together if they are neighbours.
    pub(crate) fn pick(&self, model: &Model, part: LayerPart, selector: Option<&Selector>) -> Vec<Self> {
        let picked = |n: &usize| {
            let mut nodes =
                model.graph.layer(self.stack, *n).filter(|(_, node)| node.role.part() == Some(part));
            nodes.any(|(_, node)| selector.is_none_or(|s| s.matches(&node.path)))
        };
        let mut groups: Vec<Self> = Vec::new();
        for n in (self.first..=self.last).filter(picked) {
            match groups.last_mut() {
                Some(group) if self.alike && group.last + 1 == n => group.last = n,
                _ => groups.push(Self { stack: self.stack, first: n, last: n, alike: true }),
            }
        }
        // Without a selector the rest is not drawn; with one, each of its layers is.
        groups.truncate(if self.alike || selector.is_some() { MOST_GROUPS } else { 0 });
        groups
    }
}

/// The layers of a stack, with equal neighbours grouped.
pub fn layer_groups(model: &Model, stack: Stack) -> Vec<LayerGroup> {
    let mut groups: Vec<(String, LayerGroup)> = Vec::new();
    for n in 0..model.graph.layers(stack) {
        let signature = signature(model, stack, n);
        match groups.last_mut() {
            Some((alike, group)) if *alike == signature => group.last = n,
            Some((_, group)) if !group.alike => group.last = n,
            last => {
                let alike = last.is_none() || groups.len() + 1 < MOST_GROUPS;
                groups.push((signature, LayerGroup { stack, first: n, last: n, alike }));
            }
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Everything about a layer that a drawing shows, without the layer's number.
fn signature(model: &Model, stack: Stack, layer: usize) -> String {
    let mut text = String::new();
    for (_, node) in model.graph.layer(stack, layer) {
        text += &format!("{} {:?} {:?}", node.path.within_layer(), node.op, node.dims);
        for &weight in &node.weights {
            text += &match model.binding.slot(weight) {
                Slot::Bound(found) => {
                    let tensor = &model.tensors[found.tensor];
                    format!(" {} {:?}", tensor.dtype, found.shape(&model.tensors))
                }
                Slot::Missing { .. } => " missing".into(),
                Slot::Mismatched { shape, .. } => format!(" mismatched {shape:?}"),
            };
        }
        text.push('\n');
    }
    text
}
