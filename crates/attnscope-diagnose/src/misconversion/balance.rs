//! Whether a projection and its partner were trained together. Gradients keep what q's rows have in common like what k's rows
//! have, and v's rows like the output projection's columns; and they leave a feed-forward matrix with few strong directions. A
//! factor leaves that as it is, and noise destroys it.

use attnscope_graph::{Dim, KvSharing, Model, Role};
use attnscope_run::Weights;

use super::edit::matrix;
use super::factors::median;

/// The share of the usual value in other layers that one of the two similarities must reach. Of 72 projections of four trained
/// models
/// 69 have it, and the least has 0.50; with noise of 1.5 times their size 2 have it, of twice their size none.
const LEAST: f64 = 0.75;
/// The same for the concentration of a feed-forward matrix. Of 72 of seven trained models 65 have it; with noise of 1.5 times
/// their size 1 has it, of twice their size none.
const LEAST_CONCENTRATION: f64 = 0.6;

/// How similar a projection and its partner are: correlations.
#[derive(Debug, Clone, Copy)]
struct Likeness {
    /// Of the norms of their rows.
    norms: f64,
    /// Of the products of different rows of one head; absent for feed-forward layers, which have no heads.
    products: Option<f64>,
    /// How far the projection itself is from noise; absent for attentions, which have the products.
    concentration: Option<f64>,
}

/// Whether a projection is as similar to its partner as those of the same role in other layers.
pub(super) fn is_trained_together(model: &Model, weights: &Weights, role: &[[Role; 2]], at: usize) -> bool {
    let all: Vec<Option<Likeness>> = role.iter().map(|&pair| likeness(model, weights, pair)).collect();
    let Some(own) = all.get(at).copied().flatten() else { return false };
    let others: Vec<Likeness> =
        all.iter().enumerate().filter(|(i, _)| *i != at).filter_map(|(_, known)| *known).collect();
    let in_line = |own: f64, least: f64, usual: &dyn Fn(&Likeness) -> Option<f64>| {
        median(others.iter().filter_map(usual).collect()).is_some_and(|usual| own >= least * usual)
    };
    in_line(own.norms, LEAST, &|other| Some(other.norms))
        || own.products.is_some_and(|own| in_line(own, LEAST, &|other| other.products))
        || own
            .concentration
            .is_some_and(|own| in_line(own, LEAST_CONCENTRATION, &|other| other.concentration))
}

fn likeness(model: &Model, weights: &Weights, [a, b]: [Role; 2]) -> Option<Likeness> {
    let (a, b) = (rows(model, weights, a)?, rows(model, weights, b)?);
    let heads = a.heads().max(b.heads());
    let (a, b) = (a.repeated(heads), b.repeated(heads));
    if a.rows.len() != b.rows.len() {
        return None;
    }
    let products = a.head.map(|head| correlation(&within_heads(&a.rows, head), &within_heads(&b.rows, head)));
    let concentration = a.head.is_none().then(|| concentration(&a.rows));
    Some(Likeness { norms: correlation(&norms(&a.rows), &norms(&b.rows)), products, concentration })
}

/// A projection by the dimension that it shares with its partner.
struct SharedRows {
    rows: Vec<Vec<f64>>,
    /// Rows of each head.
    head: Option<usize>,
}

impl SharedRows {
    /// How many heads; 0 for feed-forward layers.
    fn heads(&self) -> usize {
        self.head.map_or(0, |size| self.rows.len() / size)
    }

    /// As many heads as the partner has, where neighbouring heads of it share one of these.
    fn repeated(self, heads: usize) -> Self {
        let own = self.heads();
        let Some(size) = self.head.filter(|_| own > 0 && heads > own && heads.is_multiple_of(own)) else {
            return self;
        };
        let of_head =
            |head: usize| self.rows[KvSharing::Repeat.head(head, heads, own) * size..][..size].to_vec();
        Self { rows: (0..heads).flat_map(of_head).collect(), head: self.head }
    }
}

fn rows(model: &Model, weights: &Weights, module: Role) -> Option<SharedRows> {
    let (id, shape) = matrix(model, module.weight())?;
    let &[height, width] = &shape[..] else { return None };
    let dims = &model.graph.weight(id).dims;
    let (stack, _) = module.layer()?;
    // The output projection has the shared dimension in its columns.
    let by_columns = matches!(dims.first(), Some(Dim::Model));
    let is_attention = dims.iter().any(|dim| matches!(dim, Dim::Inner(_) | Dim::KvInner(_)));
    let values = weights.get(id).ok()?;
    let value = |row: usize, column: usize| f64::from(values[row * width + column]);
    let rows = match by_columns {
        true => (0..width).map(|column| (0..height).map(|row| value(row, column)).collect()).collect(),
        false => (0..height).map(|row| (0..width).map(|column| value(row, column)).collect()).collect(),
    };
    let head = if is_attention { model.sizes.get(Dim::Head(stack)).filter(|&head| head > 0) } else { None };
    Some(SharedRows { rows, head })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn norms(rows: &[Vec<f64>]) -> Vec<f64> {
    rows.iter().map(|row| dot(row, row).sqrt()).collect()
}

/// The products of every two rows of a head.
fn within_heads(rows: &[Vec<f64>], head: usize) -> Vec<f64> {
    let mut products = Vec::new();
    for rows in rows.chunks(head) {
        for (i, a) in rows.iter().enumerate() {
            products.extend(rows[..i].iter().map(|b| dot(a, b)));
        }
    }
    products
}

/// How far a matrix is from noise: 1 less its effective rank, (Σσ²)² / Σσ⁴ of its singular values, as a share of what noise of
/// that
/// shape has.
fn concentration(rows: &[Vec<f64>]) -> f64 {
    let (height, width) = (rows.len(), rows.first().map_or(0, Vec::len));
    // Σσ⁴ is the sum over all products of two rows, squared.
    let mut fourth = 0.0;
    for (i, a) in rows.iter().enumerate() {
        let beside: f64 = rows[..i].iter().map(|b| dot(a, b).powi(2)).sum();
        fourth += dot(a, a).powi(2) + 2.0 * beside;
    }
    let second: f64 = rows.iter().map(|row| dot(row, row)).sum();
    let of_noise = (height * width) as f64 / (height + width) as f64;
    1.0 - second * second / fourth / of_noise
}

/// Pearson's; 0 where one side does not vary.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let centred = |values: &[f64]| -> Vec<f64> {
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        values.iter().map(|value| value - mean).collect()
    };
    let (a, b) = (centred(a), centred(b));
    let correlation = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
    if correlation.is_finite() { correlation } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_is_pearsons() {
        assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]) - 1.0).abs() < 1e-12);
        // By hand: centred (-1, 0, 1) and (1, -2, 1) have the product 0.
        assert!(correlation(&[1.0, 2.0, 3.0], &[4.0, 1.0, 4.0]).abs() < 1e-12);
        assert_eq!(correlation(&[1.0, 1.0], &[2.0, 3.0]), 0.0);
    }

    /// A matrix of rank 1 has an effective rank of 1; one with equal singular values has all of it, more than noise has.
    #[test]
    fn a_matrix_of_few_directions_is_far_from_noise() {
        let one = vec![vec![1.0, 2.0], vec![2.0, 4.0], vec![-1.0, -2.0]];
        assert!((concentration(&one) - (1.0 - 1.0 / 1.2)).abs() < 1e-12);
        let square = vec![vec![3.0, 0.0], vec![0.0, 3.0]];
        assert!((concentration(&square) - (1.0 - 2.0)).abs() < 1e-12);
    }

    #[test]
    fn a_shared_head_is_held_against_each_that_reads_it() {
        let rows = |values: &[f64]| values.iter().map(|x| vec![*x]).collect();
        let shared = SharedRows { rows: rows(&[1.0, 2.0, 3.0, 4.0]), head: Some(2) };
        assert_eq!(shared.heads(), 2);
        let repeated: Vec<Vec<f64>> = rows(&[1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        assert_eq!(shared.repeated(4).rows, repeated);
        let alone = SharedRows { rows: rows(&[1.0, 2.0]), head: None };
        assert_eq!(alone.repeated(4).rows.len(), 2);
    }

    #[test]
    fn rows_of_one_head_are_multiplied_with_each_other() {
        let rows = [vec![1.0, 2.0], vec![3.0, 4.0], vec![5.0, 6.0], vec![7.0, 8.0]];
        assert_eq!(within_heads(&rows, 2), [11.0, 83.0]);
    }
}
