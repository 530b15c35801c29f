//! What a model is judged on: pairs of a source, which is a sentence in token ids or a clip of audio, and a target; or texts, for
//! a decoder alone. And the decoder's input and labels for each.

use std::collections::HashMap;
use std::sync::Arc;

use attnscope_graph::{Dim, Model, Side};
use attnscope_run::{Features, PadSide, Rows, Sequence, Shift, SplitMix, position_limit};

use crate::score::Clip;

/// Models are not judged on fewer pairs than this, because the result may depend more on the pairs than on the model.
pub const LEAST_PAIRS: usize = 20;

/// What the encoder reads for one pair. Cheap to copy: a clip is large and shared.
#[derive(Debug, Clone, PartialEq)]
pub enum PairSource {
    /// A sentence.
    Tokens(Vec<u32>),
    /// One clip of audio.
    Clip(Arc<Clip>),
}

impl PairSource {
    /// Its tokens, or its frames. All clips have those of the model's window.
    pub fn length(&self) -> usize {
        match self {
            Self::Tokens(ids) => ids.len(),
            Self::Clip(clip) => clip.features.frames,
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
        Self::Clip(Arc::new(features.into()))
    }
}

/// What a corpus holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorpusKind {
    /// A source and a target each.
    Pairs,
    /// What a decoder alone reads: a target without a source.
    Texts,
}

impl CorpusKind {
    /// The word for several of it.
    pub fn many(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Texts => "texts",
        }
    }

    /// The word for what the model predicts.
    pub fn targets(self) -> &'static str {
        match self {
            Self::Pairs => "targets",
            Self::Texts => "texts",
        }
    }
}

/// The texts of a pair, as the tokenizer reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairText {
    /// Its source; absent where that is a clip, or there is none.
    pub source: Option<String>,
    /// Its target.
    pub target: String,
}

/// Pairs, or texts, that a model is judged on.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// What the encoder reads, a sentence or a clip each; all of one kind. Empty where the corpus is of texts.
    pub sources: Vec<PairSource>,
    /// The targets, each with its end token; or the texts.
    pub targets: Vec<Vec<u32>>,
    /// The texts of each pair; empty where pairs were given as ids.
    pub texts: Vec<PairText>,
    /// How the decoder's input is made from a target.
    pub shift: Shift,
    /// What fills the shorter rows of a batch.
    pub pad: u32,
}

/// What a decoder reads, and what its logits are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// What it reads.
    pub input: Vec<u32>,
    /// What it should predict.
    pub labels: Vec<u32>,
    /// The position whose logits predict the first label.
    pub first: usize,
}

impl Corpus {
    /// Whether it is of pairs or of texts.
    pub fn kind(&self) -> CorpusKind {
        if self.sources.is_empty() { CorpusKind::Texts } else { CorpusKind::Pairs }
    }

    /// How many pairs, or texts.
    pub fn len(&self) -> usize {
        match self.kind() {
            CorpusKind::Pairs => self.sources.len().min(self.targets.len()),
            CorpusKind::Texts => self.targets.len(),
        }
    }

    /// Tokens, or frames, of a pair's source; 0 where there is none.
    pub(crate) fn source_length(&self, pair: usize) -> usize {
        self.sources.get(pair).map_or(0, PairSource::length)
    }

    /// By what pairs are alike, so that they can be run together: the length of the source, or of the text.
    pub(crate) fn length(&self, pair: usize) -> usize {
        match self.kind() {
            CorpusKind::Pairs => self.source_length(pair),
            CorpusKind::Texts => self.targets.get(pair).map_or(0, Vec::len),
        }
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
            texts: self.texts.iter().take(pairs).cloned().collect(),
            ..self.clone()
        }
    }

    /// Some of the pairs.
    pub(crate) fn only(&self, pairs: &[usize]) -> Self {
        Self {
            sources: pairs.iter().filter_map(|&pair| self.sources.get(pair)).cloned().collect(),
            targets: pairs.iter().filter_map(|&pair| self.targets.get(pair)).cloned().collect(),
            texts: pairs.iter().filter_map(|&pair| self.texts.get(pair)).cloned().collect(),
            ..self.clone()
        }
    }

    /// The sources of some pairs as a batch; sentences are padded to a length of at least `least`.
    pub fn source(&self, pairs: &[usize], least: usize) -> Sequence {
        let picked = || pairs.iter().filter_map(|&pair| self.sources.get(pair));
        let clips: Vec<&Features> = picked().filter_map(clip).collect();
        match clips.first() {
            Some(first) => {
                let values = clips.iter().flat_map(|clip| &clip.values).copied().collect();
                Sequence::Features(Features { values, batch: clips.len(), ..**first })
            }
            None => {
                let rows: Vec<Vec<u32>> = picked().filter_map(tokens).map(<[u32]>::to_vec).collect();
                Sequence::Tokens(Rows::padded(&rows, self.pad, PadSide::Right, least))
            }
        }
    }

    /// The tokens of the longest source; 0 where sources are clips, which fill the model's window.
    pub(crate) fn longest_source(&self) -> usize {
        self.sources.iter().filter_map(tokens).map(<[u32]>::len).max().unwrap_or(0)
    }

    /// The tokens of the longest target, or text.
    pub(crate) fn longest_target(&self) -> usize {
        self.targets.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Every distinct pair, in the order of first occurrence.
    pub fn distinct(&self) -> Self {
        let mut seen: HashMap<&[u32], Vec<usize>> = HashMap::new();
        let mut kept = Vec::new();
        for pair in 0..self.len() {
            let same_target = seen.entry(&self.targets[pair]).or_default();
            if same_target.iter().all(|&other| self.sources.get(other) != self.sources.get(pair)) {
                same_target.push(pair);
                kept.push(pair);
            }
        }
        self.only(&kept)
    }

    /// Every target with another pair's source, by [`swap_partners`]. `None` where all sources are the same, or there are none.
    pub(crate) fn with_swapped_sources(&self) -> Option<Self> {
        let length = |pair: usize| self.source_length(pair);
        let partners = swap_partners(self.sources.len(), length, |a, b| self.sources[a] == self.sources[b])?;
        let sources = partners.iter().map(|&partner| self.sources[partner].clone());
        Some(Self { sources: sources.collect(), texts: Vec::new(), ..self.clone() })
    }

    /// Every target with random tokens as source, as many as its own source has, and its end token. `None` where sources are
    /// clips.
    pub(crate) fn with_random_sources(&self, model: &Model) -> Option<Self> {
        let vocabulary = model.sizes.get(Dim::Vocab(Side::Source))?;
        let mut dice = SplitMix::new(0x5EED);
        let mut random = |source: &PairSource| {
            let (last, rest) = tokens(source)?.split_last()?;
            let drawn = rest.iter().map(|_| dice.below(vocabulary) as u32);
            Some(PairSource::Tokens(drawn.chain([*last]).collect()))
        };
        let sources = self.sources.iter().map(&mut random).collect::<Option<Vec<_>>>()?;
        Some(Self { sources, texts: Vec::new(), ..self.clone() })
    }

    /// NLL per label of the unigram distribution of the other targets, with Witten-Bell smoothing over a vocabulary of so many
    /// tokens.
    pub(crate) fn unigram_cost(&self, vocabulary: usize) -> f64 {
        let labels: Vec<Vec<u32>> =
            (0..self.len()).map(|pair| self.decoded(pair, &self.shift, true).labels).collect();
        let count = |rows: &[Vec<u32>]| {
            let mut counts: HashMap<u32, usize> = HashMap::new();
            rows.iter().flatten().for_each(|&token| *counts.entry(token).or_default() += 1);
            counts
        };
        let all = count(&labels);
        let total: usize = labels.iter().map(Vec::len).sum();
        let mut cost = 0.0;
        for row in &labels {
            let own = count(std::slice::from_ref(row));
            let elsewhere = |token: &u32| all[token] - own[token];
            let kinds = all.len() - own.keys().filter(|token| elsewhere(token) == 0).count();
            let seen = (total - row.len()) as f64;
            let kinds = kinds.max(1) as f64;
            for token in row {
                let share = (elsewhere(token) as f64 + kinds / vocabulary.max(1) as f64) / (seen + kinds);
                cost -= share.ln();
            }
        }
        cost / total as f64
    }

    /// The decoder's input for a pair, by [`decoded`].
    pub(crate) fn decoded(&self, pair: usize, shift: &Shift, shifted: bool) -> Decoded {
        decoded(self.targets.get(pair).map(Vec::as_slice).unwrap_or_default(), shift, shifted)
    }

    /// Whether a model that begins its decoder in some way has a position for every token of every pair.
    pub(crate) fn fits(&self, model: &Model, shift: &Shift) -> bool {
        let shifted = model.shifts_target();
        let room = |side: Side| position_limit(model, side).unwrap_or(usize::MAX);
        let (source, target) = (room(Side::Source), room(Side::Target));
        self.longest_source() <= source
            && (0..self.len()).all(|pair| self.decoded(pair, shift, shifted).input.len() <= target)
    }

    /// Labels of each pair.
    pub(crate) fn tokens(&self) -> Vec<usize> {
        (0..self.len()).map(|pair| self.decoded(pair, &self.shift, true).labels.len()).collect()
    }
}

/// The decoder's input for a target, and its labels. `shifted`: after a start token, as is right; else the target itself.
pub fn decoded(target: &[u32], shift: &Shift, shifted: bool) -> Decoded {
    let labels = target.to_vec();
    match shift {
        // The sentence contains its start, which is not predicted.
        Shift::AsIs => {
            let input = if shifted {
                &target[..target.len().saturating_sub(1)]
            } else {
                target.get(1..).unwrap_or_default()
            };
            Decoded { input: input.to_vec(), labels: target.get(1..).unwrap_or_default().to_vec(), first: 0 }
        }
        _ if !shifted => Decoded { input: labels.clone(), labels, first: 0 },
        _ => {
            let input = shift.apply(target);
            let first = input.len().saturating_sub(labels.len());
            Decoded { input, labels, first }
        }
    }
}

/// For each of so many sources another one to swap it with: in the order of length, the next that is not the same, and after
/// the longest the shortest. `None` where all are the same, or there are none.
pub fn swap_partners(
    count: usize,
    length: impl Fn(usize) -> usize,
    is_same: impl Fn(usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&source| length(source));
    let mut partners = vec![0; count];
    // Of sources that are the same and follow each other, all but the last have the partner of the one after them.
    let mut next = (1..count).map(|rank| order[rank]).find(|&other| !is_same(order[0], other))?;
    for rank in (0..count).rev() {
        let after = order[(rank + 1) % count];
        if !is_same(order[rank], after) {
            next = after;
        }
        partners[order[rank]] = next;
    }
    Some(partners)
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
        PairSource::Clip(clip) => Some(&clip.features),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_of_sentences_or_of_clips() {
        let mut corpus = corpus(Shift::Start(0));
        corpus.sources.push(vec![3].into());
        let Sequence::Tokens(rows) = corpus.source(&[1, 0], 3) else { panic!("sentences") };
        assert_eq!((rows.tokens(), rows.length()), (vec![vec![3], vec![7, 1]], 3));
        let clip = |x: f32| Features { values: vec![x; 6], batch: 1, mels: 2, frames: 3 };
        corpus.sources = vec![clip(1.0).into(), clip(2.0).into(), clip(3.0).into()];
        let Sequence::Features(features) = corpus.source(&[2, 0], 0) else { panic!("clips") };
        assert_eq!((features.batch, features.mels, features.frames), (2, 2, 3));
        assert_eq!((features.values[0], features.values[6], features.values.len()), (3.0, 1.0, 12));
    }

    fn corpus(shift: Shift) -> Corpus {
        let (sources, targets) = (vec![vec![7, 1].into()], vec![vec![5, 6, 1]]);
        Corpus { sources, targets, texts: Vec::new(), shift, pad: 0 }
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

    fn of_ids(rows: Vec<Vec<u32>>) -> Vec<PairSource> {
        rows.into_iter().map(PairSource::from).collect()
    }

    fn of_sources(sources: Vec<Vec<u32>>) -> Corpus {
        let targets = (0..sources.len()).map(|i| vec![i as u32, 1]).collect();
        let texts = Vec::new();
        Corpus { sources: of_ids(sources), targets, texts, shift: Shift::Start(0), pad: 0 }
    }

    #[test]
    fn nobody_keeps_a_source_and_lengths_stay_close() {
        let sources: Vec<Vec<u32>> = (0..20).map(|i| vec![i; 3 + (i as usize * 7) % 5]).collect();
        let swapped = of_sources(sources.clone()).with_swapped_sources().unwrap().sources;
        let sources = of_ids(sources);
        for (a, b) in sources.iter().zip(&swapped) {
            assert!(a != b && sources.contains(b));
        }
        let far = sources.iter().zip(&swapped).filter(|(a, b)| a.length().abs_diff(b.length()) > 1).count();
        assert!(far <= 1, "{far}");
    }

    #[test]
    fn a_source_that_is_everybodys_has_no_other() {
        assert!(of_sources(vec![vec![4, 5, 1]; 30]).with_swapped_sources().is_none());
        assert!(of_sources(Vec::new()).with_swapped_sources().is_none());
        // One that differs is enough.
        let swapped = of_sources(vec![vec![4, 1], vec![4, 1], vec![5, 1]]).with_swapped_sources().unwrap();
        assert_eq!(swapped.sources, of_ids(vec![vec![5, 1], vec![5, 1], vec![4, 1]]));
    }

    #[test]
    fn a_pair_counts_once_and_half_a_pair_is_another() {
        let mut corpus = of_sources(vec![vec![4, 1], vec![4, 1], vec![5, 1], vec![4, 1]]);
        corpus.targets = vec![vec![7, 1], vec![8, 1], vec![7, 1], vec![7, 1]];
        let distinct = corpus.distinct();
        assert_eq!(distinct.sources, of_ids(vec![vec![4, 1], vec![4, 1], vec![5, 1]]));
        assert_eq!(distinct.targets, [vec![7, 1], vec![8, 1], vec![7, 1]]);
    }

    /// Three targets of two tokens, "a </s>", "a </s>", "b </s>", in a vocabulary of 10. From the other two, Witten and Bell
    /// give a token that occurs c times of 4 among k kinds (c + k/10) / (4 + k).
    #[test]
    fn the_unigram_does_not_know_the_target_itself() {
        let mut corpus = of_sources(vec![vec![4, 1]; 3]);
        corpus.targets = vec![vec![7, 1], vec![7, 1], vec![8, 1]];
        let cost = |count: f64, kinds: f64| -((count + kinds / 10.0) / (4.0 + kinds)).ln();
        let first = cost(1.0, 3.0) + cost(2.0, 3.0);
        let last = cost(0.0, 2.0) + cost(2.0, 2.0);
        assert!((corpus.unigram_cost(10) - (2.0 * first + last) / 6.0).abs() < 1e-12);
    }
}
