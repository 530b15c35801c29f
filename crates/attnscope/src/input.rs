//! The input of a model, before it becomes tokens or features.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Remedy;
use attnscope_graph::Side;
use attnscope_run::{Input as RunInput, Rows, Sequence};

use crate::failure::{Argument, Failure};
use crate::open::Opened;
use crate::ready::Ready;
use crate::toy;

/// What `demo` reads by default.
pub const DEMO_SOURCE: &str = "A man in a red shirt is riding a bicycle.";

/// The source and, where it is known, the target.
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
    pub source: Option<SourceInput>,
    /// The target; the model generates one where none is given.
    pub target: Option<TargetInput>,
    /// The source's language, by the code of a multilingual model.
    pub source_language: Option<String>,
    /// The target's.
    pub target_language: Option<String>,
}

/// A source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceInput {
    /// Sentences, one row of a batch each.
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
pub enum TargetInput {
    /// Sentences; the decoder's input is made from them by the model's shift.
    Texts(Vec<String>),
    /// The decoder's input as it is.
    Ids(Vec<Vec<u32>>),
}

/// The input of a run, resolved to sequences.
#[derive(Debug, Clone)]
pub enum ResolvedInput {
    /// Every sequence that the model reads.
    Whole(RunInput),
    /// The source; the model generates the target.
    Source(Sequence),
}

impl ResolvedInput {
    /// How many sentences or recordings.
    pub(crate) fn batch(&self) -> usize {
        match self {
            Self::Whole(input) => input.batch(),
            Self::Source(source) => source.batch(),
        }
    }

    /// A run's input, and whether the model generated its target because none was given.
    pub fn input(self, ready: &Ready<'_>) -> Result<(RunInput, bool), Failure> {
        match self {
            Self::Whole(input) => Ok((input, false)),
            Self::Source(source) => {
                let target = ready.generated_target(&source)?;
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
        Self::of(SourceInput::Texts(texts.into_iter().map(Into::into).collect()))
    }

    /// A text for a model that is a decoder alone.
    pub fn prompt(text: impl Into<String>) -> Self {
        Self::of(SourceInput::Prompts(vec![text.into()]))
    }

    /// A batch of token ids.
    pub fn ids(rows: impl Into<Vec<Vec<u32>>>) -> Self {
        Self::of(SourceInput::Ids(rows.into()))
    }

    /// A recording: wav, flac or mp3.
    pub fn audio(file: impl Into<PathBuf>) -> Self {
        Self::of(SourceInput::Audio(file.into()))
    }

    /// Log-mel features in a file: `.npy` or `.safetensors`, [batch, mels, frames].
    pub fn features(file: impl Into<PathBuf>) -> Self {
        Self::of(SourceInput::Features(file.into()))
    }

    fn of(source: SourceInput) -> Self {
        Self { source: Some(source), ..Self::default() }
    }

    /// With a target.
    #[must_use]
    pub fn with_target(self, text: impl Into<String>) -> Self {
        self.with_targets([text])
    }

    /// With a target for each row.
    #[must_use]
    pub fn with_targets<T: Into<String>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        Self { target: Some(TargetInput::Texts(texts.into_iter().map(Into::into).collect())), ..self }
    }

    /// With the decoder's input in token ids.
    #[must_use]
    pub fn with_target_ids(self, rows: impl Into<Vec<Vec<u32>>>) -> Self {
        Self { target: Some(TargetInput::Ids(rows.into())), ..self }
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
            Some(SourceInput::Audio(file)) => ready.audio(file),
            Some(SourceInput::Features(file)) => ready.features(file),
            Some(SourceInput::Ids(rows)) => ready.source_ids(rows),
            Some(SourceInput::Prompts(_)) => Err(wrong_side(ready, Remedy::SourceInstead)),
            Some(SourceInput::Texts(_)) | None => {
                let texts = self.source_texts(ready)?;
                ready.source(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
        }
    }

    /// The source's texts, where it is text.
    pub fn source_texts(&self, ready: &Ready<'_>) -> Result<Vec<String>, Failure> {
        match &self.source {
            Some(SourceInput::Texts(texts)) => Ok(texts.clone()),
            Some(_) => Ok(Vec::new()),
            None => Ok(vec![usual_source(ready)?.to_owned()]),
        }
    }

    /// Whether there is something to read: what was given, or what a built-in model has.
    pub(crate) fn is_there(&self, opened: &Opened) -> bool {
        self.source.is_some() || self.target.is_some() || usual_text(&opened.name).is_some()
    }

    /// A row's texts as they were given: what is read first, and the target; nothing for ids, recordings and what is generated.
    pub(crate) fn texts_of(&self, ready: &Ready<'_>, row: usize) -> Result<[Option<String>; 2], Failure> {
        let read = match &self.source {
            Some(SourceInput::Prompts(texts)) => texts.clone(),
            None if !self.is_there(ready.opened) => Vec::new(),
            None if self.target.is_some() && !ready.model.architecture.reads(Side::Source) => Vec::new(),
            _ => self.source_texts(ready)?,
        };
        let target = match &self.target {
            Some(TargetInput::Texts(texts)) => texts.get(row).cloned(),
            None if ready.opened.name == "toy" => Some(toy::TARGET.to_owned()),
            _ => None,
        };
        Ok([read.into_iter().nth(row), target])
    }

    /// The recording, where the source is one.
    pub fn recording(&self) -> Option<&Path> {
        match &self.source {
            Some(SourceInput::Audio(file)) => Some(file),
            _ => None,
        }
    }

    /// The texts that a decoder alone reads, where they are texts.
    pub(crate) fn prompts(&self) -> &[String] {
        match &self.source {
            Some(SourceInput::Prompts(texts)) => texts,
            _ => &[],
        }
    }

    /// What a decoder alone reads: a prompt, or ids.
    pub(crate) fn prompt_rows(&self, ready: &Ready<'_>) -> Result<Rows, Failure> {
        match (&self.source, &self.target) {
            (Some(SourceInput::Prompts(_)) | None, Some(TargetInput::Ids(rows))) => ready.target_ids(rows),
            (Some(SourceInput::Prompts(texts)), None) if !texts.is_empty() => {
                ready.prompts(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
            (Some(SourceInput::Prompts(_)) | None, None) => {
                Err(Failure::new(format!("{}: nothing to read", ready.opened.name), Remedy::PromptText))
            }
            _ => Err(wrong_side(ready, Remedy::PromptInstead)),
        }
    }

    /// The sequences that the model's stacks read; the model may generate the target.
    pub fn read(&self, ready: &Ready<'_>) -> Result<ResolvedInput, Failure> {
        let architecture = &ready.model.architecture;
        if !architecture.reads(Side::Source) {
            let rows = self.prompt_rows(ready)?;
            return Ok(ResolvedInput::Whole(RunInput::of(Side::Target, Sequence::Tokens(rows))));
        }
        let source = self.source(ready)?;
        if !architecture.reads(Side::Target) {
            return match self.target {
                None => Ok(ResolvedInput::Whole(RunInput::of(Side::Source, source))),
                Some(_) => Err(wrong_side(ready, Remedy::SourceInstead)),
            };
        }
        let target = match &self.target {
            Some(TargetInput::Ids(rows)) => ready.target_ids(rows)?,
            Some(TargetInput::Texts(texts)) => {
                ready.target(&texts.iter().map(String::as_str).collect::<Vec<_>>())?
            }
            None if ready.opened.name == "toy" => ready.target(&[toy::TARGET])?,
            // A classifier's decoder reads the source once more, as Hugging Face gives it.
            None if architecture.classifier().is_some() => ready.shifted(&source)?,
            None => return Ok(ResolvedInput::Source(source)),
        };
        Ok(ResolvedInput::Whole(RunInput::pair(source, target)))
    }
}

/// Pairs have a source and a target: a model of one stack cannot use them.
pub(crate) fn check_pairs(ready: &Ready<'_>) -> Result<(), Failure> {
    let architecture = &ready.model.architecture;
    match architecture.has_cross_attention() && architecture.classifier().is_none() {
        true => Ok(()),
        false if architecture.reads(Side::Target) => Err(wrong_side(ready, Remedy::PromptInstead)),
        false => Err(wrong_side(ready, Remedy::SourceInstead)),
    }
}

/// The error for an input of another kind than the model reads.
fn wrong_side(ready: &Ready<'_>, instead: Remedy) -> Failure {
    let architecture = &ready.model.architecture;
    let kind = architecture.kind();
    let reads = match (architecture.reads(Side::Source), architecture.reads(Side::Target)) {
        (true, true) => "a source and a target",
        _ => "one text",
    };
    let kind = match architecture.classifier().is_some() {
        true => format!("a {kind}"),
        false => format!("a model that is {kind}"),
    };
    Failure::new(
        format!("{}: {kind} reads {reads}, but something else was given", ready.opened.name),
        instead,
    )
}

/// What a built-in model reads where nothing is given.
fn usual_text(name: &str) -> Option<&'static str> {
    match name {
        "demo" => Some(DEMO_SOURCE),
        "toy" => Some(toy::SOURCE),
        _ => None,
    }
}

fn usual_source(ready: &Ready<'_>) -> Result<&'static str, Failure> {
    let name = &ready.opened.name;
    usual_text(name).ok_or_else(|| {
        Failure::new(
            format!("{name}: nothing to read"),
            match ready.window(Argument::Audio) {
                Ok(_) => Remedy::Recording,
                Err(_) => Remedy::SourceText,
            },
        )
    })
}
