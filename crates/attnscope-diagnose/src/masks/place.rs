//! Which position a cell of a tensor belongs to, and how far cells moved that must not.

use attnscope_graph::{Capped, Dim, Node, Op, Side};
use attnscope_run::Input;

use super::is_token;
use super::perturbation_rig::Tensor;

/// The axes of a tensor that count rows of the batch and positions.
pub(super) struct Axes {
    pub(super) batch: Option<usize>,
    /// The positions that a tensor's rows belong to.
    pub(super) query: Option<(usize, Side)>,
    /// The positions of the cells of a row.
    pub(super) key: Option<(usize, Side)>,
}

impl Axes {
    pub(super) fn of(node: &Node) -> Self {
        let mut positions = node.dims.iter().enumerate().filter_map(|(axis, dim)| match dim {
            Dim::Source => Some((axis, Side::Source)),
            Dim::Target => Some((axis, Side::Target)),
            _ => None,
        });
        let batch = node.dims.iter().position(|dim| *dim == Dim::Batch);
        Self { batch, query: positions.next(), key: positions.next() }
    }
}

/// The positions that may move: those that were perturbed, and those that may see them. [batch, position]
pub(super) struct Free {
    pub(super) source: Vec<bool>,
    pub(super) target: Vec<bool>,
    lengths: [usize; 2],
}

impl Free {
    /// Those for which `of` is true.
    pub(super) fn new(lengths: [usize; 2], batch: usize, of: impl Fn(Side, usize, usize) -> bool) -> Self {
        let all = |side: Side, length: usize| {
            (0..batch * length).map(|at| of(side, at / length, at % length)).collect()
        };
        let [source, target] = lengths;
        Self { source: all(Side::Source, source), target: all(Side::Target, target), lengths }
    }

    /// Padding.
    pub(super) fn padding(input: &Input, lengths: [usize; 2]) -> Self {
        Self::new(lengths, input.batch(), |side, row, position| !is_token(input, side, row, position))
    }

    pub(super) fn get(&self, side: Side, row: usize, position: usize) -> bool {
        let [source, target] = self.lengths;
        let (free, length) = match side {
            Side::Source => (&self.source, source),
            Side::Target => (&self.target, target),
        };
        free.get(row * length + position).copied().unwrap_or(false)
    }
}

/// How far a tensor moved, as a share of its largest value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Movement {
    /// The largest movement of a cell that must not move, and where.
    pub(super) largest: f64,
    pub(super) at: usize,
    /// The largest movement of a cell that may move.
    pub(super) free: f64,
}

impl Movement {
    /// The larger of both.
    pub(super) fn add(&mut self, other: &Self) {
        self.largest = self.largest.max(other.largest);
        self.free = self.free.max(other.free);
    }

    /// Whether all values stayed finite: a change to infinity or NaN has no size.
    pub(super) fn is_finite(&self) -> bool {
        self.largest.is_finite() && self.free.is_finite()
    }
}

/// Compares a tensor with itself after a perturbation.
pub(super) fn movement(node: &Node, before: &Tensor, after: &Tensor, free: &Free) -> Movement {
    let axes = Axes::of(node);
    let (Some(batch), Some((query, side))) = (axes.batch, axes.query) else { return Movement::default() };
    let most = before.most();
    let along = |axis: usize, cell: usize| before.along(axis, cell);
    // Before the mask, a score belongs to its key and may move with it.
    let raw = matches!(node.op, Op::Scores { .. } | Op::SoftCap { of: Capped::Scores, .. });
    let mut found = Movement::default();
    for (cell, (&a, &b)) in before.values.iter().zip(&after.values).enumerate() {
        let far = distance(a, b) / most;
        if far <= found.largest.min(found.free) {
            continue;
        }
        let row = along(batch, cell);
        let of_free_key = |(axis, side): (usize, Side)| free.get(side, row, along(axis, cell));
        if free.get(side, row, along(query, cell)) {
            found.free = found.free.max(far);
        } else if far > found.largest && !(raw && axes.key.is_some_and(of_free_key)) {
            (found.largest, found.at) = (far, cell);
        }
    }
    found
}

/// |a − b|; 0 between two NaNs, infinite between a number and NaN.
pub(super) fn distance(a: f32, b: f32) -> f64 {
    match (f64::from(a) - f64::from(b)).abs() {
        _ if a == b || (a.is_nan() && b.is_nan()) => 0.0,
        d if d.is_finite() => d,
        _ => f64::INFINITY,
    }
}
