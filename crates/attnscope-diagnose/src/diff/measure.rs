//! The difference of two tensors, in one pass that keeps only a piece of each in memory.

use attnscope_checkpoint::{DType, Error};

use super::frame::Open;

/// Differences below this many units of rounding are ignored.
pub(super) const FLOOR: f64 = 4.0;
/// Values that are compared at a time.
pub(super) const PIECE: usize = 1 << 15;

/// A mask adds −∞, the lowest number of a type, or only a large negative number; in each case the key is masked.
const MASKED_BELOW: f64 = -9e3;

/// How far two tensors of one shape are apart.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measure {
    /// The largest difference between two finite values.
    pub max_abs: f64,
    /// Where it is, counted in row-major order.
    pub at: usize,
    /// The value there in A.
    pub a: f64,
    /// The value there in B.
    pub b: f64,
    /// The largest finite value of either.
    pub scale: f64,
    /// Cells in which one side is finite and the other is not, or the infinities differ.
    pub apart: usize,
    /// The first of them, and its value in A and in B.
    pub first_apart: Option<(usize, [f64; 2])>,
    /// Cells.
    pub cells: usize,
}

impl Measure {
    /// The largest difference relative to the largest value; 0 where all is 0. At most 2, also where the difference overflows.
    pub fn relative(&self) -> f64 {
        if self.max_abs == 0.0 { 0.0 } else { (self.max_abs / self.scale).min(2.0) }
    }

    /// Bit for bit, as far as can be told from the values.
    pub fn is_same(&self) -> bool {
        self.max_abs == 0.0 && self.apart == 0
    }

    /// Adds the next cells.
    pub(super) fn take(&mut self, a: &[f64], b: &[f64], cells: &Cells<'_>) {
        for (&a, &b) in a.iter().zip(b) {
            let at = self.cells;
            self.cells += 1;
            if cells.open.as_ref().is_some_and(|open| !open.has(at)) {
                continue;
            }
            let (a, b) = if cells.masked { (masked_to_infinity(a), masked_to_infinity(b)) } else { (a, b) };
            match (a.is_finite(), b.is_finite()) {
                (true, true) => {
                    self.scale = self.scale.max(a.abs()).max(b.abs());
                    let difference = (a - b).abs();
                    // If no finite values differ, the place of a value that is not finite.
                    if difference > self.max_abs {
                        (self.max_abs, self.at, self.a, self.b) = (difference, at, a, b);
                    }
                }
                (false, false) if a == b || (a.is_nan() && b.is_nan()) => {}
                _ => {
                    if self.apart == 0 && self.max_abs == 0.0 {
                        (self.at, self.a, self.b) = (at, a, b);
                    }
                    self.apart += 1;
                    self.first_apart.get_or_insert((at, [a, b]));
                }
            }
        }
    }

    /// Two tensors in memory.
    pub(super) fn of(a: &[f64], b: &[f64]) -> Self {
        let mut measure = Self::default();
        measure.take(a, b, &Cells::default());
        measure
    }
}

/// Which cells count, and how.
#[derive(Default)]
pub(super) struct Cells<'f> {
    /// Scores below `MASKED_BELOW` count as −∞.
    pub(super) masked: bool,
    /// The cells that stand for tokens.
    pub(super) open: Option<Open<'f>>,
}

/// −∞ for the score of a masked key.
pub(super) fn masked_to_infinity(x: f64) -> f64 {
    if x < MASKED_BELOW { f64::NEG_INFINITY } else { x }
}

/// Gives values in pieces.
pub(super) trait Pieces {
    fn get(&self, from: usize, out: &mut Vec<f64>) -> Result<(), Error>;
    fn len(&self) -> usize;
}

/// Compares two tensors with the same number of values.
pub(super) fn measure(a: &dyn Pieces, b: &dyn Pieces, cells: &Cells<'_>) -> Result<Measure, Error> {
    let mut measure = Measure::default();
    let (mut from, mut left, mut right) = (0, Vec::new(), Vec::new());
    while from < a.len().min(b.len()) {
        a.get(from, &mut left)?;
        b.get(from, &mut right)?;
        if left.is_empty() || left.len() != right.len() {
            break;
        }
        measure.take(&left, &right, cells);
        from += left.len();
    }
    Ok(measure)
}

/// Half the distance of neighbouring numbers near 1 in a type; never less than f32's, in which models are run.
pub(super) fn roundoff(dtype: DType) -> f64 {
    let bits = match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F8E4M3 => 4,
        DType::F8E5M2 => 3,
        _ => 24,
    };
    0.5f64.powi(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_cell_is_found() {
        let m = Measure::of(&[1.0, 2.0, f64::NAN, -4.0], &[1.0, 2.5, f64::NAN, -4.0]);
        assert_eq!((m.max_abs, m.at, m.a, m.b, m.scale, m.apart), (0.5, 1, 2.0, 2.5, 4.0, 0));
        assert_eq!(m.relative(), 0.125);
    }

    #[test]
    fn a_mask_is_a_mask_however_far_down() {
        let (ours, theirs) = ([f64::NEG_INFINITY, 1.0], [-3.4e38, 1.0]);
        let masked = |theirs: &[f64]| {
            let mut measure = Measure::default();
            measure.take(&ours, theirs, &Cells { masked: true, open: None });
            measure
        };
        assert!(masked(&theirs).is_same());
        let apart = masked(&[0.5, 1.0]);
        assert_eq!((apart.apart, apart.at, apart.b), (1, 0, 0.5));
    }

    #[test]
    fn the_first_cell_that_is_no_number_has_its_place_beside_the_largest_difference() {
        let m = Measure::of(&[1.0, 2.0, 3.0, 4.0], &[1.5, 2.0, f64::INFINITY, f64::NAN]);
        assert_eq!((m.at, m.apart, m.first_apart), (0, 2, Some((2, [3.0, f64::INFINITY]))));
    }

    #[test]
    fn a_cell_that_is_no_number_is_apart() {
        assert_eq!(Measure::of(&[1.0], &[f64::NAN]).apart, 1);
        assert_eq!(Measure::of(&[f64::INFINITY], &[f64::NEG_INFINITY]).apart, 1);
    }
}
