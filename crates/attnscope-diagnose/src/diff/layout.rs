//! How another program lays out the same values: batch and time exchanged, heads merged or split, a dimension of length one
//! more or less.

/// From a tensor's layout to the node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layout {
    /// The same order of values, with any shape.
    Same,
    /// Reshaped to `shape`, the node's axis `i` is the tensor's `axes[i]`.
    Permuted { shape: Vec<usize>, axes: Vec<usize> },
    /// A tensor that the node has once and the dump repeats for every row of the batch, such as positions.
    Repeated { rows: usize },
}

/// More axes than any node has, with heads split.
const MAX_AXES: usize = 5;

impl Layout {
    /// The values in the node's order.
    pub(super) fn apply(&self, values: Vec<f64>) -> Vec<f64> {
        match *self {
            Self::Same => return values,
            Self::Repeated { rows } => return once(&values, rows),
            Self::Permuted { .. } => {}
        }
        let place = self.places();
        (0..values.len()).map(|i| values[place(i)]).collect()
    }

    /// Where in the tensor each of the node's values lies.
    pub(super) fn places(&self) -> impl Fn(usize) -> usize {
        let node: Option<Vec<(usize, usize)>> = match self {
            Self::Same | Self::Repeated { .. } => None,
            Self::Permuted { shape, axes } => {
                let mut strides = vec![1; shape.len()];
                for axis in (1..shape.len()).rev() {
                    strides[axis - 1] = strides[axis] * shape[axis];
                }
                Some(axes.iter().map(|&axis| (shape[axis], strides[axis])).collect())
            }
        };
        move |mut i: usize| {
            let Some(node) = &node else { return i };
            let mut at = 0;
            for &(length, stride) in node.iter().rev() {
                at += i % length * stride;
                i /= length;
            }
            at
        }
    }

    /// The layout in words, where it is not the node's.
    pub(super) fn words(&self) -> Option<&'static str> {
        match self {
            Self::Same => None,
            Self::Repeated { .. } => Some("repeated for each row of the batch"),
            Self::Permuted { axes, .. } => Some(match axes.as_slice() {
                [1, 0, ..] => "time before batch",
                [0, 2, 1, 3] => "heads beside features",
                [0, 2, 1] | [0, 1, 3, 2] => "transposed",
                _ => "axes in another order",
            }),
        }
    }
}

/// The values of the first row; where another row has another value, that one, so that the difference is seen.
fn once(values: &[f64], rows: usize) -> Vec<f64> {
    let length = values.len() / rows.max(1);
    let cell = |i: usize| {
        let all = values.iter().skip(i).step_by(length.max(1));
        all.copied().find(|x| x.to_bits() != values[i].to_bits()).unwrap_or(values[i])
    };
    (0..length).map(cell).collect()
}

/// Every layout in which a tensor of that shape can hold a node of this shape, the simplest first.
pub(super) fn layouts(node: &[usize], tensor: &[usize], heads: Option<usize>) -> Vec<Layout> {
    let mut found = Vec::new();
    if reshapes(node, tensor) {
        found.push(Layout::Same);
    }
    if let ([1, node @ ..], &[rows, ref tensor @ ..]) = (node, tensor)
        && rows > 1
        && node == tensor
    {
        found.push(Layout::Repeated { rows });
    }
    let mut seen = vec![node.to_vec()];
    if let (Some(heads), Some((&last, before))) = (heads, node.split_last())
        && heads > 1
        && last.is_multiple_of(heads)
    {
        // The same node with its heads split.
        seen.push([before, &[heads, last / heads]].concat());
    }
    for dims in seen.iter().filter(|dims| dims.len() <= MAX_AXES) {
        for order in permutations(dims.len()) {
            let shape: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
            if moves_something(&order, dims) && reshapes(&shape, tensor) {
                let mut axes = vec![0; order.len()];
                order.iter().enumerate().for_each(|(at, &axis)| axes[axis] = at);
                let layout = Layout::Permuted { shape, axes };
                if !found.contains(&layout) {
                    found.push(layout);
                }
            }
        }
    }
    found
}

/// Whether an order changes the sequence of axes that are longer than one.
fn moves_something(order: &[usize], dims: &[usize]) -> bool {
    let long: Vec<usize> = order.iter().copied().filter(|&axis| dims[axis] != 1).collect();
    !long.is_sorted()
}

/// All orders of the first `n` numbers, exchanges of neighbours first.
fn permutations(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for next in 0..n {
        all = all
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).rev().map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, next);
                    longer
                })
            })
            .collect();
    }
    let moved = |order: &Vec<usize>| order.iter().enumerate().filter(|(i, axis)| i != *axis).count();
    all.sort_by_key(moved);
    all
}

/// Whether one shape is the other with neighbouring dimensions merged, ones left out.
fn reshapes(a: &[usize], b: &[usize]) -> bool {
    let long = |shape: &[usize]| shape.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
    let (a, b) = (long(a), long(b));
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (mut left, mut right) = (a[i], b[j]);
        let (first_a, first_b) = (i, j);
        while left != right {
            let shorter = left < right;
            let next = if shorter { a.get(i + 1) } else { b.get(j + 1) };
            let Some(&next) = next else { return false };
            let side = if shorter { &mut left } else { &mut right };
            match side.checked_mul(next) {
                Some(product) => *side = product,
                None => return false,
            }
            if shorter { i += 1 } else { j += 1 }
        }
        // Merged on one side only: two different factorisations of one length are not the same layout.
        if i > first_a && j > first_b {
            return false;
        }
        (i, j) = (i + 1, j + 1);
    }
    i == a.len() && j == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_do_not_matter() {
        assert!(reshapes(&[2, 3, 4], &[2, 1, 12]));
        assert!(reshapes(&[1, 6], &[6]));
        assert!(!reshapes(&[6, 4], &[2, 12]));
        assert!(!reshapes(&[2, 3], &[3, 2]));
        assert!(!reshapes(&[2, 3], &[2, 3, 2]));
    }

    #[test]
    fn heads_are_found_where_they_are() {
        // A node [batch, head, length, size] of a program that keeps [batch, length, head × size].
        let found = layouts(&[2, 3, 5, 4], &[2, 5, 12], Some(3));
        let usual = Layout::Permuted { shape: vec![2, 5, 3, 4], axes: vec![0, 2, 1, 3] };
        // Features of a head that are not adjacent, as in some programs.
        let interleaved = Layout::Permuted { shape: vec![2, 5, 4, 3], axes: vec![0, 3, 1, 2] };
        assert_eq!(found, [usual, interleaved]);
        let one = Layout::Permuted { shape: vec![2, 3], axes: vec![1, 0] };
        assert_eq!(one.apply(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(layouts(&[2, 5, 12], &[5, 2, 12], Some(3))[0].words(), Some("time before batch"));
        assert_eq!(layouts(&[1, 5, 12], &[5, 1, 12], None), [Layout::Same]);
    }

    #[test]
    fn what_every_row_repeats_is_taken_once() {
        let layout = &layouts(&[1, 2, 2], &[3, 2, 2], None)[0];
        assert_eq!(*layout, Layout::Repeated { rows: 3 });
        let rows = |last: f64| [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, last]].concat();
        assert_eq!(layout.apply(rows(4.0)), [1.0, 2.0, 3.0, 4.0]);
        // A row that differs from the first is not hidden.
        assert_eq!(layout.apply(rows(5.0)), [1.0, 2.0, 3.0, 5.0]);
    }
}
