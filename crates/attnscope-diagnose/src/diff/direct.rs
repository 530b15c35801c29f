//! Relations that can be seen in two tensors, without knowing how they were computed.

use attnscope_graph::{Dim, Stack};

use super::frame::Frame;
use super::judge::worst;
use super::pair::ratio;
use super::relation::Relation;
use crate::unravel;

/// The expected tensor, the one that was found, and the rounding bound of each cell.
pub(super) struct Two<'a> {
    pub(super) shape: &'a [usize],
    pub(super) expected: &'a [f64],
    pub(super) found: &'a [f64],
    pub(super) allowed: &'a [f64],
    pub(super) masked: bool,
    /// The heads of its stack.
    pub(super) heads: Option<usize>,
}

/// The simple relation that turns the expected tensor into the other, if there is one.
pub(super) fn relation(two: &Two<'_>, frame: &Frame) -> Option<Relation> {
    not_numbers(two)
        .or_else(|| cast(two))
        .or_else(|| zero(two))
        .or_else(|| scale(two, frame))
        .or_else(|| transpose(two))
        .or_else(|| permuted_heads(two))
        .or_else(|| halves(two))
        .or_else(|| shifted(two))
        .or_else(|| added_vector(two))
}

/// The same for weights, which have no positions.
pub(super) fn of_weights(two: &Two<'_>, frame: &Frame) -> Option<Relation> {
    not_numbers(two)
        .or_else(|| zero(two))
        .or_else(|| scale(two, frame))
        .or_else(|| transpose(two))
        .or_else(|| permuted_heads(two))
        .or_else(|| halves(two))
}

impl Two<'_> {
    /// Whether the expected tensor with its cells in another order is the one that was found.
    fn is_moved(&self, from: impl Fn(usize) -> usize) -> bool {
        let differs = |i: usize| !self.near(from(i), i);
        !(0..self.found.len()).any(differs)
    }

    /// Whether the cell that was expected at one place was found at another.
    fn near(&self, from: usize, at: usize) -> bool {
        let (e, f, allowed) = (self.expected[from], self.found[at], self.allowed[at].max(self.allowed[from]));
        allowed.is_infinite() || e == f || (e - f).abs() <= allowed || (e.is_nan() && f.is_nan())
    }

    /// The last dimension.
    fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1).max(1)
    }

    /// Which cells differ by more than rounding.
    fn differs(&self, i: usize) -> bool {
        worst(&self.expected[i..=i], &self.found[i..=i], &self.allowed[i..=i], self.masked) > 1.0
    }
}

fn not_numbers(two: &Two<'_>) -> Option<Relation> {
    let nan = |(e, f): &(&f64, &f64)| e.is_nan() != f.is_nan();
    let cells = two.expected.iter().zip(two.found).filter(nan).count();
    (cells > 0).then_some(Relation::NotANumber { cells })
}

fn cast(two: &Two<'_>) -> Option<Relation> {
    // Numbers with few enough digits that a short type holds them all.
    let holds = |bits: u32, x: f64| {
        let mantissa = 53 - bits;
        !x.is_finite() || x.to_bits().trailing_zeros() >= mantissa || x == 0.0
    };
    let rounded = |bits: i32| {
        let near = |(e, f): (&f64, &f64)| {
            e == f || (e - f).abs() <= 0.500_01 * 0.5f64.powi(bits - 1) * e.abs() + 3e-8
        };
        two.expected.iter().zip(two.found).all(near)
    };
    let types = [("f16", 11), ("bf16", 8)];
    let is = |(_, bits): &&(&str, i32)| {
        let all = |values: &[f64]| values.iter().all(|&x| holds(*bits as u32, x));
        all(two.found) && !all(two.expected) && rounded(*bits)
    };
    types.iter().find(is).map(|&(to, _)| Relation::Cast { to })
}

fn zero(two: &Two<'_>) -> Option<Relation> {
    let is_zero = |(x, allowed): (&f64, &f64)| *x == 0.0 || x.abs() <= *allowed;
    let all = |values: &[f64]| values.iter().zip(two.allowed).all(is_zero);
    (all(two.found) && !all(two.expected)).then_some(Relation::AllZero { weight: None })
}

/// A factor this close to 1 is not a usual mistake.
const NEAR_ONE: f64 = 1e-3;

fn scale(two: &Two<'_>, frame: &Frame) -> Option<Relation> {
    let factor = ratio(two.found, two.expected);
    if !factor.is_finite() || factor.abs() < 1e-12 || (factor - 1.0).abs() < NEAR_ONE {
        return None;
    }
    let scaled: Vec<f64> = two.expected.iter().map(|x| x * factor).collect();
    // The candidate's own rounding: that of the expected value, times the factor, and that of the factor.
    let allowed: Vec<f64> = two.allowed.iter().map(|x| x * (1.0 + factor.abs())).collect();
    let fits = worst(&scaled, two.found, &allowed, two.masked) <= 1.0;
    // If 1 fits within the bounds, too, the factor means nothing.
    let tells = |i: &usize| ((factor - 1.0) * two.expected[*i]).abs() > 2.0 * allowed[*i];
    let telling = (0..two.expected.len()).filter(|i| allowed[*i].is_finite()).any(|i| tells(&i));
    (fits && telling).then(|| Relation::Scale { factor, known: known(factor, frame) })
}

/// The factor in terms of the model's sizes.
fn known(factor: f64, frame: &Frame) -> Option<String> {
    let dims = [
        ("d_head", Dim::Head(Stack::Decoder)),
        ("d_model", Dim::Model),
        ("heads", Dim::Heads(Stack::Decoder)),
    ];
    let is = |x: f64| (factor.abs() / x - 1.0).abs() < 1e-5;
    let sign = if factor < 0.0 { "−" } else { "" };
    // −1 is a lost sign; 1 is no relation.
    let mut roots: Vec<(String, f64)> = vec![("1".into(), 1.0), ("2".into(), 2.0), ("1/2".into(), 0.5)];
    for (name, dim) in dims {
        let Some(n) = frame.sizes.get(dim) else { continue };
        let root = (n as f64).sqrt();
        roots.extend([
            (format!("√{name}"), root),
            (format!("1/√{name}"), 1.0 / root),
            (name.to_owned(), n as f64),
            (format!("1/{name}"), 1.0 / n as f64),
        ]);
    }
    if let (Some(head), Some(model)) =
        (frame.sizes.get(Dim::Head(Stack::Decoder)), frame.sizes.get(Dim::Model))
    {
        let root = (head as f64 / model as f64).sqrt();
        roots.extend([("√(d_head/d_model)".into(), root), ("√(d_model/d_head)".into(), 1.0 / root)]);
    }
    roots.into_iter().find(|(_, x)| is(*x)).map(|(name, _)| format!("{sign}{name}"))
}

fn transpose(two: &Two<'_>) -> Option<Relation> {
    let [.., rows, columns] = *two.shape else { return None };
    if rows != columns || rows < 2 {
        return None;
    }
    let cells = rows * columns;
    let moved = |i: usize| i / cells * cells + i % columns * columns + i % cells / columns;
    two.is_moved(moved).then_some(Relation::Transpose { weight: None })
}

fn permuted_heads(two: &Two<'_>) -> Option<Relation> {
    let heads = two.heads.filter(|&h| h > 1)?;
    let order = match *two.shape {
        // [batch, head, …]
        [_, h, ref rest @ ..] if h == heads && !rest.is_empty() && two.shape.len() == 4 => {
            let size: usize = rest.iter().product();
            order_of(
                two,
                heads,
                |i, h| (i / (heads * size) * heads + h) * size + i % size,
                |i| i / size % heads,
            )
        }
        // [batch, length, head × size]
        [.., width] if width.is_multiple_of(heads) => {
            let size = width / heads;
            order_of(two, heads, |i, h| i / width * width + h * size + i % size, |i| i % width / size)
        }
        _ => None,
    }?;
    (!order.is_sorted()).then_some(Relation::PermutedHeads { order, weight: None })
}

/// For each head the expected head found in its place, if all heads have one.
fn order_of(
    two: &Two<'_>,
    heads: usize,
    cell_in: impl Fn(usize, usize) -> usize,
    head_of: impl Fn(usize) -> usize,
) -> Option<Vec<usize>> {
    // For each head the expected heads that it may be. The first differing cell rules most of them out.
    let mut possible: Vec<Vec<usize>> = vec![(0..heads).collect(); heads];
    for i in 0..two.found.len() {
        let candidates = &mut possible[head_of(i)];
        candidates.retain(|&candidate| two.near(cell_in(i, candidate), i));
        // No order fits: the most frequent case.
        if candidates.is_empty() {
            return None;
        }
    }
    let order: Vec<usize> =
        possible.iter().map(|candidates| candidates.first().copied()).collect::<Option<_>>()?;
    let mut seen = order.clone();
    seen.sort_unstable();
    seen.dedup();
    (seen.len() == heads).then_some(order)
}

fn halves(two: &Two<'_>) -> Option<Relation> {
    let width = two.width();
    if width < 4 || !width.is_multiple_of(2) {
        return None;
    }
    let half = width / 2;
    let (start, at) = (|i: usize| i / width * width, |i: usize| i % width);
    if two.is_moved(|i| start(i) + (at(i) + half) % width) {
        return Some(Relation::SwappedHalves);
    }
    let alternate = |i: usize| start(i) + at(i) % 2 * half + at(i) / 2;
    let apart = |i: usize| start(i) + at(i) % half * 2 + at(i) / half;
    (two.is_moved(alternate) || two.is_moved(apart)).then_some(Relation::Interleaved)
}

/// Positions are the dimension before the last; of ids, the last.
fn shifted(two: &Two<'_>) -> Option<Relation> {
    let (length, width) = match *two.shape {
        [_, length] => (length, 1),
        [.., length, width] => (length, width),
        _ => return None,
    };
    if length < 3 {
        return None;
    }
    let is = |by: i64| {
        let cell = |i: usize| {
            let position = (i / width % length) as i64 - by;
            if !(0..length as i64).contains(&position) {
                return true;
            }
            two.near((i as i64 - by * width as i64) as usize, i)
        };
        (0..two.found.len()).all(cell)
    };
    // A tensor that is the same at every position cannot show a shift.
    let moves = |by: i64| {
        let cell = |i: usize| {
            let position = (i / width % length) as i64 - by;
            let from = (i as i64 - by * width as i64) as usize;
            (0..length as i64).contains(&position)
                && (two.expected[from] - two.expected[i]).abs() > two.allowed[i].max(two.allowed[from])
        };
        (0..two.expected.len()).any(cell)
    };
    let by = [1, -1, 2, -2].into_iter().find(|&by| is(by) && moves(by))?;
    Some(Relation::OffByOnePosition { by, offset: None })
}

fn added_vector(two: &Two<'_>) -> Option<Relation> {
    let width = two.width();
    if two.found.len() < 3 * width {
        return None;
    }
    let first: Vec<f64> = (0..width).map(|i| two.found[i] - two.expected[i]).collect();
    let moved: Vec<f64> = two.expected.iter().enumerate().map(|(i, x)| x + first[i % width]).collect();
    let allowed: Vec<f64> = two.allowed.iter().enumerate().map(|(i, x)| x + two.allowed[i % width]).collect();
    (worst(&moved, two.found, &allowed, two.masked) <= 1.0).then_some(Relation::AddedVector)
}

/// Up to this many cells are listed one by one.
const MOST_CELLS: usize = 4;

/// Where the difference is, when it is only in a part of the tensor.
pub(super) fn part(two: &Two<'_>, weight: Option<String>) -> Option<Relation> {
    let differing: Vec<usize> = (0..two.found.len()).filter(|&i| two.differs(i)).collect();
    // The indices along a dimension at which something differs, if they are few.
    let few = |count: usize, most: usize, place: &dyn Fn(usize) -> usize| -> Option<Vec<usize>> {
        let mut hit = vec![false; count];
        differing.iter().for_each(|&i| hit[place(i)] = true);
        let hit: Vec<usize> = (0..count).filter(|&n| hit[n]).collect();
        (!hit.is_empty() && hit.len() <= most).then_some(hit)
    };
    let width = two.width();
    // A wrong row of a weight changes its feature everywhere; an overwritten cell is alone.
    let rows_of = two.found.len() / width;
    let alone = differing.len() <= MOST_CELLS && rows_of > 2 * differing.len();
    if alone && !differing.is_empty() {
        return Some(Relation::SomeCells {
            cells: differing.iter().map(|&i| unravel(i, two.shape)).collect(),
        });
    }
    let features = match *two.shape {
        [_, heads, queries, keys] => {
            let heads = few(heads, heads - 1, &|i| i / (queries * keys) % heads);
            heads.map(|heads| Relation::SomeHeads { heads })
        }
        _ => few(width, width / 4, &|i| i % width).map(|rows| Relation::CorruptedRow { rows, weight }),
    };
    let batch = two.shape.first().copied().unwrap_or(1).max(1);
    let row = two.found.len() / batch;
    features
        .or_else(|| few(batch, batch - 1, &|i| i / row.max(1)).map(|rows| Relation::SomeRows { rows }))
        .or_else(|| {
            let [.., length, width] = *two.shape else { return None };
            few(length, length / 4, &|i| i / width % length)
                .map(|positions| Relation::SomePositions { positions })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(expected: &[f64], found: &[f64]) -> Option<Relation> {
        let (shape, allowed) = ([1, expected.len() / 2, 2], vec![1e-6; expected.len()]);
        shifted(&Two { shape: &shape, expected, found, allowed: &allowed, masked: false, heads: None })
    }

    #[test]
    fn a_factor_of_one_is_no_relation() {
        let expected: Vec<f64> = (0..64).map(|i| f64::from(i) - 20.5).collect();
        let of = |factor: f64, allowed: f64| {
            let found: Vec<f64> = expected.iter().map(|x| x * factor).collect();
            let allowed = vec![allowed; expected.len()];
            let two = Two {
                shape: &[1, 8, 8],
                expected: &expected,
                found: &found,
                allowed: &allowed,
                masked: false,
                heads: None,
            };
            scale(&two, &Frame::of_sizes(attnscope_graph::Sizes::default()))
        };
        assert_eq!(of(2.0, 1e-6), Some(Relation::Scale { factor: 2.0, known: Some("2".into()) }));
        assert_eq!(of(-1.0, 1e-6), Some(Relation::Scale { factor: -1.0, known: Some("−1".into()) }));
        assert_eq!(of(1.000_001, 1e-7), None);
        // A factor of 1 also fits within rounding.
        assert_eq!(of(1.01, 10.0), None);
    }

    #[test]
    fn one_cell_is_no_row_of_a_weight() {
        let expected: Vec<f64> = (0..96).map(f64::from).collect();
        let moved = |differs: &dyn Fn(usize) -> bool| {
            let found: Vec<f64> = (0..96).map(|i| expected[i] + if differs(i) { 1.0 } else { 0.0 }).collect();
            let allowed = vec![1e-6; 96];
            let shape = [1, 12, 8];
            let (expected, found, allowed) = (&expected, &found, &allowed);
            part(&Two { shape: &shape, expected, found, allowed, masked: false, heads: None }, None)
        };
        assert_eq!(moved(&|i| i == 29), Some(Relation::SomeCells { cells: vec![vec![0, 3, 5]] }));
        let row = Relation::CorruptedRow { rows: vec![5], weight: None };
        assert_eq!(moved(&|i| i % 8 == 5), Some(row));
    }

    #[test]
    fn what_is_the_same_everywhere_is_not_moved() {
        let (constant, other) = ([1.0, 2.0, 1.0, 2.0, 1.0, 2.0], [9.0, 9.0, 1.0, 2.0, 1.0, 2.0]);
        assert_eq!(named(&constant, &other), None);
        let (counted, later) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [9.0, 9.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(named(&counted, &later), Some(Relation::OffByOnePosition { by: 1, offset: None }));
    }
}
