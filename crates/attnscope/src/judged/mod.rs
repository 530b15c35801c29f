//! What the doctor runs a model on: given sentences, pairs, or random tokens.

mod pairs;

use attnscope_diagnose::{Corpus, CorpusKind, LEAST_PAIRS, PairSource, Sample, TooLong};
use attnscope_graph::{Dim, Model, Side};
use attnscope_run::{
    Features, Input, Prepared, Rows, Sequence, Shift, SplitMix, Tokenizer, parse_pairs, position_limit,
};

use crate::failure::{Argument, Failure};
use crate::figures::counted;
use crate::ready::Ready;
pub use pairs::PairLines;
use pairs::ReadPairs;

/// Pairs in the style of captions, written for the built-in model.
const DEMO_PAIRS: &[u8] = include_bytes!("../../data/demo-pairs.tsv");
/// How many pairs are run at once to measure tensors.
const SAMPLED: usize = 8;
/// And clips, whose attention weights take 54 MB each in Whisper's smallest model.
const SAMPLED_CLIPS: usize = 2;
/// Rows and tokens of a random input: shorter ones would not show a leak through T5's buckets.
const MADE_UP: [usize; 2] = [14, 10];
/// The seed of random inputs: the same in every run.
const SEED: u64 = 1;

/// A prepared model, and what it is run on.
#[derive(Debug)]
pub struct Judged<'a> {
    ready: Option<Ready<'a>>,
    /// How the decoder begins.
    pub shift: Option<Shift>,
    /// One batch.
    pub sample: Option<Sample>,
    /// Many pairs.
    pub corpus: Option<Corpus>,
    /// Pairs that are longer than the model's positions.
    pub too_long: Vec<TooLong>,
    /// Pairs that were left out because a side is empty.
    empty: usize,
    /// Clips that were left out for lack of memory.
    beyond_memory: usize,
}

impl<'a> Judged<'a> {
    /// A model that does not run.
    pub fn at_rest() -> Self {
        Self {
            ready: None,
            shift: None,
            sample: None,
            corpus: None,
            too_long: Vec::new(),
            empty: 0,
            beyond_memory: 0,
        }
    }

    /// Pairs: those given, the built-in model's own, or none.
    pub fn on_pairs(ready: Ready<'a>, mut pairs: PairLines) -> Result<Self, Failure> {
        if pairs.lines.is_empty() && ready.opened.name == "demo" {
            pairs.lines = parse_pairs(std::path::Path::new("demo-pairs.tsv"), DEMO_PAIRS)?;
        }
        let shift = ready.shift().ok();
        let mut judged = Self { shift, ..Self::at_rest() };
        if pairs.lines.is_empty() {
            judged.sample = Some(made_up(&ready, judged.shift.as_ref()));
        } else {
            let ReadPairs { corpus, too_long, empty, beyond_memory } = ReadPairs::new(&ready, &pairs)?;
            (judged.too_long, judged.empty, judged.beyond_memory) = (too_long, empty, beyond_memory);
            judged.sample = sample(&ready, &corpus);
            judged.corpus = Some(corpus);
        }
        judged.ready = Some(ready);
        Ok(judged)
    }

    /// Texts that a decoder alone reads.
    pub fn on_texts(ready: Ready<'a>, texts: &[String]) -> Result<Self, Failure> {
        let ReadPairs { corpus, too_long, empty, beyond_memory } = ReadPairs::of_texts(&ready, texts)?;
        let (shift, sample) = (Some(corpus.shift.clone()), sample(&ready, &corpus));
        let corpus = Some(corpus);
        Ok(Self { ready: Some(ready), shift, sample, corpus, too_long, empty, beyond_memory })
    }

    /// One input of the user's.
    pub fn on_input(ready: Ready<'a>, input: Input) -> Self {
        let shift = ready.shift().ok();
        let sample = Some(Sample { input, real: true });
        Self { ready: Some(ready), shift, sample, ..Self::at_rest() }
    }

    /// A source of the user's, for which the model generates the target.
    pub fn on_source(ready: Ready<'a>, source: Sequence) -> Result<Self, Failure> {
        // A broken model generates nothing; random tokens show where it breaks.
        let target = match ready.generated_target(&source) {
            Ok(target) => target,
            Err(_) => made_up_target(&ready, ready.shift().ok().as_ref(), source.batch()),
        };
        Ok(Self::on_input(ready, Input::pair(source, target)))
    }

    /// The model ready to run, where it runs.
    pub fn prepared(&self) -> Option<&dyn Prepared> {
        self.ready.as_ref().map(|ready| &*ready.prepared)
    }

    /// What fills the shorter rows of a batch.
    pub fn pad(&self) -> u32 {
        self.ready.as_ref().map_or(0, |ready| ready.pad)
    }

    /// The tokenizer, where one is known.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.ready.as_ref().and_then(|ready| ready.tokenizer.as_ref())
    }

    /// What findings are based on, in a few words.
    pub fn basis(&self) -> String {
        match (&self.corpus, &self.sample) {
            (Some(corpus), _) => {
                let mut basis = match corpus.sources.first() {
                    None => counted(corpus.len(), "text"),
                    Some(PairSource::Clip(_)) if corpus.len() == 1 => "1 clip with its transcript".into(),
                    Some(PairSource::Clip(_)) => format!("{} clips with their transcripts", corpus.len()),
                    Some(PairSource::Tokens(_)) => counted(corpus.len(), "sentence pair"),
                };
                let distinct = corpus.distinct().len();
                if distinct < corpus.len() {
                    basis += &format!(", {distinct} of them distinct");
                }
                basis = match distinct < LEAST_PAIRS {
                    true => format!(
                        "run on {basis}; at least {LEAST_PAIRS} are needed to judge wiring and weights"
                    ),
                    false => format!("judged on {basis}"),
                };
                if self.empty > 0 {
                    basis += &match corpus.kind() {
                        CorpusKind::Pairs => {
                            format!("; {} with an empty side left out", counted(self.empty, "pair"))
                        }
                        CorpusKind::Texts => format!("; {} left out", counted(self.empty, "empty text")),
                    };
                }
                if self.beyond_memory > 0 {
                    basis += &format!(
                        "; the last {} left out for lack of memory",
                        counted(self.beyond_memory, "clip")
                    );
                }
                basis
            }
            (None, Some(sample)) if sample.real => {
                format!("run on {}", counted(sample.input.batch(), "row"))
            }
            (None, Some(sample)) => {
                format!("run on {} of random tokens", counted(sample.input.batch(), "row"))
            }
            (None, None) => "not run: only weights are checked".into(),
        }
    }
}

/// The positions of a side; computed ones have no limit.
fn room(model: &Model, side: Side) -> usize {
    position_limit(model, side).unwrap_or(usize::MAX)
}

/// The first pairs, or texts, as one batch.
fn sample(ready: &Ready<'_>, corpus: &Corpus) -> Option<Sample> {
    let first = corpus.first(match corpus.sources.first() {
        Some(PairSource::Clip(_)) => SAMPLED_CLIPS,
        Some(PairSource::Tokens(_)) | None => SAMPLED,
    });
    let inputs: Vec<Vec<u32>> = first.targets.iter().map(|target| first.shift.apply(target)).collect();
    let target = Rows::checked(ready.model, Side::Target, &inputs, ready.pad).ok()?;
    let input = match first.kind() {
        CorpusKind::Pairs => Input::pair(first.source(&(0..first.len()).collect::<Vec<_>>(), 0), target),
        CorpusKind::Texts => Input::of(Side::Target, Sequence::Tokens(target)),
    };
    Some(Sample { input, real: true })
}

/// Tokens at random, always the same ones.
fn made_up(ready: &Ready<'_>, shift: Option<&Shift>) -> Sample {
    let model = ready.model;
    let mut input: Option<Input> = None;
    for side in model.architecture.sides() {
        let rows = input.as_ref().map_or(MADE_UP.len(), Input::batch);
        let sequence = match (side, ready.window(Argument::Audio)) {
            (Side::Source, Ok((mels, frames))) => Sequence::Features(noise(mels, frames)),
            (Side::Source, Err(_)) => {
                Sequence::Tokens(Rows::new(&random_rows(model, Side::Source, &MADE_UP), ready.pad))
            }
            (Side::Target, _) => Sequence::Tokens(made_up_target(ready, shift, rows)),
        };
        input = Some(match input {
            Some(input) => input.with(side, sequence),
            None => Input::of(side, sequence),
        });
    }
    Sample { input: input.unwrap_or_else(|| Input::empty(0)), real: false }
}

fn made_up_target(ready: &Ready<'_>, shift: Option<&Shift>, rows: usize) -> Rows {
    let lengths: Vec<usize> = MADE_UP.iter().copied().cycle().take(rows).collect();
    let mut tokens = random_rows(ready.model, Side::Target, &lengths);
    if let Some(shift) = shift {
        tokens.iter_mut().for_each(|row| {
            row.truncate(row.len().saturating_sub(shift.apply(&[]).len()).max(1));
            *row = shift.apply(row);
        });
    }
    Rows::new(&tokens, ready.pad)
}

fn random_rows(model: &Model, side: Side, lengths: &[usize]) -> Vec<Vec<u32>> {
    let vocabulary =
        model.sizes.get(Dim::Vocab(side)).or(model.sizes.get(Dim::Vocab(Side::Source))).unwrap_or(1);
    let room = room(model, side).max(1);
    let mut random = SplitMix::new(SEED);
    // The first ids are often special tokens.
    let special = vocabulary.min(8) / 2;
    let mut next = || (special + random.below(vocabulary - special)) as u32;
    // A text of a classifier that reads one length only has just that: its padding is a part of what it reads.
    let fixed = model.architecture.classifier().and_then(|classifier| classifier.length);
    let length = |n: usize| fixed.filter(|_| side == Side::Source).unwrap_or(n.min(room));
    lengths.iter().map(|&n| (0..length(n)).map(|_| next()).collect()).collect()
}

/// Features between −1 and 1, as a mel spectrogram is.
fn noise(mels: usize, frames: usize) -> Features {
    let mut random = SplitMix::new(SEED);
    Features { values: (0..mels * frames).map(|_| random.unit()).collect(), batch: 1, mels, frames }
}
