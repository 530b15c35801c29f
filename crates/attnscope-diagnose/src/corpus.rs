//! Pairs of a source, which is a sentence in token ids or a clip of audio, and a target; and what a decoder reads and
//! should write for each.

use std::sync::Arc;

use attnscope_graph::{Model, Side, Switch};
use attnscope_run::{Features, PadSide, Rows, Shift, Source, position_room};

/// Fewer pairs than this are not judged by: what they show may be theirs and not the model's.
pub(crate) const LEAST_PAIRS: usize = 20;

/// What the encoder reads for one pair. Cheap to copy: a clip's features are large and shared.
#[derive(Debug, Clone, PartialEq)]
pub enum PairSource {
    /// A sentence.
    Tokens(Vec<u32>),
    /// The features of one clip: a batch of 1.
    Clip(Arc<Features>),
}

impl PairSource {
    /// Its tokens, or its frames. All clips have those of the model's window.
    pub fn length(&self) -> usize {
        match self {
            Self::Tokens(ids) => ids.len(),
            Self::Clip(features) => features.frames,
        }
    }
}

impl From<Vec<u32>> for PairSource {
    fn from(ids: Vec<u32>) -> Self {
        Self::Tokens(ids)
    }
}

impl From<Features> for PairSource {
    fn from(features: Features) -> Self {
        Self::Clip(Arc::new(features))
    }
}

/// Pairs that a model is judged on.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// What the encoder reads, a sentence or a clip each; all of one kind.
    pub sources: Vec<PairSource>,
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
        Self {
            sources: self.sources.iter().take(pairs).cloned().collect(),
            targets: self.targets.iter().take(pairs).cloned().collect(),
            ..self.clone()
        }
    }

    /// The sources of some pairs as a batch; sentences are padded to a length of at least `least`.
    pub fn source(&self, pairs: &[usize], least: usize) -> Source {
        let picked = || pairs.iter().filter_map(|&pair| self.sources.get(pair));
        let clips: Vec<&Features> = picked().filter_map(clip).collect();
        match clips.first() {
            Some(first) => {
                let values = clips.iter().flat_map(|clip| &clip.values).copied().collect();
                Source::Features(Features { values, batch: clips.len(), ..**first })
            }
            None => {
                let rows: Vec<Vec<u32>> = picked().filter_map(tokens).map(<[u32]>::to_vec).collect();
                Source::Tokens(Rows::padded(&rows, self.pad, PadSide::Right, least))
            }
        }
    }

    /// The tokens of the longest source; 0 where sources are clips, which fill the model's window.
    pub(crate) fn longest_source(&self) -> usize {
        self.sources.iter().filter_map(tokens).map(<[u32]>::len).max().unwrap_or(0)
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
        self.longest_source() <= source
            && (0..self.len()).all(|pair| self.decoded(pair, shift, shifted).input.len() <= target)
    }

    /// Labels of each pair.
    pub(crate) fn tokens(&self) -> Vec<usize> {
        (0..self.len()).map(|pair| self.decoded(pair, &self.shift, true).labels.len()).collect()
    }
}

fn tokens(source: &PairSource) -> Option<&[u32]> {
    match source {
        PairSource::Tokens(ids) => Some(ids),
        PairSource::Clip(_) => None,
    }
}

fn clip(source: &PairSource) -> Option<&Features> {
    match source {
        PairSource::Tokens(_) => None,
        PairSource::Clip(features) => Some(features),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_of_sentences_or_of_clips() {
        let mut corpus = corpus(Shift::Start(0));
        corpus.sources.push(vec![3].into());
        let Source::Tokens(rows) = corpus.source(&[1, 0], 3) else { panic!("sentences") };
        assert_eq!((rows.tokens(), rows.length()), (vec![vec![3], vec![7, 1]], 3));
        let clip = |x: f32| Features { values: vec![x; 6], batch: 1, mels: 2, frames: 3 };
        corpus.sources = vec![clip(1.0).into(), clip(2.0).into(), clip(3.0).into()];
        let Source::Features(features) = corpus.source(&[2, 0], 0) else { panic!("clips") };
        assert_eq!((features.batch, features.mels, features.frames), (2, 2, 3));
        assert_eq!((features.values[0], features.values[6], features.values.len()), (3.0, 1.0, 12));
    }

    fn corpus(shift: Shift) -> Corpus {
        Corpus { sources: vec![vec![7, 1].into()], targets: vec![vec![5, 6, 1]], shift, pad: 0 }
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
