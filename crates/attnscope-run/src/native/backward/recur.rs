//! The gradient of a recurrent layer: back through its positions, all rows of the batch together.
//!
//! What the gates were given is not kept: with all states known, it is one product for all positions.

use attnscope_graph::{Node, RecurrentCell};
use pulp::Arch;

use super::super::kernels;
use super::super::product::{Packed, packed_len};
use super::super::tile::Rows;
use super::Backward;
use super::kernels::{lstm_back, rnn_back};
use crate::panels::Panels;
use crate::pool::{Buffer, Pool};

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

    /// h before each position, [row · position, hidden]: what W is multiplied with.
    fn states_before(&self, pool: &Pool, states: &[f32]) -> Buffer {
        let mut before = pool.take(states.len() / self.width.max(1) * self.hidden);
        for (n, to) in before.chunks_mut(self.hidden.max(1)).enumerate() {
            let (row, t) = (n / self.length, n % self.length);
            match self.before(t) {
                Some(t) => to.copy_from_slice(&states[(row * self.length + t) * self.width..][..self.hidden]),
                None => to.fill(0.0),
            }
        }
        before
    }
}

impl Backward<'_> {
    pub(super) fn recur(
        &mut self,
        node: &Node,
        (cell, reverse): (RecurrentCell, bool),
        shape: &[usize],
        states: &[f32],
        dy: &[f32],
    ) {
        let (weights, machine) = (self.weights, self.machine);
        let Some(w) = node.weights.first().and_then(|&id| weights.panels(id)) else { return };
        let bias = node.weights.get(1).and_then(|&id| weights.plain(id)).unwrap_or_default();
        let layer =
            Layer { cell, reverse, length: shape[1], hidden: w.depth(), gates: w.rows(), width: shape[2] };
        let rows = shape[0] * layer.length;
        let before = layer.states_before(machine.pool, states);
        let before = Rows::dense(&before, rows, layer.hidden);
        // What the gates were given; then its gradient, position by position.
        let mut gates = machine.pool.take(rows * layer.gates);
        if cell == RecurrentCell::Lstm {
            machine.linear(before, w, 1.0, bias, &mut gates);
            let x = self.input(node, 0);
            let arch = machine.arch;
            machine.share(&mut gates, 1, |from, gates| kernels::add(arch, gates, &x[from..]));
        }
        self.through_time(layer, w, states, dy, &mut gates);
        let mut bias = self.take_parameter(node, 1);
        if let Some((at, mut gradient)) = self.take_parameter(node, 0) {
            let bias = bias.as_mut().map_or(&mut [][..], |(_, bias)| bias);
            machine.weight_gradient(before, Rows::dense(&gates, rows, layer.gates), 1.0, &mut gradient, bias);
            self.parameters[at] = gradient;
        }
        if let Some((at, bias)) = bias {
            self.parameters[at] = bias;
        }
        self.give(node, 0, gates);
    }

    /// From the last position that was read to the first: the gradient of what the gates were given, in its place.
    fn through_time(&self, layer: Layer, w: &Panels, states: &[f32], dy: &[f32], gates: &mut [f32]) {
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
            }
            let step = length * self.layer.gates;
            let left = Rows::new(&gates[t * self.layer.gates..], count, self.layer.gates, step);
            w.multiply(arch, left, hidden, 1.0, &mut d_h);
        }
    }
}
