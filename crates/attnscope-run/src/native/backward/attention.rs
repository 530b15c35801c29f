//! The gradient of one attention, from its context back to queries, keys, values and bias, head by head.
#![allow(unsafe_code)] // Threads fill one matrix, each its own heads.

use attnscope_graph::{KvSharing, NodeId, Normaliser};
use pulp::Arch;

use super::super::attention::Extent;
use super::super::kernels;
use super::super::ops::{soft_cap_in_place, split_heads};
use super::super::product::{Machine, Packed, packed_len};
use super::super::tile::{Left, OutputMatrix, Rows};
use super::Backward;
use super::kernels::{sigmoid_back, soft_cap_back, softmax_back};
use crate::error::RunError;
use crate::learn::LearningSink;
use crate::pool::{Buffer, Pool, Shared};
use crate::tensor::Tensor;

/// What the gradient of an attention is computed from.
struct Given<'a> {
    extent: Extent,
    /// [batch, query, head · size]
    q: &'a [f32],
    /// [batch, key, head · size]
    k: &'a [f32],
    /// [batch, key, head · size]
    v: &'a [f32],
    /// [batch, head, query, key]
    weights: &'a [f32],
    /// Of the merged context: [batch, query, head · size].
    gradient: &'a [f32],
    scale: f32,
    /// The cap of the scores, where they have one.
    cap: Option<f64>,
    normaliser: Normaliser,
}

/// Where the gradients of queries, keys and values go.
struct Projections<'a> {
    q: OutputMatrix<'a>,
    k: OutputMatrix<'a>,
    v: OutputMatrix<'a>,
}

/// The heads of queries that share one head of keys and values in one row of the batch, and where the gradients of their cells
/// go; empty where nobody wants them.
struct Group<'a> {
    batch: usize,
    kv_head: usize,
    /// Of the weights, [head, query, key].
    weights: &'a mut [f32],
    /// Of the scores, [head, query, key].
    scores: &'a mut [f32],
    /// Of the capped scores, where there is a cap.
    capped: &'a mut [f32],
}

impl Backward<'_> {
    /// The attention that ends in a node.
    pub(super) fn attention(
        &mut self,
        id: NodeId,
        gradient: &[f32],
        sink: &mut dyn LearningSink,
    ) -> Result<(), RunError> {
        let plan = self.plan;
        let Some(parts) = &plan.attention[id.index()] else {
            let path = &self.model.graph.node(id).path;
            return Err(RunError::Obstacle(format!("{path} is no attention")));
        };
        let size = self.window.sizes.get(parts.size);
        let extent = Extent::new(&self.shape(parts.scores)?, &self.shape(parts.k)?, size, parts.sharing)?;
        let kept = self.attention_weights.iter().find(|(id, _)| *id == parts.weights);
        let weights = kept.map(|(_, weights)| weights.shared()).unwrap_or_default();
        let (q, k, v) = (self.value(parts.q), self.value(parts.k), self.value(parts.v));
        let (scale, normaliser) = (self.factor(parts.scale), parts.normaliser);
        let cap = parts.capped.map(|(_, cap)| cap);
        let given =
            Given { extent, q: &q, k: &k, v: &v, weights: &weights, gradient, scale, cap, normaliser };
        let bias = parts.bias.map(|(id, _)| id).filter(|id| self.wanted[id.index()]);
        let of_scores =
            bias.is_some() || [parts.scores, parts.masked].iter().any(|&id| sink.wants_gradient(id));
        let capped = parts.capped.map(|(id, _)| id);
        let of_capped = capped.is_some_and(|id| of_scores || sink.wants_gradient(id));
        let wanted = [sink.wants_gradient(parts.weights), of_scores, of_capped];
        let made = attend_back(self.machine, &given, wanted);
        if let Some(bias) = bias {
            // The same for every row of the batch.
            let cells = extent.heads * extent.queries * extent.keys;
            let mut sum = self.machine.pool.take_zeroed(cells);
            let masked = if capped.is_some() { &made.capped } else { &made.scores };
            masked.chunks(cells.max(1)).for_each(|d| kernels::add(self.machine.arch, &mut sum, d));
            self.give_to(bias, sum);
        }
        let scores = Shared::new(made.scores);
        let masked = if capped.is_some() { Shared::new(made.capped) } else { scores.clone() };
        if sink.wants_gradient(parts.context) {
            let shape = self.shape(parts.context)?;
            let heads = self.machine.pool.take_to_keep(gradient.len());
            let heads = Shared::new(split_heads(self.machine, gradient, &shape, heads));
            sink.put_gradient(parts.context, &Tensor::shared_with(&shape, &heads))?;
        }
        let stages = [
            (parts.weights, Shared::new(made.weights)),
            (parts.masked, masked.clone()),
            (parts.scores, scores),
        ];
        let capped = capped.map(|id| (id, masked));
        for (id, gradient) in stages.into_iter().chain(capped) {
            if sink.wants_gradient(id) {
                sink.put_gradient(id, &Tensor::shared_with(&self.shape(id)?, &gradient))?;
            }
        }
        for (id, gradient) in [(parts.q, made.q), (parts.k, made.k), (parts.v, made.v)] {
            self.give_to(id, gradient);
        }
        Ok(())
    }
}

/// The gradients that an attention gives.
struct Made {
    q: Buffer,
    k: Buffer,
    v: Buffer,
    weights: Buffer,
    scores: Buffer,
    /// Of the scores after their cap, which are those before the mask.
    capped: Buffer,
}

/// Runs it; `wanted` says whether the gradients of weights, of scores and of capped scores are kept.
fn attend_back(machine: Machine<'_>, given: &Given<'_>, wanted: [bool; 3]) -> Made {
    let Machine { arch, team, pool } = machine;
    let Extent { batch, heads, kv_heads, queries, keys, size, .. } = given.extent;
    let [mut q, mut k, mut v] = [given.q, given.k, given.v].map(|x| pool.take(x.len()));
    let [mut weights, mut scores, mut capped] =
        wanted.map(|wanted| pool.take(if wanted { batch * heads * queries * keys } else { 0 }));
    let to = Projections {
        q: OutputMatrix::new(&mut q, batch * queries, heads * size),
        k: OutputMatrix::new(&mut k, batch * keys, kv_heads * size),
        v: OutputMatrix::new(&mut v, batch * keys, kv_heads * size),
    };
    let cells = (heads / kv_heads.max(1) * queries * keys).max(1);
    let (mut of_weights, mut of_scores) = (weights.chunks_mut(cells), scores.chunks_mut(cells));
    let mut of_capped = capped.chunks_mut(cells);
    let group = |part: usize| Group {
        batch: part / kv_heads,
        kv_head: part % kv_heads,
        weights: of_weights.next().unwrap_or_default(),
        scores: of_scores.next().unwrap_or_default(),
        capped: of_capped.next().unwrap_or_default(),
    };
    let mut groups: Vec<Group<'_>> = (0..batch * kv_heads).map(group).collect();
    // Some together, so that their scratch is taken once.
    let together = groups.len().div_ceil(8 * team.size()).max(1);
    let mut chunks: Vec<_> = groups.chunks_mut(together).collect();
    team.each_of(&mut chunks, |_, groups| {
        let mut scratch = Scratch::new(arch, pool, given.extent, given.cap.is_some());
        for group in groups.iter_mut() {
            // SAFETY: no two groups have a head of queries or of keys in common.
            unsafe { group.run(arch, given, &to, &mut scratch) };
        }
    });
    for stage in [&mut weights, &mut scores, &mut capped] {
        in_order_of_heads(stage, given.extent);
    }
    Made { q, k, v, weights, scores, capped }
}

/// Brings what groups have made of their heads, group by group, into the order of heads.
fn in_order_of_heads(stage: &mut [f32], extent: Extent) {
    let Extent { heads, kv_heads, sharing, queries, keys, .. } = extent;
    let cells = queries * keys;
    // Groups of neighbours are in that order.
    if sharing == KvSharing::Repeat || cells == 0 {
        return;
    }
    let together = heads / kv_heads.max(1);
    for row in stage.chunks_mut(heads * cells) {
        let made = row.to_vec();
        for (at, values) in made.chunks(cells).enumerate() {
            let head = sharing.reader(at % together, at / together, heads, kv_heads);
            row[head * cells..(head + 1) * cells].copy_from_slice(values);
        }
    }
}

/// What a group of heads computes with.
struct Scratch {
    /// The gradient of a head's weights, then of its scores: [query, key].
    cells: Buffer,
    /// A head's scores again, where there is a cap.
    scores: Buffer,
    /// A right side of a product.
    panels: Buffer,
}

impl Scratch {
    fn new(arch: Arch, pool: &Pool, extent: Extent, has_cap: bool) -> Self {
        let Extent { queries, keys, size, .. } = extent;
        let right_sides = [(size, keys), (keys, size), (queries, size)];
        let panels = right_sides.map(|(depth, columns)| packed_len(arch, depth, columns));
        let panels = panels.into_iter().max().unwrap_or(0);
        let scores = pool.take(if has_cap { queries * keys } else { 0 });
        Self { cells: pool.take(queries * keys), scores, panels: pool.take(panels) }
    }
}

impl Group<'_> {
    /// # Safety
    /// No other thread touches these heads of `to` meanwhile.
    unsafe fn run(&mut self, arch: Arch, given: &Given<'_>, to: &Projections<'_>, scratch: &mut Scratch) {
        let scale = given.scale;
        let Extent { heads, kv_heads, sharing, queries, keys, size, .. } = given.extent;
        let (together, batch) = (heads / kv_heads, self.batch);
        let kv_columns = [self.kv_head * size, size];
        let (k, v) = (given.keys(given.k, batch, self.kv_head), given.keys(given.v, batch, self.kv_head));
        let [to_k, to_v] = [&to.k, &to.v].map(|to| to.part([batch * keys, keys], kv_columns));
        for i in 0..together {
            let head = sharing.reader(i, self.kv_head, heads, kv_heads);
            let weights = given.weights_of(batch, head);
            let (q, d_context) =
                (given.queries(given.q, batch, head), given.queries(given.gradient, batch, head));
            let to_q = to.q.part([batch * queries, queries], [head * size, size]);
            let Scratch { cells, scores, panels } = &mut *scratch;
            let len = |depth: usize, columns: usize| packed_len(arch, depth, columns);
            // d weights = d context · vᵀ
            let right = Packed::transposed(arch, v, &mut panels[..len(size, keys)]);
            right.multiply(arch, d_context, keys, 1.0, cells);
            keep(self.weights, i, cells);
            given.normalise_back(arch, weights, cells);
            if let Some(cap) = given.cap {
                keep(self.capped, i, cells);
                let right = Packed::transposed(arch, k, &mut panels[..len(size, keys)]);
                right.multiply(arch, q, keys, scale, scores);
                soft_cap_in_place(cap, scores);
                soft_cap_back(cap as f32, scores, cells);
            }
            keep(self.scores, i, cells);
            let d_scores = Rows::dense(cells, queries, keys);
            // SAFETY: the heads are the caller's.
            unsafe {
                // d q = scale · d scores · k
                let right = Packed::straight(arch, k, &mut panels[..len(keys, size)]);
                right.fill(arch, d_scores.into(), &to_q, scale, false);
                // d v = weightsᵀ · d context, and d k = scale · d scoresᵀ · q, summed over the heads that share them
                let right = Packed::straight(arch, d_context, &mut panels[..len(queries, size)]);
                right.fill(arch, Left::transposed(weights), &to_v, 1.0, i > 0);
                let right = Packed::straight(arch, q, &mut panels[..len(queries, size)]);
                right.fill(arch, Left::transposed(d_scores), &to_k, scale, i > 0);
            }
        }
    }
}

/// Keeps a head's cells, where somebody wants them.
fn keep(stage: &mut [f32], head: usize, cells: &[f32]) {
    if let Some(stage) = stage.get_mut(head * cells.len()..(head + 1) * cells.len()) {
        stage.copy_from_slice(cells);
    }
}

impl Given<'_> {
    /// A head of a projection of so many heads, at so many positions of a row of the batch.
    fn head<'d>(&self, data: &'d [f32], batch: usize, [head, heads]: [usize; 2], count: usize) -> Rows<'d> {
        let size = self.extent.size;
        let start = batch * count * heads * size + head * size;
        Rows::new(data.get(start..).unwrap_or_default(), count, size, heads * size)
    }

    fn queries<'d>(&self, data: &'d [f32], batch: usize, head: usize) -> Rows<'d> {
        self.head(data, batch, [head, self.extent.heads], self.extent.queries)
    }

    fn keys<'d>(&self, data: &'d [f32], batch: usize, head: usize) -> Rows<'d> {
        self.head(data, batch, [head, self.extent.kv_heads], self.extent.keys)
    }

    /// A head's weights, [query, key].
    fn weights_of(&self, batch: usize, head: usize) -> Rows<'_> {
        let Extent { heads, queries, keys, .. } = self.extent;
        Rows::dense(&self.weights[(batch * heads + head) * queries * keys..], queries, keys)
    }

    /// From the gradient of a head's weights to that of its scores, in place.
    fn normalise_back(&self, arch: Arch, weights: Rows<'_>, cells: &mut [f32]) {
        for (i, d) in cells.chunks_mut(self.extent.keys.max(1)).enumerate() {
            match self.normaliser {
                Normaliser::Softmax => softmax_back(arch, weights.row(i), d),
                Normaliser::Sigmoid => sigmoid_back(arch, weights.row(i), d),
            }
        }
    }
}
