//! Random numbers that are the same in every run.

use attnscope_run::SplitMix;

/// The values with which a perturbation replaces a tensor.
pub(super) struct Noise(SplitMix);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// A vector of that width and root mean square: evenly from −√3 to √3 is of mean 0 and variance 1.
    pub(super) fn vector(&mut self, width: usize, size: f32) -> Vec<f32> {
        (0..width).map(|_| self.0.unit() * 3f32.sqrt() * size).collect()
    }
}
