//! The blocks of a classifier: recurrent layers, tensors side by side, pools.

use attnscope_graph::{Node, Pooling, RecurrentCell, Side};

use super::kernels;
use super::pass::Pass;
use super::product::Packed;
use super::tile::Rows;
use crate::input::Sequence;

/// Rows of the batch that a thread takes through all positions together: enough to share a weight's panel in registers.
const ROWS: usize = 12;

impl Pass<'_> {
    /// The states of a recurrent layer. Rows of the batch are shared out; each goes through all positions on one thread, so that
    /// no position waits for another thread.
    pub(super) fn recur(
        &self,
        node: &Node,
        cell: RecurrentCell,
        reverse: bool,
        shape: &[usize],
        out: &mut [f32],
    ) {
        let Some(w) = node.weights.first().and_then(|&id| self.weights.panels(id)) else { return };
        let (x, bias, arch) = (self.input(node, 0), self.weight(node, 1), self.machine.arch);
        let (length, width, hidden) = (shape[1], shape[2], w.depth());
        let gates = w.rows();
        let mut panels = self.machine.pool.take(w.count() * w.width() * hidden);
        w.write(&mut panels);
        let packed = Packed::again(&panels, hidden);
        // As many rows as share the threads evenly, in whole blocks.
        let rows = shape[0].div_ceil(self.machine.team.size()).next_multiple_of(ROWS).min(shape[0].max(1));
        let mut pieces: Vec<&mut [f32]> = out.chunks_mut((rows * length * width).max(1)).collect();
        self.machine.team.each_of(&mut pieces, |piece, out| {
            let count = out.len() / (length * width).max(1);
            let mut state = self.machine.pool.take_zeroed(count * width); // [h of all rows, c of all rows]
            let mut before = self.machine.pool.take(count * gates);
            for n in 0..length {
                let t = if reverse { length - 1 - n } else { n };
                let (h, c) = state.split_at_mut(count * hidden);
                packed.multiply(arch, Rows::dense(h, count, hidden), gates, 1.0, &mut before);
                for (r, gates_of) in before.chunks_mut(gates.max(1)).enumerate() {
                    let row = (piece * rows + r) * length + t;
                    kernels::add(arch, gates_of, &x[row * gates..][..gates]);
                    kernels::add(arch, gates_of, bias);
                    let (h, c) = match cell {
                        RecurrentCell::Rnn => (&mut h[r * hidden..][..hidden], &mut [][..]),
                        RecurrentCell::Lstm => {
                            (&mut h[r * hidden..][..hidden], &mut c[r * hidden..][..hidden])
                        }
                    };
                    kernels::next_state(arch, cell, gates_of, h, c);
                    let out = &mut out[(r * length + t) * width..][..width];
                    out[..hidden].copy_from_slice(h);
                    out[hidden..].copy_from_slice(c);
                }
            }
        });
    }

    /// h of h and c.
    pub(super) fn hidden(&self, node: &Node, width: usize, out: &mut [f32]) {
        let x = self.input(node, 0);
        for (out, x) in out.chunks_mut(width).zip(x.chunks(2 * width)) {
            out.copy_from_slice(&x[..width]);
        }
    }

    /// Rows of two tensors side by side.
    pub(super) fn beside(&self, node: &Node, width: usize, out: &mut [f32]) {
        let rows = out.len() / width;
        let mut from = 0;
        for i in 0..node.inputs.len() {
            let x = self.input(node, i);
            let own = x.len() / rows.max(1);
            for (out, x) in out.chunks_mut(width).zip(x.chunks(own.max(1))) {
                out[from..from + own].copy_from_slice(x);
            }
            from += own;
        }
    }

    /// The state of the position that was read last.
    pub(super) fn last_state(&self, node: &Node, reverse: bool, width: usize, out: &mut [f32]) {
        let x = self.input(node, 0);
        let row = x.len() / (out.len() / width).max(1);
        for (out, x) in out.chunks_mut(width).zip(x.chunks(row.max(1))) {
            out.copy_from_slice(if reverse { &x[..width] } else { &x[row - width..] });
        }
    }

    /// The largest value or the mean over positions; of nothing but padding it is 0.
    pub(super) fn pool(
        &self,
        node: &Node,
        pooling: Pooling,
        axis: usize,
        padding_of: Option<Side>,
        out: &mut [f32],
    ) {
        let arch = self.machine.arch;
        let x = self.input(node, 0);
        let rows = match (padding_of, self.window.source) {
            (Some(Side::Source), Some(Sequence::Tokens(rows))) => Some(rows.open()),
            (Some(Side::Target), _) => self.window.target_open,
            _ => None,
        };
        let features = out.len() / self.window.sizes.get(attnscope_graph::Dim::Batch).unwrap_or(1).max(1);
        let positions = x.len() / out.len().max(1);
        for (b, (out, x)) in
            out.chunks_mut(features.max(1)).zip(x.chunks((features * positions).max(1))).enumerate()
        {
            if axis == 2 {
                for (out, x) in out.iter_mut().zip(x.chunks(positions.max(1))) {
                    *out = match pooling {
                        Pooling::Max => kernels::largest(x),
                        Pooling::Mean => x.iter().sum::<f32>() / positions.max(1) as f32,
                        Pooling::First => x.first().copied().unwrap_or(0.0),
                        Pooling::Last => x.last().copied().unwrap_or(0.0),
                    };
                }
                continue;
            }
            let is_token = |p: usize| rows.is_none_or(|open| open[b * positions + p]);
            let mut seen = 0usize;
            out.fill(0.0);
            for (_, x) in x.chunks(features.max(1)).enumerate().filter(|(p, _)| is_token(*p)) {
                match pooling {
                    Pooling::Max | Pooling::First if seen == 0 => out.copy_from_slice(x),
                    Pooling::First => {}
                    Pooling::Last => out.copy_from_slice(x),
                    Pooling::Max => out.iter_mut().zip(x).for_each(|(o, &x)| *o = kernels::larger(*o, x)),
                    Pooling::Mean => kernels::add(arch, out, x),
                }
                seen += 1;
            }
            if pooling == Pooling::Mean {
                out.iter_mut().for_each(|o| *o /= seen.max(1) as f32);
            }
        }
    }
}
