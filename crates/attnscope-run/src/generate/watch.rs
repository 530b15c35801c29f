//! A decoder that finds the node where a NaN or an infinity of the logits comes from.

use std::sync::Arc;

use attnscope_graph::{Dim, Model, NodeId};

use crate::checked::CheckedInput;
use crate::error::RunError;
use crate::executor::{Decode, Prepared, Request, Session};
use crate::input::{Input, Rows};
use crate::sink::Sink;
use crate::source::SourceTensors;
use crate::tensor::Tensor;

/// Decodes, and where a logit is NaN or +∞, runs the model again to find the first node with such a value.
pub struct Watched<'a> {
    prepared: Arc<dyn Prepared>,
    given: Input,
    /// For each row, its row of the input and the tokens that it has read.
    rows: Vec<(usize, Vec<u32>)>,
    inner: Box<dyn Decode + 'a>,
}

impl<'a> Watched<'a> {
    /// A decoder that has read nothing, of a source that may have been run before.
    ///
    /// # Errors
    /// When the source does not fit the model.
    pub fn new(
        session: &'a mut dyn Session,
        given: Input,
        source: Option<&SourceTensors>,
    ) -> Result<Self, RunError> {
        let prepared = session.prepared();
        let rows = (0..given.batch()).map(|row| (row, Vec::new())).collect();
        let given = CheckedInput::to_decode(prepared.model(), given)?;
        let known = source.filter(|source| source.is_of(&given)).map_or(&[][..], SourceTensors::tensors);
        let inner = session.decode_after(&given, known)?;
        Ok(Self { prepared, given: given.into_input(), rows, inner })
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
            // Ends with an error at the first such value, if it also occurs without a cache.
            let model = self.prepared.model();
            let input = CheckedInput::new(model, input)?;
            let mut session = self.prepared.session(&self.prepared.limits().quiet());
            let found = session.run(&Request::new(&input), &mut Fault { model });
            found.map_err(|error| in_row(model, error, |_| *row))?;
        }
        Ok(logits)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        self.inner.reorder(rows)?;
        self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        Ok(())
    }
}

/// NaN, or +∞, which becomes NaN in the softmax. −∞ is a masked position.
pub(crate) fn is_fatal(x: f32) -> bool {
    x.is_nan() || x == f32::INFINITY
}

/// An error with its row as the caller counts rows; a tensor that all rows share has no row.
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

    fn held(&self, _: NodeId, _: u64) -> u64 {
        0
    }

    fn put(&mut self, node: NodeId, tensor: &Tensor) -> Result<(), RunError> {
        let values = tensor.values().as_f32();
        let Some(cell) = values.iter().position(|x| is_fatal(*x)) else { return Ok(()) };
        let node = self.model.graph.node(node).path.to_string();
        Err(RunError::NotANumber { node, at: index(cell, tensor.shape()), value: values[cell] })
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
