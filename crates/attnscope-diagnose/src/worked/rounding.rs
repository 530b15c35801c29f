//! How far numbers may be apart, and a claim's from those that its author went on with: nobody says whether the next
//! step was computed from the numbers as written or from all their digits.

use super::example::unit;
use super::judge::{Judged, Verdict};
use super::matrix::Matrix;
use super::rounded::Rounded;

/// Cell by cell; nothing for a claim that is taken as it is written. `known` where no mistake before it has a part in
/// the claim, so that what it was rounded from is the truth.
pub(super) fn reach(judged: &Judged, known: bool) -> Option<Matrix> {
    let stated = &judged.claim.stated;
    if known && matches!(judged.verdict, Verdict::Right | Verdict::RightFromRounded) {
        return stated.matrix.zip(&judged.truth, |a, b| if a == b { 0.0 } else { (a - b).abs() });
    }
    // Whole numbers are what whole numbers come to: nobody rounds scores or weights as far as that.
    if stated.digits == 0 {
        return None;
    }
    let reach = judged.tolerance.min(unit(stated.digits) / 2.0);
    Some(stated.matrix.map(|x| if x.is_finite() { reach } else { 0.0 }))
}

/// Rounding in the comparison itself must not decide.
pub(super) fn slack(tolerance: f64) -> f64 {
    tolerance * (1.0 + 1e-9) + 1e-12
}

/// How far two rows are apart at most; −∞ is −∞.
pub(super) fn apart(a: &[f64], b: &[f64]) -> f64 {
    let cell = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() };
    let most = |x: f64, y: f64| if y.is_nan() { f64::INFINITY } else { x.max(y) };
    if a.len() == b.len() { a.iter().zip(b).map(cell).fold(0.0, most) } else { f64::INFINITY }
}

/// Whether a claimed row is within the tolerance of one that may itself be off by what rounding explains.
pub(super) fn near(claimed: &[f64], to: &Rounded, row: usize, tolerance: f64) -> bool {
    let reach = to.reach_of(row).iter().copied().chain(std::iter::repeat(0.0));
    let mut cells = claimed.iter().zip(to.middle.row(row)).zip(reach);
    let within = |((a, b), reach): ((&f64, &f64), f64)| {
        // A reach without end would make everything near.
        let reach = if reach.is_finite() { reach } else { 0.0 };
        apart(&[*a], &[*b]) <= slack(tolerance + reach)
    };
    claimed.len() == to.middle.columns() && cells.all(within)
}

/// How far a copied number may be from its source: the tolerance, or one of the last digit written, since a copy may be
/// cut off. Where hardly anything is written, everything would be a copy of everything.
pub(super) fn copy_tolerance(stated_digits: u32, tolerance: f64) -> f64 {
    slack(if stated_digits >= 2 { tolerance.max(unit(stated_digits)) } else { tolerance })
}
