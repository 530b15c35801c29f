//! Rotary positions in heads where they lie: [row, position, head · feature].

use attnscope_graph::RotaryPairs;

use super::product::Machine;
use crate::position::Rotation;

/// How every feature of every position of a head is rotated: the same for every row and head.
pub(super) struct Rotations {
    /// cos and signed sin of the angle, and the other feature of the pair: [position, feature].
    rotations: Vec<(f32, f32, usize)>,
    heads: usize,
    length: usize,
    size: usize,
}

impl Rotations {
    /// Of a tensor of [row, head, position, feature] from position `first` on.
    pub(super) fn new(base: f64, pairs: RotaryPairs, first: usize, shape: &[usize]) -> Self {
        let (heads, length, size) = (shape[1], shape[2], shape[3].max(1));
        let rotation = |cell: usize| {
            let rotation = Rotation::of(base, pairs, size, first + cell / size, cell % size);
            let (sin, cos) = rotation.angle.sin_cos();
            (cos as f32, (rotation.sign * sin) as f32, rotation.partner)
        };
        Self { rotations: (0..length * size).map(rotation).collect(), heads, length, size }
    }

    /// The same by the negative angles: what undoes the rotation, and what its gradient is rotated by.
    pub(super) fn back(mut self) -> Self {
        self.rotations.iter_mut().for_each(|(_, sin, _)| *sin = -*sin);
        self
    }

    pub(super) fn apply(&self, machine: Machine<'_>, x: &[f32], out: &mut [f32]) {
        let Self { heads, length, size, .. } = *self;
        machine.share(out, heads * size, |from, out| {
            for (n, row) in out.chunks_mut(heads * size).enumerate() {
                let at = from + n * heads * size;
                let rotations = &self.rotations[at / (heads * size) % length * size..][..size];
                for (head, out) in row.chunks_mut(size).enumerate() {
                    let x = &x[at + head * size..][..size];
                    for (i, (out, &(cos, sin, partner))) in out.iter_mut().zip(rotations).enumerate() {
                        *out = x[i] * cos + x[partner] * sin;
                    }
                }
            }
        });
    }
}
