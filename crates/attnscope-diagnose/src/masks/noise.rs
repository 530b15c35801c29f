//! Numbers that stand for anything at all, the same in every run.

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From −√3 to √3, evenly: of mean 0 and variance 1.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((z >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * 3f32.sqrt()
    }

    /// A vector of that width and root mean square.
    pub(super) fn vector(&mut self, width: usize, size: f32) -> Vec<f32> {
        (0..width).map(|_| self.next() * size).collect()
    }
}
