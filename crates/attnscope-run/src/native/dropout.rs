//! Which values are dropped: it follows from a seed, the node and the place, so that backward finds the same ones.

use attnscope_graph::NodeId;
use pulp::{Arch, Simd, WithSimd};

use super::kernels::kernel;
use super::product::Machine;
use crate::random::SplitMix;

/// The dropout of one node in one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dropout {
    keys: [u32; 2],
    /// Places whose hash is below are dropped.
    below: u32,
    /// What is kept is multiplied by: 1 / (1 − p).
    scale: f32,
}

impl Dropout {
    /// Of a node that drops a share `p`. A share of 1 leaves nothing.
    pub(super) fn new(seed: u64, node: NodeId, p: f32) -> Self {
        let mut random = SplitMix::new(seed);
        let mut random = SplitMix::new(random.bits() ^ node.index() as u64);
        let key = random.bits();
        let p = f64::from(p).clamp(0.0, 1.0);
        let scale = if p < 1.0 { (1.0 / (1.0 - p)) as f32 } else { 0.0 };
        Self { keys: [key as u32, (key >> 32) as u32], below: (p * f64::from(u32::MAX)) as u32, scale }
    }

    /// out = x where it is kept, scaled; 0 where it is dropped.
    pub(super) fn apply(self, machine: Machine<'_>, x: &[f32], out: &mut [f32]) {
        let arch = machine.arch;
        machine.share(out, 1, |from, out| self.piece(arch, from, &x[from..], out));
    }

    fn piece(self, arch: Arch, from: usize, x: &[f32], out: &mut [f32]) {
        let dropout = self;
        // Tensors of more than 2³² values repeat their mask.
        let first = from as u32;
        arch.dispatch(
            kernel!(Drop { dropout: Dropout, first: u32, x: &'a [f32], out: &'a mut [f32] } -> () {
                for (i, (out, x)) in out.iter_mut().zip(x).enumerate() {
                    let place = first.wrapping_add(i as u32);
                    let hash = mixed(mixed(place ^ dropout.keys[0]).wrapping_add(dropout.keys[1]));
                    *out = if hash < dropout.below { 0.0 } else { *x * dropout.scale };
                }
            }),
        );
    }
}

/// Every bit of the result depends on every bit of the argument: Wellons' `lowbias32`.
#[inline(always)]
fn mixed(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}
