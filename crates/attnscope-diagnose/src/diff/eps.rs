//! Another epsilon in a norm. It changes every row in the same way, by less than the rounding bound of a cell, so that only all
//! cells together show it.

use attnscope_graph::{Node, Op};
use attnscope_run::Kept;

use super::candidate::EPSILONS;
use super::measure::FLOOR;
use super::relation::Relation;
use crate::rounding::Precision;

/// Rounding of one row's spread looks like another epsilon; only many rows can distinguish them.
const LEAST_ROWS: usize = 8;
/// How much closer a norm with another epsilon has to be, in root mean square. Rounding is independent from row to row, so over
/// many rows another epsilon fits worse, not better.
const CLOSER_EPS: f64 = 0.25;

/// The epsilons with which a norm is this much closer to what was found, the closest first. `compute` computes an edited norm,
/// `counts` says which cells are tokens.
pub(super) fn closer(
    node: &Node,
    [expected, found]: [&Kept; 2],
    counts: impl Fn(usize) -> bool,
    compute: impl Fn(&Node) -> Option<Kept>,
) -> Option<Relation> {
    let Op::Norm { kind, eps: own, gain } = node.op else { return None };
    let width = expected.shape.last().copied().unwrap_or(1).max(1);
    if (0..expected.values.len() / width).filter(|row| counts(row * width)).count() < LEAST_ROWS {
        return None;
    }
    let distance = |values: &[f64]| root_mean_square(values, |i, x| x - found.values[i], &counts);
    let (off, size) = (distance(&expected.values), root_mean_square(&expected.values, |_, x| x, &counts));
    let unit = Precision::F32.result;
    if !off.is_finite() || off <= FLOOR * unit * size {
        return None;
    }
    let other = |eps: f64| {
        let edited = Node { op: Op::Norm { kind, eps, gain }, ..node.clone() };
        Some((distance(&compute(&edited)?.values), eps))
    };
    let others = EPSILONS.into_iter().filter(|eps| *eps != own).filter_map(other);
    let mut fits: Vec<(f64, f64)> = others.filter(|(near, _)| *near < CLOSER_EPS * off).collect();
    fits.sort_by(|a, b| a.0.total_cmp(&b.0));
    let &(_, eps) = fits.first()?;
    Some(Relation::OtherEps { eps, expected: own, fits: fits.into_iter().map(|(_, eps)| eps).collect() })
}

fn root_mean_square(values: &[f64], of: impl Fn(usize, f64) -> f64, counts: &impl Fn(usize) -> bool) -> f64 {
    let cells = values.iter().enumerate().filter(|(i, _)| counts(*i));
    let (sum, n) = cells.fold((0.0, 0usize), |(sum, n), (i, &x)| (sum + of(i, x).powi(2), n + 1));
    (sum / n.max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_graph::{NodePath, NormGain, NormKind, Role, Stack};
    use attnscope_run::SplitMix;

    const WIDTH: usize = 64;

    /// x / √(mean x² + eps), row by row.
    fn normed(x: &[f64], eps: f64) -> Vec<f64> {
        let row = |row: &[f64]| {
            let root = (row.iter().map(|x| x * x).sum::<f64>() / WIDTH as f64 + eps).sqrt();
            row.iter().map(move |x| x / root).collect::<Vec<f64>>()
        };
        x.chunks(WIDTH).flat_map(row).collect()
    }

    #[test]
    fn another_epsilon_shows_in_all_cells_together_and_rounding_does_not() {
        let mut random = SplitMix::new(3);
        let mut some =
            |size: f64| -> Vec<f64> { (0..32 * WIDTH).map(|_| size * f64::from(random.unit())).collect() };
        let (x, noise) = (some(1.0), some(3e-7));
        let kept = |values: Vec<f64>| Kept { shape: vec![1, 32, WIDTH], values };
        let op = Op::Norm { kind: NormKind::Rms, eps: 1e-5, gain: NormGain::Weight };
        let role = Role::StackOut(Stack::Encoder);
        let path = NodePath::from(role.to_string());
        let node = Node { role, path, op, inputs: vec![], dims: vec![], weights: vec![] };
        let expected = kept(normed(&x, 1e-5));
        let compute = |node: &Node| match node.op {
            Op::Norm { eps, .. } => Some(kept(normed(&x, eps))),
            _ => None,
        };
        let of = |eps: f64| {
            let found = normed(&x, eps).iter().zip(&noise).map(|(x, e)| x * (1.0 + e)).collect();
            closer(&node, [&expected, &kept(found)], |_| true, compute)
        };
        assert_eq!(of(1e-5), None);
        assert_eq!(closer(&node, [&expected, &kept(normed(&x, 1e-6))], |i| i < 4 * WIDTH, compute), None);
        let Some(Relation::OtherEps { fits, .. }) = of(1e-6) else { panic!("no epsilon fits") };
        assert_eq!(fits.first(), Some(&1e-6));
        // From there on they cannot be distinguished, and all are listed.
        let Some(Relation::OtherEps { fits, .. }) = of(1e-12) else { panic!("no epsilon fits") };
        assert!([1e-12, 1e-8, 0.0].iter().all(|eps| fits.contains(eps)) && !fits.contains(&1e-3), "{fits:?}");
    }
}
