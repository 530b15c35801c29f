//! The layout of a weight's values: row by row as in a file, or in panels as a product reads them; in their own type.

use std::borrow::Cow;

use attnscope_checkpoint::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

/// Values in the type that a file holds them in, where that is a half; else in f32.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Elements {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

/// The same for each of the types.
macro_rules! each_type {
    ($elements:expr, $values:ident => $body:expr) => {
        match $elements {
            Elements::F32($values) => $body,
            Elements::F16($values) => $body,
            Elements::Bf16($values) => $body,
        }
    };
    ($elements:expr, $values:ident => $body:expr, again) => {
        match $elements {
            Elements::F32($values) => Elements::F32($body),
            Elements::F16($values) => Elements::F16($body),
            Elements::Bf16($values) => Elements::Bf16($body),
        }
    };
}

impl Elements {
    /// Converts values that were widened without loss back to their type.
    pub(crate) fn of(values: Vec<f32>, dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self::F16(values.into_iter().map(f16::from_f32).collect()),
            DType::BF16 => Self::Bf16(values.into_iter().map(bf16::from_f32).collect()),
            _ => Self::F32(values),
        }
    }

    pub(crate) fn len(&self) -> usize {
        each_type!(self, values => values.len())
    }

    /// Some of them in f32.
    pub(crate) fn range(&self, from: usize, to: usize) -> Cow<'_, [f32]> {
        match self {
            Self::F32(values) => values[from..to].into(),
            Self::F16(values) => values[from..to].to_f32_vec().into(),
            Self::Bf16(values) => values[from..to].to_f32_vec().into(),
        }
    }

    /// Some of them in f32, where they are asked for.
    fn write(&self, from: usize, out: &mut [f32]) {
        match self {
            Self::F32(values) => out.copy_from_slice(&values[from..][..out.len()]),
            Self::F16(values) => values[from..][..out.len()].convert_to_f32_slice(out),
            Self::Bf16(values) => values[from..][..out.len()].convert_to_f32_slice(out),
        }
    }
}

/// A matrix as the right side of a product: of every `width` rows of the weight, which are columns of the product, one panel
/// [k, column]. The last one is filled up with zeros.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panels {
    values: Elements,
    width: usize,
    /// Elements of a row of the weight.
    depth: usize,
    /// Rows of the weight.
    rows: usize,
}

impl Panels {
    /// Packs rows of `depth` elements, from one element of `rows` to another.
    pub(crate) fn pack(rows: &Elements, from: usize, to: usize, depth: usize, width: usize) -> Self {
        let count = (to - from) / depth.max(1);
        let values = each_type!(rows, values => packed(&values[from..to], depth, width), again);
        Self { values, width, depth, rows: count }
    }

    /// The same values in panels of another width.
    pub(crate) fn of_width(&self, width: usize) -> Self {
        let rows = each_type!(&self.values, values => self.unpacked(values), again);
        Self::pack(&rows, 0, rows.len(), self.depth, width)
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Rows of the weight: columns of the product.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many values the weight has.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.depth
    }

    /// How many panels there are.
    pub(crate) fn count(&self) -> usize {
        self.rows.div_ceil(self.width.max(1))
    }

    /// All panels one after the other, in f32.
    pub(crate) fn write(&self, out: &mut [f32]) {
        self.values.write(0, out);
    }

    /// One panel, [k, column]; `scratch` is used to widen it where it is not in f32.
    pub(crate) fn panel<'a>(&'a self, i: usize, scratch: &'a mut [f32]) -> &'a [f32] {
        let size = self.width * self.depth;
        match &self.values {
            Elements::F32(values) => &values[i * size..][..size],
            halves => {
                halves.write(i * size, &mut scratch[..size]);
                &scratch[..size]
            }
        }
    }

    /// Columns `from` on of the weight's rows, as many as a panel is wide: [row, column]. Missing columns are 0.
    pub(crate) fn columns(&self, from: usize, out: &mut [f32]) {
        let (width, depth) = (self.width.max(1), self.depth);
        let columns = width.min(depth.saturating_sub(from));
        if columns < width {
            out.fill(0.0);
        }
        let mut scratch = vec![0.0; self.scratch()];
        for (i, out) in out.chunks_mut(width * width).take(self.count()).enumerate() {
            let panel = &self.panel(i, &mut scratch)[from * width..][..columns * width];
            for (column, values) in panel.chunks_exact(width).enumerate() {
                out.iter_mut().skip(column).step_by(width).zip(values).for_each(|(to, &x)| *to = x);
            }
        }
    }

    /// Elements that a panel needs to be widened: none in f32.
    pub(crate) fn scratch(&self) -> usize {
        if matches!(self.values, Elements::F32(_)) { 0 } else { self.width * self.depth }
    }

    /// A row of the weight in f32.
    fn row(&self, row: usize, out: &mut [f32]) {
        let start = row / self.width * self.width * self.depth + row % self.width;
        let at = |k: usize| start + k * self.width;
        match &self.values {
            Elements::F32(values) => out.iter_mut().enumerate().for_each(|(k, o)| *o = values[at(k)]),
            Elements::F16(values) => {
                out.iter_mut().enumerate().for_each(|(k, o)| *o = values[at(k)].to_f32());
            }
            Elements::Bf16(values) => {
                out.iter_mut().enumerate().for_each(|(k, o)| *o = values[at(k)].to_f32());
            }
        }
    }

    /// Every row of the weight, one after the other.
    pub(crate) fn to_f32(&self) -> Vec<f32> {
        match &self.values {
            Elements::F32(values) => self.unpacked(values),
            Elements::F16(values) => self.unpacked(values).to_f32_vec(),
            Elements::Bf16(values) => self.unpacked(values).to_f32_vec(),
        }
    }

    /// Values in panels, as rows.
    pub(crate) fn unpacked<T: Copy + Default + Send + Sync>(&self, panels: &[T]) -> Vec<T> {
        let (width, depth) = (self.width, self.depth);
        let mut rows = vec![T::default(); self.len()];
        let size = (width * depth).max(1);
        rows.par_chunks_mut(size).zip(panels.par_chunks(size)).for_each(|(rows, panel)| {
            for (column, row) in rows.chunks_mut(depth).enumerate() {
                row.iter_mut().enumerate().for_each(|(k, x)| *x = panel[k * width + column]);
            }
        });
        rows
    }
}

/// Rows that are packed together, so that their cache lines are used completely before they are dropped.
const BLOCK: usize = 16;

/// Rows as panels.
pub(crate) fn packed<T: Copy + Default + Send + Sync>(rows: &[T], depth: usize, width: usize) -> Vec<T> {
    let size = width * depth;
    let count = rows.len() / depth.max(1);
    let mut panels = vec![T::default(); count.div_ceil(width.max(1)) * size];
    panels.par_chunks_mut(size.max(1)).zip(rows.par_chunks(size.max(1))).for_each(|(panel, rows)| {
        for from in (0..depth).step_by(BLOCK) {
            let to = depth.min(from + BLOCK);
            for (column, row) in rows.chunks(depth).enumerate() {
                for k in from..to {
                    panel[k * width + column] = row[k];
                }
            }
        }
    });
    panels
}

/// The values of a tensor, in either layout.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stored {
    /// As in a file.
    Rows(Elements),
    /// As a product reads them.
    Panels(Panels),
}

impl Stored {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Rows(values) => values.len(),
            Self::Panels(panels) => panels.len(),
        }
    }

    /// The values as they lie, where they are in f32.
    pub(crate) fn f32_mut(&mut self) -> Option<&mut [f32]> {
        match self {
            Self::Rows(Elements::F32(values)) => Some(values),
            Self::Panels(Panels { values: Elements::F32(values), .. }) => Some(values),
            Self::Rows(_) | Self::Panels(_) => None,
        }
    }

    /// Some of the values, row by row.
    pub(crate) fn range(&self, from: usize, to: usize) -> Cow<'_, [f32]> {
        match self {
            Self::Rows(values) => values.range(from, to),
            Self::Panels(panels) => {
                let mut values = panels.to_f32();
                values.truncate(to);
                values.drain(..from);
                values.into()
            }
        }
    }

    /// A row of a table, counted from element `from`, into `out`.
    pub(crate) fn row(&self, from: usize, row: usize, out: &mut [f32]) {
        match self {
            Self::Rows(values) => values.write(from + row * out.len(), out),
            Self::Panels(panels) => panels.row(row, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that a half holds exactly.
    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i % 97) as f32 / 4.0 - 10.0).collect()
    }

    #[test]
    fn panels_hold_every_value_in_its_type() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (rows, depth, width) in [(1, 1, 4), (7, 3, 4), (8, 20, 4), (33, 40, 32), (0, 5, 8), (5, 0, 8)]
            {
                let values = numbers(rows * depth);
                let elements = Elements::of(values.clone(), dtype);
                assert_eq!(*elements.range(0, values.len()), values);
                let panels = Panels::pack(&elements, 0, values.len(), depth, width);
                assert_eq!(panels.to_f32(), values, "{dtype:?} {rows} × {depth}");
                assert_eq!(
                    panels.of_width(2 * width),
                    Panels::pack(&elements, 0, values.len(), depth, 2 * width)
                );
                let stored = Stored::Panels(panels.clone());
                for row in 0..if depth == 0 { 0 } else { rows } {
                    let mut out = vec![0.0; depth];
                    stored.row(0, row, &mut out);
                    assert_eq!(out, values[row * depth..][..depth]);
                    let mut scratch = vec![0.0; panels.scratch()];
                    let panel = panels.panel(row / width, &mut scratch);
                    let column: Vec<f32> = (0..depth).map(|k| panel[k * width + row % width]).collect();
                    assert_eq!(column, out);
                }
            }
        }
    }

    #[test]
    fn a_part_of_a_tensor_is_packed_alone() {
        let elements = Elements::of(numbers(60), DType::F32);
        let panels = Panels::pack(&elements, 20, 40, 5, 3);
        assert_eq!((panels.rows(), panels.count(), panels.to_f32()), (4, 2, numbers(60)[20..40].to_vec()));
    }
}
