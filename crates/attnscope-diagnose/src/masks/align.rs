//! A single row of a batch, and where its cells are in the tensors of the whole batch.

use attnscope_graph::{Dim, Node, Side};
use attnscope_run::{Input, Rows, Sequence};

use super::is_token;
use super::perturbation_rig::Tensor;
use super::place::{Movement, distance};
use crate::unravel;

/// A row without its padding.
pub(super) struct Alone {
    pub(super) input: Input,
    row: usize,
    /// Padding before the tokens of the source and of the target.
    before: [usize; 2],
}

impl Alone {
    /// `None` where a side of the row has no token.
    pub(super) fn new(input: &Input, row: usize) -> Option<Self> {
        let one = |rows: &Rows| {
            let tokens = rows.tokens().swap_remove(row);
            (!tokens.is_empty()).then(|| Rows::new(&[tokens], 0))
        };
        let mut alone = input.select(&[row]);
        for (side, rows) in input.tokens() {
            alone = alone.with(side, Sequence::Tokens(one(rows)?));
        }
        let first = |side| {
            let length = input.rows(side).map_or(0, Rows::length);
            (0..length).position(|at| is_token(input, side, row, at)).unwrap_or(0)
        };
        Some(Self { input: alone, row, before: [Side::Source, Side::Target].map(first) })
    }

    /// The cell of the batch's tensor that a cell of this row's is.
    fn in_batch(&self, node: &Node, alone: &Tensor, batch: &Tensor, cell: usize) -> Option<usize> {
        let place = unravel(cell, &alone.shape);
        let mut at = 0;
        for ((&dim, &here), &length) in node.dims.iter().zip(&place).zip(&batch.shape) {
            let there = match dim {
                Dim::Batch => self.row,
                Dim::Source => here + self.before[0],
                Dim::Target => here + self.before[1],
                _ => here,
            };
            if there >= length {
                return None;
            }
            at = at * length + there;
        }
        Some(at)
    }
}

/// The difference between a row alone and the same row in the batch.
pub(super) fn aligned(node: &Node, alone: &Tensor, batch: &Tensor, row: &Alone) -> Movement {
    let most = alone.most();
    let mut found = Movement::default();
    for (cell, &a) in alone.values.iter().enumerate() {
        let Some(&b) = row.in_batch(node, alone, batch, cell).and_then(|at| batch.values.get(at)) else {
            continue;
        };
        let far = distance(a, b) / most;
        if far > found.largest {
            (found.largest, found.at) = (far, cell);
        }
    }
    found
}
