//! From examples to what a learner reads: a checked input, and what its output should say.

use attnscope_graph::{Model, Side};
use attnscope_run::{CheckedInput, Input, Limits, PadSide, Rows, Sequence, Shift, Targets, pad_token};

use crate::error::TrainError;
use crate::examples::Examples;

/// How examples of a model become batches.
#[derive(Debug, Clone)]
pub(crate) struct BatchMaker {
    pad: u32,
    /// How the decoder's input is made; a classifier has none.
    shift: Option<Shift>,
    /// What all texts are padded to.
    length: usize,
    smoothing: f32,
}

/// A batch that can be learned from.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) input: CheckedInput,
    pub(crate) targets: Targets,
    /// Positions of all sequences, and how many of them are tokens.
    pub(crate) cells: usize,
    pub(crate) tokens: usize,
}

/// Bytes of a position of padded texts: its id as it is padded, read and checked, and what is open of it.
const PADDED_POSITION: u64 = 15;

impl BatchMaker {
    /// For a model; `length` is what a classifier's texts are padded to.
    pub(crate) fn new(model: &Model, length: Option<usize>, smoothing: f64) -> Result<Self, TrainError> {
        let shift = match length {
            Some(_) => None,
            None => Some(Shift::of(model, &[])?),
        };
        let pad = pad_token(model)?.unwrap_or(0);
        Ok(Self { pad, shift, length: length.unwrap_or(0), smoothing: smoothing as f32 })
    }

    /// The same without label smoothing: for the negative log-likelihood alone.
    #[must_use]
    pub(crate) fn unsmoothed(&self) -> Self {
        Self { smoothing: 0.0, ..self.clone() }
    }

    /// Some examples as one batch.
    pub(crate) fn batch(
        &self,
        model: &Model,
        examples: &Examples,
        chosen: &[usize],
    ) -> Result<Batch, TrainError> {
        let (input, classes) = match examples.select(chosen) {
            Examples::Labelled { texts, classes } => {
                let positions = (texts.len() as u64).saturating_mul(self.length as u64);
                Limits::default().check_memory(positions.saturating_mul(PADDED_POSITION))?;
                let rows = Rows::padded(&texts, self.pad, PadSide::Right, self.length);
                (Input::of(Side::Source, Sequence::Tokens(rows)), classes.into_iter().map(Some).collect())
            }
            Examples::Pairs { sources, targets } => {
                let read = |target: &Vec<u32>| match &self.shift {
                    Some(shift) => shift.apply(target),
                    None => target.clone(),
                };
                let read: Vec<Vec<u32>> = targets.iter().map(read).collect();
                let rows = Rows::new(&read, self.pad);
                let labels = labels(&targets, rows.length());
                (Input::pair(Sequence::Tokens(Rows::new(&sources, self.pad)), rows), labels)
            }
        };
        let sides = input.tokens().map(|(_, rows)| rows.open());
        let (cells, tokens) = sides.fold((0, 0), |(cells, tokens), open| {
            (cells + open.len(), tokens + open.iter().filter(|&&is_token| is_token).count())
        });
        let targets = Targets { classes, smoothing: self.smoothing };
        Ok(Batch { input: CheckedInput::new(model, input)?, targets, cells, tokens })
    }
}

/// The label of each position, [batch, length]; none for padding.
fn labels(targets: &[Vec<u32>], length: usize) -> Vec<Option<u32>> {
    targets.iter().flat_map(|target| (0..length).map(|i| target.get(i).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::labels;

    #[test]
    fn padding_has_no_label() {
        assert_eq!(labels(&[vec![5, 1], vec![1]], 2), [Some(5), Some(1), Some(1), None]);
    }
}
