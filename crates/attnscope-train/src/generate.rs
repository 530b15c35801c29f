//! What a translator generates, held against what it should.

use attnscope_checkpoint::Config;
use attnscope_graph::Model;
use attnscope_run::generate::{Generator, Settings};
use attnscope_run::{Limits, Prepared, Tokenizer};
use serde_json::Value;

use crate::bleu::BleuCounts;
use crate::error::TrainError;
use crate::examples::Examples;

/// Some pairs, and how their sources are translated.
#[derive(Debug)]
pub(crate) struct Generated {
    settings: Settings,
    tokenizer: Tokenizer,
    sources: Vec<Vec<u32>>,
    /// As the tokenizer gives them back, since that is what is generated.
    references: Vec<String>,
}

impl Generated {
    /// The first pairs that are held out; nothing where none are asked for, or there are no pairs.
    pub(crate) fn new(
        model: &Model,
        files: &[(String, Vec<u8>)],
        tokenizer: Tokenizer,
        held_out: &Examples,
        count: usize,
    ) -> Result<Option<Self>, TrainError> {
        let Examples::Pairs { sources, targets } = held_out else { return Ok(None) };
        if count == 0 {
            return Ok(None);
        }
        let settings = greedy(model, &configs(files))?;
        let references = targets.iter().take(count).map(|ids| tokenizer.decode(ids, true)).collect();
        Ok(Some(Self {
            settings,
            references,
            tokenizer,
            sources: sources.iter().take(count).cloned().collect(),
        }))
    }

    /// BLEU of what the model generates.
    pub(crate) fn bleu(&self, prepared: &dyn Prepared) -> Result<f64, TrainError> {
        let sentences = translate(prepared, &self.settings, &self.tokenizer, &self.sources)?;
        let mut counts = BleuCounts::default();
        sentences.iter().zip(&self.references).for_each(|(own, reference)| counts.add(own, reference));
        Ok(counts.bleu().score)
    }
}

/// The model's own settings, with one beam.
pub(crate) fn greedy(model: &Model, configs: &[Config]) -> Result<Settings, TrainError> {
    Ok(Settings { beams: 1, ..Settings::of(model, configs)? })
}

/// What is generated from each source.
pub(crate) fn translate(
    prepared: &dyn Prepared,
    settings: &Settings,
    tokenizer: &Tokenizer,
    sources: &[Vec<u32>],
) -> Result<Vec<String>, TrainError> {
    let mut session = prepared.session(&Limits::default());
    let made = Generator::new(settings).from_tokens(&mut *session, sources)?;
    let text = |beams: &Vec<attnscope_run::generate::Hypothesis>| {
        beams.first().map(|best| tokenizer.decode(&best.tokens, true)).unwrap_or_default()
    };
    Ok(made.iter().map(text).collect())
}

/// The documents among files.
pub(crate) fn configs(files: &[(String, Vec<u8>)]) -> Vec<Config> {
    let config = |(name, bytes): &(String, Vec<u8>)| match serde_json::from_slice(bytes) {
        Ok(Value::Object(facts)) if name.ends_with("config.json") && !name.starts_with("tokenizer") => {
            Some(Config { source: name.clone(), facts })
        }
        _ => None,
    };
    files.iter().filter_map(config).collect()
}
