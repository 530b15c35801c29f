//! What a model writes by itself, and which part of the source each word came from.

use attnscope_graph::Side;
use attnscope_run::align::{Alignment, Heads, Timed, Word, align, spoken_words, word_times, words};
use attnscope_run::audio::Window;
use attnscope_run::generate::{Generator, Heard, Hypothesis, Segment, Settings, Spoken};
use attnscope_run::{Input, Native, Rows, Sequence, position_room};

use crate::failure::Failure;
use crate::ready::Ready;

/// What a model wrote from one sentence or recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// What the decoder began with.
    pub start: Vec<u32>,
    /// The best beams, best first, or the one that greedy search found.
    pub hypotheses: Vec<Hypothesis>,
    /// What was heard before anything was written, for a recording.
    pub heard: Option<Heard>,
    /// Every sample of the recording is 0: whatever was written, nothing was said.
    pub zeros: bool,
}

/// The words of a sentence and of its source, and which belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Aligned {
    /// The source's words.
    pub source: Vec<Word>,
    /// The target's.
    pub target: Vec<Word>,
    /// How much each of these looked at each of those.
    pub alignment: Alignment,
}

/// Languages that are written without spaces, by Whisper's codes.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

impl Written {
    /// The best of what was written; none where the limit left no room for a token.
    pub fn best(&self) -> Option<&Hypothesis> {
        self.hypotheses.first()
    }

    /// Whether nothing was said: there was nothing to hear, or OpenAI's thresholds have it so.
    pub fn is_silence(&self) -> bool {
        self.zeros || self.heard.zip(self.best()).is_some_and(|(heard, best)| heard.is_silence(best))
    }
}

impl Ready<'_> {
    /// Writes from every row of a source.
    pub fn write(
        &self,
        native: &mut Native,
        source: &Sequence,
        settings: &Settings,
    ) -> Result<Vec<Written>, Failure> {
        let generator = Generator { model: self.model, weights: &self.weights, settings };
        let plain =
            |hypotheses| Written { start: settings.start.clone(), hypotheses, heard: None, zeros: false };
        let features = match source {
            Sequence::Tokens(rows) => {
                return Ok(generator.from_tokens(native, &rows.tokens())?.into_iter().map(plain).collect());
            }
            Sequence::Features(features) => features,
        };
        let Some(speech) = self.speech.as_ref().filter(|_| self.start.is_none()) else {
            return Ok(generator.from_features(native, features)?.into_iter().map(plain).collect());
        };
        let spoken = generator.from_speech(native, features, speech, self.language, self.task)?;
        let written = |spoken: Spoken| Written {
            start: spoken.start,
            hypotheses: spoken.hypotheses,
            heard: Some(spoken.heard),
            zeros: false,
        };
        Ok(spoken.into_iter().map(written).collect())
    }

    /// Continues every prompt, for a model that reads nothing else.
    pub fn continue_prompts(
        &self,
        native: &mut Native,
        prompts: &[Vec<u32>],
        settings: &Settings,
    ) -> Result<Vec<Written>, Failure> {
        let generator = Generator { model: self.model, weights: &self.weights, settings };
        let made = generator.from_prompts(native, prompts)?.into_iter().zip(prompts);
        let written = |(hypotheses, prompt): (Vec<Hypothesis>, &Vec<u32>)| Written {
            start: prompt.clone(),
            hypotheses,
            heard: None,
            zeros: false,
        };
        Ok(made.map(written).collect())
    }

    /// What the decoder reads to write what the model writes by itself: the likeliest token at each step.
    pub fn written(&self, source: &Sequence) -> Result<Rows, Failure> {
        let settings = Settings { beams: 1, ..self.settings() };
        let read = |written: &Written| {
            let tokens = written.best().map(|best| best.tokens.as_slice()).unwrap_or_default();
            // The last token is written and never read.
            let all_but_last = tokens.split_last().map_or(&[][..], |(_, rest)| rest);
            [&written.start, all_but_last].concat()
        };
        let written = self.write(&mut Native::new(), source, &settings)?;
        self.target_ids(&written.iter().map(read).collect::<Vec<_>>())
    }

    /// The segments of a transcript with times, in seconds of the window, and when the next window begins.
    pub fn segments(&self, window: &Window, written: &Written) -> (Vec<Segment>, f64) {
        let recorded = window.end - window.start;
        match (&self.speech, written.best()) {
            (Some(speech), Some(best)) if self.times && !written.is_silence() => {
                speech.segments(&best.tokens, recorded)
            }
            _ => (Vec::new(), recorded),
        }
    }

    /// The heads that alignments are read off.
    pub fn alignment_heads(&self) -> Result<Heads, Failure> {
        Ok(Heads::of(self.model, self.opened.checkpoint.configs())?)
    }

    /// Aligns the best of what was written from a sentence with it.
    pub fn align(
        &self,
        native: &mut Native,
        heads: &Heads,
        source: &[u32],
        written: &Written,
    ) -> Result<Aligned, Failure> {
        let tokens = written.best().map(|best| best.tokens.as_slice()).unwrap_or_default();
        let ends = self.end_tokens();
        let source_words = words(self.tokenizer.as_ref(), Side::Source, source, ends);
        let target_words = words(self.tokenizer.as_ref(), Side::Target, tokens, ends);
        let read = tokens.split_last().map_or(&[][..], |(_, rest)| rest);
        let target = self.target_ids(&[[&written.start, read].concat()])?;
        let input = Input::pair(self.source_ids(&[source.to_vec()])?, target);
        let both = [source_words.as_slice(), target_words.as_slice()];
        let alignment = align(native, self.model, &self.weights, &input, heads, both, written.start.len())?;
        Ok(Aligned { source: source_words, target: target_words, alignment })
    }

    /// When each word of a transcript was said, in seconds of the recording, and its probability: the mean over its
    /// tokens. Special tokens are no words.
    pub fn times(
        &self,
        native: &mut Native,
        heads: &Heads,
        window: &Window,
        written: &Written,
    ) -> Result<Vec<(Timed, f64)>, Failure> {
        let (tokenizer, Some(speech)) = (self.tokenizer()?, &self.speech) else { return Ok(Vec::new()) };
        let (Some(best), false) = (written.best(), written.is_silence()) else { return Ok(Vec::new()) };
        // Words are aligned in a transcript without times.
        let start = match written.heard {
            Some(heard) => speech.prompt(heard.language.map(|(id, _)| id), self.task, false),
            None => written.start.clone(),
        };
        let room =
            position_room(self.model, Side::Target).unwrap_or(usize::MAX).saturating_sub(start.len() + 1);
        let spoken =
            best.tokens.iter().zip(&best.log_probs).filter(|(id, _)| speech.is_text(**id)).take(room);
        let (text, log_probs): (Vec<u32>, Vec<f64>) = spoken.unzip();
        let language = written.heard.and_then(|h| h.language).and_then(|(id, _)| speech.code(tokenizer, id));
        let spaces = language.is_none_or(|code| !WITHOUT_SPACES.contains(&code.as_str()));
        let words = spoken_words(tokenizer, &text, spaces);
        let sizes = [start.len(), window.positions()];
        let target = self.target_ids(&[[start, text, vec![speech.end()]].concat()])?;
        let input = Input::pair(Sequence::Features(window.features.clone()), target);
        let mut timed = word_times(native, self.model, &self.weights, &input, heads, &words, sizes)?;
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
