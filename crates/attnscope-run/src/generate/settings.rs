//! How a model generates: generation_config.json and config.json, read as Hugging Face reads them.

use attnscope_checkpoint::Config;
use attnscope_checkpoint::Remedy;
use attnscope_graph::{Model, Side, token_keys};
use serde_json::Value;

use super::rules::TokenRules;
use super::search::EarlyStopping;
use crate::input::{Shift, ShiftError, pad_token, position_limit, token_ids};

/// The length limit where none is given. (Hugging Face's is 20 tokens, often in the middle of a sentence.)
pub const USUAL_NEW: usize = 256;

/// Longer than any sentence, but short enough that generation ends.
const MOST_TOKENS: usize = 1 << 16;

/// The most tokens, over all beams, that a document can ask for, so that generation ends in reasonable time.
const MOST_SAID: usize = 1 << 14;

/// More beams than are useful.
pub const MOST_BEAMS: usize = 1024;

/// The document that alone decides about generation, if it exists.
const GENERATION: &str = "generation_config.json";

/// How a model is decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What the decoder begins with; empty where nothing says it.
    pub start: Vec<u32>,
    /// Tokens that end a sentence.
    pub ends: Vec<u32>,
    /// What rows of a batch are filled up with.
    pub pad: u32,
    /// Sentences followed at once; 1 is greedy.
    pub beams: usize,
    /// A sentence's score is the sum of its log-probabilities over its length to this power.
    pub length_penalty: f64,
    /// When a beam search stops.
    pub early_stopping: EarlyStopping,
    /// How long a sentence may become.
    pub limit: Limit,
    /// Positions that the decoder has, where that is a number.
    pub positions: Option<usize>,
    /// Which tokens are excluded.
    pub rules: TokenRules,
    /// Settings of the documents that are not applied, in words.
    pub notes: Vec<String>,
}

/// How long a sentence may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// So many new tokens.
    New(usize),
    /// So many tokens, including what the decoder began with.
    Total(usize),
}

/// A document with a setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A value of another kind.
    #[error("{document}: {key}: expected {expected}, found {found}")]
    Wrong {
        /// The document.
        document: String,
        /// The key in it.
        key: String,
        /// What the key should hold.
        expected: &'static str,
        /// What it holds.
        found: String,
    },
    /// A token that is not known.
    #[error(transparent)]
    Token(#[from] ShiftError),
}

impl SettingsError {
    /// A value of another kind than `expected`.
    pub(crate) fn wrong(document: &str, key: &str, expected: &'static str, found: &Value) -> Self {
        let mut shown = found.to_string();
        if shown.len() > 60 {
            shown = shown.chars().take(60).chain(['…']).collect();
        }
        Self::Wrong { document: document.into(), key: key.into(), expected, found: shown }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Wrong { document, key, .. } => format!("correct {key} in {document}, or remove it").into(),
            Self::Token(error) => error.remedy(),
        }
    }
}

impl Settings {
    /// What the documents of a checkpoint say.
    ///
    /// # Errors
    /// When a value is not of its kind.
    pub fn of(model: &Model, configs: &[Config]) -> Result<Self, SettingsError> {
        let documents = Documents::new(configs);
        let ends = documents.tokens("eos_token_id", true)?;
        let ends = if ends.is_empty() { model.family.end.into_iter().collect() } else { ends };
        let early_stopping = match documents.get("early_stopping") {
            None => EarlyStopping::Heuristic,
            Some((_, Value::Bool(full))) => {
                if *full {
                    EarlyStopping::Full
                } else {
                    EarlyStopping::Heuristic
                }
            }
            Some((_, Value::String(word))) if word == "never" => EarlyStopping::Never,
            Some((document, found)) => {
                return Err(SettingsError::wrong(
                    document,
                    "early_stopping",
                    "true, false or \"never\"",
                    found,
                ));
            }
        };
        let beams = documents.count("num_beams")?.unwrap_or(1).clamp(1, MOST_BEAMS);
        let most = MOST_SAID / beams;
        let limit = match (documents.count("max_new_tokens")?, documents.count("max_length")?) {
            (Some(new), _) => Limit::New(new.min(most)),
            (None, Some(total)) => Limit::Total(total.min(most)),
            (None, None) => Limit::New(USUAL_NEW.min(most)),
        };
        Ok(Self {
            start: start(model, &documents)?,
            ends,
            pad: pad_token(model)?.unwrap_or(0),
            beams,
            length_penalty: documents.number("length_penalty")?.unwrap_or(1.0),
            early_stopping,
            limit,
            positions: position_limit(model, Side::Target),
            rules: rules(&documents)?,
            notes: documents.unsupported().chain(documents.out_of_bounds(beams)).collect(),
        })
    }

    /// How long a sentence may become when the decoder begins with so many tokens.
    pub fn max_length(&self, started: usize) -> usize {
        let asked = match self.limit {
            Limit::New(new) => started.saturating_add(new),
            Limit::Total(total) => total,
        };
        asked.min(self.positions.unwrap_or(usize::MAX)).min(MOST_TOKENS)
    }
}

/// The first token of the decoder. mBART's is the target's language, which a config may name or not.
fn start(model: &Model, documents: &Documents<'_>) -> Result<Vec<u32>, SettingsError> {
    let said = documents.tokens("decoder_start_token_id", true)?;
    if let Some(&first) = said.first() {
        return Ok(vec![first]);
    }
    let first = match Shift::of(model, &[]) {
        Ok(Shift::Start(first)) => Some(first),
        // Hugging Face's default.
        Ok(Shift::WrapLast { .. }) => documents.tokens("bos_token_id", true)?.first().copied(),
        // The caller may give it.
        Ok(Shift::AsIs | Shift::Prompt(_))
        | Err(ShiftError::NoStart { .. } | ShiftError::NoPrompt { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(first.into_iter().collect())
}

fn rules(documents: &Documents<'_>) -> Result<TokenRules, SettingsError> {
    Ok(TokenRules {
        repetition_penalty: documents
            .number("repetition_penalty")?
            .filter(|&penalty| penalty > 0.0 && penalty != 1.0)
            .map(|penalty| penalty as f32),
        no_repeat_ngram: documents.count("no_repeat_ngram_size")?.unwrap_or(0),
        source_no_repeat_ngram: documents.count("encoder_no_repeat_ngram_size")?.unwrap_or(0),
        bad_words: documents.words("bad_words_ids")?,
        min_length: documents.count("min_length")?.unwrap_or(0),
        min_new: documents.count("min_new_tokens")?.unwrap_or(0),
        forced_first: documents.tokens("forced_bos_token_id", false)?.first().copied(),
        forced_end: documents.tokens("forced_eos_token_id", false)?,
        suppressed: documents.tokens("suppress_tokens", false)?,
        suppressed_first: documents.tokens("begin_suppress_tokens", false)?,
        times: None,
        renormalise: documents.flag("renormalize_logits")?,
    })
}

/// The documents about generation: generation_config.json alone, or where there is none, the others.
struct Documents<'a> {
    said: Vec<&'a Config>,
    /// All documents, for token ids, which older models keep in another document.
    all: Vec<&'a Config>,
}

/// Settings that ask for something else than greedy or beam search, with the value that turns them off.
const UNSUPPORTED: [(&str, &str, &str); 14] = [
    ("do_sample", "false", "sampling is not done: the likeliest token is taken"),
    ("num_beam_groups", "1", "groups of beams are not kept apart"),
    ("penalty_alpha", "0", "contrastive search is not done"),
    ("guidance_scale", "1", "classifier-free guidance is not done"),
    ("encoder_repetition_penalty", "1", "the source's tokens are not favoured"),
    ("exponential_decay_length_penalty", "", "long sentences are not penalised"),
    ("sequence_bias", "", "sequences are not favoured or disfavoured"),
    ("constraints", "", "words are not required"),
    ("force_words_ids", "", "words are not required"),
    ("stop_strings", "", "sentences end at an end token only"),
    ("watermarking_config", "", "nothing is watermarked"),
    ("dola_layers", "", "layers are not contrasted (DoLa): the last layer's logits are taken"),
    ("token_healing", "false", "the last token of what the decoder begins with is not completed"),
    ("max_time", "", "generation is not stopped by the clock"),
];

impl<'a> Documents<'a> {
    fn new(configs: &'a [Config]) -> Self {
        let (mut all, others): (Vec<&Config>, Vec<&Config>) =
            configs.iter().partition(|config| config.source == GENERATION);
        let said = if all.is_empty() { others.clone() } else { all.clone() };
        all.extend(others);
        Self { said, all }
    }

    fn get(&self, key: &str) -> Option<(&'a str, &'a Value)> {
        find(&self.said, key)
    }

    /// A whole number that is not negative.
    fn count(&self, key: &str) -> Result<Option<usize>, SettingsError> {
        let Some((document, value)) = self.get(key) else { return Ok(None) };
        let count = value.as_u64().and_then(|n| usize::try_from(n).ok());
        count.map(Some).ok_or_else(|| SettingsError::wrong(document, key, "a whole number", value))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, SettingsError> {
        let Some((document, value)) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|n| n.is_finite());
        number.map(Some).ok_or_else(|| SettingsError::wrong(document, key, "a number", value))
    }

    fn flag(&self, key: &str) -> Result<bool, SettingsError> {
        let Some((document, value)) = self.get(key) else { return Ok(false) };
        value.as_bool().ok_or_else(|| SettingsError::wrong(document, key, "true or false", value))
    }

    /// One token id or a list of them. `anywhere`: also in documents that are not about generation.
    fn tokens(&self, name: &'static str, anywhere: bool) -> Result<Vec<u32>, SettingsError> {
        let among = if anywhere { &self.all } else { &self.said };
        let said = token_keys(name).into_iter().find_map(|key| Some((key, find(among, key)?)));
        let Some((key, (document, value))) = said else { return Ok(Vec::new()) };
        token_ids(value).ok_or_else(|| SettingsError::wrong(document, key, "token ids", value))
    }

    fn words(&self, key: &str) -> Result<Vec<Vec<u32>>, SettingsError> {
        let Some((document, value)) = self.get(key) else { return Ok(Vec::new()) };
        let words = value.as_array().and_then(|words| words.iter().map(token_ids).collect());
        words.ok_or_else(|| SettingsError::wrong(document, key, "lists of token ids", value))
    }

    /// The settings that are not applied.
    fn unsupported(&self) -> impl Iterator<Item = String> {
        let asks = |value: &Value, nothing: &str| match value {
            Value::Bool(asks) => *asks,
            Value::Number(n) => nothing.is_empty() || n.as_f64() != nothing.parse().ok(),
            Value::Array(list) => !list.is_empty(),
            _ => true,
        };
        UNSUPPORTED.iter().filter_map(move |&(key, nothing, what)| {
            let (document, value) = self.get(key)?;
            asks(value, nothing).then(|| note(document, key, value, what))
        })
    }

    /// Numbers that would generate nothing, or without end.
    fn out_of_bounds(&self, followed: usize) -> impl Iterator<Item = String> {
        let beams = format!("fewer than 1 or more than {MOST_BEAMS} beams are not followed");
        let most = MOST_SAID / followed;
        let s = if followed == 1 { "" } else { "s" };
        let tokens = format!(
            "with {followed} beam{s}, sentences of more than {most} tokens are generated only with --max-length"
        );
        let penalty = "a penalty that is not positive is not applied".to_owned();
        // Many beams also shorten the default length.
        let is_said = ["max_new_tokens", "max_length"].iter().any(|key| self.get(key).is_some());
        let at_usual = if is_said { f64::MAX } else { (MOST_SAID / USUAL_NEW) as f64 };
        let bounds = [
            ("num_beams", 1.0..=MOST_BEAMS as f64, beams),
            ("num_beams", f64::MIN..=at_usual, tokens.clone()),
            ("max_new_tokens", 0.0..=most as f64, tokens.clone()),
            ("max_length", 0.0..=most as f64, tokens),
            ("repetition_penalty", f64::MIN_POSITIVE..=f64::MAX, penalty),
        ];
        bounds.into_iter().filter_map(move |(key, bounds, what)| {
            let (document, value) = self.get(key)?;
            (!bounds.contains(&value.as_f64()?)).then(|| note(document, key, value, &what))
        })
    }
}

fn note(document: &str, key: &str, value: &Value, what: &str) -> String {
    format!("{document}: {key}: {value}: {what}")
}

fn find<'a>(documents: &[&'a Config], key: &str) -> Option<(&'a str, &'a Value)> {
    let said = |config: &&'a Config| {
        let value = config.facts.get(key).filter(|value| !value.is_null())?;
        Some((config.source.as_str(), value))
    };
    documents.iter().find_map(said)
}
