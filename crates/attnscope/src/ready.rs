//! A model that is ready to run: its weights in memory, its tokenizer, how its decoder begins.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use attnscope_checkpoint::Remedy;
use attnscope_graph::{Dim, Model, Side};
use attnscope_run::generate::{Settings, Speech, Task};
use attnscope_run::{
    Limits, PadSide, Prepared, Rows, Sequence, Session, Shift, Tokenizer, Weights, audio, check_rows,
    pad_token,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::device::Device;
use crate::failure::{Argument, Failure};
use crate::note::Note;
use crate::open::Opened;

/// A model with everything that a run needs besides its input.
#[derive(Debug)]
pub struct Ready<'a> {
    /// The file it came from.
    pub opened: &'a Opened,
    /// The model.
    pub model: &'a Model,
    /// The same with its weights, ready to run.
    pub prepared: Arc<dyn Prepared>,
    /// Its tokenizer, if one is known.
    pub tokenizer: Option<Tokenizer>,
    /// The pad id: the model's own, or 0 where it has none.
    pub pad: u32,
    /// An audio model's special tokens, where the tokenizer has them.
    pub speech: Option<Speech>,
    /// The language of a recording, where it was named.
    pub language: Option<u32>,
    /// What is done with a recording.
    pub task: Task,
    /// Whether a transcript is to have times in it.
    pub times: bool,
    /// What the decoder begins with, where that was asked for.
    pub start: Option<Vec<u32>>,
    /// Its default generation settings.
    settings: Settings,
    /// Seconds of the recording that was read.
    recorded: OnceLock<f64>,
    /// The rows of the texts that were read of which a part was left out.
    cut_rows: OnceLock<Vec<usize>>,
}

/// Reads a model's weights, and makes it ready to run.
pub(crate) fn prepare(
    opened: &Opened,
    device: Device,
    limits: &Limits,
) -> Result<Arc<dyn Prepared>, Failure> {
    let model = opened.model()?;
    let weights = Weights::load_within(model, &opened.checkpoint, limits)?;
    Ok(device.executor().prepare(Arc::new(model.clone()), weights)?)
}

/// A token as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// Its text, where a tokenizer knows it.
    pub piece: Option<String>,
    /// True where it only fills the row.
    pub padding: bool,
}

impl<'a> Ready<'a> {
    /// Reads weights and tokenizer.
    pub fn new(opened: &'a Opened) -> Result<Self, Failure> {
        Self::with(opened, prepare(opened, Device::Cpu, &Limits::default())?)
    }

    /// The same with weights that were read before.
    pub(crate) fn with(opened: &'a Opened, prepared: Arc<dyn Prepared>) -> Result<Self, Failure> {
        let model = opened.model()?;
        let tokenizer = opened.tokenizer()?;
        let pad = pad_token(model)?.unwrap_or(0);
        let audio = tokenizer.as_ref().filter(|_| model.graph.reads_audio());
        let configs = opened.checkpoint.configs();
        let speech = audio.and_then(|t| Speech::of(model, configs, t));
        let mut settings = Settings::of(model, configs)?;
        if let (Some(speech), Some(tokenizer)) = (&speech, &tokenizer) {
            speech.complete(&mut settings, configs, tokenizer)?;
        }
        Ok(Self {
            opened,
            model,
            prepared,
            tokenizer,
            pad,
            speech,
            language: None,
            task: Task::default(),
            times: false,
            start: None,
            settings,
            recorded: OnceLock::new(),
            cut_rows: OnceLock::new(),
        })
    }

    /// Its weights.
    pub fn weights(&self) -> &Weights {
        self.prepared.weights()
    }

    /// A session that runs it.
    pub fn session(&self) -> Box<dyn Session> {
        self.prepared.own_session()
    }

    /// The model's own padding, where its documents name it.
    pub fn named_pad(&self) -> Option<u32> {
        pad_token(self.model).ok().flatten()
    }

    /// The tokenizer, or why text cannot be used.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Failure> {
        self.tokenizer.as_ref().ok_or_else(|| {
            Failure::new(
                format!("{}: no tokenizer is beside the weights, so text cannot be read", self.opened.name),
                Remedy::Tokenizer,
            )
        })
    }

    /// Source rows from texts.
    pub fn source(&self, texts: &[&str]) -> Result<Sequence, Failure> {
        let rows = texts.iter().map(|text| Ok(self.tokenizer()?.encode_source(text)?));
        let mut rows = rows.collect::<Result<Vec<_>, Failure>>()?;
        if let Some(length) = self.fixed_length() {
            let longer = |(row, ids): (usize, &Vec<u32>)| (ids.len() > length).then_some(row);
            let cut: Vec<usize> = rows.iter().enumerate().filter_map(longer).collect();
            self.cut_rows.get_or_init(|| cut);
            rows.iter_mut().for_each(|ids| ids.truncate(length));
        }
        self.source_ids(&rows)
    }

    /// A note about the texts that were cut, where some were.
    pub(crate) fn texts_cut(&self) -> Option<Note> {
        let rows = self.cut_rows.get().filter(|rows| !rows.is_empty())?.clone();
        Some(Note::TextsCut { length: self.fixed_length()?, rows })
    }

    /// The tokens of a source; a classifier of one length reads no more than that.
    pub(crate) fn source_tokens(&self, text: &str) -> Result<Vec<u32>, Failure> {
        let mut ids = self.tokenizer()?.encode_source(text)?;
        ids.truncate(self.fixed_length().unwrap_or(usize::MAX));
        Ok(ids)
    }

    /// Source rows from ids.
    pub fn source_ids(&self, rows: &[Vec<u32>]) -> Result<Sequence, Failure> {
        if self.model.graph.reads_audio() {
            return Err(Failure::new(
                format!("{}: the model reads audio, and text or token ids are given", self.opened.name),
                Remedy::AudioOnly,
            ));
        }
        check_rows(self.model, Side::Source, rows)?;
        let least = self.fixed_length().unwrap_or(0);
        Ok(Sequence::Tokens(Rows::padded(rows, self.pad, PadSide::Right, least)))
    }

    /// The tokens to which a classifier pads or cuts every text.
    pub(crate) fn fixed_length(&self) -> Option<usize> {
        self.model.architecture.classifier()?.length
    }

    /// The first window of a recording; [`Ready::recorded`] then says how long it is.
    pub fn audio(&self, file: &Path) -> Result<Sequence, Failure> {
        let (mels, frames) = self.window(Argument::Audio)?;
        let (features, seconds) = audio::features_from_file(file, mels, frames)?;
        self.recorded.get_or_init(|| seconds);
        Ok(Sequence::Features(features))
    }

    /// How many seconds the recording has whose first window was read, and how many of them that window has at most.
    pub fn recorded(&self) -> Option<(f64, f64)> {
        let (_, frames) = self.window(Argument::Audio).ok()?;
        Some((*self.recorded.get()?, frames as f64 * audio::POSITION_SECONDS / 2.0))
    }

    /// Features that another program made.
    pub fn features(&self, file: &Path) -> Result<Sequence, Failure> {
        let (mels, frames) = self.window(Argument::Features)?;
        Ok(Sequence::Features(audio::features_from_array(file, mels, frames)?))
    }

    /// Mel bands and frames of the model's audio window.
    pub fn window(&self, given: Argument) -> Result<(usize, usize), Failure> {
        let sizes = &self.model.sizes;
        let graph = &self.model.graph;
        match (graph.reads_audio(), sizes.get(Dim::Mels), sizes.get(Dim::Positions(Side::Source))) {
            (true, Some(mels), Some(positions)) => Ok((mels, graph.frames_of(positions))),
            _ => Err(Failure::new("is for audio models, and this one reads tokens", Remedy::TextOnly)
                .about(given)
                .of(&self.opened.name)),
        }
    }

    /// What an audio model's decoder begins with: the given language, or English.
    fn prompt(&self) -> Vec<u32> {
        self.speech
            .as_ref()
            .map(|speech| speech.prompt(self.language, self.task, self.times))
            .unwrap_or_default()
    }

    /// Sets the languages, by the model's own codes. For a recording the target is the source's language or English, into
    /// which it is then translated.
    pub fn set_languages(&mut self, source: Option<&str>, target: Option<&str>) -> Result<(), Failure> {
        if source.is_none() && target.is_none() {
            return Ok(());
        }
        self.tokenizer()?;
        let Some(tokenizer) = &mut self.tokenizer else { return Ok(()) };
        let Some(speech) = &self.speech else {
            tokenizer.set_languages(source, target)?;
            return if target.is_some() { self.begin_in_target_language() } else { Ok(()) };
        };
        if let Some(code) = source.filter(|&code| !speech.is_multilingual() && code != "en") {
            let error = format!("{} is an English-only model", self.opened.name);
            return Err(Failure::new(error, Remedy::NoSourceLanguage)
                .about(Argument::SourceLanguage(code.to_owned())));
        }
        // An English-only model has no token for it.
        let named = source.filter(|&code| speech.is_multilingual() || code != "en");
        self.language = named.map(|code| speech.language(tokenizer, code)).transpose()?;
        match target {
            Some("en") if source != Some("en") => self.task = Task::Translate,
            Some(code) if source != Some(code) => {
                let error = "a recording is transcribed in its own language or translated into English";
                return Err(Failure::new(error, Remedy::EnglishOrNone)
                    .about(Argument::TargetLanguage(code.to_owned())));
            }
            _ => {}
        }
        Ok(())
    }

    /// The decoder then begins with the language that was set.
    fn begin_in_target_language(&mut self) -> Result<(), Failure> {
        let mut start = self.shift()?.apply(&self.tokenizer()?.encode_target("")?);
        while start.len() > 1 && start.last().is_some_and(|last| self.end_tokens().contains(last)) {
            start.pop();
        }
        self.start = Some(start);
        Ok(())
    }

    /// Turns timestamps on.
    pub fn write_times(&mut self) -> Result<(), Failure> {
        if self.speech.as_ref().and_then(Speech::times).is_none() {
            let error = "is for models with timestamp tokens, and none are known";
            return Err(Failure::new(error, Remedy::NoTimes).about(Argument::Times).of(&self.opened.name));
        }
        self.times = true;
        Ok(())
    }

    /// Makes the decoder begin with these tokens, whatever the model's documents say.
    pub fn begin_with(&mut self, start: Vec<u32>) -> Result<(), Failure> {
        check_rows(self.model, Side::Target, std::slice::from_ref(&start))?;
        self.start = Some(start);
        Ok(())
    }

    /// How the decoder's input is made from a sentence.
    pub fn shift(&self) -> Result<Shift, Failure> {
        Ok(Shift::of(self.model, &self.prompt())?)
    }

    /// What a decoder reads that is to read the source once more.
    pub(crate) fn shifted(&self, source: &Sequence) -> Result<Rows, Failure> {
        let shift = self.shift()?;
        let rows = source.rows().map(Rows::tokens).unwrap_or_default();
        self.target_ids(&rows.iter().map(|row| shift.apply(row)).collect::<Vec<_>>())
    }

    /// What a decoder alone reads of these texts.
    pub fn prompts(&self, texts: &[&str]) -> Result<Rows, Failure> {
        let rows = texts.iter().map(|text| self.prompt_tokens(text));
        self.target_ids(&rows.collect::<Result<Vec<_>, Failure>>()?)
    }

    /// The tokens of a prompt.
    pub(crate) fn prompt_tokens(&self, text: &str) -> Result<Vec<u32>, Failure> {
        Ok(self.tokenizer()?.encode_source(text)?)
    }

    /// The decoder input for these target sentences.
    pub fn target(&self, texts: &[&str]) -> Result<Rows, Failure> {
        let rows = texts.iter().map(|text| self.target_tokens(text));
        self.target_ids(&rows.collect::<Result<Vec<_>, Failure>>()?)
    }

    /// What the decoder reads of a target.
    pub(crate) fn target_tokens(&self, text: &str) -> Result<Vec<u32>, Failure> {
        Ok(self.shift()?.apply(&self.tokenizer()?.encode_target(text)?))
    }

    /// What the decoder reads, as ids.
    pub fn target_ids(&self, rows: &[Vec<u32>]) -> Result<Rows, Failure> {
        Ok(Rows::checked(self.model, Side::Target, rows, self.pad)?)
    }

    /// The generation settings: those of the model's documents, or OpenAI's for an audio model without any.
    pub fn settings(&self) -> Settings {
        let mut settings = self.settings.clone();
        if let Some(speech) = &self.speech {
            settings.rules.times = speech.times().filter(|_| self.times);
            settings.start = self.prompt();
        }
        if let Some(start) = &self.start {
            settings.start.clone_from(start);
        }
        settings
    }

    /// The tokens that end a sentence.
    pub fn end_tokens(&self) -> &[u32] {
        &self.settings.ends
    }

    /// The tokens of a batch for a reader, row by row, padding included.
    pub fn tokens(&self, side: Side, rows: &Rows) -> Vec<Vec<Token>> {
        let piece = |id| self.tokenizer.as_ref().and_then(|t| t.piece(side, id));
        let token = |(&id, &open): (&u32, &bool)| Token { id, piece: piece(id), padding: !open };
        let row = |(ids, open): (&[u32], &[bool])| ids.iter().zip(open).map(token).collect();
        let length = rows.length().max(1);
        rows.ids().chunks(length).zip(rows.open().chunks(length)).map(row).collect()
    }
}

impl Token {
    /// Its text, or its number where none is known.
    pub fn label(&self) -> String {
        self.piece.clone().unwrap_or_else(|| self.id.to_string())
    }
}
