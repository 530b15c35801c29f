//! Which part of a weight differs, by the weight's own axes.

use super::judge::worst;
use super::relation::{Relation, WeightAxis};

/// Up to this share of all rows is few.
const FEW_ROWS: f64 = 0.25;
/// Up to this many cells of a row are listed singly.
const FEW_CELLS: usize = 4;
/// A larger share of an axis than this is not reported as a part, where another axis is more specific.
const MOST_OF_AN_AXIS: f64 = 0.75;

/// Which rows, columns or elements of a weight differ, where not all do.
pub(super) fn weight_part(
    path: &str,
    shape: &[usize],
    [left, right]: [&[f64]; 2],
    allowed: &[f64],
) -> Option<Relation> {
    let names: &[WeightAxis] = match shape.len() {
        1 => &[WeightAxis::Elements],
        _ => &[WeightAxis::Rows, WeightAxis::Columns, WeightAxis::Taps],
    };
    let mut hit: Vec<Vec<bool>> = shape.iter().map(|&length| vec![false; length]).collect();
    let mut cells = 0;
    for i in 0..left.len().min(right.len()) {
        if worst(&left[i..=i], &right[i..=i], &allowed[i..=i], false) > 1.0 {
            cells += 1;
            let mut rest = i;
            for (hit, &length) in hit.iter_mut().zip(shape).rev() {
                hit[rest % length] = true;
                rest /= length;
            }
        }
    }
    let places = |hit: &Vec<bool>| -> Vec<usize> { (0..hit.len()).filter(|&n| hit[n]).collect() };
    let mut axes: Vec<(WeightAxis, Vec<usize>)> = names.iter().copied().zip(hit.iter().map(places)).collect();
    let share = |(axis, at): &(WeightAxis, Vec<usize>)| {
        let length = names.iter().position(|name| name == axis).and_then(|i| shape.get(i)).copied();
        at.len() as f64 / length.unwrap_or(1).max(1) as f64
    };
    axes.retain(|axis| share(axis) > 0.0 && share(axis) < 1.0);
    // A few cells that are equal by chance do not make a slice of the other axis.
    if axes.iter().any(|axis| share(axis) <= MOST_OF_AN_AXIS) {
        axes.retain(|axis| share(axis) <= MOST_OF_AN_AXIS);
    }
    // A few whole rows are a separate relation: a damaged file looks like that. One or two cells in each row are not.
    let is_row = |axis: &(WeightAxis, Vec<usize>)| {
        matches!(axis.0, WeightAxis::Rows | WeightAxis::Elements)
            && share(axis) <= FEW_ROWS
            && (axes.len() == 1 || cells > FEW_CELLS * axis.1.len())
    };
    match axes.as_slice() {
        [] => None,
        [axis @ (_, rows), ..] if is_row(axis) => {
            Some(Relation::CorruptedRow { rows: rows.clone(), weight: Some(path.to_owned()) })
        }
        _ => Some(Relation::WeightSlice { weight: path.to_owned(), axes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of 8 rows and 12 columns in which `moved` picks what differs.
    fn part(moved: impl Fn(usize, usize) -> bool) -> Option<Relation> {
        let left: Vec<f64> = (0..96).map(|i| f64::from(i as u8) + 1.0).collect();
        let right: Vec<f64> =
            left.iter().enumerate().map(|(i, x)| if moved(i / 12, i % 12) { x + 0.5 } else { *x }).collect();
        weight_part("w", &[8, 12], [&left, &right], &[1e-6; 96])
    }

    #[test]
    fn a_slice_is_named_along_the_weight_s_own_axes() {
        let slice = |axes| Some(Relation::WeightSlice { weight: "w".into(), axes });
        let (rows, columns) = ((WeightAxis::Rows, vec![0, 1, 2, 3]), (WeightAxis::Columns, vec![6, 7, 8]));
        assert_eq!(part(|_, c| (6..9).contains(&c)), slice(vec![columns.clone()]));
        assert_eq!(part(|r, _| r < 4), slice(vec![rows.clone()]));
        assert_eq!(part(|r, c| r < 4 && (6..9).contains(&c)), slice(vec![rows, columns]));
        let few = Relation::CorruptedRow { rows: vec![5], weight: Some("w".into()) };
        assert_eq!(part(|r, _| r == 5), Some(few));
        // A row with one equal cell is still a row.
        let few = Relation::CorruptedRow { rows: vec![5], weight: Some("w".into()) };
        assert_eq!(part(|r, c| r == 5 && c != 3), Some(few));
        // One cell is not a row.
        let cell = vec![(WeightAxis::Rows, vec![5]), (WeightAxis::Columns, vec![7])];
        assert_eq!(part(|r, c| (r, c) == (5, 7)), slice(cell));
        let few = Relation::CorruptedRow { rows: vec![5], weight: Some("w".into()) };
        assert_eq!(part(|r, c| r == 5 && c < 5), Some(few));
        // Everything, or nothing, is not a part.
        assert_eq!(part(|_, _| true), None);
        assert_eq!(part(|_, _| false), None);
    }
}
