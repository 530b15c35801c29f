//! The gradients of tables: rows that were looked up, positions, distances.

use attnscope_graph::{Node, Positions, Stack};

use super::super::kernels;
use super::Backward;
use super::kernels::add_times;
use crate::error::RunError;
use crate::pool::Buffer;
use crate::position::{Place, bucket, table_row, used_buckets};

/// Rows of a table that one chunk adds to.
const ROWS: usize = 32;

impl Backward<'_> {
    /// out[i] = scale · E[id of i]: every row's gradient goes to its id's.
    pub(super) fn embed(&mut self, node: &Node, scale: f32, dy: &[f32]) {
        let ids = self.input(node, 0);
        let rows: Vec<usize> = ids.iter().map(|&id| id as usize).collect();
        self.scatter(node, &rows, scale, dy);
    }

    pub(super) fn positions(
        &mut self,
        node: &Node,
        kind: Positions,
        offset: usize,
        places: &[Place],
        dy: &[f32],
    ) {
        if kind != Positions::Table {
            return;
        }
        let width = dy.len() / places.len().max(1);
        // A place without a row is a vector of zeros.
        let there = places.iter().zip(dy.chunks(width.max(1)));
        let there = there.filter_map(|(&place, dy)| Some((table_row(place, offset)?, dy)));
        let (rows, dy): (Vec<usize>, Vec<&[f32]>) = there.unzip();
        self.scatter(node, &rows, 1.0, &dy.concat());
    }

    /// Adds rows of a gradient to rows of a table's, as the table lies: row by row, or in panels.
    fn scatter(&mut self, node: &Node, rows: &[usize], scale: f32, dy: &[f32]) {
        let Some((at, mut gradient)) = self.take_parameter(node, 0) else { return };
        let (depth, arch) = (dy.len().checked_div(rows.len()).unwrap_or(0), self.machine.arch);
        let panels = node.weights.first().and_then(|&id| self.weights.right_side(id)).map(|w| w.width());
        let together = panels.unwrap_or(ROWS).max(1);
        // Those that go to the same piece of the table, in their order: no two chunks add to one number.
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&i| rows[i] / together);
        let mut groups = order.chunk_by(|&a, &b| rows[a] / together == rows[b] / together).peekable();
        let mut pieces = Vec::new();
        for (i, piece) in gradient.chunks_mut((together * depth).max(1)).enumerate() {
            if let Some(group) = groups.next_if(|group| rows[group[0]] / together == i) {
                pieces.push((piece, group));
            }
        }
        self.machine.team.each_of(&mut pieces, |_, (piece, group)| {
            for &i in *group {
                let (row, dy) = (rows[i] % together, &dy[i * depth..][..depth]);
                match panels {
                    Some(width) => {
                        let cells = piece.iter_mut().skip(row).step_by(width);
                        cells.zip(dy).for_each(|(to, dy)| *to += scale * dy);
                    }
                    None => add_times(arch, &mut piece[row * depth..][..depth], scale, dy),
                }
            }
        });
        self.parameters[at] = gradient;
    }

    /// Embeddings plus terms that may be the same for every row of the batch.
    pub(super) fn add_positions(&mut self, node: &Node, dy: Buffer) -> Result<(), RunError> {
        for (i, &term) in node.inputs.iter().enumerate().skip(1) {
            let len = self.shape(term)?.iter().product::<usize>().max(1);
            let mut sum = self.machine.pool.take_zeroed(len);
            dy.chunks(len).for_each(|dy| kernels::add(self.machine.arch, &mut sum, dy));
            self.give(node, i, sum);
        }
        self.give(node, 0, dy);
        Ok(())
    }

    /// The gradient of each cell, [1, head, query, key], goes to its bucket's.
    pub(super) fn relative_bias(
        &mut self,
        node: &Node,
        stack: Stack,
        [buckets, max_distance]: [usize; 2],
        shape: &[usize],
        dy: &[f32],
    ) {
        let (heads, queries, keys) = (shape[1], shape[2], shape[3]);
        let Some((at, mut gradient)) = self.take_parameter(node, 0) else { return };
        let buckets = used_buckets(buckets, gradient.len() / heads.max(1));
        let first = self.window.first(stack.side());
        for (n, dy) in dy.iter().enumerate() {
            let (h, t, s) = (n / (queries * keys), n / keys % queries, n % keys);
            gradient[bucket(stack, first + t, s, buckets, max_distance) * heads + h] += dy;
        }
        self.parameters[at] = gradient;
    }
}
