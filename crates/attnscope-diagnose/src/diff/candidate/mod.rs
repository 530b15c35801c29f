//! Candidate explanations of a node that does not follow from its inputs: usual mistakes, each as edits of the steps before it.

mod attention;
mod cached;
mod kv_sharing;
mod layer;
mod rotary;
mod weight;

pub(super) use layer::{EPSILONS, dropout, dropout_rounding};

use std::borrow::Cow;

use attnscope_checkpoint::Error;
use attnscope_graph::{Graph, Node, NodeId, Op, Stack};

use super::frame::Frame;
use super::judge::Judge;
use super::lab::{Edit, Extent, Made, Test, Trial};
use super::relation::Relation;

/// How much closer a tensor must be to a half-precision computation to be explained by it.
const CLOSER_IN_HALF: f64 = 0.5;

/// A mistake that may explain a node.
pub(super) struct Candidate<'c> {
    pub(super) relation: Relation,
    /// The step that it is about.
    pub(super) step: usize,
    pub(super) edits: Vec<Edit<'c>>,
    pub(super) test: Test,
    /// Tried only where no cheaper candidate fits.
    pub(super) costly: bool,
}

impl<'c> Candidate<'c> {
    fn new(relation: Relation, edits: Vec<Edit<'c>>) -> Self {
        let step = edits.iter().map(|edit| edit.step).max().unwrap_or(0);
        Self { relation, step, edits, test: Test::Equal { from: 0 }, costly: false }
    }
}

/// The steps between what a side dumped and a node.
pub(super) struct Steps<'s, 'a> {
    pub(super) judge: &'s Judge<'a>,
    /// The node first, then the nearest.
    pub(super) all: Vec<usize>,
    /// Dumped tensors that the steps read and that were dumped before a factor, with that factor.
    pub(super) rescaled: Vec<(usize, f64)>,
    /// The first position at which the node differs, where that is not the very first.
    pub(super) first: Option<usize>,
}

impl<'a> Steps<'_, 'a> {
    pub(super) fn target(&self) -> usize {
        self.all[0]
    }

    fn node(&self, step: usize) -> &'a Node {
        self.judge.node(step)
    }

    fn graph(&self) -> &'a Graph {
        self.judge.graph
    }

    fn frame(&self) -> &Frame {
        self.judge.frame
    }

    pub(super) fn weight_path(&self, step: usize, i: usize) -> Option<String> {
        let id = self.node(step).weights.get(i)?;
        Some(self.graph().weight(*id).path.clone())
    }

    /// A step of the same part of the model, if it is one of these: `scores` beside `weights`.
    fn beside(&self, step: usize, leaf: &str) -> Option<usize> {
        let path = self.node(step).path.as_str();
        let part = path.rsplit_once('.').map_or("", |(part, _)| part);
        let found = self.graph().find(&format!("{part}.{leaf}"))?.index();
        self.all.contains(&found).then_some(found)
    }

    /// Any node of the same part.
    fn sibling(&self, step: usize, leaf: &str) -> Option<NodeId> {
        let part = self.node(step).path.as_str().rsplit_once('.')?.0;
        self.graph().find(&format!("{part}.{leaf}"))
    }

    /// Mistakes in how a step is wired: another operation, another constant, a missing bias or input.
    pub(super) fn wirings(&self, step: usize) -> Vec<Candidate<'a>> {
        let mut found = match self.node(step).op {
            op @ Op::Norm { kind, eps, gain } => {
                self.norms(step, kind, eps, gain).into_iter().chain(self.other_gain(step, op)).collect()
            }
            Op::Rotate { side, rotary } => {
                let cached = self.cached_rotations(step, side, rotary);
                self.rotations(step, side, rotary).into_iter().chain(cached).collect()
            }
            Op::Activate(expected) => self.activations(step, expected),
            Op::Positions { .. } => {
                self.positions(step).into_iter().chain(self.cached_positions(step)).collect()
            }
            Op::Embed { scale } => self.factors(step, scale, &|scale| Op::Embed { scale }),
            Op::Scores { scale, sharing } => self.scores(step, scale, sharing),
            Op::Logits { scale } => {
                let mut all: Vec<_> = self.missing_bias(step).into_iter().collect();
                all.extend(self.factors(step, scale, &|scale| Op::Logits { scale }));
                all
            }
            Op::Linear => self.missing_bias(step).into_iter().chain(self.short_projection(step)).collect(),
            Op::Conv1d { .. } => self.missing_bias(step).into_iter().collect(),
            Op::Mask(kind) => {
                self.masks(step, kind).into_iter().chain(self.cached_masks(step, kind)).collect()
            }
            Op::AddMask { .. } => self.mask_sums(step),
            Op::RelativeBias { stack, buckets, max_distance } => {
                self.buckets(step, stack, buckets, max_distance)
            }
            Op::Normalise(_) => self.normalisers(step),
            Op::Context { sharing } => self.contexts(step, sharing),
            Op::MergeHeads(stack) => self.head_layouts(step, stack),
            Op::SplitHeads(stack) => self.split_layouts(step, stack),
            Op::Residual { gain } => self.residuals(step, gain),
            _ => Vec::new(),
        };
        found.extend(self.not_applied(step));
        found
    }

    /// Mistakes in a step's weights: another node's, a transposed matrix, permuted heads, fewer bits.
    pub(super) fn other_weights(&self, step: usize) -> Vec<Candidate<'a>> {
        let Some(own) = self.judge.weights_of(self.node(step)).filter(|w| !w.is_empty()) else {
            return Vec::new();
        };
        self.weights(step, &own)
    }

    /// The heads of a step's stack.
    fn heads(&self, step: usize) -> Option<usize> {
        self.frame().heads(step)
    }

    fn stack(&self, step: usize) -> Stack {
        self.node(step).path.layer().map_or(Stack::Decoder, |(stack, _)| stack)
    }
}

/// A step with another operation.
fn with_op<'c>(node: &Node, step: usize, op: Op) -> Edit<'c> {
    let edited = Node { op, ..node.clone() };
    Edit { step, make: Box::new(move |trial, extent| trial.computed(&edited, None, extent)) }
}

/// A step that reads other nodes.
fn with_inputs<'c>(node: &Node, step: usize, inputs: Vec<NodeId>) -> Edit<'c> {
    let edited = Node { inputs, ..node.clone() };
    Edit { step, make: Box::new(move |trial, extent| trial.computed(&edited, None, extent)) }
}

/// A step with other weights, which are made only when needed, because embedding tables are large.
fn with_weights<'c>(node: &Node, step: usize, weights: impl Fn() -> Vec<Cow<'c, [f32]>> + 'c) -> Edit<'c> {
    let node = node.clone();
    Edit {
        step,
        make: Box::new(move |trial, extent| {
            let weights = weights();
            let weights: Vec<&[f32]> = weights.iter().map(AsRef::as_ref).collect();
            trial.computed(&node, Some(&weights), extent)
        }),
    }
}

/// A step with its first weight edited.
fn with_matrix<'c>(
    node: &Node,
    step: usize,
    own: &[&'c [f32]],
    change: impl Fn(&'c [f32]) -> Vec<f32> + 'c,
) -> Edit<'c> {
    let own = own.to_vec();
    with_weights(node, step, move || {
        let mut weights: Vec<Cow<'c, [f32]>> = own.iter().map(|w| Cow::Borrowed(*w)).collect();
        if let Some(first) = weights.first_mut() {
            *first = Cow::Owned(change(own[0]));
        }
        weights
    })
}

/// A step with its output edited.
fn then<'c>(node: &Node, step: usize, done: impl Fn(Made) -> Made + 'c) -> Edit<'c> {
    let node = node.clone();
    Edit { step, make: Box::new(move |trial, extent| Ok(trial.computed(&node, None, extent)?.map(&done))) }
}

/// A step computed from its whole first input, then cut to the chosen positions.
fn of_whole<'c>(input: NodeId, step: usize, done: impl Fn(Made) -> Option<Made> + 'c) -> Edit<'c> {
    Edit {
        step,
        make: Box::new(move |trial, extent| {
            let whole = trial.value(input.index(), Extent::Whole)?;
            Ok(whole.and_then(&done).map(|made| trial.cut(made, extent)))
        }),
    }
}

/// The tensor of a node, as it is in a trial.
fn read(trial: &Trial<'_, '_, '_>, id: NodeId, extent: Extent) -> Result<Option<Made>, Error> {
    trial.value(id.index(), extent)
}

/// A number rounded to a type.
type Shorten = fn(f64) -> f64;

/// Types that are shorter than f32.
const SHORTER: [(&str, Shorten); 2] =
    [("f16", |x| shortened(x, 11, -14)), ("bf16", |x| shortened(x, 8, -126))];

/// The nearest number of so many binary digits, with the least exponent of a type.
fn shortened(x: f64, digits: i32, least: i32) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = (x.abs().log2().floor() as i32).max(least);
    let unit = 2f64.powi(exponent - digits + 1);
    (x / unit).round_ties_even() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_shortened_as_its_type_does() {
        // 1/3 in f16 and bf16, the smallest number of f16, and half of it, which is even at 0.
        assert_eq!(shortened(1.0 / 3.0, 11, -14), 0.333_251_953_125);
        assert_eq!(shortened(-1.0 / 3.0, 8, -126), -0.333_984_375);
        assert_eq!(shortened(2f64.powi(-24), 11, -14), 2f64.powi(-24));
        assert_eq!(shortened(2f64.powi(-25), 11, -14), 0.0);
        assert_eq!(shortened(f64::NEG_INFINITY, 11, -14), f64::NEG_INFINITY);
    }
}
