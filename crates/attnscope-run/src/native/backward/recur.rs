//! The gradient of a recurrent layer: back through its positions, all rows of the batch together.

use attnscope_graph::{Node, RecurrentCell};
use pulp::Arch;

use super::super::kernels;
use super::super::product::{Packed, packed_len};
use super::super::tile::Rows;
use super::Backward;
use super::kernels::{lstm_back, rnn_back};
use crate::pool::{Buffer, Pool};
use crate::right_side::RightSide;

/// Rows of the batch that a thread takes through all positions together: enough to share a weight's panel in registers.
const ROWS: usize = 12;

/// The sizes of a recurrent layer.
#[derive(Clone, Copy)]
struct Layer {
    cell: RecurrentCell,
    reverse: bool,
    length: usize,
    hidden: usize,
    /// Of a position: pre-activations of all gates.
    gates: usize,
    /// Of a position: h, or h and c.
    width: usize,
}

impl Layer {
    /// The position that is read before another one.
    fn before(&self, t: usize) -> Option<usize> {
        if self.reverse { Some(t + 1).filter(|&t| t < self.length) } else { t.checked_sub(1) }
    }

    /// Of one row of the batch, the positions that have one before them: h before each, and the gradient of what the gates were
    /// given there; and that gradient at the position that has none.
    fn with_before<'a>(&self, states: &'a [f32], d_gates: &'a [f32]) -> (Rows<'a>, Rows<'a>, &'a [f32]) {
        let Self { length, hidden, gates, width, reverse, .. } = *self;
        let count = length.saturating_sub(1);
        let (state, gate, first) = if reverse { (1, 0, count) } else { (0, 1, 0) };
        let states = states.get(state * width..).unwrap_or_default();
        let given = d_gates.get(gate * gates..).unwrap_or_default();
        let first = d_gates.get(first * gates..).map_or(&[][..], |first| &first[..gates]);
        (Rows::new(states, count, hidden, width), Rows::new(given, count, gates, gates), first)
    }
}

impl Backward<'_> {
    /// `gates` is what an LSTM's said; of a tanh cell there are none.
    pub(super) fn recur(
        &mut self,
        node: &Node,
        (cell, reverse): (RecurrentCell, bool),
        shape: &[usize],
        [states, dy]: [&[f32]; 2],
        gates: Buffer,
    ) {
        let (weights, machine) = (self.weights, self.machine);
        let Some(w) = node.weights.first().and_then(|&id| weights.right_side(id)) else { return };
        let layer =
            Layer { cell, reverse, length: shape[1], hidden: w.depth(), gates: w.rows(), width: shape[2] };
        let mut gates = match cell {
            RecurrentCell::Rnn => machine.pool.take(shape[0] * layer.length * layer.gates),
            RecurrentCell::Lstm => gates,
        };
        self.through_time(layer, w, states, dy, &mut gates);
        let mut bias = self.take_parameter(node, 1);
        if let Some((at, mut gradient)) = self.take_parameter(node, 0) {
            let bias = bias.as_mut().map_or(&mut [][..], |(_, bias)| bias);
            let row = (layer.length * layer.width).max(1);
            let rows = states.chunks(row).zip(gates.chunks((layer.length * layer.gates).max(1)));
            for (states, gates) in rows {
                let (before, given, first) = layer.with_before(states, gates);
                machine.weight_gradient(before, given, 1.0, &mut gradient, bias);
                kernels::add(machine.arch, bias, first);
            }
            self.parameters[at] = gradient;
        }
        if let Some((at, bias)) = bias {
            self.parameters[at] = bias;
        }
        self.give(node, 0, gates);
    }

    /// From the last position that was read to the first: the gradient of what the gates were given, in place of what they said.
    fn through_time(&self, layer: Layer, w: RightSide<'_>, states: &[f32], dy: &[f32], gates: &mut [f32]) {
        let (arch, pool) = (self.machine.arch, self.machine.pool);
        let Layer { length, hidden, width, .. } = layer;
        // W as it stands on the right: [gate, hidden].
        let mut panels = pool.take(packed_len(arch, layer.gates, hidden));
        for (i, panel) in panels.chunks_mut((layer.gates * w.width()).max(1)).enumerate() {
            w.columns(i * w.width(), panel);
        }
        let packed = Packed::again(&panels, layer.gates);
        let batch = states.len() / (length * width).max(1);
        let rows = batch.div_ceil(self.machine.team.size()).next_multiple_of(ROWS).min(batch.max(1));
        let mut pieces: Vec<_> = gates.chunks_mut((rows * length * layer.gates).max(1)).collect();
        self.machine.team.each_of(&mut pieces, |i, gates| {
            let from = i * rows * length * width;
            let piece = Piece { layer, states: &states[from..], dy: &dy[from..] };
            piece.run(arch, pool, packed, gates);
        });
    }
}

/// Some rows of the batch.
struct Piece<'a> {
    layer: Layer,
    /// [row, position, state]
    states: &'a [f32],
    /// Of the states.
    dy: &'a [f32],
}

impl Piece<'_> {
    fn run(&self, arch: Arch, pool: &Pool, w: Packed<'_>, gates: &mut [f32]) {
        let Layer { cell, reverse, length, hidden, width, .. } = self.layer;
        let count = gates.len() / (length * self.layer.gates).max(1);
        // Of h and c before a position, [row, hidden].
        let mut d_h = pool.take_zeroed(count * hidden);
        let mut d_c = pool.take_zeroed(count * hidden);
        // The gradients of one position, row after row: where they are kept, a row's is far from the next one's, and the caches
        // hold only a few addresses of the same distance.
        let mut at_once = pool.take(count * self.layer.gates);
        for n in (0..length).rev() {
            let t = if reverse { length - 1 - n } else { n };
            for row in 0..count {
                let (d_h, d_c) = (&mut d_h[row * hidden..][..hidden], &mut d_c[row * hidden..][..hidden]);
                let at = row * length + t;
                let (state, dy) = (&self.states[at * width..][..width], &self.dy[at * width..][..width]);
                let gates = &mut gates[at * self.layer.gates..][..self.layer.gates];
                match cell {
                    RecurrentCell::Rnn => rnn_back(arch, state, dy, d_h, gates),
                    RecurrentCell::Lstm => {
                        let before = self.layer.before(t).map(|t| row * length + t);
                        let c_before =
                            before.map_or(&[][..], |at| &self.states[at * width + hidden..][..hidden]);
                        lstm_back(arch, [state, c_before, dy], d_h, d_c, gates);
                    }
                }
                at_once[row * self.layer.gates..][..self.layer.gates].copy_from_slice(gates);
            }
            w.multiply(arch, Rows::dense(&at_once, count, self.layer.gates), hidden, 1.0, &mut d_h);
        }
    }
}
