//! How far rounding is likely to move a node after several steps. A bound that is composed over many steps assumes that all
//! errors add up, and in the end allows anything. Here every step gets random errors up to its own bound, and the next steps
//! are computed from that: errors spread as in a real run, and are still larger.

use std::sync::Arc;

use attnscope_run::{Kept, SplitMix};
use rayon::prelude::*;

use crate::rounding::Bounded;

/// Values that share a stream of random numbers, so that the result does not depend on the number of threads.
const BLOCK: usize = 1 << 12;

/// Random numbers for one run of the steps.
pub(super) struct Noise(SplitMix);

impl Noise {
    pub(super) fn new() -> Self {
        Self(SplitMix::new(0x9e37_79b9_7f4a_7c15))
    }

    /// A tensor with a random error in each cell, up to its bound.
    pub(super) fn moved(&mut self, tensor: Bounded) -> Bounded {
        let seed = self.0.bits();
        let mut kept = Arc::unwrap_or_clone(tensor.kept);
        kept.values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
            let mut random = SplitMix::new(seed ^ (block as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9));
            for (i, x) in values.iter_mut().enumerate() {
                let moved = *x + f64::from(random.unit()) * tensor.error.at(block * BLOCK + i);
                if moved.is_finite() {
                    *x = moved;
                }
            }
        });
        Bounded::exact(Arc::new(kept))
    }
}

/// The root mean square of the difference of two tensors, over the cells that count and are finite in both.
pub(super) fn distance(a: &Kept, b: &Kept, counts: impl Fn(usize) -> bool) -> f64 {
    let (mut sum, mut n) = (0.0, 0usize);
    for (i, (a, b)) in a.values.iter().zip(&b.values).enumerate() {
        let squared = (a - b).powi(2);
        if squared.is_finite() && counts(i) {
            (sum, n) = (sum + squared, n + 1);
        }
    }
    (sum / n.max(1) as f64).sqrt()
}
