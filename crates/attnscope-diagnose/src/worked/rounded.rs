//! A matrix of numbers that may have been rounded: each with how far it may be from what it was rounded from, carried
//! through every operation as a bound.

use super::matrix::Matrix;

/// Numbers, and how far each may be off.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rounded {
    pub(super) middle: Matrix,
    /// Of the same shape, none negative; nothing where no number is off.
    pub(super) reach: Option<Matrix>,
}

impl Rounded {
    pub(super) fn exact(middle: Matrix) -> Self {
        Self { middle, reach: None }
    }

    pub(super) fn new(middle: Matrix, reach: Option<Matrix>) -> Self {
        Self { middle, reach }
    }

    /// How far a row's numbers may be off; nothing for exact ones.
    pub(super) fn reach_of(&self, row: usize) -> &[f64] {
        self.reach.as_ref().map(|reach| reach.row(row)).unwrap_or_default()
    }

    /// The numbers and their reach moved about alike.
    pub(super) fn each(&self, f: impl Fn(&Matrix) -> Matrix) -> Self {
        Self { middle: f(&self.middle), reach: self.reach.as_ref().map(f) }
    }

    fn try_each(&self, f: impl Fn(&Matrix) -> Option<Matrix>) -> Option<Self> {
        let reach = match &self.reach {
            Some(reach) => Some(f(reach)?),
            None => None,
        };
        Some(Self { middle: f(&self.middle)?, reach })
    }

    pub(super) fn transposed(&self) -> Self {
        self.each(Matrix::transposed)
    }

    pub(super) fn head(&self, head: usize, heads: usize) -> Option<Self> {
        self.try_each(|m| m.head(head, heads))
    }

    /// The rows in another order, by their numbers.
    pub(super) fn in_order(&self, order: &[usize]) -> Option<Self> {
        let rows = |m: &Matrix| {
            let data = order.iter().flat_map(|&row| m.row(row).iter().copied()).collect();
            Matrix::new(m.rows(), m.columns(), data)
        };
        self.try_each(rows)
    }

    fn zeros(&self) -> Matrix {
        self.middle.map(|_| 0.0)
    }

    fn reach_or_zeros(&self) -> Matrix {
        self.reach.clone().unwrap_or_else(|| self.zeros())
    }

    /// The same with one head's columns put in its place.
    pub(super) fn with_head(&self, head: usize, heads: usize, part: &Self) -> Option<Self> {
        let reach = match (&self.reach, &part.reach) {
            (None, None) => None,
            _ => Some(self.reach_or_zeros().with_head(head, heads, &part.reach_or_zeros())?),
        };
        Some(Self { middle: self.middle.with_head(head, heads, &part.middle)?, reach })
    }

    pub(super) fn beside(parts: &[Self]) -> Option<Self> {
        let middles: Vec<Matrix> = parts.iter().map(|part| part.middle.clone()).collect();
        let reach = match parts.iter().all(|part| part.reach.is_none()) {
            true => None,
            false => Some(Matrix::beside(&parts.iter().map(Self::reach_or_zeros).collect::<Vec<_>>())?),
        };
        Some(Self { middle: Matrix::beside(&middles)?, reach })
    }

    pub(super) fn divided(&self, by: f64) -> Self {
        let reach = self.reach.as_ref().map(|reach| reach.map(|x| x / by.abs()));
        Self { middle: self.middle.map(|x| x / by), reach }
    }

    pub(super) fn plus_row(&self, row: &Matrix) -> Option<Self> {
        Some(Self { middle: self.middle.plus_row(row)?, reach: self.reach.clone() })
    }

    /// (a ± r)·(b ± s) is off by at most (|a| + r)·s + r·|b|.
    pub(super) fn times(&self, other: &Self) -> Option<Self> {
        let middle = self.middle.times(&other.middle)?;
        let from_left = match &self.reach {
            Some(reach) => Some(reach.times(&other.middle.map(f64::abs))?),
            None => None,
        };
        let from_right = match &other.reach {
            Some(reach) => {
                let most = self.middle.zip(&self.reach_or_zeros(), |a, r| a.abs() + r)?;
                Some(most.times(reach)?)
            }
            None => None,
        };
        let reach = match (from_left, from_right) {
            (Some(a), Some(b)) => Some(a.zip(&b, |a, b| a + b)?),
            (a, b) => a.or(b),
        };
        Some(Self { middle, reach })
    }

    /// −∞, surely, where the mask is 0.
    pub(super) fn masked(&self, visible: &Matrix) -> Option<Self> {
        let mask = |x: f64, visible: f64| if visible == 1.0 { x } else { f64::NEG_INFINITY };
        let reach = match &self.reach {
            Some(reach) => Some(reach.zip(visible, |r, visible| r * visible)?),
            None => None,
        };
        Some(Self { middle: self.middle.zip(visible, mask)?, reach })
    }

    /// Cell by cell with 1 and 0.
    pub(super) fn multiplied(&self, by: &Matrix) -> Option<Self> {
        self.try_each(|m| m.zip(by, |x, y| x * y))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matrix(numbers: &[f64]) -> Matrix {
        Matrix::new(2, 2, numbers.to_vec()).unwrap()
    }

    proptest! {
        /// Whatever the numbers were before they were rounded, their product is within reach.
        #[test]
        fn a_product_of_unrounded_numbers_is_within_reach(
            a in prop::collection::vec(-3.0..3.0f64, 4), b in prop::collection::vec(-3.0..3.0f64, 4),
            moved in prop::collection::vec(-1.0..=1.0f64, 8),
        ) {
            let (r, s) = (0.05, 0.005);
            let left = Rounded::new(matrix(&a), Some(matrix(&[r; 4])));
            let right = Rounded::new(matrix(&b), Some(matrix(&[s; 4])));
            let product = left.times(&right).unwrap();
            let shift = |x: &[f64], by: &[f64], r: f64| matrix(&x.iter().zip(by).map(|(x, m)| x + m * r).collect::<Vec<_>>());
            let other = shift(&a, &moved[..4], r).times(&shift(&b, &moved[4..], s)).unwrap();
            for row in 0..2 {
                for ((x, y), reach) in product.middle.row(row).iter().zip(other.row(row)).zip(product.reach_of(row)) {
                    prop_assert!((x - y).abs() <= reach + 1e-12, "{x} {y} {reach}");
                }
            }
        }
    }
}
