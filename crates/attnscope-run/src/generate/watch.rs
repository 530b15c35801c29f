//! A decoder that says where a value came from with which no token can be chosen.

use attnscope_graph::{Dim, Model, NodeId};

use super::decode::Decode;
use crate::error::RunError;
use crate::input::{Input, Rows};
use crate::native::{Decoding, Native};
use crate::sink::{Sink, Values};
use crate::weights::Weights;

/// Decodes, and where a logit is not a number runs the model once more to find the first node that is at fault.
#[derive(Debug)]
pub struct Watched<'a> {
    model: &'a Model,
    weights: &'a Weights,
    given: Input,
    /// For each row, its row of what was given and what it has read.
    rows: Vec<(usize, Vec<u32>)>,
    inner: Decoding<'a>,
}

impl<'a> Watched<'a> {
    /// A decoder that has read nothing.
    ///
    /// # Errors
    /// When the source does not fit the model.
    pub fn new(
        native: &'a mut Native,
        model: &'a Model,
        weights: &'a Weights,
        given: Input,
    ) -> Result<Self, RunError> {
        let rows = (0..given.batch()).map(|row| (row, Vec::new())).collect();
        let inner = native.start(model, weights, &given)?;
        Ok(Self { model, weights, given, rows, inner })
    }
}

impl Decode for Watched<'_> {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        let logits = self.inner.advance(tokens)?;
        self.rows.iter_mut().zip(tokens).for_each(|((_, read), new)| read.extend(new));
        let vocabulary = (logits.len() / self.rows.len().max(1)).max(1);
        if let Some(at) = logits.iter().position(|x| is_fatal(*x)) {
            let (row, read) = &self.rows[at / vocabulary];
            let target = Rows::new(std::slice::from_ref(read), 0);
            let input = self.given.select(&[*row]).with_target(target);
            // Ends with an error at the first such value, if it is there without a cache too.
            let found = Native::new().run(self.model, self.weights, &input, &mut Fault { model: self.model });
            found.map_err(|error| in_row(self.model, error, |_| *row))?;
        }
        Ok(logits)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        self.inner.reorder(rows)?;
        self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        Ok(())
    }
}

/// Not a number, or an infinity that probabilities make one of. −∞ is how masks close a position.
pub(crate) fn is_fatal(x: f32) -> bool {
    x.is_nan() || x == f32::INFINITY
}

/// An error with the row that it is about as the caller counts rows; a tensor that all rows share has none.
pub(super) fn in_row(model: &Model, mut error: RunError, number: impl Fn(usize) -> usize) -> RunError {
    if let RunError::NotANumber { node, at, .. } = &mut error {
        let dims = model.graph.find(node).map(|id| &model.graph.node(id).dims);
        let by_row = dims.is_some_and(|dims| dims.first() == Some(&Dim::Batch));
        at.iter_mut().take(usize::from(by_row)).for_each(|row| *row = number(*row));
    }
    error
}

/// Ends a run at the first tensor that holds such a value.
struct Fault<'a> {
    model: &'a Model,
}

impl Sink for Fault<'_> {
    fn wants(&self, _: NodeId) -> bool {
        true
    }

    fn held(&self, _: NodeId) -> u64 {
        0
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        let values = values.to_f32();
        let Some(cell) = values.iter().position(|x| is_fatal(*x)) else { return Ok(()) };
        let node = self.model.graph.node(node).path.to_string();
        Err(RunError::NotANumber { node, at: index(cell, shape), value: values[cell] })
    }
}

/// The place of a cell along each dimension.
fn index(cell: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = cell;
    let mut at: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&n| {
            let i = rest % n.max(1);
            rest /= n.max(1);
            i
        })
        .collect();
    at.reverse();
    at
}
