//! What a model writes by itself.

use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;
use crate::note::Note;

/// What a model wrote from each sentence, recording or row of features.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Generation {
    /// 1
    pub schema: u32,
    /// The model as it was named.
    pub model: String,
    /// What it is to a reader.
    #[serde(skip)]
    pub title: String,
    /// The family's id.
    pub family: String,
    /// How it was searched.
    pub search: Search,
    /// The recording, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio: Option<Recorded>,
    /// The transcript of all windows of a recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The heads of the alignment, where one was asked for.
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
    #[serde(skip)]
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
    /// The most tokens that may be written.
    pub max_new_tokens: usize,
    /// Tokens that end a sentence.
    pub end_tokens: Vec<u32>,
    /// What the model's documents ask for and is not done.
    pub not_done: Vec<String>,
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Recorded {
    /// The file.
    pub file: String,
    /// Its length.
    pub seconds: f64,
    /// What the model hears at once.
    pub window_seconds: f64,
}

/// The heads that alignments are read off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlignmentHeads {
    /// Layer and head, from 0.
    pub heads: Vec<[usize; 2]>,
    /// Who says so.
    pub because: String,
}

/// What was written from one source.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Output {
    /// What it was written from; `null` for a model that continues a prompt.
    pub source: Option<From>,
    /// What the decoder began with.
    pub start: Vec<u32>,
    /// The pieces of the same, where a tokenizer knows them.
    #[serde(skip)]
    pub start_pieces: Vec<Option<String>>,
    /// Sentences, best first.
    pub hypotheses: Vec<Sentence>,
    /// What a decoder alone continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// The best sentence without a segment that is not whole and is heard again in the next window.
    #[serde(skip)]
    pub said: Option<String>,
    /// Segments of a transcript with times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<TimedSegment>>,
    /// Which source word each word came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment: Option<WordAlignment>,
    /// When each word of a recording was said.
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

/// What a sentence was written from.
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
    Window(HeardWindow),
}

/// A window of a recording and what was heard in it before anything was written.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HeardWindow {
    /// In seconds.
    pub start: f64,
    /// In seconds.
    pub end: f64,
    /// The language's code; `null` for a model that knows English only.
    pub language: Option<String>,
    /// Its probability among languages; `null` where it was given.
    pub language_probability: Option<f64>,
    /// The probability that nothing is said.
    pub no_speech: Option<f64>,
    /// Whether nothing is said: it is then left out of the transcript.
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
    /// Its text; `null` without a tokenizer.
    pub text: Option<String>,
    /// `log_prob` over the number of tokens to the power of `length_penalty`.
    #[schemars(with = "Option<f64>")]
    pub score: f64,
    /// The sum over its tokens.
    #[schemars(with = "Option<f64>")]
    pub log_prob: f64,
    /// Why it is over.
    pub ended_by: EndedBy,
    /// Its tokens, the end token included.
    pub tokens: Vec<WrittenToken>,
}

/// Why a sentence is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The model wrote an end token.
    End,
    /// The limit was reached, also where an end token was forced there.
    Limit,
}

/// A token that was written.
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
    /// How much each target word looked at each source word.
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
    /// A token that is no text: it is not linked.
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
    /// With the space before it and the signs at it.
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
    /// The best sentence; none where the limit left no room for a token.
    pub fn best(&self) -> Option<&Sentence> {
        self.hypotheses.first()
    }

    /// Whether nothing was said.
    pub fn is_silent(&self) -> bool {
        matches!(&self.source, Some(From::Window(window)) if window.silent)
    }
}
