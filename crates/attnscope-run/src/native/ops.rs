//! The operations that are one loop over their output, and the tables that layers share.

use attnscope_graph::{Factor, MaskKind, Node, Op, Positions, RotaryPairs, Side, Stack};

use super::kernels;
use super::pass::Pass;
use super::pool::{Buffer, Shared};
use super::tile::{Bias, Canvas, Finish, Rows};
use crate::input::Sequence;
use crate::position::{Place, Turn, bucket, position, sinusoid, table_row, used_buckets};

/// Elements that one turn of an element-wise loop handles.
const CHUNK: usize = 1 << 14;

impl Pass<'_> {
    pub(super) fn factor(&self, factor: Factor) -> f32 {
        factor.value(self.window.sizes).unwrap_or(1.0) as f32
    }

    /// Everything that is one loop over its output.
    pub(super) fn compute(&self, node: &Node, shape: &[usize], out: &mut [f32]) {
        let width = shape.last().copied().unwrap_or(1).max(1);
        let arch = self.machine.arch;
        match node.op {
            Op::Ids(side) => {
                let ids = match (side, self.window.source) {
                    (Side::Target, _) => self.window.target,
                    (Side::Source, Some(Sequence::Tokens(rows))) => rows.ids(),
                    (Side::Source, _) => &[],
                };
                out.iter_mut().zip(ids).for_each(|(o, &id)| *o = id as f32);
            }
            Op::TypeIds(_) => out.fill(0.0),
            Op::Features => {
                if let Some(Sequence::Features(f)) = self.window.source {
                    out.copy_from_slice(&f.values);
                }
            }
            Op::Embed { scale } => self.embed(node, self.factor(scale), width, out),
            Op::Positions { kind, offset, count, side } => {
                let places = self.window.places(side, count, offset, shape);
                self.positions(node, kind, offset, &places, out);
            }
            Op::AddPositions => {
                out.copy_from_slice(self.input(node, 0));
                for term in 1..node.inputs.len() {
                    // Positions are the same for every row.
                    let added = self.input(node, term);
                    out.chunks_mut(added.len().max(1)).for_each(|row| kernels::add(arch, row, added));
                }
            }
            Op::Conv1d { stride } => self.conv(node, stride, shape, out),
            Op::Transpose => self.transpose(self.input(node, 0), shape, out),
            Op::Norm { kind, eps } => {
                let (x, gain, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
                self.share(out, width, |from, out| {
                    for (x, out) in x[from..].chunks(width).zip(out.chunks_mut(width)) {
                        kernels::norm(arch, kind, eps, x, gain, bias, out);
                    }
                });
            }
            Op::Linear => self.linear(self.input(node, 0), node, 1.0, width, out),
            Op::Logits { scale } => self.linear(self.input(node, 0), node, self.factor(scale), width, out),
            Op::Residual { gain } => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                self.share(out, 1, |from, out| kernels::add_scaled(arch, &x[from..], gain, &y[from..], out));
            }
            Op::Activate(activation) => {
                let x = self.input(node, 0);
                self.share(out, 1, |from, out| kernels::activate(arch, activation, &x[from..], out));
            }
            Op::Gate => {
                let (x, y) = (self.input(node, 0), self.input(node, 1));
                self.share(out, 1, |from, out| kernels::times(arch, &x[from..], &y[from..], out));
            }
            // Handled before: they make no tensor of their own, or one that is kept elsewhere.
            Op::Same
            | Op::SplitHeads(_)
            | Op::Rotate { .. }
            | Op::Scores { .. }
            | Op::RelativeBias { .. }
            | Op::Mask(_)
            | Op::AddMask { .. }
            | Op::Squash(_)
            | Op::Context
            | Op::MergeHeads(_) => {}
        }
    }

    fn embed(&self, node: &Node, scale: f32, width: usize, out: &mut [f32]) {
        let (ids, table) = (self.input(node, 0), self.weight(node, 0));
        for (out, &id) in out.chunks_mut(width).zip(ids) {
            let row = &table[id as usize * width..][..width];
            out.iter_mut().zip(row).for_each(|(o, x)| *o = x * scale);
        }
    }

    /// Rotary positions, from position `first` on, in heads where they lie: [row, position, head · feature].
    pub(super) fn rotate(
        &self,
        node: &Node,
        base: f64,
        pairs: RotaryPairs,
        first: usize,
        out: &mut [f32],
        shape: &[usize],
    ) {
        let (heads, length, size) = (shape[1], shape[2], shape[3].max(1));
        let turn = |at: usize, i: usize| {
            let turn = Turn::of(base, pairs, size, first + at, i);
            let (sin, cos) = turn.angle.sin_cos();
            (cos as f32, (turn.sign * sin) as f32, turn.partner)
        };
        // [position, feature]: the same for every row and head.
        let turns: Vec<(f32, f32, usize)> =
            (0..length * size).map(|cell| turn(cell / size, cell % size)).collect();
        let x = self.input(node, 0);
        self.share(out, heads * size, |from, out| {
            for (n, row) in out.chunks_mut(heads * size).enumerate() {
                let at = from + n * heads * size;
                let turns = &turns[at / (heads * size) % length * size..][..size];
                for (head, out) in row.chunks_mut(size).enumerate() {
                    let x = &x[at + head * size..][..size];
                    for (i, (out, &(cos, sin, partner))) in out.iter_mut().zip(turns).enumerate() {
                        *out = x[i] * cos + x[partner] * sin;
                    }
                }
            }
        });
    }

    fn positions(&self, node: &Node, kind: Positions, offset: usize, places: &[Place], out: &mut [f32]) {
        let table = self.weight(node, 0);
        let width = out.len() / places.len().max(1);
        for (row, &place) in out.chunks_mut(width.max(1)).zip(places) {
            match (kind, place, table_row(place, offset)) {
                (Positions::Table, _, Some(at)) => row.copy_from_slice(&table[at * width..][..width]),
                (Positions::Table, _, None) | (_, None, _) => row.fill(0.0),
                (_, Some(place), _) => {
                    let cells = row.iter_mut().enumerate();
                    cells.for_each(|(i, o)| *o = sinusoid(kind, position(place, offset), i, width) as f32);
                }
            }
        }
    }

    /// Shares an output out in pieces of whole rows; the body gets the place of its piece's first element.
    fn share(&self, out: &mut [f32], width: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
        let step = CHUNK.next_multiple_of(width.max(1));
        let mut pieces: Vec<_> = out.chunks_mut(step).collect();
        self.machine.team.each_of(&mut pieces, |i, piece| body(i * step, piece));
    }

    /// x · scale · Wᵀ + b
    pub(super) fn linear(&self, x: &[f32], node: &Node, scale: f32, outputs: usize, out: &mut [f32]) {
        let (w, bias) = (self.weight(node, 0), self.weight(node, 1));
        let inputs = w.len() / outputs.max(1);
        let x = Rows::dense(x, out.len() / outputs.max(1), inputs);
        self.machine.linear(x, Rows::dense(w, outputs, inputs), scale, bias, out);
    }

    /// The convolution as a product of the weights, [output, channel · tap], and of windows of three frames.
    fn conv(&self, node: &Node, stride: usize, shape: &[usize], out: &mut [f32]) {
        let (x, w, bias) = (self.input(node, 0), self.weight(node, 0), self.weight(node, 1));
        let (outputs, steps) = (shape[1], shape[2]);
        let depth = w.len() / outputs;
        let channels = depth / 3;
        let frames = x.len() / shape[0] / channels;
        let w = Rows::dense(w, outputs, depth);
        let bias = if bias.is_empty() { Bias::None } else { Bias::Rows(bias) };
        for (x, out) in x.chunks(channels * frames).zip(out.chunks_mut(outputs * steps)) {
            let finish = Finish { row: 0, column: 0, scale: 1.0, bias };
            self.machine.multiply(
                w,
                depth,
                Canvas::new(out, outputs, steps),
                finish,
                |step, width, panel| {
                    for (k, cells) in panel.chunks_mut(width).take(depth).enumerate() {
                        let (channel, tap) = (&x[k / 3 * frames..][..frames], k % 3);
                        for (i, cell) in cells.iter_mut().enumerate() {
                            // One frame of zeros at each end.
                            let frame = ((step + i) * stride + tap).wrapping_sub(1);
                            *cell = channel.get(frame).copied().unwrap_or(0.0);
                        }
                    }
                },
            );
        }
    }

    /// [b, l, h · k] → [b, h, l, k], for whoever wants to see it: attention reads the heads where they lie.
    pub(super) fn split(&self, x: &[f32], shape: &[usize]) -> Buffer {
        let (heads, length, size) = (shape[1], shape[2], shape[3]);
        let mut out = self.machine.pool.take(shape.iter().product());
        self.share(&mut out, size, |from, out| {
            for (n, row) in out.chunks_mut(size.max(1)).enumerate() {
                let n = from / size.max(1) + n;
                let (b, h, l) = (n / (heads * length), n / length % heads, n % length);
                row.copy_from_slice(&x[((b * length + l) * heads + h) * size..][..size]);
            }
        });
        out
    }

    /// [b, h, l, k] → [b, l, h · k]
    pub(super) fn merge(&self, context: &[f32], shape: &[usize]) -> Buffer {
        let (heads, length, size) = (shape[1], shape[2], shape[3]);
        let mut out = self.machine.pool.take(shape.iter().product());
        self.share(&mut out, size, |from, out| {
            for (n, row) in out.chunks_mut(size.max(1)).enumerate() {
                let n = from / size.max(1) + n;
                let (b, l, h) = (n / (heads * length), n / heads % length, n % heads);
                row.copy_from_slice(&context[((b * heads + h) * length + l) * size..][..size]);
            }
        });
        out
    }

    /// [b, c, r] → [b, r, c]
    fn transpose(&self, x: &[f32], shape: &[usize], out: &mut [f32]) {
        /// Rows that are read together, so that no line of the input is fetched twice.
        const SOME: usize = 16;
        let (rows, columns) = (shape[1], shape[2]);
        for (x, out) in x.chunks(rows * columns).zip(out.chunks_mut(rows * columns)) {
            let mut pieces: Vec<_> = out.chunks_mut(SOME * columns).collect();
            self.machine.team.each_of(&mut pieces, |i, piece| {
                for c in 0..columns {
                    let from = &x[c * rows + i * SOME..];
                    piece.iter_mut().skip(c).step_by(columns).zip(from).for_each(|(o, x)| *o = *x);
                }
            });
        }
    }

    /// One mask a kind, shared by all layers.
    pub(super) fn mask(&mut self, kind: MaskKind, shape: &[usize]) {
        if self.masks.contains_key(&mask_key(kind)) {
            return;
        }
        let (queries, keys) = (shape[2], shape[3]);
        let mut mask = self.machine.pool.take_zeroed(shape.iter().product());
        for (n, cell) in mask.iter_mut().enumerate() {
            if !self.window.is_open(kind, n / (queries * keys), n / keys % queries, n % keys) {
                *cell = f32::NEG_INFINITY;
            }
        }
        self.masks.insert(mask_key(kind), Shared::new(mask));
    }

    /// One bias a stack, shared by all layers.
    pub(super) fn relative_bias(
        &mut self,
        node: &Node,
        stack: Stack,
        [buckets, max_distance]: [usize; 2],
        shape: &[usize],
    ) {
        if self.biases.contains_key(&stack) {
            return;
        }
        let (heads, queries, keys) = (shape[1], shape[2], shape[3]);
        let mut bias = self.machine.pool.take(shape.iter().product());
        let table = self.weight(node, 0);
        let buckets = used_buckets(buckets, table.len() / heads.max(1));
        let first = self.window.first(stack.side());
        for (n, cell) in bias.iter_mut().enumerate() {
            let (h, t, s) = (n / (queries * keys), n / keys % queries, n % keys);
            *cell = table[bucket(stack, first + t, s, buckets, max_distance) * heads + h];
        }
        self.biases.insert(stack, Shared::new(bias));
    }
}

pub(super) fn mask_key(kind: MaskKind) -> (bool, bool, bool, bool) {
    let source = Side::Source;
    (kind.queries == source, kind.keys == source, kind.causal, kind.padding)
}
