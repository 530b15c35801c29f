//! The type in which values were computed, whatever type stores them now: values of bf16 keep their few bits when they are
//! written as f32.

use std::collections::HashSet;

use crate::rounding::Precision;

/// How many distinct values must all fit a short type before it is taken for theirs. An f32 value fits by chance in one case of
/// 8,192 or fewer.
const MANY: usize = 24;

/// A type that is shorter than f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grain {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Grain {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }

    /// Its unit of rounding.
    pub(super) fn unit(self) -> f64 {
        self.precision().result
    }

    /// How a program rounds that computes in it.
    pub(super) fn precision(self) -> Precision {
        match self {
            Self::F16 => Precision::F16,
            Self::Bf16 => Precision::BF16,
        }
    }

    /// Whether a number is one of this type.
    pub(super) fn holds(self, x: f64) -> bool {
        let short = x as f32;
        if f64::from(short) != x {
            return !x.is_finite();
        }
        match self {
            Self::Bf16 => short.to_bits() & 0xffff == 0,
            Self::F16 => {
                let magnitude = short.abs();
                // Below 2⁻¹⁴ they are 2⁻²⁴ apart.
                let digits = short.to_bits() & 0x1fff == 0 && magnitude >= 1.0 / 16384.0;
                let small = magnitude < 1.0 / 16384.0 && (magnitude * 16_777_216.0).fract() == 0.0;
                (digits && magnitude <= 65504.0) || small
            }
        }
    }

    /// The short type of values, if they are many and all fit one. They were multiplied by a factor after they were read.
    pub(super) fn of(values: &[f64], factor: f64) -> Option<Self> {
        let mut possible = vec![Self::F16, Self::Bf16];
        let mut seen = HashSet::new();
        // Divided by the factor, in f32, they are the stored values again.
        let before = |x: &f64| if factor == 1.0 { *x } else { f64::from((x / factor) as f32) };
        for x in values.iter().map(before).filter(|x| x.is_finite() && *x != 0.0) {
            possible.retain(|grain| grain.holds(x));
            if possible.is_empty() {
                return None;
            }
            if seen.len() < MANY {
                seen.insert(x.abs().to_bits());
            }
        }
        // Values that fit both types are bf16.
        (seen.len() >= MANY).then(|| possible.last().copied()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(bits: u32) -> Vec<f64> {
        let mut random = attnscope_run::SplitMix::new(3);
        let one = |_| f32::from_bits(random.unit().to_bits() & !((1 << bits) - 1));
        (0..100).map(one).map(f64::from).collect()
    }

    #[test]
    fn a_type_shows_in_the_values() {
        assert_eq!(Grain::of(&rounded(16), 1.0), Some(Grain::Bf16));
        let large: Vec<f64> = rounded(13).into_iter().filter(|x| x.abs() > 1e-3).collect();
        assert_eq!(Grain::of(&large, 1.0), Some(Grain::F16));
        let scaled: Vec<f64> = large.iter().map(|x| x * 512f64.sqrt()).collect();
        assert_eq!((Grain::of(&scaled, 1.0), Grain::of(&scaled, 512f64.sqrt())), (None, Some(Grain::F16)));
        assert_eq!(Grain::of(&rounded(8), 1.0), None);
        // Few distinct values are no evidence.
        assert_eq!(Grain::of(&rounded(16)[..10], 1.0), None);
        assert_eq!(Grain::of(&[0.0, 1.0, 0.5, -2.0].repeat(100), 1.0), None);
    }

    #[test]
    fn numbers_without_digits_left_are_half_precision_too() {
        let small = (1..100).map(|n| f64::from(n) / 16_777_216.0);
        assert!(small.clone().all(|x| Grain::F16.holds(x)));
        assert!(!Grain::F16.holds(1e-8) && !Grain::F16.holds(70_000.0) && Grain::Bf16.holds(65536.0));
    }
}
