//! Rotary positions: how each feature of a head is rotated at a position.

use attnscope_graph::{Rotary, RotaryPairs};

/// The rotations of the heads of one node.
#[derive(Debug, Clone, Copy)]
pub struct Rotations<'a> {
    /// How pairs are rotated.
    pub rotary: Rotary,
    /// A divisor of each pair's frequency, where the model stores some.
    pub factors: &'a [f32],
    /// Features of a head.
    pub size: usize,
    /// Positions of the text so far: some scalings depend on it.
    pub length: usize,
}

/// What happens to one feature of a head: x · cos ∓ partner · sin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotation {
    /// The angle: position · frequency of the pair. 0 for a feature that is not rotated.
    pub angle: f64,
    /// The exponent in the pair's frequency.
    pub exponent: f64,
    /// What cosine and sine are multiplied by.
    pub magnitude: f64,
    /// The other feature of the pair; itself where it is not rotated.
    pub partner: usize,
    /// The sign of the other feature's term: −1 for the first of a pair.
    pub sign: f64,
}

impl Rotations<'_> {
    /// The rotation of feature `i` at a position.
    pub fn at(&self, position: usize, i: usize) -> Rotation {
        let rotated = self.rotary.rotated(self.size);
        if i >= rotated {
            return Rotation { angle: 0.0, exponent: 0.0, magnitude: 1.0, partner: i, sign: 1.0 };
        }
        let half = rotated / 2;
        let (pair, is_first, step) = match self.rotary.pairs {
            RotaryPairs::Halves => (i % half, i < half, half),
            RotaryPairs::Neighbours => (i / 2, i.is_multiple_of(2), 1),
        };
        let factor = self.factors.get(pair).map_or(1.0, |&factor| f64::from(factor));
        let frequency = self.rotary.frequency(pair, self.size, self.length) / factor;
        Rotation {
            angle: (position as f64 + self.rotary.shift as f64) * frequency,
            exponent: self.rotary.base.ln() * 2.0 * pair as f64 / rotated as f64,
            magnitude: self.rotary.magnitude(),
            partner: if is_first { i + step } else { i - step },
            sign: if is_first { -1.0 } else { 1.0 },
        }
    }
}

impl Rotation {
    /// What the feature and its partner are multiplied by.
    pub fn factors(&self) -> (f64, f64) {
        let (sin, cos) = self.angle.sin_cos();
        (self.magnitude * cos, self.magnitude * self.sign * sin)
    }

    /// The feature after the rotation.
    pub fn apply(&self, head: &[f64], i: usize) -> f64 {
        let (own, other) = self.factors();
        head[i] * own + head[self.partner] * other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_graph::RotaryScaling;

    const PLAIN: Rotary =
        Rotary { base: 100.0, pairs: RotaryPairs::Halves, share: 1.0, scaling: None, shift: 0 };

    fn turned(rotary: Rotary, x: &[f64], at: usize) -> Vec<f64> {
        let rotations = Rotations { rotary, factors: &[], size: x.len(), length: 16 };
        (0..x.len()).map(|i| rotations.at(at, i).apply(x, i)).collect()
    }

    /// Equal pairs are rotated by the distance alone, whichever features are a pair, however frequencies are scaled.
    #[test]
    fn the_product_of_two_turned_heads_depends_on_their_distance() {
        let (q, k) = ([0.3, -1.2, 0.7, 2.0, -0.4, 1.1], [1.0, 0.2, -0.6, 0.5, 0.9, -1.5]);
        let scaled = RotaryScaling::Llama3 { factor: 4.0, low: 1.0, high: 4.0, length: 8 };
        for pairs in [RotaryPairs::Halves, RotaryPairs::Neighbours] {
            for (share, scaling) in [(1.0, None), (0.7, None), (1.0, Some(scaled))] {
                let rotary = Rotary { pairs, share, scaling, ..PLAIN };
                let score = |a: usize, b: usize| -> f64 {
                    turned(rotary, &q, a).iter().zip(turned(rotary, &k, b)).map(|(q, k)| q * k).sum()
                };
                assert!((score(7, 4) - score(3, 0)).abs() < 1e-12 && (score(7, 4) - score(4, 4)).abs() > 0.1);
            }
        }
    }

    #[test]
    fn features_beyond_the_share_pass_unchanged() {
        let x = [0.3, -1.2, 0.7, 2.0, -0.4, 1.1];
        let out = turned(Rotary { share: 0.7, ..PLAIN }, &x, 3);
        assert_eq!(out[4..], x[4..]);
        assert!(out[..4].iter().zip(&x).all(|(a, b)| a != b));
    }

    #[test]
    fn a_stored_factor_divides_its_pair_s_frequency() {
        let of = |factors: &[f32]| Rotations { rotary: PLAIN, factors, size: 4, length: 8 }.at(3, 1).angle;
        assert_eq!(of(&[1.0, 4.0]) * 4.0, of(&[]));
    }
}
