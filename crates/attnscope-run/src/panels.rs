//! The layout of a weight's values: row by row as in a file, or in panels as a product reads them; in their own type.

use std::borrow::Cow;

use attnscope_checkpoint::{Blocks, StoredValues};
use half::slice::HalfFloatSliceExt;
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::right_side::RightSide;

/// Values in the type that a file holds them in, where that is a half or quantised in blocks; else in f32.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Elements {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    Blocks(Blocks),
}

impl From<StoredValues> for Elements {
    fn from(values: StoredValues) -> Self {
        match values {
            StoredValues::F32(values) => Self::F32(values),
            StoredValues::F16(bits) => Self::F16(bits.reinterpret_into()),
            StoredValues::Bf16(bits) => Self::Bf16(bits.reinterpret_into()),
            StoredValues::Blocks(blocks) => Self::Blocks(blocks),
        }
    }
}

impl Elements {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
            Self::Blocks(blocks) => blocks.len(),
        }
    }

    /// Some of them in f32.
    pub(crate) fn range(&self, from: usize, to: usize) -> Cow<'_, [f32]> {
        match self {
            Self::F32(values) => values[from..to].into(),
            _ => {
                let mut values = vec![0.0; to - from];
                self.write(from, &mut values);
                values.into()
            }
        }
    }

    /// Some of them in f32, where they are asked for.
    pub(crate) fn write(&self, from: usize, out: &mut [f32]) {
        match self {
            Self::F32(values) => out.copy_from_slice(&values[from..][..out.len()]),
            Self::F16(values) => values[from..][..out.len()].convert_to_f32_slice(out),
            Self::Bf16(values) => values[from..][..out.len()].convert_to_f32_slice(out),
            Self::Blocks(blocks) => blocks.widen(from, out),
        }
    }

    /// All of them in f32.
    pub(crate) fn into_f32(self) -> Vec<f32> {
        match self {
            Self::F32(values) => values,
            held => held.range(0, held.len()).into_owned(),
        }
    }

    /// [input, output] → [output, input]
    pub(crate) fn transposed(self, shape: &[usize]) -> Self {
        let columns = shape.last().copied().unwrap_or(1).max(1);
        self.reordered(|n| {
            let rows = n / columns;
            (0..columns).flat_map(move |c| (0..rows).map(move |r| (r * columns + c, 1)))
        })
    }

    /// Rows of several weights that lie head by head, [head, part, row], put part by part: [part, head, row].
    pub(crate) fn part_by_part(self, parts: usize, heads: usize) -> Self {
        self.reordered(|n| {
            let each = n.checked_div(heads * parts).unwrap_or(0);
            let order = (0..parts).flat_map(move |part| (0..heads).map(move |head| head * parts + part));
            order.map(move |piece| (piece * each, each))
        })
    }

    /// The same in another order, pieces of (first, count). Those in blocks are widened: a block is of neighbours.
    fn reordered<I: Iterator<Item = (usize, usize)>>(self, pieces: impl Fn(usize) -> I) -> Self {
        fn put<T: Copy>(values: &[T], pieces: impl Iterator<Item = (usize, usize)>) -> Vec<T> {
            let mut out = Vec::with_capacity(values.len());
            pieces.for_each(|(from, count)| out.extend_from_slice(&values[from..from + count]));
            out
        }
        let pieces = pieces(self.len());
        match self {
            Self::F32(values) => Self::F32(put(&values, pieces)),
            Self::F16(values) => Self::F16(put(&values, pieces)),
            Self::Bf16(values) => Self::Bf16(put(&values, pieces)),
            Self::Blocks(_) => Self::F32(put(&self.into_f32(), pieces)),
        }
    }
}

/// Values in panels.
#[derive(Debug, Clone, PartialEq)]
enum PanelValues {
    /// [k, column]
    F32(Vec<f32>),
    /// [k, column]
    F16(Vec<f16>),
    /// [k, column of the first half]: a bf16 of that column in the lower bits, and one of the column as far into the other half
    /// in the upper bits, so that a shift and a mask widen them.
    Bf16(Vec<u32>),
}

/// A matrix as the right side of a product: of every `width` rows of the weight, which are columns of the product, one panel
/// [k, column]. The last one is filled up with zeros.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panels {
    values: PanelValues,
    width: usize,
    /// Elements of a row of the weight.
    depth: usize,
    /// Rows of the weight.
    rows: usize,
}

/// A panel as tiles read it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Panel<'a> {
    /// [k, column]
    F32(&'a [f32]),
    /// [k, column of the first half], in pairs.
    Bf16(&'a [u32]),
}

impl<'a> From<&'a [f32]> for Panel<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}

/// The two bf16 of a pair.
fn halves(pair: u32) -> [bf16; 2] {
    [bf16::from_bits(pair as u16), bf16::from_bits((pair >> 16) as u16)]
}

impl Panels {
    /// Packs rows of `depth` elements, from one element of `rows` to another.
    pub(crate) fn pack(rows: &Elements, from: usize, to: usize, depth: usize, width: usize) -> Self {
        let count = (to - from) / depth.max(1);
        let values = match rows {
            Elements::F32(values) => PanelValues::F32(packed(&values[from..to], depth, width)),
            Elements::F16(values) => PanelValues::F16(packed(&values[from..to], depth, width)),
            Elements::Bf16(values) => PanelValues::Bf16(packed_pairs(&values[from..to], depth, width)),
            Elements::Blocks(_) => PanelValues::F32(packed(&rows.range(from, to), depth, width)),
        };
        Self { values, width, depth, rows: count }
    }

    /// The same values in panels of another width.
    pub(crate) fn of_width(&self, width: usize) -> Self {
        let rows = self.to_rows();
        Self::pack(&rows, 0, rows.len(), self.depth, width)
    }

    /// How a product reads it.
    pub(crate) fn right_side(&self) -> RightSide<'_> {
        RightSide::of_panels(self, [self.depth, self.width, self.rows])
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// How many values the weight has.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.depth
    }

    /// One panel; `scratch` is used to widen it where tiles cannot read its type.
    pub(crate) fn panel<'a>(&'a self, i: usize, scratch: &'a mut [f32]) -> Panel<'a> {
        let size = self.width * self.depth;
        match &self.values {
            PanelValues::F32(values) => Panel::F32(&values[i * size..][..size]),
            PanelValues::F16(values) => {
                values[i * size..][..size].convert_to_f32_slice(&mut scratch[..size]);
                Panel::F32(&scratch[..size])
            }
            PanelValues::Bf16(pairs) => {
                let size = self.width.div_ceil(2) * self.depth;
                Panel::Bf16(&pairs[i * size..][..size])
            }
        }
    }

    /// Elements that [`Panels::panel`] needs to widen one.
    pub(crate) fn scratch(&self) -> usize {
        match self.values {
            PanelValues::F16(_) => self.width * self.depth,
            PanelValues::F32(_) | PanelValues::Bf16(_) => 0,
        }
    }

    /// A row of the weight in f32.
    fn row(&self, row: usize, out: &mut [f32]) {
        let (panel, column) = (row / self.width, row % self.width);
        let start = panel * self.width * self.depth + column;
        let at = |k: usize| start + k * self.width;
        match &self.values {
            PanelValues::F32(values) => out.iter_mut().enumerate().for_each(|(k, o)| *o = values[at(k)]),
            PanelValues::F16(values) => {
                out.iter_mut().enumerate().for_each(|(k, o)| *o = values[at(k)].to_f32());
            }
            PanelValues::Bf16(pairs) => {
                let half = self.width.div_ceil(2);
                let start = panel * half * self.depth + column % half;
                let at = |k: usize| halves(pairs[start + k * half])[column / half].to_f32();
                out.iter_mut().enumerate().for_each(|(k, o)| *o = at(k));
            }
        }
    }

    /// Every row of the weight, one after the other, in their type.
    fn to_rows(&self) -> Elements {
        match &self.values {
            PanelValues::F32(values) => Elements::F32(self.unpacked(values)),
            PanelValues::F16(values) => Elements::F16(self.unpacked(values)),
            PanelValues::Bf16(pairs) => Elements::Bf16(self.unpacked(&apart(pairs, self.width))),
        }
    }

    /// Values in panels, [k, column], as rows.
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

/// Pairs as columns, [k, column].
fn apart(pairs: &[u32], width: usize) -> Vec<bf16> {
    let half = width.div_ceil(2);
    let mut columns = Vec::with_capacity(pairs.len() * 2);
    for pairs in pairs.chunks(half.max(1)) {
        let column = |c: usize| halves(pairs[c % half])[c / half];
        columns.extend((0..width).map(column));
    }
    columns
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

/// Rows of bf16 as panels of pairs.
fn packed_pairs(rows: &[bf16], depth: usize, width: usize) -> Vec<u32> {
    let size = width.div_ceil(2) * depth;
    let count = rows.len() / depth.max(1);
    let mut panels = vec![0; count.div_ceil(width.max(1)) * size];
    let rows = rows.par_chunks((width * depth).max(1));
    panels.par_chunks_mut(size.max(1)).zip(rows).for_each(|(panel, rows)| pair(rows, depth, width, panel));
    panels
}

/// Rows of bf16, at most `width`, as one panel of pairs. Missing rows are 0.
pub(crate) fn pair(rows: &[bf16], depth: usize, width: usize, panel: &mut [u32]) {
    /// Pairs that are written together, and elements of a row that are read together.
    const ACROSS: usize = 8;
    let half = width.div_ceil(2);
    let row = |i: usize| rows.get(i * depth..(i + 1) * depth).unwrap_or_default();
    let whole = rows.len() >= width * depth && half.is_multiple_of(ACROSS) && width.is_multiple_of(2);
    if !whole {
        for column in 0..half {
            let (low, high) = (row(column), if half + column < width { row(half + column) } else { &[] });
            let bits = |row: &[bf16], k: usize| u32::from(row.get(k).map_or(0, |x| x.to_bits()));
            let cells = panel.iter_mut().skip(column).step_by(half).enumerate();
            cells.take(depth).for_each(|(k, to)| *to = bits(low, k) | bits(high, k) << 16);
        }
        return;
    }
    for from in (0..depth).step_by(BLOCK) {
        let to = depth.min(from + BLOCK);
        for column in (0..half).step_by(ACROSS) {
            let low: [&[bf16]; ACROSS] = std::array::from_fn(|i| &row(column + i)[from..to]);
            let high: [&[bf16]; ACROSS] = std::array::from_fn(|i| &row(half + column + i)[from..to]);
            for k in from..to {
                let cells = &mut panel[k * half + column..][..ACROSS];
                for i in 0..ACROSS {
                    let bits = |x: bf16| u32::from(x.to_bits());
                    cells[i] = bits(low[i][k - from]) | bits(high[i][k - from]) << 16;
                }
            }
        }
    }
}

/// The values of a tensor in memory, in either layout.
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
            Self::Panels(Panels { values: PanelValues::F32(values), .. }) => Some(values),
            Self::Rows(_) | Self::Panels(_) => None,
        }
    }

    /// Some of the values, row by row.
    pub(crate) fn range(&self, from: usize, to: usize) -> Cow<'_, [f32]> {
        match self {
            Self::Rows(values) => values.range(from, to),
            Self::Panels(panels) => {
                let mut values = panels.to_rows().into_f32();
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
    use attnscope_checkpoint::DType;

    use super::*;

    /// Values that a half holds exactly.
    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i % 97) as f32 / 4.0 - 10.0).collect()
    }

    fn elements(values: &[f32], dtype: DType) -> Elements {
        match dtype {
            DType::F16 => Elements::F16(values.iter().map(|&x| f16::from_f32(x)).collect()),
            DType::BF16 => Elements::Bf16(values.iter().map(|&x| bf16::from_f32(x)).collect()),
            _ => Elements::F32(values.to_vec()),
        }
    }

    /// A panel in f32, [k, column].
    fn columns(panel: Panel<'_>, width: usize) -> Vec<f32> {
        match panel {
            Panel::F32(values) => values.to_vec(),
            Panel::Bf16(pairs) => apart(pairs, width).into_iter().map(bf16::to_f32).collect(),
        }
    }

    #[test]
    fn panels_hold_every_value_in_its_type() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (rows, depth, width) in [
                (1, 1, 4),
                (7, 3, 4),
                (8, 20, 4),
                (33, 40, 32),
                (64, 37, 32),
                (0, 5, 8),
                (5, 0, 8),
                (7, 4, 3),
            ] {
                let values = numbers(rows * depth);
                let elements = elements(&values, dtype);
                assert_eq!(*elements.range(0, values.len()), values);
                let panels = Panels::pack(&elements, 0, values.len(), depth, width);
                assert_eq!(panels.to_rows(), elements, "{dtype:?} {rows} × {depth}");
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
                    let panel = columns(panels.panel(row / width, &mut scratch), width);
                    let column: Vec<f32> = (0..depth).map(|k| panel[k * width + row % width]).collect();
                    assert_eq!(column, out);
                }
            }
        }
    }

    #[test]
    fn a_part_of_a_tensor_is_packed_alone() {
        let panels = Panels::pack(&Elements::F32(numbers(60)), 20, 40, 5, 3);
        let rows = panels.to_rows();
        assert_eq!((panels.rows, rows), (4, Elements::F32(numbers(60)[20..40].to_vec())));
    }

    #[test]
    fn matrices_are_transposed_and_heads_put_in_order_in_their_type() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let values: Vec<f32> = (0..24).map(|i| i as f32).collect();
            let transposed = elements(&values, dtype).transposed(&[4, 6]);
            let expected: Vec<f32> = (0..24).map(|i| (i % 4 * 6 + i / 4) as f32).collect();
            assert_eq!(transposed, elements(&expected, dtype));
            // [head 2, part 3, 4] → [part 3, head 2, 4]
            let parts = elements(&values, dtype).part_by_part(3, 2);
            let expected: Vec<f32> =
                [0, 12, 4, 16, 8, 20].iter().flat_map(|&from| (from..from + 4).map(|i| i as f32)).collect();
            assert_eq!(parts, elements(&expected, dtype));
        }
    }
}
