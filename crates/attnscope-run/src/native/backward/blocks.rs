//! The gradients of a classifier's blocks that only move values: halves, neighbours, ends, pools.

use attnscope_graph::{Node, Pooling, Side};

use super::super::kernels;
use super::Backward;
use crate::error::RunError;

impl Backward<'_> {
    /// h of h and c: nothing reaches c.
    pub(super) fn hidden(&mut self, node: &Node, width: usize, dy: &[f32]) {
        self.give_computed(node, 0, 2 * dy.len(), |this, dx, add| {
            let arch = this.machine.arch;
            this.machine.share(dx, 2 * width, |from, dx| {
                for (dx, dy) in dx.chunks_mut(2 * width).zip(dy[from / 2..].chunks(width)) {
                    put(arch, &mut dx[..width], dy, add);
                    if !add {
                        dx[width..].fill(0.0);
                    }
                }
            });
        });
    }

    /// Each of the tensors side by side takes its columns.
    pub(super) fn beside(&mut self, node: &Node, width: usize, dy: &[f32]) -> Result<(), RunError> {
        let rows = dy.len() / width.max(1);
        let mut from = 0;
        for (i, &input) in node.inputs.iter().enumerate() {
            let own = self.shape(input)?.last().copied().unwrap_or(1);
            self.give_computed(node, i, rows * own, |this, dx, add| {
                for (dx, dy) in dx.chunks_mut(own.max(1)).zip(dy.chunks(width.max(1))) {
                    put(this.machine.arch, dx, &dy[from..][..own], add);
                }
            });
            from += own;
        }
        Ok(())
    }

    /// Only the position that was read last.
    pub(super) fn last_state(
        &mut self,
        node: &Node,
        reverse: bool,
        width: usize,
        dy: &[f32],
    ) -> Result<(), RunError> {
        let Some(&input) = node.inputs.first() else { return Ok(()) };
        let shape = self.shape(input)?;
        let row: usize = shape.iter().skip(1).product();
        self.give_computed(node, 0, shape.iter().product(), |this, dx, add| {
            if !add {
                dx.fill(0.0);
            }
            for (dx, dy) in dx.chunks_mut(row.max(1)).zip(dy.chunks(width.max(1))) {
                let at = if reverse { 0 } else { row - width };
                kernels::add(this.machine.arch, &mut dx[at..][..width], dy);
            }
        });
        Ok(())
    }

    /// A mean's gradient goes to all positions that it is of, the largest value's to the first that has it, the others' to their
    /// one.
    pub(super) fn pool(
        &mut self,
        node: &Node,
        (pooling, axis, padding_of): (Pooling, usize, Option<Side>),
        batch: usize,
        dy: &[f32],
    ) {
        let x = self.input(node, 0);
        let visible = padding_of.and_then(|side| match side {
            Side::Source => self.window.source_open,
            Side::Target => self.window.target_open,
        });
        let features = dy.len() / batch.max(1);
        let positions = x.len() / dy.len().max(1);
        // A cell of feature f at position p.
        let at = |f: usize, p: usize| if axis == 2 { f * positions + p } else { p * features + f };
        self.give_computed(node, 0, x.len(), |this, dx, add| {
            let row = (features * positions).max(1);
            let mut rows: Vec<_> = dx.chunks_mut(row).collect();
            this.machine.team.each_of(&mut rows, |b, dx| {
                if !add {
                    dx.fill(0.0);
                }
                let (x, dy) = (&x[b * row..], &dy[b * features..][..features]);
                let is_token = |p: &usize| axis == 2 || visible.is_none_or(|v| v[b * positions + p]);
                let seen = (0..positions).filter(is_token).count().max(1) as f32;
                for (f, dy) in dy.iter().enumerate() {
                    let mut cells = (0..positions).filter(is_token).map(|p| at(f, p));
                    match pooling {
                        Pooling::Mean => cells.for_each(|at| dx[at] += dy / seen),
                        Pooling::Max => {
                            let first = cells.reduce(|a, b| if x[b] > x[a] { b } else { a });
                            first.into_iter().for_each(|at| dx[at] += dy);
                        }
                        Pooling::First => cells.next().into_iter().for_each(|at| dx[at] += dy),
                        Pooling::Last => cells.next_back().into_iter().for_each(|at| dx[at] += dy),
                    }
                }
            });
        });
    }
}

/// to = from, or to += from.
fn put(arch: pulp::Arch, to: &mut [f32], from: &[f32], add: bool) {
    if add { kernels::add(arch, to, from) } else { to.copy_from_slice(from) }
}
