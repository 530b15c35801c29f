//! Keys and values of the target positions that were computed before.

use crate::pool::{Buffer, Pool};

/// Capacity for this many positions at first; doubled when they are full.
const FIRST: usize = 32;

/// The positions that room is made for where there are so many.
fn capacity_for(positions: usize) -> usize {
    positions.checked_next_power_of_two().unwrap_or(positions).max(FIRST)
}

/// The rows of one projection, kept as the target grows.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// [row, capacity, width]
    data: Buffer,
    rows: usize,
    capacity: usize,
    width: usize,
}

impl Cache {
    /// Stores the positions from `past` on, [row, position, width], after those before them.
    pub(super) fn put(&mut self, pool: &Pool, past: usize, rows: usize, width: usize, new: &[f32]) {
        let length = new.len() / (rows * width).max(1);
        if past == 0 {
            (self.rows, self.width) = (rows, width);
        }
        if self.data.len() < self.rows * self.capacity * width || self.is_full(past + length) {
            let capacity = capacity_for(past + length);
            let order: Vec<usize> = (0..rows).collect();
            *self = self.gathered(pool, past, capacity, &order);
        }
        let step = self.step();
        for (row, new) in new.chunks(length * width).enumerate() {
            self.data[row * step + past * width..][..new.len()].copy_from_slice(new);
        }
    }

    /// Whether there is no room for so many positions.
    pub(super) fn is_full(&self, positions: usize) -> bool {
        positions > self.capacity
    }

    /// Bytes that it takes once it has room for so many positions, and those of them that are there for a moment: while values
    /// are moved to more room, they are in both.
    pub(super) fn demand(&self, positions: usize, rows: usize, width: usize) -> (u64, u64) {
        if !self.is_full(positions) {
            return (0, 0);
        }
        let of = |capacity: usize| {
            [rows, capacity, width].iter().fold(4, |bytes: u64, &n| bytes.saturating_mul(n as u64))
        };
        let old = of(self.capacity);
        (of(capacity_for(positions)).saturating_sub(old), old)
    }

    /// The same for these rows, in this order.
    pub(super) fn reordered(&self, pool: &Pool, past: usize, rows: &[usize]) -> Self {
        self.gathered(pool, past, self.capacity, rows)
    }

    fn gathered(&self, pool: &Pool, past: usize, capacity: usize, rows: &[usize]) -> Self {
        let (from, to) = (self.step(), capacity * self.width);
        let filled = past * self.width;
        let mut data = pool.take(rows.len() * to);
        for (new, &row) in data.chunks_mut(to.max(1)).zip(rows) {
            if filled > 0 {
                new[..filled].copy_from_slice(&self.data[row * from..][..filled]);
            }
        }
        Self { data, rows: rows.len(), capacity, width: self.width }
    }

    pub(super) fn data(&self) -> &[f32] {
        &self.data
    }

    /// Elements from one row to the next.
    pub(super) fn step(&self) -> usize {
        self.capacity * self.width
    }
}
