//! A tensor that stays in its file until a run needs it.

use attnscope_checkpoint::TensorReader;

use crate::error::RunError;
use crate::panels::Elements;

/// Where the values of some weights are, and how they lie there.
#[derive(Debug)]
pub(crate) struct InFile {
    reader: TensorReader,
    /// [input, output]
    transposed: bool,
    /// Rows of so many weights, head by head of so many.
    by_head: Option<[usize; 2]>,
}

impl InFile {
    pub(crate) fn new(reader: TensorReader, transposed: bool, by_head: Option<[usize; 2]>) -> Self {
        Self { reader, transposed, by_head }
    }

    pub(crate) fn reader(&self) -> &TensorReader {
        &self.reader
    }

    /// How many values it has.
    pub(crate) fn len(&self) -> usize {
        self.reader.info().elements()
    }

    /// Bytes that it takes in memory. Blocks that are put in another order are widened.
    pub(crate) fn bytes(&self) -> u64 {
        let info = self.reader.info();
        match (self.transposed || self.by_head.is_some()) && !info.dtype.is_plain() {
            true => (info.elements() as u64).saturating_mul(4),
            false => self.reader.bytes(),
        }
    }

    /// All of it, as the model's graph has it.
    pub(crate) fn read(&self) -> Result<Elements, RunError> {
        let elements = Elements::from(self.reader.read()?);
        let elements =
            if self.transposed { elements.transposed(&self.reader.info().shape) } else { elements };
        Ok(match self.by_head {
            Some([parts, heads]) => elements.part_by_part(parts, heads),
            None => elements,
        })
    }

    /// Whether a part of it can be read without the rest.
    pub(crate) fn has_parts(&self) -> bool {
        !self.transposed && self.by_head.is_none() && self.reader.has_parts()
    }

    /// Some of its values.
    pub(crate) fn range(&self, from: usize, to: usize) -> Result<Vec<f32>, RunError> {
        if self.has_parts() {
            return Ok(self.reader.read_part(from..to)?);
        }
        Ok(self.read()?.range(from, to).into_owned())
    }
}
