//! Where a cell of a tensor is.

/// The index of an element in each dimension, from its row-major offset.
pub fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut along = |&n: &usize| {
        let i = at % n.max(1);
        at /= n.max(1);
        i
    };
    let mut place: Vec<usize> = shape.iter().rev().map(&mut along).collect();
    place.reverse();
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_row_major() {
        assert_eq!(unravel(0, &[2, 3]), [0, 0]);
        assert_eq!(unravel(4, &[2, 3]), [1, 1]);
        assert_eq!(unravel(23, &[2, 3, 4]), [1, 2, 3]);
    }
}
