//! Rotary positions in heads where they lie: [row, position, head · feature].

use super::product::Machine;
use crate::rotation::Rotations;

/// How every feature of every position of a head is rotated: the same for every row and head.
pub(super) struct RotationTable {
    /// What a feature is multiplied by, what the other one of its pair, and which that is: [position, feature].
    rotations: Vec<(f32, f32, usize)>,
    heads: usize,
    length: usize,
    size: usize,
}

impl RotationTable {
    /// Of a tensor of [row, head, position, feature] from position `first` on.
    pub(super) fn new(rotations: Rotations<'_>, first: usize, shape: &[usize]) -> Self {
        let (heads, length, size) = (shape[1], shape[2], shape[3].max(1));
        let rotation = |cell: usize| {
            let rotation = rotations.at(first + cell / size, cell % size);
            let (own, other) = rotation.factors();
            (own as f32, other as f32, rotation.partner)
        };
        Self { rotations: (0..length * size).map(rotation).collect(), heads, length, size }
    }

    /// The same by the negative angles: what a gradient is rotated by.
    pub(super) fn back(mut self) -> Self {
        self.rotations.iter_mut().for_each(|(_, other, _)| *other = -*other);
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
                    for (i, (out, &(own, other, partner))) in out.iter_mut().zip(rotations).enumerate() {
                        *out = x[i] * own + x[partner] * other;
                    }
                }
            }
        });
    }
}
