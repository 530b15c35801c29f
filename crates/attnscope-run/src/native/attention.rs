//! One attention, from projections to context, head by head in blocks of queries. Each stage is stored if it is wanted, else it
//! is kept only in a block's scratch memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use attnscope_graph::{KvSharing, NodeId, Normaliser};
use pulp::Arch;

use super::kernels;
use super::ops::soft_cap_in_place;
use super::product::{Machine, Packed, dots, packed_len};
use super::stream::stream;
use super::tile::Rows;
use crate::error::RunError;
use crate::intervention::Interventions;
use crate::pool::Pool;

/// Cells of scores in a block, so that they stay in the nearer caches.
const CELLS: usize = 36 << 10;
/// Up to this many queries, packing the keys costs more than it saves.
const FEW: usize = 8;
/// From this many elements on, a stage that is kept goes past the caches.
const LARGE: usize = 4 << 20;

/// The sizes of an attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) batch: usize,
    pub(super) heads: usize,
    /// Heads of keys and values, which groups of heads share.
    pub(super) kv_heads: usize,
    /// Which heads are a group.
    pub(super) sharing: KvSharing,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// Width of a head.
    pub(super) size: usize,
}

impl Extent {
    /// Of scores, [batch, head, query, key], and of keys, [batch, head, key, size].
    pub(super) fn new(
        scores: &[usize],
        k: &[usize],
        size: Option<usize>,
        sharing: KvSharing,
    ) -> Result<Self, RunError> {
        match (scores, k, size) {
            (&[batch, heads, queries, keys], &[_, kv_heads, ..], Some(size)) if kv_heads > 0 => {
                Ok(Self { batch, heads, kv_heads, sharing, queries, keys, size })
            }
            _ => Err(RunError::Obstacle("the head count is not known".into())),
        }
    }
}

/// What an attention reads.
pub(super) struct AttentionInputs<'a> {
    pub(super) extent: Extent,
    /// [batch, query, head · size]
    pub(super) q: &'a [f32],
    pub(super) k: Keys<'a>,
    pub(super) v: Keys<'a>,
    pub(super) scale: f32,
    pub(super) normaliser: Normaliser,
    /// [1, head, query, key]
    pub(super) bias: Option<&'a [f32]>,
    /// [batch, 1, query, key]
    pub(super) mask: Option<&'a [f32]>,
    pub(super) interventions: &'a Interventions<'a>,
    /// The node of the capped scores and their cap, where they have one.
    pub(super) cap: Option<(NodeId, f64)>,
    /// The nodes of scores, masked scores and weights.
    pub(super) stages: [NodeId; 3],
}

/// Keys, or values: [row, key, head · size].
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) data: &'a [f32],
    /// Elements from one row to the next.
    pub(super) step: usize,
    /// The source row of each row of the batch; its own where absent.
    pub(super) rows: Option<&'a [usize]>,
}

impl AttentionInputs<'_> {
    /// Which row of the batch, and which head.
    fn place(&self, part: usize) -> (usize, usize) {
        (part / self.extent.heads, part % self.extent.heads)
    }

    /// The part, batch · kv_heads + kv_head, whose keys and values a part of the queries reads.
    fn kv_part(&self, part: usize) -> usize {
        let Extent { heads, kv_heads, sharing, .. } = self.extent;
        let (batch, head) = self.place(part);
        batch * kv_heads + sharing.head(head, heads, kv_heads)
    }

    /// A head's columns of a projection of so many heads, where they lie.
    fn head<'d>(&self, data: &'d [f32], [head, heads]: [usize; 2], count: usize) -> Rows<'d> {
        let size = self.extent.size;
        Rows::new(data.get(head * size..).unwrap_or_default(), count, size, heads * size)
    }

    /// A head's queries.
    fn queries(&self, part: usize) -> Rows<'_> {
        let Extent { heads, queries, size, .. } = self.extent;
        let (batch, head) = self.place(part);
        self.head(&self.q[batch * queries * heads * size..], [head, heads], queries)
    }

    /// The keys, or values, of a part of them.
    fn keys<'d>(&self, keys: Keys<'d>, kv_part: usize) -> Rows<'d> {
        let kv_heads = self.extent.kv_heads;
        let (batch, head) = (kv_part / kv_heads, kv_part % kv_heads);
        let row = keys.rows.map_or(batch, |rows| rows[batch]);
        self.head(&keys.data[row * keys.step..], [head, kv_heads], self.extent.keys)
    }
}

/// Where its stages go; empty where they are not wanted.
pub(super) struct Stages<'a> {
    /// [batch, head, query, key]
    pub(super) scores: &'a mut [f32],
    /// [batch, head, query, key]
    pub(super) capped: &'a mut [f32],
    /// [batch, head, query, key]
    pub(super) masked: &'a mut [f32],
    /// [batch, head, query, key]
    pub(super) weights: &'a mut [f32],
    /// [batch, head, query, size]; never empty.
    pub(super) context: &'a mut [f32],
}

/// Runs it, and returns the number of fully masked rows.
pub(super) fn attend(machine: Machine<'_>, given: &AttentionInputs<'_>, stages: Stages<'_>) -> usize {
    let Machine { arch, team, pool } = machine;
    let Extent { queries, keys, size, .. } = given.extent;
    let parts = given.extent.batch * given.extent.heads;
    let packs = queries > FEW;
    let [len_k, len_v] = [(size, keys), (keys, size)].map(|(depth, columns)| match packs {
        true => packed_len(arch, depth, columns),
        false => 0,
    });
    // Each head's keys and values, packed once for all of its queries.
    let kv_parts = given.extent.batch * given.extent.kv_heads;
    let mut packed = pool.take(kv_parts * (len_k + len_v));
    if packs {
        let mut heads: Vec<_> =
            packed.chunks_mut((len_k + len_v).max(1)).map(|p| p.split_at_mut(len_k)).collect();
        team.each_of(&mut heads, |part, (k, v)| {
            Packed::transposed(arch, given.keys(given.k, part), k);
            Packed::straight(arch, given.keys(given.v, part), v);
        });
    }
    // A whole number of tiles, whichever the machine's.
    let rows = (CELLS / keys.max(1) / 12 * 12).clamp(12, 96);
    let mut blocks = blocks(given.extent, rows, stages);
    let fully_masked = AtomicUsize::new(0);
    let run = |_, block: &mut Block<'_>| {
        let packed = &packed.get(given.kv_part(block.part) * (len_k + len_v)..).unwrap_or_default();
        let packed = packs.then(|| (&packed[..len_k], &packed[len_k..][..len_v]));
        fully_masked.fetch_add(block.run(arch, pool, given, packed), Ordering::Relaxed);
    };
    if machine.pays(parts * queries * keys * size) {
        team.each_of(&mut blocks, run);
    } else {
        blocks.iter_mut().enumerate().for_each(|(i, block)| run(i, block));
    }
    fully_masked.into_inner()
}

/// Some queries of one head, and where their stages go.
struct Block<'a> {
    /// batch · heads + head
    part: usize,
    /// The first query.
    first: usize,
    /// How many.
    rows: usize,
    scores: &'a mut [f32],
    capped: &'a mut [f32],
    masked: &'a mut [f32],
    weights: &'a mut [f32],
    context: &'a mut [f32],
    /// The stages are too large to stay in the caches.
    large: bool,
}

fn blocks(extent: Extent, rows: usize, stages: Stages<'_>) -> Vec<Block<'_>> {
    let Extent { batch, heads, queries, keys, size, .. } = extent;
    let large = batch * heads * queries * keys >= LARGE;
    let Stages { mut scores, mut capped, mut masked, mut weights, mut context } = stages;
    let mut blocks = Vec::new();
    for part in 0..batch * heads {
        for first in (0..queries).step_by(rows) {
            let rows = rows.min(queries - first);
            let stage = |stage| cut(stage, rows * keys);
            let [scores, capped, masked, weights] =
                [&mut scores, &mut capped, &mut masked, &mut weights].map(stage);
            let context = cut(&mut context, rows * size);
            blocks.push(Block { part, first, rows, scores, capped, masked, weights, context, large });
        }
    }
    blocks
}

/// The first elements of a stage, or none where it is not wanted.
fn cut<'a>(stage: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let len = len.min(stage.len());
    let (first, rest) = std::mem::take(stage).split_at_mut(len);
    *stage = rest;
    first
}

impl Block<'_> {
    fn run(
        &mut self,
        arch: Arch,
        pool: &Pool,
        given: &AttentionInputs<'_>,
        packed: Option<(&[f32], &[f32])>,
    ) -> usize {
        let Extent { keys, size, .. } = given.extent;
        let q = given.queries(self.part).slice(self.first, self.rows);
        let kv_part = given.kv_part(self.part);
        let mut cells = pool.take(self.rows * keys);
        match packed {
            Some((k, _)) => {
                Packed::again(k, size).multiply(arch, q, keys, given.scale, &mut cells);
            }
            None => dots(arch, q, given.keys(given.k, kv_part), given.scale, &mut cells),
        }
        let [scores, masked, weights] = given.stages;
        self.intervene(given, scores, &mut cells);
        keep(self.scores, &cells, self.large);
        if let Some((capped, cap)) = given.cap {
            soft_cap_in_place(cap, &mut cells);
            self.intervene(given, capped, &mut cells);
            keep(self.capped, &cells, self.large);
        }
        self.hide(arch, given, &mut cells);
        self.intervene(given, masked, &mut cells);
        keep(self.masked, &cells, self.large);
        let fully_masked = normalise(arch, given, &mut cells);
        self.intervene(given, weights, &mut cells);
        keep(self.weights, &cells, self.large);
        let weights = Rows::dense(&cells, self.rows, keys);
        match packed {
            Some((_, v)) => Packed::again(v, keys).multiply(arch, weights, size, 1.0, self.context),
            None => {
                let values = given.keys(given.v, kv_part);
                for (row, out) in self.context.chunks_mut(size.max(1)).enumerate() {
                    kernels::blend(arch, weights.row(row), values, out);
                }
            }
        }
        fully_masked
    }

    /// Applies the interventions on a stage.
    fn intervene(&self, given: &AttentionInputs<'_>, stage: NodeId, cells: &mut [f32]) {
        let Extent { queries, keys, .. } = given.extent;
        given.interventions.apply(stage, (self.part * queries + self.first) * keys, cells);
    }

    /// Adds bias and mask to the scores.
    fn hide(&self, arch: Arch, given: &AttentionInputs<'_>, cells: &mut [f32]) {
        let Extent { queries, keys, .. } = given.extent;
        let (batch, head) = given.place(self.part);
        if let Some(bias) = given.bias {
            kernels::add(arch, cells, &bias[(head * queries + self.first) * keys..]);
        }
        if let Some(mask) = given.mask {
            kernels::add(arch, cells, &mask[(batch * queries + self.first) * keys..]);
        }
    }
}

fn normalise(arch: Arch, given: &AttentionInputs<'_>, cells: &mut [f32]) -> usize {
    let rows = cells.chunks_mut(given.extent.keys.max(1));
    match given.normaliser {
        Normaliser::Softmax => rows.map(|row| usize::from(!kernels::softmax(arch, row))).sum(),
        Normaliser::Sigmoid => rows.map(|row| usize::from(!kernels::logistic(arch, row))).sum(),
    }
}

fn keep(stage: &mut [f32], cells: &[f32], large: bool) {
    match (stage.is_empty(), large) {
        (true, _) => {}
        (false, true) => stream(stage, cells),
        (false, false) => stage.copy_from_slice(cells),
    }
}
