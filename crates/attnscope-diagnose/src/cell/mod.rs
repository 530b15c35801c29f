//! The arithmetic of one cell: how a value of a captured tensor follows from its inputs, term by term.

mod attention;
mod blocks;
mod dense;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use attnscope_graph::{Factor, Graph, Model, Node, NodeId, Op, Sizes};
use attnscope_run::{Formula, Input, Kept, Weights};
use schemars::JsonSchema;
use serde::Serialize;

use crate::rounding::{BoundedInput, Computed, Errors, Precision, Rounding};

/// How one value was computed. The value of the last step is the cell's.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Arithmetic {
    /// The node.
    pub node: String,
    /// The cell, one index per dimension.
    pub at: Vec<usize>,
    /// What the run stored there.
    #[schemars(with = "Option<f64>")]
    pub stored: f64,
    /// From the first product to the value.
    pub steps: Vec<Step>,
    /// The bound of rounding for this value.
    #[schemars(with = "Option<f64>")]
    pub bound: f64,
}

impl Arithmetic {
    /// What the last step gives, in f64.
    pub fn value(&self) -> f64 {
        self.steps.last().map_or(f64::NAN, |step| step.value)
    }

    /// Whether rounding explains the difference between the value and the stored one.
    pub fn agrees(&self) -> bool {
        let (derived, stored) = (self.value(), self.stored);
        derived == stored || (derived.is_nan() && stored.is_nan()) || (derived - stored).abs() <= self.bound
    }
}

/// One step on the way to a value.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// The name of its value in later steps.
    pub name: String,
    /// Its formula, with this cell's indices.
    pub formula: String,
    /// The terms of a sum; empty where the formula is enough.
    pub terms: Vec<Term>,
    /// The step's value: the sum of its terms, if it has any.
    #[schemars(with = "Option<f64>")]
    pub value: f64,
}

/// One summand.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Term {
    /// Which one: an index, a key's position, a name.
    pub label: String,
    /// How it is written.
    pub written: TermForm,
    /// Its value.
    #[schemars(with = "Option<f64>")]
    pub value: f64,
}

/// How a term's value follows from others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TermForm {
    /// a × b.
    Product(#[schemars(with = "Option<f64>")] f64, #[schemars(with = "Option<f64>")] f64),
    /// e to the power of a − b.
    Exp(#[schemars(with = "Option<f64>")] f64, #[schemars(with = "Option<f64>")] f64),
    /// a / b.
    Quotient(#[schemars(with = "Option<f64>")] f64, #[schemars(with = "Option<f64>")] f64),
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
    /// The tensor does not depend on the input.
    #[error("{0}")]
    NotDerived(String),
    /// A tensor that the arithmetic needs was not kept.
    #[error("{0} was not captured")]
    NotCaptured(String),
}

/// The tensors that the arithmetic of a node's cells needs: its own, its inputs, and their inputs where the arithmetic
/// continues.
pub fn needed(graph: &Graph, node: NodeId) -> BTreeSet<NodeId> {
    let mut all = BTreeSet::from([node]);
    let mut at = node;
    loop {
        all.extend(&graph.node(at).inputs);
        // Where a value is only moved, or follows from a single cell, that cell's arithmetic is shown first.
        match graph.node(at).op.facets().follows_one_cell.then(|| graph.node(at).inputs.first()).flatten() {
            Some(&before) => at = before,
            None => return all,
        }
    }
}

/// A run whose cells are explained.
pub struct Cells<'a> {
    /// The model that ran.
    pub model: &'a Model,
    /// Its weights.
    pub weights: &'a Weights,
    /// What it read.
    pub input: &'a Input,
    /// Its sizes with the lengths of the input.
    pub sizes: &'a Sizes,
    /// What it computed in.
    pub precision: Precision,
    /// What was captured: at least what [`needed`] names.
    pub tensors: &'a BTreeMap<NodeId, Kept>,
}

impl Cells<'_> {
    /// How the value of a cell was computed.
    ///
    /// # Errors
    /// When the tensor has no such cell, or its inputs were not captured.
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
    /// Checks the indices, on which everything after relies.
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
            Op::Conv1d { kernel, stride, padding, .. } => self.conv(kernel, stride, padding),
            Op::Same
            | Op::Transpose
            | Op::SplitHeads(_)
            | Op::MergeHeads(_)
            | Op::Hidden
            | Op::LastState { .. }
            | Op::Flatten { .. }
            | Op::Dropout { .. } => self.moved(),
            Op::Recur { cell, reverse } => self.recur(cell, reverse),
            Op::Beside => self.beside(),
            Op::Pool { pooling, axis, padding_of } => self.pool(pooling, axis, padding_of),
            Op::Norm { kind, eps, gain } => self.norm(kind, eps, gain),
            Op::SoftCap { cap, .. } => self.soft_cap(cap),
            Op::Linear => self.linear(Factor::One),
            Op::Logits { scale } => self.linear(scale),
            Op::Activate(activation) => self.activate(activation),
            Op::Gate => self.gate(),
            Op::Rotate { rotary, .. } => self.rotate(rotary),
            Op::Scores { scale, sharing } => self.scores(scale, sharing),
            Op::RelativeBias { stack, buckets, max_distance } => {
                self.relative_bias(stack, buckets, max_distance)
            }
            Op::Mask(kind) => Ok(vec![self.mask(kind)?]),
            Op::AddMask { .. } => self.add_mask(),
            Op::Normalise(normaliser) => self.normalise(normaliser),
            Op::Context { sharing } => self.context(sharing),
        }
    }

    /// An input's tensor.
    fn input(&self, i: usize) -> Result<&Kept, CellError> {
        let missing = || CellError::NotCaptured(format!("an input of {}", self.node.path));
        self.cells.tensor(*self.node.inputs.get(i).ok_or_else(missing)?)
    }

    /// The values of a weight; none where the node has none.
    fn weight(&self, i: usize) -> Result<Cow<'_, [f32]>, CellError> {
        let values = self.node.weights.get(i).map(|&id| self.cells.weights.get(id));
        Ok(values.transpose().map_err(|e| CellError::NotDerived(e.to_string()))?.unwrap_or_default())
    }

    fn weight_name(&self, i: usize) -> &str {
        self.node.weights.get(i).map_or("", |&id| &self.cells.model.graph.weight(id).path)
    }

    fn input_name(&self, i: usize) -> &str {
        self.node.inputs.get(i).map_or("", |&id| self.cells.model.graph.node(id).path.leaf())
    }

    /// The value of a node that reads only the input: positions, masks.
    fn derived(&self) -> Result<f64, CellError> {
        let impossible = |e: attnscope_run::RunError| CellError::NotDerived(e.to_string());
        let Cells { model, weights, sizes, input, .. } = self.cells;
        let formula = Formula::new(&model.graph, (*sizes).clone(), input).map_err(impossible)?;
        let held = held(weights, self.node).map_err(impossible)?;
        let weights: Vec<&[f32]> = held.iter().map(|values| &**values).collect();
        Ok(value(&formula.compute(self.node, &[], &weights).map_err(impossible)?, self.at))
    }

    fn leaf(&self) -> &str {
        self.node.path.leaf()
    }

    fn factor(&self, factor: Factor) -> f64 {
        factor.value(self.cells.sizes).unwrap_or(1.0)
    }

    /// The cell of the first input from which this one continues; `None` where there is none.
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
            (Op::LastState { reverse }, &[b, i]) => {
                let length = self.input(0)?.shape.get(1).copied().unwrap_or(1);
                Some(vec![b, if reverse { 0 } else { length.saturating_sub(1) }, i])
            }
            (Op::Flatten { .. }, &[b, i]) => {
                let &[_, rows, columns] = self.input(0)?.shape.as_slice() else { return Ok(None) };
                Some(vec![b, i / columns.max(1) % rows.max(1), i % columns.max(1)])
            }
            (op, at) => op.facets().follows_one_cell.then(|| at.to_vec()),
        })
    }

    /// The arithmetic of the cell of the first input from which this one follows.
    fn before(&self) -> Result<(Vec<Step>, Vec<usize>), CellError> {
        let missing = || CellError::NotCaptured(format!("an input of {}", self.node.path));
        let id = *self.node.inputs.first().ok_or_else(missing)?;
        let from = self.from()?.ok_or_else(missing)?;
        Ok((self.cells.arithmetic(id, &from)?.steps, from))
    }

    /// The rounding bound of the cell: its own, and that of the cell from which its arithmetic continues.
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
        let mut readings: Vec<BoundedInput<'_>> =
            inputs.iter().map(|&kept| BoundedInput::exact(kept)).collect();
        if let Some(reading) = readings.first_mut() {
            reading.error = &first;
        }
        let formula = Formula::new(&model.graph, (*sizes).clone(), input).map_err(impossible)?;
        let held = held(weights, self.node).map_err(impossible)?;
        let weights: Vec<&[f32]> = held.iter().map(|values| &**values).collect();
        let computed =
            Computed { formula: &formula, node: self.node, inputs: &readings, weights: &weights, output };
        let rounding = Rounding::new(self.cells.precision, output.values.len());
        Ok(rounding.bounds_of_one_step(computed).at(offset(&output.shape, self.at)))
    }

    /// A value that is only moved: its arithmetic, and where it was.
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
            let written = if gain == 1.0 { TermForm::Itself } else { TermForm::Product(gain, x) };
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
        let term = Term { label: of.to_owned(), written: TermForm::Quotient(a, b), value: a / b };
        Self::sum(name, &format!("{of} / {b}"), vec![term])
    }

    fn sum(name: &str, formula: &str, terms: Vec<Term>) -> Self {
        let value = terms.iter().map(|t| t.value).sum();
        Self { name: name.to_owned(), formula: formula.to_owned(), terms, value }
    }
}

/// The values of a node's weights, row-major.
fn held<'w>(weights: &'w Weights, node: &Node) -> Result<Vec<Cow<'w, [f32]>>, attnscope_run::RunError> {
    node.weights.iter().map(|&weight| weights.get(weight)).collect()
}

/// The products of two rows, one term each.
fn products(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> Vec<Term> {
    let term = |(i, (a, b)): (usize, (f64, f64))| Term {
        label: i.to_string(),
        written: TermForm::Product(a, b),
        value: a * b,
    };
    a.zip(b).enumerate().map(term).collect()
}

/// The value at a checked index.
fn value(kept: &Kept, at: &[usize]) -> f64 {
    kept.values.get(offset(&kept.shape, at)).copied().unwrap_or(f64::NAN)
}

/// The row along the last dimension, at an index of the others.
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
