//! Pairs from a file as the model reads them: sentences in ids, or clips of audio as features with their transcripts; and texts of
//! a decoder alone.

use std::path::PathBuf;

use attnscope_checkpoint::Remedy;
use attnscope_diagnose::{Corpus, PairSource, PairText, TooLong};
use attnscope_graph::Side;
use attnscope_run::{Pair, Shift, audio, check_rows, computed_positions, position_limit, read_pairs};

use crate::failure::{Argument, Failure};
use crate::ready::Ready;

/// Memory for the features of clips: 30 s in 80 bands take 0.96 MB.
const MOST_CLIP_BYTES: usize = 512 << 20;

/// The lines of a file of pairs.
#[derive(Debug, Clone, Default)]
pub struct PairLines {
    /// Source and target; for an audio model, the name of a file and its transcript.
    pub lines: Vec<Pair>,
    /// The file itself: names of clips are relative to its folder.
    pub file: PathBuf,
}

impl PairLines {
    /// Pairs of a source and a target.
    pub fn of<S: Into<String>, T: Into<String>>(pairs: impl IntoIterator<Item = (S, T)>) -> Self {
        let pair = |(i, (source, target)): (usize, (S, T))| Pair {
            line: i + 1,
            source: source.into(),
            target: target.into(),
        };
        Self { lines: pairs.into_iter().enumerate().map(pair).collect(), file: PathBuf::new() }
    }

    /// The pairs of a file: one source, a tab and its target per line.
    ///
    /// # Errors
    /// Where it cannot be read, or a line has no tab.
    pub fn read(file: impl Into<PathBuf>) -> Result<Self, Failure> {
        let file = file.into();
        Ok(Self { lines: read_pairs(&file)?, file })
    }
}

/// Pairs, or texts, as the model reads them, and what was left out.
pub(super) struct ReadPairs {
    pub(super) corpus: Corpus,
    pub(super) too_long: Vec<TooLong>,
    /// Pairs with an empty side.
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
    fn empty(shift: Shift, pad: u32) -> Self {
        let (sources, targets, texts) = (Vec::new(), Vec::new(), Vec::new());
        let corpus = Corpus { sources, targets, texts, shift, pad };
        Self { corpus, too_long: Vec::new(), empty: 0, beyond_memory: 0 }
    }

    /// Every pair but those that are empty or too long.
    pub(super) fn new(ready: &Ready<'_>, pairs: &PairLines) -> Result<Self, Failure> {
        ready.tokenizer()?;
        let mut kept = Self::empty(ready.shift()?, ready.pad);
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

    /// Every text of a decoder alone but those that are empty or too long.
    pub(super) fn of_texts(ready: &Ready<'_>, texts: &[String]) -> Result<Self, Failure> {
        let mut kept = Self::empty(Shift::AsIs, ready.pad);
        for (i, text) in texts.iter().enumerate() {
            kept.add_text(ready, i + 1, text)?;
        }
        if kept.corpus.is_empty() {
            let why = "none of the texts has words and fits the model's positions";
            return Err(Failure::new(why, Remedy::PromptText));
        }
        Ok(kept)
    }

    fn add_text(&mut self, ready: &Ready<'_>, line: usize, text: &str) -> Result<(), Failure> {
        let ids = if text.trim().is_empty() { Vec::new() } else { ready.prompt_tokens(text)? };
        // The first token is given, and nothing predicts it.
        if ids.len() < 2 {
            self.empty += 1;
            return Ok(());
        }
        let room = position_limit(ready.model, Side::Target).unwrap_or(usize::MAX);
        let long = |room, computed| TooLong { line, side: Side::Target, length: ids.len(), room, computed };
        if ids.len() > room {
            self.too_long.push(long(room, false));
            return Ok(());
        }
        let computed = computed_positions(ready.model, Side::Target).filter(|&room| ids.len() > room);
        self.too_long.extend(computed.map(|room| long(room, true)));
        check_rows(ready.model, Side::Target, std::slice::from_ref(&ids))?;
        self.corpus.targets.push(ids);
        self.corpus.texts.push(PairText { source: None, target: text.to_owned() });
        Ok(())
    }

    fn add(&mut self, ready: &Ready<'_>, pairs: &PairLines, pair: &Pair) -> Result<(), Failure> {
        let (text, source) = match ready.model.graph.reads_audio() {
            false => {
                let text = PairText { source: Some(pair.source.clone()), target: pair.target.clone() };
                (text, sentence(ready, pair)?)
            }
            true => {
                let text = PairText { source: None, target: transcript(&pair.target) };
                (text, clip(ready, pairs, pair)?)
            }
        };
        let target = match text.target.as_str() {
            "" if text.source.is_none() => Vec::new(),
            text => ready.tokenizer()?.encode_target(text)?,
        };
        // A target with nothing after its start is empty.
        let starts = usize::from(self.corpus.shift == Shift::AsIs);
        let Some(source) = source.filter(|_| target.len() > starts) else {
            self.empty += 1;
            return Ok(());
        };
        let read = self.corpus.shift.apply(&target);
        let written = read.len().max(target.len());
        let target_room = position_limit(ready.model, Side::Target).unwrap_or(usize::MAX);
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
        self.corpus.texts.push(text);
        Ok(())
    }
}

/// A transcript as in Whisper's training: with a space before its first word. `None` where it has no words.
fn transcript(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(" {text}"),
    }
}

/// A sentence in ids; `None` where it is empty.
fn sentence(ready: &Ready<'_>, pair: &Pair) -> Result<Option<Measured>, Failure> {
    let ids = ready.tokenizer()?.encode_source(&pair.source)?;
    let (length, room) = (ids.len(), position_limit(ready.model, Side::Source).unwrap_or(usize::MAX));
    if length > 0 && length <= room {
        check_rows(ready.model, Side::Source, std::slice::from_ref(&ids))?;
    }
    Ok((length > 0).then(|| Measured { source: ids.into(), length, room }))
}

/// The clip that a pair names, from its beginning. Its length is that of the whole file: the transcript of a clip that is
/// longer than the model's window covers more than the model reads.
fn clip(ready: &Ready<'_>, pairs: &PairLines, pair: &Pair) -> Result<Option<Measured>, Failure> {
    let name = pair.source.trim();
    if name.is_empty() {
        return Ok(None);
    }
    let (mels, frames) = ready.window(Argument::Pairs)?;
    let path = pairs.file.parent().map_or_else(|| name.into(), |folder| folder.join(name));
    let (features, seconds) = audio::features_from_file(&path, mels, frames).map_err(|e| {
        Failure::new(
            format!("{}: line {}: {e}", pairs.file.display(), pair.line),
            Remedy::Noting(
                Box::new(e.remedy()),
                "for an audio model, give one file (wav, flac, mp3), a tab and its transcript per line",
            ),
        )
    })?;
    let length = (seconds / audio::POSITION_SECONDS).ceil() as usize;
    Ok(Some(Measured { source: features.into(), length, room: frames / 2 }))
}

/// How many clips there is memory for; `None` where the model reads tokens.
fn most_clips(ready: &Ready<'_>) -> Option<usize> {
    let (mels, frames) = ready.window(Argument::Pairs).ok()?;
    Some(MOST_CLIP_BYTES / (mels * frames * size_of::<f32>()).max(1))
}

fn none_left(audio: bool) -> Failure {
    let failure = match audio {
        false => Failure::new(
            "none of the pairs has words on both sides and fits the model's positions",
            "give shorter sentences, one source, a tab and its target per line",
        ),
        true => Failure::new(
            "none of the pairs has a clip that fits the model's window and a transcript",
            "give shorter clips: one file (wav, flac, mp3), a tab and its transcript per line",
        ),
    };
    failure.about(Argument::AllPairs)
}
