//! Where two runs diverge: two traces, or a trace and the dump of another program, node by node in the order of computation.
//! Tensors are compared in pieces; only a suspicious node is loaded whole, with its inputs.

mod candidate;
mod direct;
mod eps;
mod error;
mod features;
mod frame;
mod gap;
mod generalise;
mod grain;
mod inputs;
mod judge;
mod lab;
mod layout;
mod map;
mod measure;
mod names;
mod order;
mod pair;
mod propose;
mod relation;
mod rewired;
mod sentence;
mod side;
mod spread;
mod swapped_layers;
mod variant;
mod verdict;
mod walk;
mod weight_part;
mod weights;

use attnscope_graph::{Model, Op};
use attnscope_run::trace::Trace;
use attnscope_run::{Formula, Limits, Weights};

pub use error::DiffError;
pub use grain::Grain;
pub use inputs::InputDifference;
pub use map::NameMap;
pub use measure::Measure;
pub use order::Order;
pub use pair::UnusedLine;
pub use propose::Proposal;
pub use relation::{Relation, WeightAxis};
pub use side::Side;
pub use variant::{CachedMask, CachedPositions, OtherBucket, OtherRotary};
pub use weights::{File, compare_weights};

use frame::Frame;
use judge::{Judge, Memory};
use pair::Bindings;
use walk::Walked;

use crate::rounding::Precision;

/// A relative difference below this is not reported where it has grown smoothly.
pub const TOLERANCE: f64 = 1e-4;

/// How two runs are compared.
#[derive(Debug, Clone)]
pub struct Options {
    /// The relative difference from which drift counts.
    pub tolerance: f64,
    /// Drift counts even where every step is rounding, because the user gave the tolerance.
    pub strict: bool,
    /// The precision of the other program, where the values do not show it.
    pub their_precision: Option<Precision>,
    /// Names that belong together, as the user says.
    pub map: NameMap,
    /// Ends it, and is told how far it has come.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tolerance: TOLERANCE,
            strict: false,
            their_precision: None,
            map: NameMap::default(),
            limits: Limits::default(),
        }
    }
}

/// The model that a trace was made with.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Its graph.
    pub model: &'a Model,
    /// Its weights.
    pub weights: &'a Weights,
}

/// Accumulated rounding, or a real difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A bug: this node does not follow from its inputs.
    Bug,
    /// Accumulated rounding errors.
    Drift,
}

impl Kind {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bug => "bug",
            Self::Drift => "drift",
        }
    }
}

/// How the kind of a divergence was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grounds {
    /// The node was computed again from its own inputs.
    Recomputed,
    /// The difference is far larger than that of the nodes before.
    Growth,
    /// Weights are compared, not what they compute.
    Weights,
}

/// A node outside its rounding bound, but not far enough to be called a bug.
#[derive(Debug, Clone, PartialEq)]
pub struct Unusual {
    /// The node.
    pub node: String,
    /// The largest error of a cell, divided by its bound.
    pub share: f64,
    /// Which side.
    pub odd_one: Which,
    /// The relation that all cells together show, where no single cell does.
    pub like: Option<Relation>,
}

/// A type shorter than f32 that a side's values show.
#[derive(Debug, Clone, PartialEq)]
pub struct Short {
    /// Which side.
    pub side: Which,
    /// The type.
    pub grain: Grain,
    /// How many nodes hold values of it.
    pub nodes: usize,
    /// Of how many that were looked at.
    pub looked_at: usize,
}

impl Short {
    /// Whether the whole side was computed in this type, not only a part of it.
    pub fn is_everywhere(&self) -> bool {
        2 * self.nodes >= self.looked_at
    }
}

/// The first node at which the sides diverge.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence {
    /// Its number in [`Report::nodes`].
    pub row: usize,
    /// The node.
    pub node: String,
    /// Drift or a bug.
    pub kind: Kind,
    /// The reason.
    pub grounds: Grounds,
    /// What turns one side into the other.
    pub relation: Option<Relation>,
    /// The step with the mistake, where it is one before the node that was not dumped.
    pub cause: Option<String>,
    /// Other explanations that fit as well.
    pub also: Vec<Explanation>,
    /// The side that has the mistake: the other program's, or B.
    pub odd_one: Which,
    /// The nearest inputs of the node that both sides have.
    pub reads: Vec<String>,
    /// Whether the difference is far larger than that of the nodes before.
    pub jumps: bool,
    /// The first node past the tolerance, if the difference that begins here passes it later.
    pub past_tolerance_at: Option<String>,
}

/// A relation, and the step that it is about where that is not the node itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What turns one side into the other.
    pub relation: Relation,
    /// The step.
    pub cause: Option<String>,
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The first.
    A,
    /// The second.
    B,
}

impl Which {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

/// The result for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Every value is the same.
    Same,
    /// Differs by no more than rounding.
    Rounding,
    /// The first divergence.
    First,
    /// Differs, after the first divergence.
    After,
    /// Differs, and no order says whether it comes before or after the first divergence.
    Apart,
}

impl State {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Rounding => "rounding",
            Self::First => "first",
            Self::After => "after",
            Self::Apart => "apart",
        }
    }
}

/// A node that both sides have.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The node.
    pub node: String,
    /// Its name in A and in B; empty for a weight that one of them does not have.
    pub names: [String; 2],
    /// Its shape.
    pub shape: Vec<usize>,
    /// How far the two are apart.
    pub measure: Measure,
    /// The result.
    pub state: State,
    /// How one of them was converted for the comparison: another layout, a scale.
    pub seen_as: Option<String>,
    /// The two were paired by equal values, so their agreement is no evidence.
    pub by_values: bool,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Where the sides diverge, if they do.
    pub first: Option<Divergence>,
    /// Later nodes that do not follow from their inputs either.
    pub later: Vec<String>,
    /// Nodes slightly outside their bound, the furthest first.
    pub unusual: Vec<Unusual>,
    /// The families of two traces that are not of one model.
    pub other_models: Option<[String; 2]>,
    /// The difference between the inputs of the two runs. In that case nothing else was compared.
    pub inputs: Option<InputDifference>,
    /// Types shorter than f32 that values show.
    pub short: Vec<Short>,
    /// Every node that both have, in the order of computation.
    pub nodes: Vec<Compared>,
    /// Tensors of A and of B that were not compared.
    pub left: [Vec<String>; 2],
    /// Whether nodes could be computed again: with weights, without, not at all.
    pub judged: Judged,
    /// No computed node was paired by its name, and so many tensors of the other program are unmatched: mistakes in them cannot
    /// be found.
    pub only_by_values: Option<usize>,
    /// Why the model that was given could not be used.
    pub unused_model: Option<String>,
    /// Where the order of the nodes comes from.
    pub order: Order,
    /// Where no order is known: the nodes that differ by more than the tolerance, by their numbers in [`Report::nodes`], the
    /// largest difference first.
    pub largest: Vec<usize>,
    /// Lines of the user's map that matched nothing.
    pub unused_lines: Vec<UnusedLine>,
    /// A proposed map for unknown names.
    pub proposal: Option<Proposal>,
}

impl Report {
    /// Whether the two sides diverge, or may diverge.
    pub fn differs(&self) -> bool {
        self.first.is_some()
            || self.inputs.is_some()
            || !self.unusual.is_empty()
            || !self.largest.is_empty()
            || self.only_by_values.is_some()
    }

    fn of_inputs(inputs: InputDifference, order: Order, unused_lines: Vec<UnusedLine>) -> Self {
        Self {
            other_models: None,
            first: None,
            later: Vec::new(),
            unusual: Vec::new(),
            inputs: Some(inputs),
            short: Vec::new(),
            nodes: Vec::new(),
            left: [Vec::new(), Vec::new()],
            judged: Judged::All,
            only_by_values: None,
            unused_model: None,
            order,
            largest: Vec::new(),
            unused_lines,
            proposal: None,
        }
    }

    /// Where no order is known, there is no first divergence: differences are ranked by size.
    fn without_order(mut self, tolerance: f64) -> Self {
        let far = |row: &Compared| row.measure.apart > 0 || row.measure.relative() > tolerance;
        self.largest = (0..self.nodes.len()).filter(|&i| far(&self.nodes[i])).collect();
        let size = |i: &usize| (self.nodes[*i].measure.apart > 0, self.nodes[*i].measure.relative());
        self.largest.sort_by(|a, b| size(b).partial_cmp(&size(a)).unwrap_or(std::cmp::Ordering::Equal));
        self.first = None;
        self.later.clear();
        self.unusual.clear();
        self.nodes
            .iter_mut()
            .filter(|row| row.state != State::Same)
            .for_each(|row| row.state = State::Rounding);
        for &i in &self.largest {
            self.nodes[i].state = State::Apart;
        }
        self
    }
}

/// What could be computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Every node.
    All,
    /// Nodes without weights: the model was not found.
    WithoutWeights,
    /// None: neither side is a trace, and no input of a known model was dumped.
    NoTrace,
    /// None: the graph of a trace cannot be rebuilt, or its shapes do not fit its tokens.
    NotRebuilt,
    /// Nothing was run: weights are compared.
    Weights,
}

/// Compares two runs.
///
/// # Errors
/// When a tensor cannot be read, no tensor of one side belongs to one of the other, or it is cancelled.
pub fn compare(a: &Side, b: &Side, known: Option<Known<'_>>, options: &Options) -> Result<Report, DiffError> {
    let frame = Frame::new(a, b, known.map(|known| known.model));
    let [(of_a, lines_a), (of_b, lines_b)] = [a, b].map(|side| Bindings::by_name(side, &frame, &options.map));
    let mut bindings = [of_a, of_b];
    let unused_lines = pair::unused(&options.map, &frame, [a, b], &[lines_a, lines_b]);
    identify(&frame, a, b, &mut bindings)?;
    let proposal = proposed(&frame, a, b, &bindings)?;
    let formula = frame.graph.as_ref().zip(frame.input.as_ref());
    // The shapes do not fit the tokens: nothing can be computed again, and the report says so.
    let formula = formula
        .and_then(|(graph, input)| Some((graph, Formula::new(graph, frame.sizes.clone(), input).ok()?)))
        .map(|(graph, formula)| (graph, formula.with_cancel(&options.limits.cancel)));
    // The weights count only where the graph is the model's own.
    let weights = known.filter(|k| frame.graph.as_ref() == Some(&k.model.graph)).map(|k| k.weights);
    let other_models = other_models(a, b);
    if let Some(inputs) = inputs::difference(&frame, [a, b], &bindings, weights, options.tolerance)? {
        return Ok(Report { other_models, ..Report::of_inputs(inputs, frame.order, unused_lines) });
    }
    let cells = a.dump.tensors().iter().map(|t| t.elements()).fold(0, usize::saturating_add);
    let judge =
        formula.as_ref().map(|(graph, formula)| Judge { frame: &frame, graph, formula, weights, cells });
    let judged = match (&judge, weights) {
        (None, _) if a.trace.is_none() && b.trace.is_none() => Judged::NoTrace,
        (None, _) => Judged::NotRebuilt,
        (Some(_), None) => Judged::WithoutWeights,
        (Some(_), Some(_)) => Judged::All,
    };
    let memories = [a, b].map(|side| Memory::new(options.their_precision.filter(|_| side.trace.is_none())));
    let walk = walk::Walk::new([a, b], &frame, &mut bindings, judge.as_ref(), options, &memories);
    let Walked { rows: nodes, first, later, unusual, inputs } = walk.run()?;
    if let Some(inputs) = inputs {
        return Ok(Report { other_models, ..Report::of_inputs(inputs, frame.order, unused_lines) });
    }
    if nodes.is_empty() {
        if let Some(differing) = pair::other_shape(&frame, [a, b]) {
            return Err(DiffError::OtherShapes { a: a.path().to_owned(), b: b.path().to_owned(), differing });
        }
        return Err(DiffError::NothingMatched {
            a: (a.path().to_owned(), some_names(a)),
            b: (b.path().to_owned(), some_names(b)),
            proposal: proposal.map(|proposal| proposal.lines).unwrap_or_default(),
        });
    }
    let left: [Vec<String>; 2] = [(a, 0), (b, 1)].map(|(side, which)| {
        let used: std::collections::HashSet<&str> = nodes.iter().map(|n| n.names[which].as_str()).collect();
        let names = side.dump.tensors().iter().map(|t| t.name.clone());
        names.filter(|name| !used.contains(name.as_str())).collect()
    });
    let theirs = usize::from(b.trace.is_none());
    let is_named = |row: &Compared| {
        let given = frame.find(&row.node).and_then(|node| frame.op(node));
        !row.by_values && !given.is_some_and(|op| matches!(op, Op::Ids(_) | Op::Features | Op::Mask(_)))
    };
    let only_by_values = Some(left[theirs].len()).filter(|left| *left > 0 && !nodes.iter().any(is_named));
    let unused_model = known.and_then(|known| frame.misfit(known.model, [a, b], formula.is_some()));
    let of = |(side, memory): (Which, &Memory)| {
        let short = move |(grain, nodes, looked_at)| Short { side, grain, nodes, looked_at };
        memory.grains(&frame).into_iter().map(short).collect::<Vec<_>>()
    };
    let short = [Which::A, Which::B].into_iter().zip(&memories).flat_map(of).collect();
    let report = Report {
        first,
        later,
        unusual,
        other_models,
        inputs: None,
        short,
        nodes,
        left,
        judged,
        only_by_values,
        unused_model,
        order: frame.order,
        largest: Vec::new(),
        unused_lines,
        proposal,
    };
    Ok(if frame.order == Order::Unknown { report.without_order(options.tolerance) } else { report })
}

/// The families of two traces, where they differ and compute differently. (Weights may be converted from one family to an
/// equivalent one.)
fn other_models(a: &Side, b: &Side) -> Option<[String; 2]> {
    let (a, b) = (a.trace.as_ref()?, b.trace.as_ref()?);
    let family = |trace: &Trace| trace.about["family"].as_str().map(str::to_owned);
    let families = [family(a)?, family(b)?];
    let paths = |trace: &Trace| trace.nodes.iter().map(|node| node.path.clone()).collect::<Vec<_>>();
    (families[0] != families[1] && paths(a) != paths(b)).then_some(families)
}

/// A proposed map for the other program, where its names are unknown.
fn proposed(
    frame: &Frame,
    a: &Side,
    b: &Side,
    bindings: &[Bindings; 2],
) -> Result<Option<Proposal>, DiffError> {
    let [of_a, of_b] = bindings;
    let (own, other) = match (&a.trace, &b.trace) {
        (Some(_), Some(_)) => return Ok(None),
        (None, Some(_)) => ((b, of_b), (a, of_a)),
        _ => ((a, of_a), (b, of_b)),
    };
    let ordered = frame.order != Order::Unknown && order::is_call_order(other.0);
    Ok(propose::propose(frame, own, other, ordered)?)
}

/// Tensors of the other program with unknown names are matched by their values.
fn identify(frame: &Frame, a: &Side, b: &Side, bindings: &mut [Bindings; 2]) -> Result<(), DiffError> {
    let [of_a, of_b] = bindings;
    match (&a.trace, &b.trace) {
        (Some(_), Some(_)) => {}
        (None, Some(_)) => pair::by_values(frame, (b, of_b), (a, of_a))?,
        _ => pair::by_values(frame, (a, of_a), (b, of_b))?,
    }
    Ok(())
}

fn some_names(side: &Side) -> String {
    let names: Vec<&str> = side.dump.tensors().iter().take(4).map(|t| t.name.as_str()).collect();
    names.join(", ")
}
