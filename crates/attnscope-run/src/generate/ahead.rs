//! A decoder that has already read the first tokens.

use crate::error::RunError;
use crate::executor::Decode;

/// A decoder that has already read the first tokens of its only row; its caller gives them again.
pub(crate) struct Ahead<'d> {
    pub(crate) inner: &'d mut dyn Decode,
    /// How many it has read.
    pub(crate) read: usize,
    /// The logits after them.
    pub(crate) logits: Vec<f32>,
}

impl Decode for Ahead<'_> {
    fn advance(&mut self, tokens: &[Vec<u32>]) -> Result<&[f32], RunError> {
        let known = self.read;
        if known > 0 && tokens.iter().all(|row| row.len() == known) {
            self.read = 0;
            return Ok(&self.logits);
        }
        let new: Vec<Vec<u32>> =
            tokens.iter().map(|row| row.get(known..).unwrap_or_default().to_vec()).collect();
        let logits = self.inner.advance(&new)?;
        self.read = 0;
        Ok(logits)
    }

    fn reorder(&mut self, rows: &[usize]) -> Result<(), RunError> {
        self.inner.reorder(rows)
    }
}
