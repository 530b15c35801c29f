//! A weight as the right side of a product: panel after panel, each ready to be read or made when it is.

use crate::panels::{Elements, Panel, Panels, pair};

/// Elements of a row that are widened at once where a panel is made of rows: as many as the largest block of a quantised type.
const STRIP: usize = 256;
/// Elements between such pieces of rows: not a power of two, so that the pieces do not push each other out of the nearest cache.
const STEP: usize = STRIP + 16;

/// The right side of a product. Rows of the weight are columns of the product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RightSide<'a> {
    values: Lying<'a>,
    width: usize,
    depth: usize,
    rows: usize,
}

#[derive(Debug, Clone, Copy)]
enum Lying<'a> {
    Panels(&'a Panels),
    /// Row after row from an element on, as in a file: a panel is widened and packed when it is read.
    Rows(&'a Elements, usize),
}

impl<'a> RightSide<'a> {
    pub(crate) fn of_panels(panels: &'a Panels, [depth, width, rows]: [usize; 3]) -> Self {
        Self { values: Lying::Panels(panels), width, depth, rows }
    }

    /// Rows of `depth` elements, from one element to another.
    pub(crate) fn of_rows(
        elements: &'a Elements,
        from: usize,
        to: usize,
        [depth, width]: [usize; 2],
    ) -> Self {
        Self { values: Lying::Rows(elements, from), width, depth, rows: (to - from) / depth.max(1) }
    }

    /// Columns of a panel.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Elements of a row of the weight.
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

    /// Elements that [`RightSide::panel`] needs to make one.
    pub(crate) fn scratch(&self) -> usize {
        match self.values {
            Lying::Panels(panels) => panels.scratch(),
            Lying::Rows(Elements::Bf16(_), _) => self.width.div_ceil(2) * self.depth,
            Lying::Rows(..) => self.width * (self.depth + STEP),
        }
    }

    /// One panel; `scratch` is used to make it where it does not lie ready.
    pub(crate) fn panel<'s>(&'s self, i: usize, scratch: &'s mut [f32]) -> Panel<'s> {
        let (width, depth) = (self.width, self.depth);
        let (elements, start) = match self.values {
            Lying::Panels(panels) => return panels.panel(i, scratch),
            Lying::Rows(elements, from) => (elements, from + i * width * depth),
        };
        let rows = width.min(self.rows - i * width);
        if let Elements::Bf16(values) = elements {
            let pairs = bytemuck::cast_slice_mut(&mut scratch[..width.div_ceil(2) * depth]);
            pair(&values[start..][..rows * depth], depth, width, pairs);
            return Panel::Bf16(pairs);
        }
        let (panel, strips) = scratch.split_at_mut(width * depth);
        if rows < width {
            panel.fill(0.0);
        }
        for from in (0..depth).step_by(STRIP) {
            let some = STRIP.min(depth - from);
            for (row, strip) in strips.chunks_mut(STEP).take(rows).enumerate() {
                elements.write(start + row * depth + from, &mut strip[..some]);
            }
            put_columns(strips, some, &mut panel[from * width..][..some * width], width, rows);
        }
        Panel::F32(panel)
    }

    /// All panels one after the other, in f32.
    pub(crate) fn write(&self, out: &mut [f32]) {
        let mut scratch = vec![0.0; self.scratch()];
        for (i, out) in out.chunks_mut((self.width * self.depth).max(1)).take(self.count()).enumerate() {
            self.write_panel(i, &mut scratch, out);
        }
    }

    /// One panel in f32, [k, column].
    fn write_panel(&self, i: usize, scratch: &mut [f32], out: &mut [f32]) {
        match self.panel(i, scratch) {
            Panel::F32(values) => out.copy_from_slice(values),
            Panel::Bf16(pairs) => {
                let half = self.width.div_ceil(2).max(1);
                for (out, pairs) in out.chunks_mut(self.width.max(1)).zip(pairs.chunks(half)) {
                    let (low, high) = out.split_at_mut(half);
                    low.iter_mut().zip(pairs).for_each(|(out, pair)| *out = f32::from_bits(pair << 16));
                    high.iter_mut()
                        .zip(pairs)
                        .for_each(|(out, pair)| *out = f32::from_bits(pair & 0xffff_0000));
                }
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
        let mut widened = Vec::new();
        for (i, out) in out.chunks_mut(width * width).take(self.count()).enumerate() {
            let panel = match self.panel(i, &mut scratch) {
                Panel::F32(values) => values,
                Panel::Bf16(_) => {
                    widened.resize(width * depth, 0.0);
                    self.write_panel(i, &mut scratch, &mut widened);
                    &widened
                }
            };
            let panel = &panel[from * width..][..columns * width];
            for (column, values) in panel.chunks_exact(width).enumerate() {
                out.iter_mut().skip(column).step_by(width).zip(values).for_each(|(to, &x)| *to = x);
            }
        }
    }
}

/// Pieces of rows as columns of a panel: [row, k] → [k, column].
fn put_columns(strips: &[f32], some: usize, panel: &mut [f32], width: usize, rows: usize) {
    /// Columns that are written together.
    const ACROSS: usize = 8;
    let mut column = 0;
    while column + ACROSS <= rows {
        let from: [&[f32]; ACROSS] = std::array::from_fn(|i| &strips[(column + i) * STEP..][..some]);
        for k in 0..some {
            let to = &mut panel[k * width + column..][..ACROSS];
            for i in 0..ACROSS {
                to[i] = from[i][k];
            }
        }
        column += ACROSS;
    }
    for column in column..rows {
        let from = &strips[column * STEP..][..some];
        panel.iter_mut().skip(column).step_by(width).zip(from).for_each(|(to, &x)| *to = x);
    }
}

#[cfg(test)]
mod tests {
    use attnscope_checkpoint::{Blocks, DType};
    use half::{bf16, f16};

    use super::*;

    fn every_type(values: &[f32]) -> Vec<Elements> {
        vec![
            Elements::F32(values.to_vec()),
            Elements::F16(values.iter().map(|&x| f16::from_f32(x)).collect()),
            Elements::Bf16(values.iter().map(|&x| bf16::from_f32(x)).collect()),
        ]
    }

    fn all_panels(side: RightSide<'_>) -> Vec<f32> {
        let mut all = vec![f32::NAN; side.count() * side.width() * side.depth()];
        side.write(&mut all);
        all
    }

    #[test]
    fn panels_made_of_rows_are_those_that_were_packed() {
        for (rows, depth, width) in
            [(1, 1, 4), (7, 3, 4), (33, 300, 32), (64, 512, 32), (5, 37, 2), (9, 8, 16)]
        {
            let values: Vec<f32> = (0..(rows + 1) * depth).map(|i| (i % 211) as f32 / 8.0 - 9.0).collect();
            for elements in every_type(&values) {
                // From the second row on.
                let packed = Panels::pack(&elements, depth, values.len(), depth, width);
                let made = RightSide::of_rows(&elements, depth, values.len(), [depth, width]);
                assert_eq!(all_panels(made), all_panels(packed.right_side()), "{rows} × {depth} by {width}");
                let mut columns = [vec![0.0; rows.next_multiple_of(width) * width], Vec::new()];
                columns[1] = columns[0].clone();
                made.columns(depth / 2, &mut columns[0]);
                packed.right_side().columns(depth / 2, &mut columns[1]);
                assert_eq!(columns[0], columns[1]);
            }
        }
    }

    #[test]
    fn blocks_are_widened_a_panel_at_a_time() {
        for (dtype, depth) in [(DType::Q8_0, 64), (DType::Q4_0, 288), (DType::Q4K, 512), (DType::Q6K, 256)] {
            let (values, size) = dtype.block();
            let rows = 21;
            let bytes = (0..rows * depth / values * size).map(|i| (i * 89 % 241) as u8 & 0x3f).collect();
            let blocks = Elements::Blocks(Blocks::new(dtype, bytes).unwrap());
            let widened = Elements::F32(blocks.range(0, blocks.len()).into_owned());
            let from = 2 * depth;
            let packed = Panels::pack(&widened, from, widened.len(), depth, 16);
            let made = RightSide::of_rows(&blocks, from, blocks.len(), [depth, 16]);
            assert_eq!((made.rows(), made.count()), (19, 2));
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(all_panels(made)), bits(all_panels(packed.right_side())), "{dtype}");
        }
    }
}
