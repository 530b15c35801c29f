//! What a model generates.

use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;
use crate::note::Note;

/// What a model generated from each sentence, recording or row of features.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Generation {
    /// 1
    pub schema: u32,
    /// The model as it was named.
    pub model: String,
    /// Its title for a reader.
    #[serde(skip)]
    pub title: String,
    /// The family's id.
    pub family: String,
    /// How it was searched.
    pub search: Search,
    /// With `--audio`: the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio: Option<Recorded>,
    /// With `--audio`: the transcript of all windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// With `--align`: the heads of the alignment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment_heads: Option<AlignmentHeads>,
    /// One for each sentence, window or row of features.
    pub outputs: Vec<Output>,
    /// Whether the caller gave what the decoder begins with: it is then part of the sentence.
    #[serde(skip)]
    pub given_start: bool,
    /// Whether times are written.
    #[serde(skip)]
    pub timestamps: bool,
    /// What a user may not expect.
    pub notes: Vec<Note>,
}

/// How sentences were searched for.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Search {
    /// Sentences followed at once; 1 is greedy.
    pub beams: usize,
    /// A score is the log-probability over the number of tokens to this power.
    #[schemars(with = "Option<f64>")]
    pub length_penalty: f64,
    /// The most tokens that may be generated.
    pub max_new_tokens: usize,
    /// Tokens that end a sentence.
    pub end_tokens: Vec<u32>,
    /// Settings of the model's documents that are not applied.
    pub not_done: Vec<String>,
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Recorded {
    /// The file.
    pub file: String,
    /// Its length.
    pub seconds: f64,
    /// The model's window.
    pub window_seconds: f64,
}

/// The heads that alignments are computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlignmentHeads {
    /// Layer and head, from 0.
    pub heads: Vec<[usize; 2]>,
    /// Where these heads come from.
    pub because: String,
}

/// What was generated from one source.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Output {
    /// Its source; `null` for a model that continues a prompt.
    pub source: Option<From>,
    /// Ids that the decoder began with.
    pub start: Vec<u32>,
    /// Their texts, where the tokenizer has them.
    #[serde(skip)]
    pub start_pieces: Vec<Option<String>>,
    /// Sentences, best first.
    pub hypotheses: Vec<Sentence>,
    /// What a decoder alone continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// The best sentence without an incomplete segment, which is transcribed again in the next window.
    #[serde(skip)]
    pub said: Option<String>,
    /// With `--timestamps`: the segments of the transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<TimedSegment>>,
    /// With `--align`: which source word each word came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment: Option<WordAlignment>,
    /// With `--align`, for audio: when each word was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<TimedWord>>,
}

/// What a decoder alone continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Prompt {
    /// Its text, where text was given.
    pub text: Option<String>,
    /// The text of its tokens, where a tokenizer knows it.
    #[serde(skip)]
    pub decoded: Option<String>,
    /// Its tokens.
    pub tokens: Vec<Piece>,
}

/// The source of a sentence.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum From {
    /// Tokens.
    Tokens {
        /// Their text, where text was given.
        text: Option<String>,
        /// The tokens.
        tokens: Vec<Piece>,
    },
    /// A window of a recording, or a row of features.
    Window(SpeechWindow),
}

/// A window of a recording, with its language and no-speech probability.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SpeechWindow {
    /// In seconds.
    pub start: f64,
    /// In seconds.
    pub end: f64,
    /// The language's code; `null` for an English-only model.
    pub language: Option<String>,
    /// Its probability among languages; `null` where it was given.
    pub language_probability: Option<f64>,
    /// The no-speech probability.
    pub no_speech: Option<f64>,
    /// Whether the window is silent: `zeros`, or `no_speech` is above 0.6 and the mean log-probability below −1, which are
    /// OpenAI's thresholds. It is then left out of the transcript.
    pub silent: bool,
    /// Whether every sample is 0.
    pub zeros: bool,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Piece {
    /// Its number.
    pub id: u32,
    /// Its text, where a tokenizer knows it.
    pub piece: Option<String>,
}

/// A sentence that was found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Sentence {
    /// Its text; `null` without a tokenizer; with `--tgt-ids` it begins with those.
    pub text: Option<String>,
    /// `log_prob` over the number of tokens to the power of `length_penalty`.
    #[schemars(with = "Option<f64>")]
    pub score: f64,
    /// The sum over its tokens.
    #[schemars(with = "Option<f64>")]
    pub log_prob: f64,
    /// Why it ended.
    pub ended_by: EndedBy,
    /// Its tokens, the end token included.
    pub tokens: Vec<WrittenToken>,
}

/// Why a sentence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The model generated an end token.
    End,
    /// The limit was reached, also where an end token was forced there.
    Limit,
}

/// A generated token.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WrittenToken {
    /// Its number.
    pub id: u32,
    /// Its text, where a tokenizer knows it.
    pub piece: Option<String>,
    /// Its log-probability.
    #[schemars(with = "Option<f64>")]
    pub log_prob: f64,
}

/// A part of a transcript, in seconds of the recording.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TimedSegment {
    /// When it begins.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// Its text; `null` without a tokenizer.
    pub text: Option<String>,
    /// First and end among the best sentence's tokens, those of the times included.
    pub tokens: [usize; 2],
}

/// The words of a sentence and of its source, and which belong together.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WordAlignment {
    /// Words of the source.
    pub source_words: Vec<AlignedWord>,
    /// Words of the target.
    pub target_words: Vec<AlignedWord>,
    /// A row for each target word: the mean over the heads of the cross-attention weights at the queries that predicted its
    /// tokens,
    /// summed over the tokens of each source word.
    pub weights: Vec<Vec<f64>>,
    /// For each target word the source word whose weight deviates most from its mean over the target.
    pub links: Vec<Link>,
}

/// A word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlignedWord {
    /// Its text.
    pub text: String,
    /// First and end among the sentence's tokens.
    pub tokens: [usize; 2],
    /// A special token: it is not linked.
    pub special: bool,
}

/// Two words that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Link {
    /// The target word's number.
    pub target: usize,
    /// The source word's.
    pub source: usize,
    /// Its weight.
    pub weight: f64,
}

/// A word of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TimedWord {
    /// With the space before it and its punctuation.
    pub word: String,
    /// When it begins, in seconds.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// The mean over its tokens.
    pub probability: f64,
    /// First and end among the tokens that are text.
    pub tokens: [usize; 2],
}

impl Answer for Generation {
    const NAME: &'static str = "generate";
}

impl Output {
    /// The best sentence; none where the limit allowed no token.
    pub fn best(&self) -> Option<&Sentence> {
        self.hypotheses.first()
    }

    /// Whether the recording is silent.
    pub fn is_silent(&self) -> bool {
        matches!(&self.source, Some(From::Window(window)) if window.silent)
    }
}
