//! A small dense matrix: what worked examples are made of.

/// Numbers in rows and columns, at least one of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    /// Row-major.
    data: Vec<f64>,
}

impl Matrix {
    /// From numbers row by row; nothing if their count is not rows × columns, or there are none.
    pub fn new(rows: usize, columns: usize, data: Vec<f64>) -> Option<Self> {
        let fits = !data.is_empty() && rows.checked_mul(columns) == Some(data.len());
        fits.then_some(Self { rows, columns, data })
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// One row; empty beyond the last.
    pub fn row(&self, row: usize) -> &[f64] {
        self.data.get(row * self.columns..(row + 1) * self.columns).unwrap_or_default()
    }

    /// Every row.
    pub fn each_row(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks(self.columns)
    }

    /// All numbers, row by row.
    pub fn values(&self) -> &[f64] {
        &self.data
    }

    pub(super) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { data: self.data.iter().map(|&x| f(x)).collect(), ..*self }
    }

    /// Cell by cell with another of the same shape.
    pub(super) fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Option<Self> {
        let data = self.data.iter().zip(&other.data).map(|(&a, &b)| f(a, b)).collect();
        (self.shape() == other.shape()).then_some(Self { data, ..*self })
    }

    /// Each row on its own.
    pub(super) fn map_rows(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        Self { data: self.each_row().flat_map(f).collect(), ..*self }
    }

    pub(super) fn transposed(&self) -> Self {
        let cell = |i: usize| self.data[i % self.rows * self.columns + i / self.rows];
        Self { rows: self.columns, columns: self.rows, data: (0..self.data.len()).map(cell).collect() }
    }

    /// The product, if the shapes multiply.
    pub(super) fn times(&self, other: &Self) -> Option<Self> {
        let cell = |i: usize| {
            let (row, column) = (self.row(i / other.columns), i % other.columns);
            row.iter().enumerate().map(|(k, x)| x * other.data[k * other.columns + column]).sum()
        };
        (self.columns == other.rows).then(|| Self {
            rows: self.rows,
            columns: other.columns,
            data: (0..self.rows * other.columns).map(cell).collect(),
        })
    }

    /// One row added to every row.
    pub(super) fn plus_row(&self, row: &Self) -> Option<Self> {
        let add = |x: &[f64]| x.iter().zip(&row.data).map(|(a, b)| a + b).collect();
        (row.shape() == [1, self.columns]).then(|| self.map_rows(add))
    }

    /// The columns of one head out of `heads`.
    pub(super) fn head(&self, head: usize, heads: usize) -> Option<Self> {
        let size =
            self.columns.checked_div(heads).filter(|&size| size > 0 && size * heads == self.columns)?;
        let data = self.each_row().flat_map(|row| row[head * size..].iter().take(size).copied());
        (head < heads).then(|| Self { rows: self.rows, columns: size, data: data.collect() })
    }

    /// The same with one head's columns put in its place.
    pub(super) fn with_head(&self, head: usize, heads: usize, part: &Self) -> Option<Self> {
        let parts = (0..heads).map(|h| if h == head { Some(part.clone()) } else { self.head(h, heads) });
        Self::beside(&parts.collect::<Option<Vec<_>>>()?)
    }

    /// Matrices of the same shape beside each other.
    pub(super) fn beside(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        let same = parts.iter().all(|part| part.shape() == first.shape());
        let row = |r: usize| parts.iter().flat_map(move |part| part.row(r).iter().copied());
        same.then(|| Self {
            rows: first.rows,
            columns: first.columns * parts.len(),
            data: (0..first.rows).flat_map(row).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_heads() {
        let a = Matrix::new(2, 4, (1..=8).map(f64::from).collect()).unwrap();
        assert_eq!(a.transposed().transposed(), a);
        assert_eq!(a.times(&a), None);
        assert_eq!(a.times(&a.transposed()).unwrap().values(), [30.0, 70.0, 70.0, 174.0]);
        assert_eq!(a.head(1, 2).unwrap().values(), [3.0, 4.0, 7.0, 8.0]);
        assert_eq!((a.head(2, 2), a.head(0, 3), a.head(0, 0)), (None, None, None));
        let heads = [a.head(0, 2).unwrap(), a.head(1, 2).unwrap()];
        assert_eq!(Matrix::beside(&heads), Some(a.clone()));
        assert_eq!(a.with_head(0, 2, &heads[1]).unwrap().row(0), [3.0, 4.0, 3.0, 4.0]);
        assert_eq!(Matrix::new(0, 4, vec![]), None);
    }
}
