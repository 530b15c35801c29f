//! What one pass computes: some positions of the target after the known ones, for rows that each read a row of the source. A
//! full run is the window that starts at 0.

use attnscope_graph::{Dim, MaskKind, Node, PositionCount, Side, Sizes};

use crate::error::RunError;
use crate::input::{Input, Rows, Sequence};
use crate::mask::{masked_by, padding_without_keys};
use crate::position::{Place, places};

/// The positions of a pass, and what it reads.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    /// What the nodes of the source read; absent once they have run.
    pub(super) source: Option<&'a Sequence>,
    /// Which source positions are tokens, [source row, position]; all of them where absent.
    pub(super) source_open: Option<&'a [bool]>,
    /// [row, position in the window]
    pub(super) target: &'a [u32],
    /// Which target positions are tokens, [row, position]; all of them where absent.
    pub(super) target_open: Option<&'a [bool]>,
    /// Target positions before the window.
    pub(super) past: usize,
    /// Target positions in the window.
    pub(super) length: usize,
    /// The source row of each row of the target.
    pub(super) rows: &'a [usize],
    /// Of the source.
    pub(super) sizes: &'a Sizes,
}

impl<'a> Window<'a> {
    /// All of an input: each row looks at its own row of the source, which `rows` counts.
    pub(super) fn whole(input: &'a Input, rows: &'a [usize], sizes: &'a Sizes) -> Self {
        let target = input.rows(Side::Target);
        Self {
            source: input.sequence(Side::Source),
            source_open: input.rows(Side::Source).map(Rows::open),
            target: target.map_or(&[], Rows::ids),
            target_open: target.map(Rows::open),
            past: 0,
            length: target.map_or(0, Rows::length),
            rows,
            sizes,
        }
    }
}

impl Window<'_> {
    /// The shape of a node's tensor in this pass.
    pub(super) fn shape(&self, node: &Node, on_target: bool) -> Result<Vec<usize>, RunError> {
        let size = |(i, &dim): (usize, &Dim)| match dim {
            Dim::Batch if on_target => Some(self.rows.len()),
            Dim::Target if i == 3 && node.op.facets().counts_keys => Some(self.past + self.length),
            Dim::Target => Some(self.length),
            _ => self.sizes.get(dim),
        };
        let shape: Option<Vec<usize>> = node.dims.iter().enumerate().map(size).collect();
        shape.ok_or_else(|| RunError::NoShape { of: node.path.to_string() })
    }

    /// Position 0 of a side in this pass.
    pub(super) fn first(&self, side: Side) -> usize {
        match side {
            Side::Source => 0,
            Side::Target => self.past,
        }
    }

    /// The number of every position of a side: for one row where all rows are equal, else [row, position].
    pub(super) fn places(
        &self,
        side: Side,
        count: PositionCount,
        offset: usize,
        shape: &[usize],
    ) -> Vec<Place> {
        let (rows, first) = (shape.first().copied().unwrap_or(1), self.first(side));
        let length = shape.get(1).copied().unwrap_or(0);
        let (ids, open) = match (side, self.source) {
            (Side::Source, Some(Sequence::Tokens(tokens))) => (tokens.ids(), self.source_open),
            (Side::Source, _) => (&[][..], None),
            (Side::Target, _) => (self.target, self.target_open),
        };
        if count == PositionCount::Places || ids.is_empty() {
            return (0..rows).flat_map(|_| (first..first + length).map(Some)).collect();
        }
        let row = |(row, ids)| {
            let start = row * (first + length);
            let is_open = move |at: usize| open.is_none_or(|open| open.get(start + at) == Some(&true));
            // As Hugging Face counts with a cache: every known token, pad ids included.
            let before = (0..first).filter(|&at| is_open(at)).count();
            places(ids, (first..first + length).map(is_open), offset, before).collect::<Vec<_>>()
        };
        ids.chunks(length.max(1)).enumerate().flat_map(row).collect()
    }

    /// The row of `keys` that a row of `queries` reads.
    fn key_row(&self, kind: MaskKind, row: usize) -> usize {
        match (kind.queries, kind.keys) {
            (Side::Target, Side::Source) => self.rows[row],
            _ => row,
        }
    }

    /// How many queries of this pass are padding whose window holds no token.
    pub(super) fn padding_without_keys(&self, kind: MaskKind, extent: [usize; 3]) -> usize {
        let (open, length) = self.open(kind.queries);
        let first = self.first(kind.queries);
        let is_padding =
            |row: usize, query: usize| open.is_some_and(|open| !open[row * length + first + query]);
        padding_without_keys(kind, extent, is_padding, |row, query, key| {
            self.is_visible(kind, row, query, key)
        })
    }

    /// Which positions of a side are tokens, all where absent, and how many there are in a row.
    fn open(&self, side: Side) -> (Option<&[bool]>, usize) {
        match side {
            Side::Source => (self.source_open, self.sizes.get(Dim::Source).unwrap_or(0)),
            Side::Target => (self.target_open, self.past + self.length),
        }
    }

    /// Whether a key is visible to a query of a row, counted from the window's start.
    pub(super) fn is_visible(&self, kind: MaskKind, row: usize, query: usize, key: usize) -> bool {
        let (open, length) = self.open(kind.keys);
        let is_token = || open.is_none_or(|open| open[self.key_row(kind, row) * length + key]);
        masked_by(kind, self.first(kind.queries) + query, key, is_token).is_none()
    }
}
