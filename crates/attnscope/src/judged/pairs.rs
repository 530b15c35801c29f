//! Pairs from a file as the model reads them: sentences in ids, or clips of audio as features with their transcripts.

use std::path::PathBuf;

use attnscope_diagnose::{Corpus, PairSource, TooLong};
use attnscope_graph::{Front, Side};
use attnscope_run::{Pair, Shift, audio, check_rows, computed_positions, position_room, read_pairs};

use crate::failure::Failure;
use crate::ready::Ready;

/// Memory for the features of clips: 30 s in 80 bands take 0.96 MB.
const MOST_CLIP_BYTES: usize = 512 << 20;

/// The lines of a file of pairs.
#[derive(Debug, Clone, Default)]
pub struct PairLines {
    /// Source and target; for an audio model, the name of a file and what is said in it.
    pub lines: Vec<Pair>,
    /// The file itself: names of clips are relative to its folder.
    pub file: PathBuf,
}

impl PairLines {
    /// Pairs of a source and what the model should write.
    pub fn of<S: Into<String>, T: Into<String>>(pairs: impl IntoIterator<Item = (S, T)>) -> Self {
        let pair = |(i, (source, target)): (usize, (S, T))| Pair {
            line: i + 1,
            source: source.into(),
            target: target.into(),
        };
        Self { lines: pairs.into_iter().enumerate().map(pair).collect(), file: PathBuf::new() }
    }

    /// The pairs of a file: a source, a tab and its target a line.
    ///
    /// # Errors
    /// Where it cannot be read, or a line has no tab.
    pub fn read(file: impl Into<PathBuf>) -> Result<Self, Failure> {
        let file = file.into();
        Ok(Self { lines: read_pairs(&file)?, file })
    }
}

/// Pairs as the model reads them, and what was left out.
pub(super) struct ReadPairs {
    pub(super) corpus: Corpus,
    pub(super) too_long: Vec<TooLong>,
    /// Pairs with nothing to read or nothing to write.
    pub(super) empty: usize,
    /// Clips beyond the memory that there is for them.
    pub(super) beyond_memory: usize,
}

/// A source, how many positions it takes and how many there are.
struct Measured {
    source: PairSource,
    length: usize,
    room: usize,
}

impl ReadPairs {
    /// Every pair but those that are empty or too long.
    pub(super) fn new(ready: &Ready<'_>, pairs: &PairLines) -> Result<Self, Failure> {
        ready.tokenizer()?;
        let corpus =
            Corpus { sources: Vec::new(), targets: Vec::new(), shift: ready.shift()?, pad: ready.pad };
        let mut kept = Self { corpus, too_long: Vec::new(), empty: 0, beyond_memory: 0 };
        let most = most_clips(ready);
        for (i, pair) in pairs.lines.iter().enumerate() {
            if most.is_some_and(|most| kept.corpus.len() >= most) {
                kept.beyond_memory = pairs.lines.len() - i;
                break;
            }
            kept.add(ready, pairs, pair)?;
        }
        if kept.corpus.is_empty() {
            return Err(none_left(most.is_some()));
        }
        Ok(kept)
    }

    fn add(&mut self, ready: &Ready<'_>, pairs: &PairLines, pair: &Pair) -> Result<(), Failure> {
        let (target, source) = match ready.model.wiring.front {
            Front::Tokens => (target(ready, &pair.target)?, sentence(ready, pair)?),
            Front::Audio => (transcript(ready, &pair.target)?, clip(ready, pairs, pair)?),
        };
        // A target of a start and nothing to write is none.
        let starts = usize::from(self.corpus.shift == Shift::AsIs);
        let Some(source) = source.filter(|_| target.len() > starts) else {
            self.empty += 1;
            return Ok(());
        };
        let read = self.corpus.shift.apply(&target);
        let written = read.len().max(target.len());
        let target_room = position_room(ready.model, Side::Target).unwrap_or(usize::MAX);
        let sides = [(Side::Source, source.length, source.room), (Side::Target, written, target_room)];
        let long = sides.into_iter().filter_map(|(side, length, room)| {
            let long = |room, computed| TooLong { line: pair.line, side, length, room, computed };
            let computed = || computed_positions(ready.model, side).filter(|&room| length > room);
            if length > room { Some(long(room, false)) } else { Some(long(computed()?, true)) }
        });
        let before = self.too_long.len();
        self.too_long.extend(long);
        if self.too_long[before..].iter().any(|long| !long.computed) {
            return Ok(());
        }
        // An id past the vocabulary is another matter.
        for ids in [&target, &read] {
            check_rows(ready.model, Side::Target, std::slice::from_ref(ids))?;
        }
        self.corpus.sources.push(source.source);
        self.corpus.targets.push(target);
        Ok(())
    }
}

fn target(ready: &Ready<'_>, text: &str) -> Result<Vec<u32>, Failure> {
    Ok(ready.tokenizer()?.encode_target(text)?)
}

/// A transcript as Whisper was trained to write it: with a space before its first word.
fn transcript(ready: &Ready<'_>, text: &str) -> Result<Vec<u32>, Failure> {
    match text.trim() {
        "" => Ok(Vec::new()),
        text => target(ready, &format!(" {text}")),
    }
}

/// A sentence in ids; nothing where it has none.
fn sentence(ready: &Ready<'_>, pair: &Pair) -> Result<Option<Measured>, Failure> {
    let ids = ready.tokenizer()?.encode_source(&pair.source)?;
    let (length, room) = (ids.len(), position_room(ready.model, Side::Source).unwrap_or(usize::MAX));
    if length > 0 && length <= room {
        check_rows(ready.model, Side::Source, std::slice::from_ref(&ids))?;
    }
    Ok((length > 0).then(|| Measured { source: ids.into(), length, room }))
}

/// The clip that a pair names, from its beginning. Its length is that of the whole file: a clip that is longer than the
/// model's window has a transcript of more than the model reads.
fn clip(ready: &Ready<'_>, pairs: &PairLines, pair: &Pair) -> Result<Option<Measured>, Failure> {
    let name = pair.source.trim();
    if name.is_empty() {
        return Ok(None);
    }
    let (mels, frames) = ready.window("--pairs")?;
    let path = pairs.file.parent().map_or_else(|| name.into(), |folder| folder.join(name));
    let (features, seconds) = audio::features_from_file(&path, mels, frames).map_err(|e| {
        Failure::new(
            format!("{}: line {}: {e}", pairs.file.display(), pair.line),
            format!(
                "{}; an audio model's pairs are a file (wav, flac, mp3), a tab and what is said in it a line",
                e.help()
            ),
        )
    })?;
    let length = (seconds / audio::POSITION_SECONDS).ceil() as usize;
    Ok(Some(Measured { source: features.into(), length, room: frames / 2 }))
}

/// How many clips there is memory for; `None` where the model reads tokens.
fn most_clips(ready: &Ready<'_>) -> Option<usize> {
    let (mels, frames) = ready.window("").ok()?;
    Some(MOST_CLIP_BYTES / (mels * frames * size_of::<f32>()).max(1))
}

fn none_left(audio: bool) -> Failure {
    match audio {
        false => Failure::new(
            "--pairs: none of the pairs has words on both sides and fits the model's positions",
            "give shorter sentences, a source, a tab and its target a line",
        ),
        true => Failure::new(
            "--pairs: none of the pairs has a clip that fits the model's window and a transcript",
            "give shorter clips: a file (wav, flac, mp3), a tab and what is said in it a line",
        ),
    }
}
