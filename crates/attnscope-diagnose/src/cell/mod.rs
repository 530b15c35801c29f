//! The arithmetic of one cell: how a value of a captured tensor follows from the tensors before it, term by term.

mod attention;
mod dense;

use std::collections::{BTreeMap, BTreeSet};

use attnscope_graph::{Factor, Graph, Model, Node, NodeId, Op, Sizes};
use attnscope_run::{Formula, Input, Kept, Weights};
use serde::Serialize;

use crate::rounding::{Computed, Errors, Precision, Reading, Rounding};

/// How one value came about. The last step's value is the cell's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arithmetic {
    /// The node.
    pub node: String,
    /// The cell, an index a dimension.
    pub at: Vec<usize>,
    /// What the run stored there.
    pub stored: f64,
    /// From the first product to the value.
    pub steps: Vec<Step>,
    /// How far f32's rounding may move the value, by [`crate::rounding`].
    pub bound: f64,
}

impl Arithmetic {
    /// What the last step gives, in f64.
    pub fn value(&self) -> f64 {
        self.steps.last().map_or(f64::NAN, |step| step.value)
    }

    /// Whether the run's f32 explains what lies between the value and what was stored.
    pub fn agrees(&self) -> bool {
        let (derived, stored) = (self.value(), self.stored);
        derived == stored || (derived.is_nan() && stored.is_nan()) || (derived - stored).abs() <= self.bound
    }
}

/// One step on the way to a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// What its value is called from here on.
    pub name: String,
    /// How it follows, with this cell's indices.
    pub formula: String,
    /// What is added up; empty where the formula says it all.
    pub terms: Vec<Term>,
    /// The step's value: the sum of its terms, if it has any.
    pub value: f64,
}

/// One summand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// Which one: an index, a key's position, a name.
    pub label: String,
    /// How it is written.
    pub written: Written,
    /// Its value.
    pub value: f64,
}

/// How a term's value follows from others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Written {
    /// a × b.
    Product(f64, f64),
    /// e to the power of a − b.
    Exp(f64, f64),
    /// a / b.
    Quotient(f64, f64),
    /// As it is.
    Itself,
}

/// A cell whose arithmetic cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// Too few or too many indices.
    #[error("{node} has {} dimensions, {shape:?}, and {found} indices are given", shape.len())]
    Dimensions {
        /// The node.
        node: String,
        /// The shape of its tensor.
        shape: Vec<usize>,
        /// How many indices were given.
        found: usize,
    },
    /// An index past the end.
    #[error("{node}: index {index} of dimension {dimension} is past its length, {length}")]
    Outside {
        /// The node.
        node: String,
        /// Which index, from 0.
        dimension: usize,
        /// What was given.
        index: usize,
        /// The dimension's length.
        length: usize,
    },
    /// The tensor does not follow from the input.
    #[error("{0}")]
    NotDerived(String),
    /// A tensor that the arithmetic needs was not kept.
    #[error("{0} was not captured")]
    NotCaptured(String),
}

/// The tensors that the arithmetic of a node's cells needs: its own, its inputs, and theirs where it goes on.
pub fn needed(graph: &Graph, node: NodeId) -> BTreeSet<NodeId> {
    let mut all = BTreeSet::from([node]);
    let mut at = node;
    loop {
        all.extend(&graph.node(at).inputs);
        match goes_on(&graph.node(at).op).then(|| graph.node(at).inputs.first()).flatten() {
            Some(&before) => at = before,
            None => return all,
        }
    }
}

/// Where a value is only moved, or follows from one cell before it, that cell's arithmetic is told first.
fn goes_on(op: &Op) -> bool {
    match op {
        Op::Same
        | Op::Transpose
        | Op::SplitHeads(_)
        | Op::MergeHeads(_)
        | Op::AddMask { .. }
        | Op::Squash(_) => true,
        Op::Ids(_)
        | Op::TypeIds(_)
        | Op::Features
        | Op::Embed { .. }
        | Op::Positions { .. }
        | Op::AddPositions
        | Op::Conv1d { .. }
        | Op::Norm { .. }
        | Op::Linear
        | Op::Rotate { .. }
        | Op::Scores { .. }
        | Op::RelativeBias { .. }
        | Op::Mask(_)
        | Op::Context
        | Op::Residual { .. }
        | Op::Activate(_)
        | Op::Gate
        | Op::Logits { .. } => false,
    }
}

/// A run whose cells are asked for.
pub struct Cells<'a> {
    /// The model that ran.
    pub model: &'a Model,
    /// Its weights.
    pub weights: &'a Weights,
    /// What it read.
    pub input: &'a Input,
    /// Its sizes with the lengths of the input.
    pub sizes: &'a Sizes,
    /// What was captured: at least what [`needed`] names.
    pub tensors: &'a BTreeMap<NodeId, Kept>,
}

impl Cells<'_> {
    /// How the value of a cell came about.
    ///
    /// # Errors
    /// When the tensor has no such cell, or what it follows from was not captured.
    pub fn arithmetic(&self, node: NodeId, at: &[usize]) -> Result<Arithmetic, CellError> {
        let cell = Cell { cells: self, id: node, node: self.model.graph.node(node), at };
        let stored = cell.stored()?;
        Ok(Arithmetic {
            node: cell.node.path.to_string(),
            at: at.to_vec(),
            stored,
            steps: cell.steps(stored)?,
            bound: cell.bound()?,
        })
    }

    fn tensor(&self, id: NodeId) -> Result<&Kept, CellError> {
        let missing = || CellError::NotCaptured(self.model.graph.node(id).path.to_string());
        self.tensors.get(&id).ok_or_else(missing)
    }
}

/// One cell of one node.
struct Cell<'a> {
    cells: &'a Cells<'a>,
    id: NodeId,
    node: &'a Node,
    at: &'a [usize],
}

impl Cell<'_> {
    /// Checks the indices; everything after relies on them.
    fn stored(&self) -> Result<f64, CellError> {
        let kept = self.cells.tensor(self.id)?;
        let node = || self.node.path.to_string();
        if self.at.len() != kept.shape.len() {
            return Err(CellError::Dimensions {
                node: node(),
                shape: kept.shape.clone(),
                found: self.at.len(),
            });
        }
        let outside = self.at.iter().zip(&kept.shape).position(|(index, length)| index >= length);
        if let Some(dimension) = outside {
            let (index, length) = (self.at[dimension], kept.shape[dimension]);
            return Err(CellError::Outside { node: node(), dimension, index, length });
        }
        Ok(value(kept, self.at))
    }

    fn steps(&self, stored: f64) -> Result<Vec<Step>, CellError> {
        match self.node.op {
            Op::Ids(_) | Op::TypeIds(_) | Op::Features => Ok(vec![Step::plain(self.leaf(), "given", stored)]),
            Op::Embed { scale } => self.embed(scale),
            Op::Positions { kind, offset, count, side } => self.positions(kind, offset, count, side),
            Op::AddPositions => {
                let names = [("embedding", 1.0), ("position", 1.0), ("type", 1.0)];
                self.sum(names.get(..self.node.inputs.len()).unwrap_or(&names))
            }
            Op::Residual { gain } => self.sum(&[("stream", 1.0), ("sublayer", f64::from(gain))]),
            Op::Conv1d { stride } => self.conv(stride),
            Op::Same | Op::Transpose | Op::SplitHeads(_) | Op::MergeHeads(_) => self.moved(),
            Op::Norm { kind, eps } => self.norm(kind, eps),
            Op::Linear => self.linear(Factor::One),
            Op::Logits { scale } => self.linear(scale),
            Op::Activate(activation) => self.activate(activation),
            Op::Gate => self.gate(),
            Op::Rotate { base, pairs, .. } => self.rotate(base, pairs),
            Op::Scores { scale } => self.scores(scale),
            Op::RelativeBias { stack, buckets, max_distance } => {
                self.relative_bias(stack, buckets, max_distance)
            }
            Op::Mask(kind) => Ok(vec![self.mask(kind)?]),
            Op::AddMask { .. } => self.add_mask(),
            Op::Squash(squash) => self.squash(squash),
            Op::Context => self.context(),
        }
    }

    /// An input's tensor.
    fn input(&self, i: usize) -> Result<&Kept, CellError> {
        let missing = || CellError::NotCaptured(format!("an input of {}", self.node.path));
        self.cells.tensor(*self.node.inputs.get(i).ok_or_else(missing)?)
    }

    fn weight(&self, i: usize) -> &[f32] {
        self.node.weights.get(i).map_or(&[], |&id| self.cells.weights.get(id))
    }

    fn weight_name(&self, i: usize) -> &str {
        self.node.weights.get(i).map_or("", |&id| &self.cells.model.graph.weight(id).path)
    }

    fn input_name(&self, i: usize) -> &str {
        self.node.inputs.get(i).map_or("", |&id| self.cells.model.graph.node(id).path.leaf())
    }

    /// What the formula gives for a node that reads nothing but the input: positions, masks.
    fn derived(&self) -> Result<f64, CellError> {
        let impossible = |e: attnscope_run::RunError| CellError::NotDerived(e.to_string());
        let Cells { model, weights, sizes, input, .. } = self.cells;
        let formula = Formula::new(&model.graph, (*sizes).clone(), input).map_err(impossible)?;
        let weights: Vec<&[f32]> = self.node.weights.iter().map(|&w| weights.get(w)).collect();
        Ok(value(&formula.compute(self.node, &[], &weights).map_err(impossible)?, self.at))
    }

    fn leaf(&self) -> &str {
        self.node.path.leaf()
    }

    fn factor(&self, factor: Factor) -> f64 {
        factor.value(self.cells.sizes).unwrap_or(1.0)
    }

    /// The cell of the first input that this one goes on from; `None` where it does not.
    fn from(&self) -> Result<Option<Vec<usize>>, CellError> {
        Ok(match (self.node.op, self.at) {
            (Op::Transpose, &[b, i, j]) => Some(vec![b, j, i]),
            // [b, h, l, i] of the heads is [b, l, h · K + i] of the row, and the other way round.
            (Op::SplitHeads(_), &[b, h, l, i]) => {
                let size = self.cells.tensor(self.id)?.shape.get(3).copied().unwrap_or(1);
                Some(vec![b, l, h * size + i])
            }
            (Op::MergeHeads(_), &[b, l, column]) => {
                let size = self.input(0)?.shape.get(3).copied().unwrap_or(1).max(1);
                Some(vec![b, column / size, l, column % size])
            }
            (op, at) => goes_on(&op).then(|| at.to_vec()),
        })
    }

    /// The arithmetic of the cell of the first input that this one follows from.
    fn before(&self) -> Result<(Vec<Step>, Vec<usize>), CellError> {
        let missing = || CellError::NotCaptured(format!("an input of {}", self.node.path));
        let id = *self.node.inputs.first().ok_or_else(missing)?;
        let from = self.from()?.ok_or_else(missing)?;
        Ok((self.cells.arithmetic(id, &from)?.steps, from))
    }

    /// How far rounding may move the cell: its own, and that of the cell that its arithmetic goes on from.
    fn bound(&self) -> Result<f64, CellError> {
        let impossible = |e: attnscope_run::RunError| CellError::NotDerived(e.to_string());
        let Cells { model, weights, sizes, input, .. } = self.cells;
        let output = self.cells.tensor(self.id)?;
        let inputs = self.node.inputs.iter().map(|&id| self.cells.tensor(id));
        let inputs: Vec<&Kept> = inputs.collect::<Result<_, _>>()?;
        let first = match (self.from()?, self.node.inputs.first(), inputs.first()) {
            (Some(from), Some(&id), Some(kept)) => {
                Errors::One(offset(&kept.shape, &from), self.cells.arithmetic(id, &from)?.bound)
            }
            _ => Errors::None,
        };
        let mut readings: Vec<Reading<'_>> = inputs.iter().map(|&kept| Reading::exact(kept)).collect();
        if let Some(reading) = readings.first_mut() {
            reading.error = &first;
        }
        let formula = Formula::new(&model.graph, (*sizes).clone(), input).map_err(impossible)?;
        let weights: Vec<&[f32]> = self.node.weights.iter().map(|&w| weights.get(w)).collect();
        let computed =
            Computed { formula: &formula, node: self.node, inputs: &readings, weights: &weights, output };
        let rounding = Rounding::new(Precision::F32, output.values.len());
        Ok(rounding.bounds(computed).at(offset(&output.shape, self.at)))
    }

    /// A value that is only moved: its own arithmetic, and where it stood.
    fn moved(&self) -> Result<Vec<Step>, CellError> {
        let (mut steps, from) = self.before()?;
        let value = steps.last().map_or(f64::NAN, |step| step.value);
        let formula = format!("{}{}", self.input_name(0), indices(&from));
        steps.push(Step::plain(self.leaf(), &formula, value));
        Ok(steps)
    }

    /// The sum of two tensors at the same place, the second broadcast over the batch where it has one row.
    fn sum(&self, names: &[(&str, f64)]) -> Result<Vec<Step>, CellError> {
        let term = |(i, &(name, gain)): (usize, &(&str, f64))| {
            let kept = self.input(i)?;
            let x = value(kept, &within(self.at, &kept.shape));
            let written = if gain == 1.0 { Written::Itself } else { Written::Product(gain, x) };
            let path = self.cells.model.graph.node(self.node.inputs[i]).path.as_str();
            Ok(Term { label: format!("{name} {path}"), written, value: gain * x })
        };
        let terms = names.iter().enumerate().map(term).collect::<Result<Vec<_>, CellError>>()?;
        let formula = terms.iter().map(|t| t.label.split(' ').next().unwrap_or_default()).collect::<Vec<_>>();
        Ok(vec![Step::sum(self.leaf(), &formula.join(" + "), terms)])
    }
}

impl Step {
    fn plain(name: &str, formula: &str, value: f64) -> Self {
        Self { name: name.to_owned(), formula: formula.to_owned(), terms: Vec::new(), value }
    }

    /// a / b, written out.
    fn quotient(name: &str, of: &str, a: f64, b: f64) -> Self {
        let term = Term { label: of.to_owned(), written: Written::Quotient(a, b), value: a / b };
        Self::sum(name, &format!("{of} / {b}"), vec![term])
    }

    fn sum(name: &str, formula: &str, terms: Vec<Term>) -> Self {
        let value = terms.iter().map(|t| t.value).sum();
        Self { name: name.to_owned(), formula: formula.to_owned(), terms, value }
    }
}

/// The products of two rows, one term each.
fn products(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> Vec<Term> {
    let term = |(i, (a, b)): (usize, (f64, f64))| Term {
        label: i.to_string(),
        written: Written::Product(a, b),
        value: a * b,
    };
    a.zip(b).enumerate().map(term).collect()
}

/// The value at a place that was checked.
fn value(kept: &Kept, at: &[usize]) -> f64 {
    kept.values.get(offset(&kept.shape, at)).copied().unwrap_or(f64::NAN)
}

/// The last dimension at a place of all but the last.
fn row<'k>(kept: &'k Kept, at: &[usize]) -> &'k [f64] {
    let width = kept.shape.last().copied().unwrap_or(1);
    let start = offset(&kept.shape[..kept.shape.len().saturating_sub(1)], at) * width;
    kept.values.get(start..start + width).unwrap_or_default()
}

fn offset(shape: &[usize], at: &[usize]) -> usize {
    shape.iter().zip(at).fold(0, |offset, (length, index)| offset * length + index)
}

/// An index into a tensor that has length 1 where this one is repeated.
fn within(at: &[usize], shape: &[usize]) -> Vec<usize> {
    at.iter().zip(shape).map(|(&index, &length)| index.min(length.saturating_sub(1))).collect()
}

/// `[0, 1, 2]`.
fn indices(at: &[usize]) -> String {
    format!("[{}]", at.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
}
