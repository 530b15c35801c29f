//! Tokenizers: from text to token ids and back, as the model's own tools do it.

mod error;
mod gguf;
mod guard;
mod huggingface;
mod merge;
mod sentencepiece;
mod show;
mod tiktoken;
pub(crate) mod whisper;
mod words;

use std::path::Path;

use attnscope_checkpoint::{Checkpoint, Companion};
use attnscope_graph::Side;
use serde_json::{Map, Value};

pub use error::TokenError;

use huggingface::HuggingFace;
use sentencepiece::{Numbering, SentencePiece};
use tiktoken::Tiktoken;
use words::Words;

/// A model's tokenizer, read from the files beside its weights.
#[derive(Debug)]
pub struct Tokenizer(Kind);

#[derive(Debug)]
enum Kind {
    HuggingFace(Box<HuggingFace>),
    SentencePiece(Box<SentencePiece>),
    Tiktoken(Box<Tiktoken>),
    Words { source: Words, target: Words },
}

/// Files that hold both sides' pieces.
const ONE_MODEL: [&str; 3] = ["spiece.model", "sentencepiece.bpe.model", "tokenizer.model"];

/// Pegasus's special tokens, where its config does not count them.
const PEGASUS_OFFSET: u32 = 103;

/// T5's `<extra_id_N>`, where its config does not count them.
const T5_EXTRA: u32 = 100;

/// More special tokens than any config asks for.
const MOST_EXTRA: u64 = 1 << 16;

impl Tokenizer {
    /// The tokenizer of these files, if they have one: tokenizer.json, else SentencePiece models, else ranks.
    pub fn from_companions(files: &[Companion]) -> Result<Option<Self>, TokenError> {
        Self::for_vocabulary(files, None)
    }

    /// The same for a model whose embedding has so many rows. Whisper's ranks need it: the number of languages is not
    /// in their file, and there may be two such files to choose from.
    pub fn for_vocabulary(files: &[Companion], rows: Option<usize>) -> Result<Option<Self>, TokenError> {
        let find = |name: &str| files.iter().find(|file| file.name() == name);
        if let Some(file) = find("tokenizer.json") {
            let read = HuggingFace::read(file.path(), &file.read()?)?;
            return Ok(Some(Self(Kind::HuggingFace(Box::new(read)))));
        }
        if let Some(read) = sentencepiece(&find)? {
            return Ok(Some(Self(Kind::SentencePiece(Box::new(read)))));
        }
        let mut refused = None;
        for file in files.iter().filter(|file| file.name().ends_with(".tiktoken")) {
            match Tiktoken::read(file.path(), &file.read()?, rows) {
                Ok(read) => return Ok(Some(Self(Kind::Tiktoken(Box::new(read))))),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// The tokenizer that the text of a tokenizer.json describes.
    pub fn from_json(text: &str) -> Result<Self, TokenError> {
        let read = HuggingFace::read(Path::new("tokenizer.json"), text.as_bytes())?;
        Ok(Self(Kind::HuggingFace(Box::new(read))))
    }

    /// The tokenizer that a GGUF file holds itself, if it does and its kind is known.
    pub fn embedded(checkpoint: &Checkpoint) -> Result<Option<Self>, TokenError> {
        Ok(gguf::read(checkpoint)?.map(Self))
    }

    /// OpenAI's own tokenizer for a Whisper model whose embedding has so many rows, if it is one of OpenAI's: their checkpoints
    /// come without one.
    pub fn whisper(rows: usize) -> Result<Option<Self>, TokenError> {
        let Some((name, ranks)) = whisper::ranks(rows) else { return Ok(None) };
        let read = Tiktoken::read(Path::new(name), &ranks, Some(rows))?;
        Ok(Some(Self(Kind::Tiktoken(Box::new(read)))))
    }

    /// Whole words. The vocabulary of a side is the distinct words of its sentences, sorted; there are no special
    /// tokens.
    pub fn words(source: &[&str], target: &[&str]) -> Self {
        Self(Kind::Words { source: Words::new(source), target: Words::new(target) })
    }

    /// Sets the languages of the texts, by the model's own codes, for a multilingual model: M2M100, mBART, NLLB. By default a
    /// text is in the language that the tokenizer was saved with.
    pub fn set_languages(&mut self, source: Option<&str>, target: Option<&str>) -> Result<(), TokenError> {
        for (code, is_target) in [(source, false), (target, true)] {
            let Some(code) = code else { continue };
            let known = match &mut self.0 {
                Kind::HuggingFace(t) => t.set_language(is_target, code),
                Kind::SentencePiece(t) => t.set_language(is_target, code),
                Kind::Tiktoken(_) | Kind::Words { .. } => false,
            };
            if !known {
                return Err(TokenError::UnknownLanguage { code: code.to_owned() });
            }
        }
        Ok(())
    }

    /// A source sentence with the special tokens that the model reads around it. An empty text has only those.
    pub fn encode_source(&self, text: &str) -> Result<Vec<u32>, TokenError> {
        match &self.0 {
            Kind::HuggingFace(t) => t.encode_source(text),
            Kind::SentencePiece(t) => Ok(t.encode_source(text)),
            Kind::Tiktoken(t) => Ok(t.encode(text)),
            Kind::Words { source, .. } => source.encode(text),
        }
    }

    /// A target sentence with the token that ends it, as it is compared with the model's output: without the token
    /// that starts the decoder, which [`crate::Shift`] puts before it.
    pub fn encode_target(&self, text: &str) -> Result<Vec<u32>, TokenError> {
        match &self.0 {
            Kind::HuggingFace(t) => t.encode_target(text),
            Kind::SentencePiece(t) => t.encode_target(text),
            Kind::Tiktoken(t) => Ok(t.encode(text).into_iter().chain(t.end()).collect()),
            Kind::Words { target, .. } => target.encode(text),
        }
    }

    /// The text of target tokens; special tokens are left out or written by name.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        match &self.0 {
            Kind::HuggingFace(t) => t.decode(ids, skip_special),
            Kind::SentencePiece(t) => t.decode(ids, skip_special),
            Kind::Tiktoken(t) => t.decode(ids, skip_special),
            Kind::Words { target, .. } => target.decode(ids),
        }
    }

    /// One token of a side for a reader: a space is `▁`, a line end `\n`, a byte that is only part of a character
    /// `<0xE2>`.
    pub fn piece(&self, side: Side, id: u32) -> Option<String> {
        match &self.0 {
            Kind::HuggingFace(t) => t.piece(id),
            Kind::SentencePiece(t) => t.piece(id).map(|piece| show::visible(&piece)),
            Kind::Tiktoken(t) => t.bytes(id).map(show::bytes),
            Kind::Words { source, target } => {
                let words = if side == Side::Source { source } else { target };
                words.word(id).map(str::to_owned)
            }
        }
    }

    /// Whether a token of a side begins a word: there is a space before it, or tokens are whole words.
    pub fn begins_word(&self, side: Side, id: u32) -> bool {
        matches!(self.0, Kind::Words { .. })
            || self.piece(side, id).is_some_and(|p| p.starts_with(show::SPACE))
    }

    /// How many ids there are: one more than the largest.
    #[allow(clippy::len_without_is_empty)] // A vocabulary without tokens is not one.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::HuggingFace(t) => t.len(),
            Kind::SentencePiece(t) => t.len(),
            Kind::Tiktoken(t) => t.len(),
            Kind::Words { source, target } => source.len().max(target.len()),
        }
    }

    /// How many ids of a side there are.
    pub fn len_of(&self, side: Side) -> usize {
        match &self.0 {
            Kind::Words { source, .. } if side == Side::Source => source.len(),
            Kind::Words { target, .. } => target.len(),
            _ => self.len(),
        }
    }

    /// The id of a target token in the tokenizer's own spelling: `</s>`, `▁the`, `<|en|>`.
    pub fn id(&self, piece: &str) -> Option<u32> {
        match &self.0 {
            Kind::HuggingFace(t) => t.id(piece),
            Kind::SentencePiece(t) => t.id(piece),
            Kind::Tiktoken(t) => t.id(piece),
            Kind::Words { target, .. } => target.id(piece),
        }
    }

    /// The token of a side that stands for what the tokenizer does not know, if it has one.
    pub fn unknown(&self, side: Side) -> Option<u32> {
        const NAMES: [&str; 3] = ["<unk>", "[UNK]", "<UNK>"];
        match &self.0 {
            Kind::Words { source, .. } if side == Side::Source => {
                NAMES.iter().find_map(|name| source.id(name))
            }
            _ => NAMES.iter().find_map(|name| self.id(name)),
        }
    }
}

/// Two models and a list of pieces, or one model and what its class says about the numbers.
fn sentencepiece<'a>(
    find: &impl Fn(&str) -> Option<&'a Companion>,
) -> Result<Option<SentencePiece>, TokenError> {
    if let Some(source) = find("source.spm") {
        let missing = |missing| TokenError::Alone { file: source.path().to_owned(), missing };
        let list = find("vocab.json").ok_or_else(|| missing("vocab.json"))?;
        let target = find("target.spm").ok_or_else(|| missing("target.spm"))?;
        let (source_bytes, target_bytes, list_bytes) = (source.read()?, target.read()?, list.read()?);
        return SentencePiece::marian(
            (source.path(), &source_bytes),
            (target.path(), &target_bytes),
            (list.path(), &list_bytes),
        )
        .map(Some);
    }
    let Some(model) = ONE_MODEL.iter().find_map(|name| find(name)) else { return Ok(None) };
    let config = match find("tokenizer_config.json") {
        Some(file) => serde_json::from_slice(&file.read()?).map_err(|e| TokenError::Invalid {
            file: file.path().to_owned(),
            place: "the document".into(),
            expected: "a JSON object".into(),
            found: e.to_string(),
        })?,
        None => Map::new(),
    };
    let bpe = model.name() == "sentencepiece.bpe.model";
    match find("vocab.json").filter(|_| bpe) {
        Some(list) => {
            let (bytes, list_bytes) = (model.read()?, list.read()?);
            let wmt21 = config.get("language_codes").and_then(Value::as_str) == Some("wmt21");
            SentencePiece::m2m100((model.path(), &bytes), (list.path(), &list_bytes), wmt21).map(Some)
        }
        None => SentencePiece::read(model.path(), &model.read()?, numbering(bpe, &config)).map(Some),
    }
}

/// How the class of a tokenizer numbers its pieces.
fn numbering(bpe: bool, config: &Map<String, Value>) -> Numbering {
    let class = config.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
    let class = class.trim_end_matches("Fast");
    let count = |key: &str, usual: u32| {
        let said = config.get(key).and_then(Value::as_u64).filter(|&n| n <= MOST_EXTRA);
        said.and_then(|n| u32::try_from(n).ok()).unwrap_or(usual)
    };
    match class {
        "PegasusTokenizer" => Numbering::Pegasus { offset: count("offset", PEGASUS_OFFSET) },
        "T5Tokenizer" => Numbering::Own { extra: count("extra_ids", T5_EXTRA) },
        _ if bpe => Numbering::Fairseq,
        _ => Numbering::Own { extra: count("extra_ids", 0) },
    }
}
