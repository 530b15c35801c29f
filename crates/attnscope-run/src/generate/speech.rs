//! Whisper's special tokens: how the decoder begins, which tokens are excluded, and which language is detected.

use std::ops::Range;

use attnscope_checkpoint::Config;
use attnscope_graph::{Dim, Model, Side};

use super::ahead::Ahead;
use super::rules::log_sum;
use super::search::best;
use super::watch::in_row;
use super::{Generator, Hypothesis, Limit, Settings, Times, Watched};
use crate::audio::POSITION_SECONDS;
use crate::error::RunError;
use crate::executor::{Decode, Session};
use crate::input::{Features, Input, Sequence};
use crate::token::whisper::MULTILINGUAL_ROWS;
use crate::token::{TokenError, Tokenizer};

/// What is done with the speech.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Task {
    /// It is transcribed.
    #[default]
    Transcribe,
    /// It is translated into English.
    Translate,
}

/// The special tokens of an audio model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speech {
    start: u32,
    end: u32,
    /// The tokens of the languages; none for an English-only model.
    languages: Range<u32>,
    transcribe: u32,
    translate: u32,
    no_times: u32,
    /// The token of 0.00 s.
    first_time: Option<u32>,
    no_speech: Option<u32>,
    /// Other special tokens.
    marks: Vec<u32>,
}

/// What the logits of the first decoding step say about a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SpeechDetection {
    /// The language and its probability among languages; the probability is absent where the caller named the language.
    pub language: Option<(u32, Option<f64>)>,
    /// The no-speech probability.
    pub no_speech: Option<f64>,
}

/// A part of a transcript and when it was said, in seconds of the window.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// Its tokens, with those of its times.
    pub tokens: Range<usize>,
}

/// The transcript of one recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcription {
    /// What the decoder began with.
    pub start: Vec<u32>,
    /// The language and the no-speech probability, from the first step.
    pub detection: SpeechDetection,
    /// The best beams, best first, or what greedy search found.
    pub hypotheses: Vec<Hypothesis>,
}

/// OpenAI's thresholds: a recording counts as silent when its no-speech probability is above this, …
pub const SILENCE: f64 = 0.6;
/// … and the mean log-probability of the generated tokens is below this.
pub const UNSURE: f64 = -1.0;

/// Tokens that are not speech: brackets, notes and the like, as OpenAI lists them. Those of the second list are excluded
/// together with every token that begins with them.
const UNSPOKEN: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" \
                        (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";
const MUSIC: &str = "♩ ♪ ♫ ♬ ♭ ♮ ♯";

impl Speech {
    /// The special tokens of a tokenizer, if it is a Whisper model's.
    pub fn of(model: &Model, configs: &[Config], tokenizer: &Tokenizer) -> Option<Self> {
        let id = |name: &str| tokenizer.id(&format!("<|{name}|>"));
        let (start, translate) = (id("startoftranscript")?, id("translate")?);
        let said = configs.iter().find_map(|c| c.facts.get("is_multilingual")?.as_bool());
        let rows = model.sizes.get(Dim::Vocab(Side::Target)).unwrap_or(0);
        let multilingual = said.unwrap_or(rows >= MULTILINGUAL_ROWS);
        Some(Self {
            start,
            end: id("endoftext")?,
            languages: if multilingual { start + 1..translate } else { 0..0 },
            transcribe: id("transcribe")?,
            translate,
            no_times: id("notimestamps")?,
            first_time: id("0.00"),
            // It has another name in Hugging Face's older files.
            no_speech: id("nospeech").or_else(|| id("nocaptions")),
            marks: ["startofprev", "startoflm"].into_iter().filter_map(id).collect(),
        })
    }

    /// The token of a language by its code, where the model knows several.
    ///
    /// # Errors
    /// When it does not know this one.
    pub fn language(&self, tokenizer: &Tokenizer, code: &str) -> Result<u32, TokenError> {
        let id = tokenizer.id(&format!("<|{code}|>")).filter(|id| self.languages.contains(id));
        id.ok_or_else(|| TokenError::UnknownLanguage { code: code.to_owned() })
    }

    /// The code of a language.
    pub fn code(&self, tokenizer: &Tokenizer, language: u32) -> Option<String> {
        let piece = tokenizer.piece(Side::Target, language).filter(|_| self.languages.contains(&language))?;
        Some(piece.trim_start_matches("<|").trim_end_matches("|>").to_owned())
    }

    /// Whether a token is text: all special tokens follow the end.
    pub fn is_text(&self, id: u32) -> bool {
        id < self.end
    }

    /// The token that ends a transcript.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Whether the model knows more languages than English.
    pub fn is_multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    /// What the decoder begins with: the start, for a model of many languages the language (English where none is known)
    /// and the task, and the token that turns timestamps off, where they are off.
    pub fn prompt(&self, language: Option<u32>, task: Task, times: bool) -> Vec<u32> {
        let task = match task {
            Task::Transcribe => self.transcribe,
            Task::Translate => self.translate,
        };
        let middle = vec![language.unwrap_or(self.languages.start), task];
        let middle = if self.is_multilingual() { middle } else { Vec::new() };
        let no_times = if times { Vec::new() } else { vec![self.no_times] };
        [vec![self.start], middle, no_times].concat()
    }

    /// The timestamp rules, where the model has timestamp tokens. The first is within a second.
    pub fn times(&self) -> Option<Times> {
        let latest_start = (1.0 / POSITION_SECONDS).round() as u32;
        Some(Times { first: self.first_time?, end: self.end, none: self.no_times, latest_start })
    }

    /// The segments of a transcript with times, and the time at which the next window begins: the end of the last complete
    /// segment if another has begun after it, else the end of the window. Times are seconds of the window, which
    /// is `duration` long.
    pub fn segments(&self, tokens: &[u32], duration: f64) -> (Vec<Segment>, f64) {
        let Some(first) = self.first_time else { return (Vec::new(), duration) };
        let length = tokens.iter().position(|id| *id == self.end).unwrap_or(tokens.len());
        let tokens = &tokens[..length];
        let time = |id: u32| id.checked_sub(first).map(|steps| f64::from(steps) * POSITION_SECONDS);
        let pairs = tokens.windows(2).enumerate().filter(|(_, two)| two.iter().all(|id| *id >= first));
        let mut ends: Vec<usize> = pairs.map(|(i, _)| i + 1).collect();
        let Some(&last) = ends.last() else {
            let latest = tokens.iter().rev().find_map(|&id| time(id)).filter(|&t| t > 0.0);
            return (
                vec![Segment { start: 0.0, end: latest.unwrap_or(duration), tokens: 0..length }],
                duration,
            );
        };
        let next = match tokens {
            [.., before, end] if *before < first && *end >= first => {
                ends.push(length);
                duration
            }
            _ => tokens.get(last - 1).and_then(|&id| time(id)).filter(|&t| t > 0.0).unwrap_or(duration),
        };
        let segment = |(from, to): (usize, usize)| {
            let at = |token: usize| tokens.get(token).and_then(|&id| time(id)).unwrap_or(0.0);
            Segment { start: at(from), end: at(to - 1), tokens: from..to }
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        (starts.zip(ends.iter().copied()).map(segment).collect(), next)
    }

    /// Settings for a model without a document about generation: those of OpenAI's `decode` without timestamps. Settings of a
    /// document are kept.
    ///
    /// # Errors
    /// When the tokenizer cannot read the signs that are ruled out.
    pub fn complete(
        &self,
        settings: &mut Settings,
        configs: &[Config],
        tokenizer: &Tokenizer,
    ) -> Result<(), TokenError> {
        let said = |key: &str| configs.iter().any(|c| c.facts.get(key).is_some_and(|v| !v.is_null()));
        if settings.ends.is_empty() {
            settings.ends = vec![self.end];
        }
        if !said("suppress_tokens") {
            settings.rules.suppressed = self.unspoken(tokenizer)?;
        }
        if !said("begin_suppress_tokens") {
            let blank = plain(tokenizer, " ")?;
            settings.rules.suppressed_first = blank.into_iter().chain([self.end]).collect();
        }
        if let (false, false, Some(positions)) =
            (said("max_length"), said("max_new_tokens"), settings.positions)
        {
            settings.limit = Limit::New(positions / 2);
        }
        Ok(())
    }

    /// The tokens that are never generated.
    fn unspoken(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, TokenError> {
        // A hyphen or a quote may occur within a word, but does not begin one.
        let mut ids = vec![];
        for sign in [" -", " '"] {
            ids.extend(plain(tokenizer, sign)?.first());
        }
        for (signs, any_length) in [(UNSPOKEN, false), (MUSIC, true)] {
            for sign in signs.split(' ') {
                for text in [sign.to_owned(), format!(" {sign}")] {
                    let tokens = plain(tokenizer, &text)?;
                    ids.extend(tokens.first().filter(|_| any_length || tokens.len() == 1));
                }
            }
        }
        ids.extend([self.transcribe, self.translate, self.start]);
        ids.extend(self.marks.iter().copied().chain(self.no_speech));
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// What the logits after the start token say.
    fn detect(&self, logits: &[f32], asked: Option<u32>) -> SpeechDetection {
        let total = log_sum(logits);
        let no_speech = self.no_speech.and_then(|id| logits.get(id as usize));
        let known = self.languages.start as usize..self.languages.end as usize;
        let languages = logits.get(known).unwrap_or_default();
        let likeliest = best(languages).map(|(nth, logit)| {
            let probability = (f64::from(logit) - log_sum(languages)).exp();
            (self.languages.start + nth, Some(probability))
        });
        SpeechDetection {
            language: asked.map(|id| (id, None)).or(likeliest),
            no_speech: no_speech.map(|&logit| (f64::from(logit) - total).exp()),
        }
    }
}

impl SpeechDetection {
    /// Whether the recording is silent, by OpenAI's rule: the no-speech probability, and how likely the generated tokens are.
    pub fn is_silence(&self, written: &Hypothesis) -> bool {
        let mean = written.log_probs.iter().sum::<f64>() / written.log_probs.len().max(1) as f64;
        self.no_speech.is_some_and(|p| p > SILENCE) && mean < UNSURE
    }
}

impl Generator<'_> {
    /// Transcribes each recording of a batch. Detects the language first, if the caller does not give it.
    ///
    /// # Errors
    /// As [`Generator::from_tokens`].
    pub fn from_speech(
        &self,
        session: &mut dyn Session,
        features: &Features,
        speech: &Speech,
        language: Option<u32>,
        task: Task,
    ) -> Result<Vec<Transcription>, RunError> {
        let all = Sequence::Features(features.clone());
        let prepared = session.prepared();
        let mut made = Vec::new();
        for row in 0..features.batch {
            let one = self.one_recording(session, all.select(&[row]), speech, language, task);
            made.push(one.map_err(|e| in_row(prepared.model(), e, |_| row))?);
        }
        Ok(made)
    }

    fn one_recording(
        &self,
        session: &mut dyn Session,
        source: Sequence,
        speech: &Speech,
        language: Option<u32>,
        task: Task,
    ) -> Result<Transcription, RunError> {
        let mut decode = Watched::new(session, Input::of(Side::Source, source), self.source)?;
        let logits = decode.advance(&[vec![speech.start]])?.to_vec();
        let detection = speech.detect(&logits, language);
        let times = self.settings.rules.times.is_some();
        let start = speech.prompt(detection.language.map(|(id, _)| id), task, times);
        let settings = Settings { start, ..self.settings.clone() };
        let generator = Generator { settings: &settings, ..*self };
        let mut ahead = Ahead { inner: &mut decode, read: 1, logits };
        let made = generator.search(&mut ahead, 1, &[])?;
        let hypotheses = made.into_iter().next().unwrap_or_default();
        Ok(Transcription { start: settings.start, detection, hypotheses })
    }
}

/// The tokens of a text without the end that a target sentence has.
fn plain(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, TokenError> {
    let mut tokens = tokenizer.encode_target(text)?;
    tokens.pop();
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speech(languages: Range<u32>) -> Speech {
        let marks = vec![];
        Speech {
            start: 1,
            end: 0,
            languages,
            transcribe: 5,
            translate: 6,
            no_times: 8,
            first_time: Some(10),
            no_speech: Some(7),
            marks,
        }
    }

    #[test]
    fn english_models_have_neither_language_nor_task() {
        assert_eq!(speech(0..0).prompt(None, Task::Translate, false), [1, 8]);
        assert_eq!(speech(2..5).prompt(Some(4), Task::Translate, false), [1, 4, 6, 8]);
        assert_eq!(speech(2..5).prompt(None, Task::Transcribe, true), [1, 2, 5]);
    }

    #[test]
    fn the_likeliest_language_is_detected_and_no_other_token() {
        let logits = [9.0, 9.0, 0.0, 2.0, 1.0, 9.0, 9.0, 3.0, 9.0];
        let detection = speech(2..5).detect(&logits, None);
        let (language, probability) = detection.language.unwrap();
        assert_eq!(language, 3);
        // e² / (1 + e² + e)
        assert!((probability.unwrap() - 0.665_241).abs() < 1e-6);
        let total: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        assert!((detection.no_speech.unwrap() - 3f64.exp() / total).abs() < 1e-9);
        assert_eq!(speech(2..5).detect(&logits, Some(2)).language, Some((2, None)));
        assert_eq!(speech(0..0).detect(&logits, None).language, None);
    }

    #[test]
    fn segments_stand_between_times() {
        // Text is 2, times are 10 + steps of 0.02 s, the end is 0.
        let found = |tokens: &[u32]| {
            let (segments, next) = speech(0..0).segments(tokens, 30.0);
            let of = |s: Segment| ((s.start * 50.0).round() as u32, (s.end * 50.0).round() as u32, s.tokens);
            (segments.into_iter().map(of).collect::<Vec<_>>(), (next * 50.0).round() as u32)
        };
        // One segment, all said.
        assert_eq!(found(&[10, 2, 2, 60, 0]), (vec![(0, 50, 0..4)], 1500));
        // Two, with silence at the end.
        assert_eq!(found(&[10, 2, 60, 60, 2, 90, 0]), (vec![(0, 50, 0..3), (50, 80, 3..6)], 1500));
        // Another begins and is cut off: the next window begins with it.
        assert_eq!(found(&[10, 2, 60, 70, 2, 2]), (vec![(0, 50, 0..3)], 50));
        // No time at the end, or none at all.
        assert_eq!(found(&[10, 2, 2, 0]), (vec![(0, 1500, 0..3)], 1500));
        assert_eq!(found(&[2, 0]), (vec![(0, 1500, 0..1)], 1500));
        assert_eq!(found(&[0]), (vec![(0, 1500, 0..0)], 1500));
    }

    #[test]
    fn silence_needs_both_thresholds() {
        let written = |log_prob: f64| Hypothesis {
            tokens: vec![3],
            log_probs: vec![log_prob],
            score: log_prob,
            ended: true,
        };
        let detection = |p| SpeechDetection { language: None, no_speech: Some(p) };
        assert!(detection(0.7).is_silence(&written(-1.5)));
        assert!(!detection(0.7).is_silence(&written(-0.5)));
        assert!(!detection(0.5).is_silence(&written(-1.5)));
        assert!(!SpeechDetection::default().is_silence(&written(-1.5)));
    }
}
