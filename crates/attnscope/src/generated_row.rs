//! What a model generates, and which part of the source each word came from.

use attnscope_graph::Side;
use attnscope_run::align::{Alignment, Heads, Timed, Word, align, spoken_words, word_times, words};
use attnscope_run::audio::Window;
use attnscope_run::generate::{Generator, Hypothesis, Segment, Settings, SpeechDetection, Transcription};
use attnscope_run::{Input, Rows, Sequence, Session, SourceTensors, position_limit};

use crate::failure::Failure;
use crate::ready::Ready;

/// What a model generated from one sentence or recording.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedRow {
    /// What the decoder began with.
    pub start: Vec<u32>,
    /// The best beams, best first, or the one that greedy search found.
    pub hypotheses: Vec<Hypothesis>,
    /// The language and the no-speech probability of a recording.
    pub detection: Option<SpeechDetection>,
    /// Every sample of the recording is 0: it is silent, whatever was generated.
    pub zeros: bool,
}

/// The words of a sentence and of its source, and which belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Aligned {
    /// The source's words.
    pub source: Vec<Word>,
    /// The target's.
    pub target: Vec<Word>,
    /// How much each target word attends to each source word.
    pub alignment: Alignment,
}

/// Languages that are written without spaces, by Whisper's codes.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

impl GeneratedRow {
    /// The best hypothesis; none where the limit allowed no token.
    pub fn best(&self) -> Option<&Hypothesis> {
        self.hypotheses.first()
    }

    /// Whether the recording is silent: all samples are 0, or OpenAI's thresholds say so.
    pub fn is_silence(&self) -> bool {
        self.zeros
            || self.detection.zip(self.best()).is_some_and(|(detection, best)| detection.is_silence(best))
    }
}

impl Ready<'_> {
    /// Generates from every row of a source.
    pub fn generate_rows(
        &self,
        session: &mut dyn Session,
        source: &Sequence,
        settings: &Settings,
    ) -> Result<Vec<GeneratedRow>, Failure> {
        self.generate_after(session, source, settings, None)
    }

    fn generate_after(
        &self,
        session: &mut dyn Session,
        source: &Sequence,
        settings: &Settings,
        tensors: Option<&SourceTensors>,
    ) -> Result<Vec<GeneratedRow>, Failure> {
        let generator = Generator { settings, source: tensors };
        let plain = |hypotheses| GeneratedRow {
            start: settings.start.clone(),
            hypotheses,
            detection: None,
            zeros: false,
        };
        let features = match source {
            Sequence::Tokens(rows) => {
                return Ok(generator.from_tokens(session, &rows.tokens())?.into_iter().map(plain).collect());
            }
            Sequence::Features(features) => features,
        };
        let Some(speech) = self.speech.as_ref().filter(|_| self.start.is_none()) else {
            return Ok(generator.from_features(session, features)?.into_iter().map(plain).collect());
        };
        let spoken = generator.from_speech(session, features, speech, self.language, self.task)?;
        let generated = |spoken: Transcription| GeneratedRow {
            start: spoken.start,
            hypotheses: spoken.hypotheses,
            detection: Some(spoken.detection),
            zeros: false,
        };
        Ok(spoken.into_iter().map(generated).collect())
    }

    /// Continues every prompt, for a model that reads nothing else.
    pub fn continue_prompts(
        &self,
        session: &mut dyn Session,
        prompts: &[Vec<u32>],
        settings: &Settings,
    ) -> Result<Vec<GeneratedRow>, Failure> {
        let generator = Generator::new(settings);
        let made = generator.from_prompts(session, prompts)?.into_iter().zip(prompts);
        let generated = |(hypotheses, prompt): (Vec<Hypothesis>, &Vec<u32>)| GeneratedRow {
            start: prompt.clone(),
            hypotheses,
            detection: None,
            zeros: false,
        };
        Ok(made.map(generated).collect())
    }

    /// The decoder input of the greedy generation.
    pub fn generated_target(&self, source: &Sequence) -> Result<Rows, Failure> {
        self.generated_target_in(&mut *self.session(), source, None)
    }

    /// The same where the source may have been run before.
    pub(crate) fn generated_target_in(
        &self,
        session: &mut dyn Session,
        source: &Sequence,
        tensors: Option<&SourceTensors>,
    ) -> Result<Rows, Failure> {
        let settings = Settings { beams: 1, ..self.settings() };
        let read = |generated: &GeneratedRow| {
            let tokens = generated.best().map(|best| best.tokens.as_slice()).unwrap_or_default();
            // The last token is generated but never read.
            let all_but_last = tokens.split_last().map_or(&[][..], |(_, rest)| rest);
            [&generated.start, all_but_last].concat()
        };
        let generated = self.generate_after(session, source, &settings, tensors)?;
        self.target_ids(&generated.iter().map(read).collect::<Vec<_>>())
    }

    /// The segments of a transcript with times, in seconds of the window, and when the next window begins.
    pub fn segments(&self, window: &Window, generated: &GeneratedRow) -> (Vec<Segment>, f64) {
        let recorded = window.end - window.start;
        match (&self.speech, generated.best()) {
            (Some(speech), Some(best)) if self.times && !generated.is_silence() => {
                speech.segments(&best.tokens, recorded)
            }
            _ => (Vec::new(), recorded),
        }
    }

    /// The heads that alignments are computed from.
    pub fn alignment_heads(&self) -> Result<Heads, Failure> {
        Ok(Heads::of(self.model, self.opened.checkpoint.configs())?)
    }

    /// Aligns the best hypothesis with its source sentence.
    pub fn align(
        &self,
        session: &mut dyn Session,
        heads: &Heads,
        source: &[u32],
        generated: &GeneratedRow,
    ) -> Result<Aligned, Failure> {
        let tokens = generated.best().map(|best| best.tokens.as_slice()).unwrap_or_default();
        let ends = self.end_tokens();
        let source_words = words(self.tokenizer.as_ref(), Side::Source, source, ends);
        let target_words = words(self.tokenizer.as_ref(), Side::Target, tokens, ends);
        let read = tokens.split_last().map_or(&[][..], |(_, rest)| rest);
        let target = self.target_ids(&[[&generated.start, read].concat()])?;
        let input = Input::pair(self.source_ids(&[source.to_vec()])?, target);
        let both = [source_words.as_slice(), target_words.as_slice()];
        let alignment = align(session, input, heads, both, generated.start.len())?;
        Ok(Aligned { source: source_words, target: target_words, alignment })
    }

    /// When each word of a transcript was said, in seconds of the recording, and its probability: the mean over its
    /// tokens. Special tokens are not words.
    pub fn times(
        &self,
        session: &mut dyn Session,
        heads: &Heads,
        window: &Window,
        generated: &GeneratedRow,
    ) -> Result<Vec<(Timed, f64)>, Failure> {
        let (tokenizer, Some(speech)) = (self.tokenizer()?, &self.speech) else { return Ok(Vec::new()) };
        let (Some(best), false) = (generated.best(), generated.is_silence()) else { return Ok(Vec::new()) };
        // Words are aligned in a transcript without timestamps.
        let start = match generated.detection {
            Some(detection) => speech.prompt(detection.language.map(|(id, _)| id), self.task, false),
            None => generated.start.clone(),
        };
        let room =
            position_limit(self.model, Side::Target).unwrap_or(usize::MAX).saturating_sub(start.len() + 1);
        let spoken =
            best.tokens.iter().zip(&best.log_probs).filter(|(id, _)| speech.is_text(**id)).take(room);
        let (text, log_probs): (Vec<u32>, Vec<f64>) = spoken.unzip();
        let language =
            generated.detection.and_then(|h| h.language).and_then(|(id, _)| speech.code(tokenizer, id));
        let spaces = language.is_none_or(|code| !WITHOUT_SPACES.contains(&code.as_str()));
        let words = spoken_words(tokenizer, &text, spaces);
        let sizes = [start.len(), window.positions()];
        let target = self.target_ids(&[[start, text, vec![speech.end()]].concat()])?;
        let input = Input::pair(Sequence::Features(window.features.clone()), target);
        let mut timed = word_times(session, input, heads, &words, sizes)?;
        for word in &mut timed {
            word.start += window.start;
            word.end += window.start;
        }
        let probability = |word: Timed| {
            let of_word = log_probs.get(word.tokens.clone()).unwrap_or_default();
            let mean = of_word.iter().map(|p| p.exp()).sum::<f64>() / of_word.len().max(1) as f64;
            (word, mean)
        };
        Ok(timed.into_iter().map(probability).collect())
    }
}
