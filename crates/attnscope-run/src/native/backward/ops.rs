//! The gradients of operations that are products, norms, and loops over elements.

use attnscope_graph::{Activation, Factor, Node, NodeId, NormGain, NormKind, Rotary, Side};

use super::super::dropout::Dropout;
use super::super::kernels;
use super::super::ops::{gains, soft_cap_in_place};
use super::super::rotary::RotationTable;
use super::super::tile::Rows;
use super::Backward;
use super::kernels::{activate_back, norm_back, soft_cap_back};
use crate::error::RunError;
use crate::pool::Buffer;
use crate::rotation::Rotations;

/// Rows of a norm whose gradients of gain and bias are summed by one chunk: fixed, so that the sums are.
const NORM_ROWS: usize = 64;

impl Backward<'_> {
    pub(super) fn factor(&self, factor: Factor) -> f32 {
        factor.value(self.window.sizes).unwrap_or(1.0) as f32
    }

    /// y = x · scale · Wᵀ + b: dx = scale · dy · W, dW = scale · dyᵀ · x, db = Σ dy.
    pub(super) fn linear(&mut self, node: &Node, scale: f32, dy: &[f32]) {
        let weights = self.weights;
        let Some(w) = node.weights.first().and_then(|&id| weights.right_side(id)) else { return };
        let x = self.input(node, 0);
        let rows = x.len() / w.depth().max(1);
        let (x, dy) = (Rows::dense(&x, rows, w.depth()), Rows::dense(dy, rows, w.rows()));
        let mut bias = self.take_parameter(node, 1);
        if let Some((at, mut gradient)) = self.take_parameter(node, 0) {
            let bias = bias.as_mut().map_or(&mut [][..], |(_, bias)| bias);
            self.machine.weight_gradient(x, dy, scale, &mut gradient, bias);
            self.parameters[at] = gradient;
        }
        if let Some((at, bias)) = bias {
            self.parameters[at] = bias;
        }
        self.give_computed(node, 0, rows * w.depth(), |this, dx, add| {
            this.machine.input_gradient(dy, w, scale, dx, add);
        });
    }

    pub(super) fn norm(
        &mut self,
        node: &Node,
        kind: NormKind,
        eps: f64,
        of_weight: NormGain,
        mut dy: Buffer,
    ) {
        let weights = self.weights;
        let gain = node.weights.first().and_then(|&id| weights.plain(id)).unwrap_or_default();
        let gain = &*gains(gain, of_weight);
        let (x, width, arch) = (self.input(node, 0), gain.len().max(1), self.machine.arch);
        let with_bias = node.weights.len() > 1;
        let columns = width * if with_bias { 2 } else { 1 };
        let mut sums = self.machine.pool.take_zeroed(dy.len().div_ceil(NORM_ROWS * width) * columns);
        let mut pieces: Vec<_> = dy.chunks_mut(NORM_ROWS * width).zip(sums.chunks_mut(columns)).collect();
        self.machine.team.each_of(&mut pieces, |i, (dy, sums)| {
            let (d_gain, d_bias) = sums.split_at_mut(width);
            let x = &x[i * NORM_ROWS * width..];
            for (dy, x) in dy.chunks_mut(width).zip(x.chunks(width)) {
                norm_back(arch, kind, eps, x, gain, dy, d_gain, d_bias);
            }
        });
        for (i, id) in node.weights.iter().enumerate() {
            for sums in sums.chunks(columns) {
                kernels::add(arch, &mut self.parameters[id.index()], &sums[i * width..][..width]);
            }
        }
        self.give(node, 0, dy);
    }

    pub(super) fn residual(&mut self, node: &Node, gain: f32, dy: Buffer) {
        let mut scaled = self.machine.pool.take(dy.len());
        self.machine.share(&mut scaled, 1, |from, out| {
            out.iter_mut().zip(&dy[from..]).for_each(|(out, dy)| *out = gain * dy);
        });
        self.give(node, 1, scaled);
        self.give(node, 0, dy);
    }

    pub(super) fn activate(&mut self, node: &Node, activation: Activation, mut dy: Buffer) {
        let (x, arch) = (self.input(node, 0), self.machine.arch);
        self.machine.share(&mut dy, 1, |from, dy| activate_back(arch, activation, &x[from..], dy));
        self.give(node, 0, dy);
    }

    /// y = cap · tanh(x / cap): dx = dy · (1 − tanh²(x / cap)). It reads x: the loss may have used the memory of logits.
    pub(super) fn soft_cap(&mut self, node: &Node, cap: f64, mut dy: Buffer) {
        let mut y = self.machine.pool.take(dy.len());
        y.copy_from_slice(&self.input(node, 0));
        soft_cap_in_place(cap, &mut y);
        let cap = cap as f32;
        self.machine.share(&mut dy, 1, |from, dy| soft_cap_back(cap, &y[from..], dy));
        self.give(node, 0, dy);
    }

    /// What was dropped has no gradient.
    pub(super) fn dropout(&mut self, id: NodeId, node: &Node, p: f32, mut dy: Buffer) {
        if let Some(seed) = self.dropout_seed.filter(|_| p > 0.0) {
            let mut dx = self.machine.pool.take(dy.len());
            Dropout::new(seed, id, p).apply(self.machine, &dy, &mut dx);
            dy = dx;
        }
        self.give(node, 0, dy);
    }

    /// The product rule.
    pub(super) fn gate(&mut self, node: &Node, dy: &[f32]) {
        for (i, other) in [(0, 1), (1, 0)] {
            let (factor, arch) = (self.input(node, other), self.machine.arch);
            let mut dx = self.machine.pool.take(dy.len());
            self.machine.share(&mut dx, 1, |from, out| {
                kernels::times(arch, &dy[from..], &factor[from..], out);
            });
            self.give(node, i, dx);
        }
    }

    /// Rotated back.
    pub(super) fn rotate(
        &mut self,
        id: NodeId,
        node: &Node,
        side: Side,
        rotary: Rotary,
        dy: &[f32],
    ) -> Result<(), RunError> {
        let shape = self.shape(id)?;
        let length = self.window.first(side) + shape[2];
        let list = node.weights.get(rotary.list_of(length));
        let factors = list.and_then(|&id| self.weights.plain(id)).unwrap_or_default();
        let rotations = Rotations { rotary, factors, size: shape[3], length };
        let mut dx = self.machine.pool.take(dy.len());
        RotationTable::new(rotations, self.window.first(side), &shape).back().apply(
            self.machine,
            dy,
            &mut dx,
        );
        self.give(node, 0, dx);
        Ok(())
    }

    /// [b, r, c] of the output → [b, c, r]
    pub(super) fn transpose(&mut self, node: &Node, shape: &[usize], dy: &[f32]) {
        let mut dx = self.machine.pool.take(dy.len());
        super::super::ops::transpose(self.machine, dy, &[shape[0], shape[2], shape[1]], &mut dx);
        self.give(node, 0, dx);
    }
}
