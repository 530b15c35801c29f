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
    /// no position waits for another thread. What an LSTM's gates said is left in `gates`, unless that is empty.
    pub(super) fn recur(
        &self,
        node: &Node,
        (cell, reverse): (RecurrentCell, bool),
        shape: &[usize],
        gates: &mut [f32],
        out: &mut [f32],
    ) {
        let Some(w) = node.weights.first().and_then(|&id| self.weights.right_side(id)) else { return };
        let (x, arch, pool) = (self.input(node, 0), self.machine.arch, self.machine.pool);
        let (length, width, hidden) = (shape[1], shape[2], w.depth());
        let wide = w.rows();
        let mut panels = pool.take(w.count() * w.width() * hidden);
        w.write(&mut panels);
        let packed = Packed::again(&panels, hidden);
        let mut bias = pool.take_zeroed(wide);
        bias.iter_mut().zip(self.weight(node, 1)).for_each(|(to, bias)| *to = *bias);
        // As many rows as share the threads evenly, in whole blocks.
        let rows = shape[0].div_ceil(self.machine.team.size()).next_multiple_of(ROWS).min(shape[0].max(1));
        let mut kept = gates.chunks_mut((rows * length * wide).max(1));
        let states = out.chunks_mut((rows * length * width).max(1));
        let mut pieces: Vec<_> = states.map(|out| (out, kept.next().unwrap_or_default())).collect();
        self.machine.team.each_of(&mut pieces, |piece, (out, kept)| {
            let count = out.len() / (length * width).max(1);
            let mut state = pool.take_zeroed(count * width); // [h of all rows, c of all rows]
            let mut before = pool.take(count * wide);
            let mut passing = pool.take(wide);
            for n in 0..length {
                let t = if reverse { length - 1 - n } else { n };
                let (h, c) = state.split_at_mut(count * hidden);
                packed.multiply(arch, Rows::dense(h, count, hidden), wide, 1.0, &mut before);
                for (r, before) in before.chunks_mut(wide.max(1)).enumerate() {
                    let at = r * length + t;
                    let x = &x[(piece * rows * length + at) * wide..][..wide];
                    let gates = kept.get_mut(at * wide..).filter(|kept| !kept.is_empty());
                    let gates = gates.map_or(&mut passing[..], |kept| &mut kept[..wide]);
                    let h = &mut h[r * hidden..][..hidden];
                    let out = &mut out[at * width..][..width];
                    match cell {
                        RecurrentCell::Rnn => kernels::next_rnn_state(arch, [before, x, &bias], h),
                        RecurrentCell::Lstm => {
                            let c = &mut c[r * hidden..][..hidden];
                            kernels::next_lstm_state(arch, [before, x, &bias], gates, h, c);
                            out[hidden..].copy_from_slice(c);
                        }
                    }
                    out[..hidden].copy_from_slice(h);
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
