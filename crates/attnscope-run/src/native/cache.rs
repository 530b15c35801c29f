//! Keys and values of the target positions that were computed before.

use super::pool::{Buffer, Pool};

/// Room is made for this many positions at first, and doubled when they are full.
const FIRST: usize = 32;

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
    /// Puts the positions from `past` on, [row, position, width], behind those that are there.
    pub(super) fn put(&mut self, pool: &Pool, past: usize, rows: usize, width: usize, new: &[f32]) {
        let length = new.len() / (rows * width).max(1);
        if past == 0 {
            (self.rows, self.width) = (rows, width);
        }
        if self.data.len() < self.rows * self.capacity * width || past + length > self.capacity {
            let capacity = (past + length).next_power_of_two().max(FIRST);
            let order: Vec<usize> = (0..rows).collect();
            self.gather(pool, past, capacity, &order);
        }
        let step = self.step();
        for (row, new) in new.chunks(length * width).enumerate() {
            self.data[row * step + past * width..][..new.len()].copy_from_slice(new);
        }
    }

    /// Continues with these rows, in this order.
    pub(super) fn reorder(&mut self, pool: &Pool, past: usize, rows: &[usize]) {
        self.gather(pool, past, self.capacity, rows);
    }

    fn gather(&mut self, pool: &Pool, past: usize, capacity: usize, rows: &[usize]) {
        let (from, to) = (self.step(), capacity * self.width);
        let filled = past * self.width;
        let mut data = pool.take(rows.len() * to);
        for (new, &row) in data.chunks_mut(to.max(1)).zip(rows) {
            if filled > 0 {
                new[..filled].copy_from_slice(&self.data[row * from..][..filled]);
            }
        }
        self.data = data;
        (self.rows, self.capacity) = (rows.len(), capacity);
    }

    pub(super) fn data(&self) -> &[f32] {
        &self.data
    }

    /// Elements from one row to the next.
    pub(super) fn step(&self) -> usize {
        self.capacity * self.width
    }
}
