//! What a model is given, before it is tokens or features.

use std::path::{Path, PathBuf};

use attnscope_graph::{Side, Stack};
use attnscope_run::{Input as RunInput, Rows, Sequence};

use crate::failure::Failure;
use crate::open::Opened;
use crate::ready::Ready;
use crate::toy;

/// What `demo` reads where nothing is given.
pub const DEMO_SOURCE: &str = "A man in a red shirt is riding a bicycle.";

/// What a model is to read and, where that is known, to write.
///
/// ```
/// use attnscope::Input;
///
/// let input = Input::text("Two dogs play.").with_target("Zwei Hunde spielen.");
/// assert_eq!(input, Input::texts(["Two dogs play."]).with_targets(["Zwei Hunde spielen."]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    /// The source; a built-in model has one where none is given.
    pub source: Option<Reading>,
    /// The target; the model writes one where none is given.
    pub target: Option<Writing>,
    /// The source's language, by the code of a model of many.
    pub source_language: Option<String>,
    /// The target's.
    pub target_language: Option<String>,
}

/// A source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Sentences, a row of a batch each.
    Texts(Vec<String>),
    /// Token ids as they are.
    Ids(Vec<Vec<u32>>),
    /// What a decoder alone reads and continues.
    Prompts(Vec<String>),
    /// A recording.
    Audio(PathBuf),
    /// Log-mel features of another front end, in a file.
    Features(PathBuf),
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writing {
    /// Sentences; the decoder's input is shifted from them as the model does.
    Texts(Vec<String>),
    /// The decoder's input as it is.
    Ids(Vec<Vec<u32>>),
}

/// What was given of a run's input.
#[derive(Debug, Clone)]
pub enum Given {
    /// Every sequence that the model reads.
    Whole(RunInput),
    /// The source; the model writes the target.
    Source(Sequence),
}

impl Given {
    /// A run's input, and whether the model wrote its target itself because none was given.
    pub fn input(self, ready: &Ready<'_>) -> Result<(RunInput, bool), Failure> {
        match self {
            Self::Whole(input) => Ok((input, false)),
            Self::Source(source) => {
                let target = ready.written(&source)?;
                Ok((RunInput::pair(source, target), true))
            }
        }
    }
}

impl Input {
    /// One sentence.
    pub fn text(text: impl Into<String>) -> Self {
        Self::texts([text])
    }

    /// A batch of sentences.
    pub fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::of(Reading::Texts(texts.into_iter().map(Into::into).collect()))
    }

    /// A text for a model that is a decoder alone.
    pub fn prompt(text: impl Into<String>) -> Self {
        Self::of(Reading::Prompts(vec![text.into()]))
    }

    /// A batch of token ids.
    pub fn ids(rows: impl Into<Vec<Vec<u32>>>) -> Self {
        Self::of(Reading::Ids(rows.into()))
    }

    /// A recording: wav, flac or mp3.
    pub fn audio(file: impl Into<PathBuf>) -> Self {
        Self::of(Reading::Audio(file.into()))
    }

    /// Log-mel features in a file: `.npy` or `.safetensors`, [batch, mels, frames].
    pub fn features(file: impl Into<PathBuf>) -> Self {
        Self::of(Reading::Features(file.into()))
    }

    fn of(source: Reading) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    /// With a sentence to write.
    #[must_use]
    pub fn with_target(self, text: impl Into<String>) -> Self {
        self.with_targets([text])
    }

    /// With a sentence to write for each row.
    #[must_use]
    pub fn with_targets<T: Into<String>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        Self { target: Some(Writing::Texts(texts.into_iter().map(Into::into).collect())), ..self }
    }

    /// With the decoder's input in token ids.
    #[must_use]
    pub fn with_target_ids(self, rows: impl Into<Vec<Vec<u32>>>) -> Self {
        Self { target: Some(Writing::Ids(rows.into())), ..self }
    }

    /// Weights and tokenizer, with the languages that are asked for.
    pub fn ready<'a>(&self, opened: &'a Opened) -> Result<Ready<'a>, Failure> {
        self.with_languages(Ready::new(opened)?)
    }

    pub(crate) fn with_languages<'a>(&self, mut ready: Ready<'a>) -> Result<Ready<'a>, Failure> {
        ready.set_languages(self.source_language.as_deref(), self.target_language.as_deref())?;
        Ok(ready)
    }

    /// The source as the model reads it.
    pub fn source(&self, ready: &Ready<'_>) -> Result<Sequence, Failure> {
        match &self.source {
            Some(Reading::Audio(file)) => ready.audio(file),
            Some(Reading::Features(file)) => ready.features(file),
            Some(Reading::Ids(rows)) => ready.source_ids(rows),
            Some(Reading::Prompts(_)) => Err(wrong_side(ready, SOURCE)),
            Some(Reading::Texts(_)) | None => {
                let texts = self.source_texts(ready)?;
                ready.source(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
        }
    }

    /// The source's texts, where it is text.
    pub fn source_texts(&self, ready: &Ready<'_>) -> Result<Vec<String>, Failure> {
        match &self.source {
            Some(Reading::Texts(texts)) => Ok(texts.clone()),
            Some(_) => Ok(Vec::new()),
            None => Ok(vec![usual_source(ready)?.to_owned()]),
        }
    }

    /// The recording, where the source is one.
    pub fn recording(&self) -> Option<&Path> {
        match &self.source {
            Some(Reading::Audio(file)) => Some(file),
            _ => None,
        }
    }

    /// The texts that a decoder alone reads, where they are texts.
    pub(crate) fn prompts(&self) -> &[String] {
        match &self.source {
            Some(Reading::Prompts(texts)) => texts,
            _ => &[],
        }
    }

    /// What a decoder alone reads: a prompt, or ids.
    pub(crate) fn prompt_rows(&self, ready: &Ready<'_>) -> Result<Rows, Failure> {
        match (&self.source, &self.target) {
            (Some(Reading::Prompts(_)) | None, Some(Writing::Ids(rows))) => ready.target_ids(rows),
            (Some(Reading::Prompts(texts)), None) if !texts.is_empty() => {
                ready.prompts(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
            (Some(Reading::Prompts(_)) | None, None) => Err(Failure::new(
                format!("{}: nothing to read", ready.opened.name),
                "give a text with --prompt TEXT or --text FILE, or token ids with --tgt-ids",
            )),
            _ => Err(wrong_side(ready, PROMPT)),
        }
    }

    /// The sequences that the model's stacks read; the target may be left to the model.
    pub fn read(&self, ready: &Ready<'_>) -> Result<Given, Failure> {
        let architecture = &ready.model.architecture;
        if !architecture.has(Stack::Encoder) {
            let rows = self.prompt_rows(ready)?;
            return Ok(Given::Whole(RunInput::of(Side::Target, Sequence::Tokens(rows))));
        }
        let source = self.source(ready)?;
        if !architecture.has(Stack::Decoder) {
            return match self.target {
                None => Ok(Given::Whole(RunInput::of(Side::Source, source))),
                Some(_) => Err(wrong_side(ready, SOURCE)),
            };
        }
        let target = match &self.target {
            Some(Writing::Ids(rows)) => ready.target_ids(rows)?,
            Some(Writing::Texts(texts)) => {
                ready.target(&texts.iter().map(String::as_str).collect::<Vec<_>>())?
            }
            None if ready.opened.name == "toy" => ready.target(&[toy::TARGET])?,
            None => return Ok(Given::Source(source)),
        };
        Ok(Given::Whole(RunInput::pair(source, target)))
    }
}

/// How a decoder alone is given its text.
const PROMPT: &str = "--prompt TEXT, --text FILE or --tgt-ids";
/// How an encoder is.
const SOURCE: &str = "--src TEXT, --src-file FILE or --src-ids";

/// Pairs are of a source and a target: a model of one stack has no use for them.
pub(crate) fn check_pairs(ready: &Ready<'_>) -> Result<(), Failure> {
    let architecture = &ready.model.architecture;
    match architecture.has_cross_attention() {
        true => Ok(()),
        false if architecture.has(Stack::Decoder) => Err(wrong_side(ready, PROMPT)),
        false => Err(wrong_side(ready, SOURCE)),
    }
}

/// What was given is for a model of another kind.
fn wrong_side(ready: &Ready<'_>, instead: &str) -> Failure {
    let architecture = &ready.model.architecture;
    let kind = architecture.kind();
    let reads = match (architecture.has(Stack::Encoder), architecture.has(Stack::Decoder)) {
        (true, true) => "a source and a target",
        _ => "one text",
    };
    Failure::new(
        format!("{}: a model that is {kind} reads {reads}, and something else is given", ready.opened.name),
        format!("give it with {instead}"),
    )
}

/// What a built-in model reads where nothing is given.
fn usual_source(ready: &Ready<'_>) -> Result<&'static str, Failure> {
    match ready.opened.name.as_str() {
        "demo" => Ok(DEMO_SOURCE),
        "toy" => Ok(toy::SOURCE),
        name => Err(Failure::new(
            format!("{name}: nothing to read"),
            match ready.window("") {
                Ok(_) => "give a recording with --audio FILE, or features with --features FILE",
                Err(_) => "give a text with --src TEXT or --src-file FILE, or token ids with --src-ids",
            },
        )),
    }
}
