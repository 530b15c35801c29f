//! Pseudo-random numbers that are the same in every run and on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): integers only.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The stream that begins with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From −1 (inclusive) to 1 in steps of 2⁻²³, which f32 holds exactly.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the published generator for seed 1234567.
    #[test]
    fn the_stream_is_that_of_the_paper() {
        let published: [u64; 3] =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        let mut random = SplitMix::new(1_234_567);
        assert_eq!(published.map(|_| random.bits()), published);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = SplitMix::new(1);
        assert!((0..1000).all(|_| (-1.0..1.0).contains(&random.unit())));
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert_eq!(random.below(0), 0);
    }
}
