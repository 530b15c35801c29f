//! One attention, from projections to context, head by head in blocks of queries. Each stage is stored where somebody
//! wants it and lives in a block's scratch otherwise.

use std::sync::atomic::{AtomicUsize, Ordering};

use attnscope_graph::{NodeId, Squash};
use gemm::Parallelism;
use pulp::Arch;
use rayon::prelude::*;

use super::kernels;
use super::matmul::{Layout, View, multiply};
use crate::change::Changes;

/// Queries that are handled at once: their scores stay in the nearer caches.
const BLOCK: usize = 64;

/// The sizes of an attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// Width of a head.
    pub(super) size: usize,
}

/// What an attention reads.
pub(super) struct Given<'a> {
    pub(super) extent: Extent,
    /// [batch, query, head · size]
    pub(super) q: &'a [f32],
    pub(super) k: Keys<'a>,
    pub(super) v: Keys<'a>,
    pub(super) scale: f32,
    pub(super) squash: Squash,
    /// [1, head, query, key]
    pub(super) bias: Option<&'a [f32]>,
    /// [batch, 1, query, key]
    pub(super) mask: Option<&'a [f32]>,
    pub(super) changes: &'a Changes<'a>,
    /// The nodes of scores, masked scores and weights.
    pub(super) stages: [NodeId; 3],
}

/// Keys, or values: [row, key, head · size].
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) data: &'a [f32],
    /// Elements from one row to the next.
    pub(super) step: usize,
    /// The row that each row of the batch looks at; its own where absent.
    pub(super) rows: Option<&'a [usize]>,
}

impl<'a> Keys<'a> {
    fn of(self, batch: usize) -> &'a [f32] {
        let row = self.rows.map_or(batch, |rows| rows[batch]);
        &self.data[row * self.step..]
    }
}

/// Where its stages go; empty where nobody wants them.
pub(super) struct Stages<'a> {
    /// [batch, head, query, key]
    pub(super) scores: &'a mut [f32],
    /// [batch, head, query, key]
    pub(super) masked: &'a mut [f32],
    /// [batch, head, query, key]
    pub(super) weights: &'a mut [f32],
    /// [batch, head, query, size]; never empty.
    pub(super) context: &'a mut [f32],
}

/// Runs it; gives back how many rows had nothing to see.
pub(super) fn attend(arch: Arch, given: &Given<'_>, stages: Stages<'_>) -> usize {
    let Extent { batch, heads, queries, keys, size } = given.extent;
    let parts = batch * heads;
    let split = |stage| in_parts(stage, queries * keys, parts);
    let scores = split(stages.scores);
    let masked = split(stages.masked);
    let weights = split(stages.weights);
    let context = in_parts(stages.context, queries * size, parts);
    let blind = AtomicUsize::new(0);
    scores.into_par_iter().zip(masked).zip(weights).zip(context).enumerate().for_each(|(part, stages)| {
        let (((scores, masked), weights), context) = stages;
        let head = Head { arch, given, batch: part / heads, head: part % heads };
        blind.fetch_add(head.run(scores, masked, weights, context), Ordering::Relaxed);
    });
    blind.into_inner()
}

/// Equal parts of a stage, or as many empty ones where it is not wanted.
fn in_parts(stage: &mut [f32], size: usize, parts: usize) -> Vec<&mut [f32]> {
    if stage.is_empty() {
        return (0..parts).map(|_| <&mut [f32]>::default()).collect();
    }
    stage.chunks_mut(size.max(1)).collect()
}

struct Head<'a> {
    arch: Arch,
    given: &'a Given<'a>,
    batch: usize,
    head: usize,
}

impl Head<'_> {
    fn run(&self, scores: &mut [f32], masked: &mut [f32], weights: &mut [f32], context: &mut [f32]) -> usize {
        let Extent { heads, queries, keys, size, .. } = self.given.extent;
        let width = heads * size;
        let column = self.head * size;
        let q = &self.given.q[self.batch * queries * width + column..];
        let k = &self.given.k.of(self.batch)[column..];
        let v = &self.given.v.of(self.batch)[column..];
        // The head's columns of a projection, where they lie.
        let strided = |rows| Layout { rows, columns: size, row_step: width, column_step: 1 };
        let mut scratch = vec![0.0; BLOCK.min(queries) * keys];
        let [scores_id, masked_id, weights_id] = self.given.stages;
        let part = (self.batch * heads + self.head) * queries * keys;
        let change = |id, first: usize, block: &mut [f32]| {
            self.given.changes.apply(id, part + first * keys, block);
        };
        let mut blind = 0;
        for first in (0..queries).step_by(BLOCK) {
            let rows = BLOCK.min(queries - first);
            let cells = first * keys..(first + rows) * keys;
            let block = &mut scratch[..rows * keys];
            let q = View::new(&q[first * width..], strided(rows));
            let k = View::new(k, strided(keys).transposed());
            multiply(block, Layout::dense(rows, keys), q, k, self.given.scale, false, Parallelism::None);
            change(scores_id, first, block);
            keep(scores, &cells, block);
            self.hide(first, block);
            change(masked_id, first, block);
            keep(masked, &cells, block);
            blind += self.squash(block);
            change(weights_id, first, block);
            keep(weights, &cells, block);
            let out = &mut context[first * size..(first + rows) * size];
            let w = View::new(block, Layout::dense(rows, keys));
            multiply(
                out,
                Layout::dense(rows, size),
                w,
                View::new(v, strided(keys)),
                1.0,
                false,
                Parallelism::None,
            );
        }
        blind
    }

    /// Adds bias and mask to the scores of some queries.
    fn hide(&self, first: usize, block: &mut [f32]) {
        let Extent { queries, keys, .. } = self.given.extent;
        if let Some(bias) = self.given.bias {
            kernels::add(self.arch, block, &bias[(self.head * queries + first) * keys..]);
        }
        if let Some(mask) = self.given.mask {
            kernels::add(self.arch, block, &mask[(self.batch * queries + first) * keys..]);
        }
    }

    fn squash(&self, block: &mut [f32]) -> usize {
        let rows = block.chunks_mut(self.given.extent.keys.max(1));
        match self.given.squash {
            Squash::Softmax => rows.map(|row| usize::from(!kernels::softmax(self.arch, row))).sum(),
            Squash::Sigmoid => {
                rows.for_each(|row| kernels::logistic(self.arch, row));
                0
            }
        }
    }
}

fn keep(stage: &mut [f32], cells: &std::ops::Range<usize>, block: &[f32]) {
    if let Some(stage) = stage.get_mut(cells.clone()) {
        stage.copy_from_slice(block);
    }
}
