//! Sentence pairs in token ids, and what a decoder reads and should write for each.

use attnscope_graph::{Model, Side, Switch};
use attnscope_run::{Shift, position_room};

/// Fewer pairs than this are not judged by: what they show may be theirs and not the model's.
pub(crate) const LEAST_PAIRS: usize = 20;

/// Pairs that a model is judged on.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// What the encoder reads, a sentence each.
    pub sources: Vec<Vec<u32>>,
    /// What the decoder should write, each with its end.
    pub targets: Vec<Vec<u32>>,
    /// How the decoder's input is made from that.
    pub shift: Shift,
    /// What fills the shorter rows of a batch.
    pub pad: u32,
}

/// What a decoder reads, and what its logits are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) input: Vec<u32>,
    pub(crate) labels: Vec<u32>,
    /// The position whose logits speak of the first label.
    pub(crate) first: usize,
}

impl Corpus {
    /// How many pairs.
    pub fn len(&self) -> usize {
        self.sources.len().min(self.targets.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first pairs only.
    pub fn first(&self, pairs: usize) -> Self {
        let take = |rows: &[Vec<u32>]| rows.iter().take(pairs).cloned().collect();
        Self { sources: take(&self.sources), targets: take(&self.targets), ..self.clone() }
    }

    /// What the decoder reads for a pair. `shift`: behind a start token, as it should be; else the target itself.
    pub(crate) fn decoded(&self, pair: usize, shift: &Shift, shifted: bool) -> Decoded {
        let target = self.targets.get(pair).map(Vec::as_slice).unwrap_or_default();
        let labels = target.to_vec();
        match shift {
            // The sentence has its own start, which nobody has to write.
            Shift::AsIs => {
                let input = if shifted {
                    &target[..target.len().saturating_sub(1)]
                } else {
                    target.get(1..).unwrap_or_default()
                };
                Decoded {
                    input: input.to_vec(),
                    labels: target.get(1..).unwrap_or_default().to_vec(),
                    first: 0,
                }
            }
            _ if !shifted => Decoded { input: labels.clone(), labels, first: 0 },
            _ => {
                let input = shift.apply(target);
                let first = input.len().saturating_sub(labels.len());
                Decoded { input, labels, first }
            }
        }
    }

    /// Whether a model that begins its decoder in some way has a position for every token of every pair.
    pub(crate) fn fits(&self, model: &Model, shift: &Shift) -> bool {
        let shifted = model.wiring.decoder_shift == Switch::On;
        let room = |side: Side| position_room(model, side).unwrap_or(usize::MAX);
        let (source, target) = (room(Side::Source), room(Side::Target));
        self.sources.iter().all(|row| row.len() <= source)
            && (0..self.len()).all(|pair| self.decoded(pair, shift, shifted).input.len() <= target)
    }

    /// Labels of each pair.
    pub(crate) fn tokens(&self) -> Vec<usize> {
        (0..self.len()).map(|pair| self.decoded(pair, &self.shift, true).labels.len()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(shift: Shift) -> Corpus {
        Corpus { sources: vec![vec![7, 1]], targets: vec![vec![5, 6, 1]], shift, pad: 0 }
    }

    #[test]
    fn each_label_has_the_position_that_should_write_it() {
        let of = |shift: Shift, shifted| corpus(shift.clone()).decoded(0, &shift, shifted);
        let start = of(Shift::Start(0), true);
        assert_eq!((start.input, start.labels, start.first), (vec![0, 5, 6], vec![5, 6, 1], 0));
        let prompt = of(Shift::Prompt(vec![8, 9]), true);
        assert_eq!((prompt.input, prompt.labels, prompt.first), (vec![8, 9, 5, 6], vec![5, 6, 1], 1));
        let copied = of(Shift::Start(0), false);
        assert_eq!((copied.input, copied.labels), (vec![5, 6, 1], vec![5, 6, 1]));
        let own = of(Shift::AsIs, true);
        assert_eq!((own.input, own.labels), (vec![5, 6], vec![6, 1]));
    }
}
