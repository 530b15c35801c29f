//! A model that is ready to run: its weights in memory, its tokenizer, how its decoder begins.

use std::path::Path;

use attnscope_graph::{Dim, Front, Model, Side};
use attnscope_run::generate::{Generator, Hypothesis, Settings};
use attnscope_run::{Rows, Shift, Source, Tokenizer, Weights, audio, check_rows, pad_token};

use crate::failure::Failure;
use crate::open::Opened;

/// A model with everything that a run needs besides its input.
#[derive(Debug)]
pub struct Ready<'a> {
    /// The file it came from.
    pub opened: &'a Opened,
    /// The model.
    pub model: &'a Model,
    /// Its weights.
    pub weights: Weights,
    /// Its tokenizer, if one is known.
    pub tokenizer: Option<Tokenizer>,
    /// What fills the shorter rows of a batch: the model's own padding, or 0 where it names none.
    pub pad: u32,
}

/// A token as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        let model = opened.encoder_decoder()?;
        let weights = Weights::load(model, &opened.checkpoint)?;
        let tokenizer = opened.tokenizer()?;
        let pad = pad_token(model)?.unwrap_or(0);
        Ok(Self { opened, model, weights, tokenizer, pad })
    }

    /// The tokenizer, or why text is no use here.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Failure> {
        self.tokenizer.as_ref().ok_or_else(|| {
            Failure::new(
                format!("{}: no tokenizer is beside the weights, so text cannot be read", self.opened.name),
                "give token ids with --src-ids and --tgt-ids, or put tokenizer.json beside the weights",
            )
        })
    }

    /// Source rows from texts.
    pub fn source(&self, texts: &[&str]) -> Result<Source, Failure> {
        let tokenizer = self.tokenizer()?;
        let rows = texts.iter().map(|text| Ok(tokenizer.encode_source(text)?));
        self.source_ids(&rows.collect::<Result<Vec<_>, Failure>>()?)
    }

    /// Source rows from ids.
    pub fn source_ids(&self, rows: &[Vec<u32>]) -> Result<Source, Failure> {
        if self.model.wiring.front == Front::Audio {
            return Err(Failure::new(
                format!("{}: the model reads audio, and text or token ids are given", self.opened.name),
                "give --audio FILE or --features FILE",
            ));
        }
        check_rows(self.model, Side::Source, rows)?;
        Ok(Source::Tokens(Rows::new(rows, self.pad)))
    }

    /// The first window of a recording.
    pub fn audio(&self, file: &Path) -> Result<Source, Failure> {
        let (mels, frames) = self.window("--audio")?;
        Ok(Source::Features(audio::features_from_file(file, mels, frames)?))
    }

    /// Features that another program made.
    pub fn features(&self, file: &Path) -> Result<Source, Failure> {
        let (mels, frames) = self.window("--features")?;
        Ok(Source::Features(audio::features_from_array(file, mels, frames)?))
    }

    /// Mel bands and frames of the window that the model hears.
    pub fn window(&self, option: &str) -> Result<(usize, usize), Failure> {
        let sizes = &self.model.sizes;
        match (self.model.wiring.front, sizes.get(Dim::Mels), sizes.get(Dim::Positions(Side::Source))) {
            // The second convolution halves the frames.
            (Front::Audio, Some(mels), Some(positions)) => Ok((mels, positions.saturating_mul(2))),
            _ => Err(Failure::new(
                format!("{}: {option} is for models that hear, and this one reads tokens", self.opened.name),
                "give --src TEXT or --src-ids",
            )),
        }
    }

    /// What an audio model's decoder begins with: English, transcription, no times.
    fn prompt(&self) -> Vec<u32> {
        let Some(tokenizer) = &self.tokenizer else { return Vec::new() };
        let id = |piece: &str| tokenizer.id(piece);
        // English-only models know neither language nor task.
        let multilingual = self.model.sizes.get(Dim::Vocab(Side::Target)).is_some_and(|v| v >= 51_865);
        let middle = if multilingual { vec![id("<|en|>"), id("<|transcribe|>")] } else { vec![] };
        let all = [vec![id("<|startoftranscript|>")], middle, vec![id("<|notimestamps|>")]].concat();
        all.into_iter().flatten().collect()
    }

    /// How the decoder's input is made from a sentence.
    pub fn shift(&self) -> Result<Shift, Failure> {
        Ok(Shift::of(self.model, &self.prompt())?)
    }

    /// What the decoder reads to write these sentences.
    pub fn target(&self, texts: &[&str]) -> Result<Rows, Failure> {
        let (tokenizer, shift) = (self.tokenizer()?, self.shift()?);
        let rows = texts.iter().map(|text| Ok(shift.apply(&tokenizer.encode_target(text)?)));
        self.target_ids(&rows.collect::<Result<Vec<_>, Failure>>()?)
    }

    /// What the decoder reads, as ids.
    pub fn target_ids(&self, rows: &[Vec<u32>]) -> Result<Rows, Failure> {
        Ok(Rows::checked(self.model, Side::Target, rows, self.pad)?)
    }

    /// How the model writes, by its own documents.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings::of(self.model, self.opened.checkpoint.configs())?;
        if settings.start.is_empty() {
            settings.start = self.prompt();
        }
        Ok(settings)
    }

    /// The tokens that end a sentence.
    pub fn end_tokens(&self) -> Vec<u32> {
        self.settings().map(|settings| settings.ends).unwrap_or_default()
    }

    /// What the decoder reads to write what the model writes by itself: the likeliest token at each step.
    pub fn written(&self, source: &Source) -> Result<Rows, Failure> {
        let settings = Settings { beams: 1, ..self.settings()? };
        let generator = Generator { model: self.model, weights: &self.weights, settings: &settings };
        let made = match source {
            Source::Tokens(rows) => generator.from_tokens(&rows.tokens())?,
            Source::Features(features) => generator.from_features(features)?,
        };
        let read = |row: &Vec<Hypothesis>| {
            let tokens = row.first().map(|best| best.tokens.as_slice()).unwrap_or_default();
            // The last token is written and never read.
            let all_but_last = tokens.split_last().map_or(&[][..], |(_, rest)| rest);
            [&settings.start, all_but_last].concat()
        };
        self.target_ids(&made.iter().map(read).collect::<Vec<_>>())
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
