//! Buffers that are used again: fresh pages cost more than most kernels that fill them.

/// Buffers that nobody holds.
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Vec<f32>>);

impl Pool {
    /// A buffer of that length. What it holds is left over from before.
    pub(crate) fn take(&mut self, len: usize) -> Vec<f32> {
        // The smallest that is large enough, so that the large ones stay for those who need them.
        let fits = |(_, b): &(usize, &Vec<f32>)| b.capacity() >= len;
        let best = self.0.iter().enumerate().filter(fits).min_by_key(|(_, b)| b.capacity()).map(|(i, _)| i);
        let mut buffer = best.map(|i| self.0.swap_remove(i)).unwrap_or_default();
        buffer.resize(len, 0.0);
        buffer
    }

    /// A buffer of that length that holds zeros.
    pub(crate) fn take_zeroed(&mut self, len: usize) -> Vec<f32> {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Vec<f32>) {
        if buffer.capacity() > 0 {
            self.0.push(buffer);
        }
    }
}
