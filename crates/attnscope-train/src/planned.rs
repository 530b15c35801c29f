//! The model of a recipe before any file holds it: the tensors and configs that training will write, and what a file of them would
//! be recognised as.

use attnscope_graph::{Config, Model, Recognised, TensorSpec, recognise};
use attnscope_run::Tokenizer;
use serde_json::{Map, Value};

use crate::data::DataSet;
use crate::error::TrainError;
use crate::examples::learn_tokenizer;
use crate::first_weights::Beginning;
use crate::recipe::{DataTable, ModelTable, Recipe, TokensTable};
use crate::{classifier, marian};

/// What a vocabulary says about a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vocabulary {
    /// How many tokens it has.
    pub(crate) len: usize,
    pad: Option<u32>,
    end: Option<u32>,
}

impl Vocabulary {
    /// That of a tokenizer.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Self {
        Self { len: tokenizer.len(), pad: tokenizer.id("<pad>"), end: tokenizer.id("</s>") }
    }

    /// The one that a recipe asks for. Training data with few words make a smaller one.
    fn asked_for(recipe: &Recipe) -> Result<Self, TrainError> {
        let (specials, size) = match &recipe.tokens {
            TokensTable::Bpe { specials, size } => (specials, Some(*size)),
            TokensTable::Words { specials, size, .. } => (specials, *size),
        };
        if let Some(len) = size {
            let id = |token: &str| specials.iter().position(|own| own == token).map(|id| id as u32);
            return Ok(Self { len, pad: id("<pad>"), end: id("</s>") });
        }
        match &recipe.data {
            DataTable::Translation { pairs, .. } if !pairs.is_empty() => {
                let data = DataSet::open(&recipe.data, None)?;
                Ok(Self::of(&Tokenizer::from_json(&learn_tokenizer(recipe, &data)?)?))
            }
            _ => Err(TrainError::Model {
                why: "the size of its vocabulary depends on the data, because the recipe has no tokens.size"
                    .into(),
            }),
        }
    }

    /// What fills rows.
    pub(crate) fn pad(&self) -> Result<u32, TrainError> {
        self.pad.ok_or(TrainError::NoToken { token: "<pad>" })
    }

    /// What ends a sentence.
    pub(crate) fn end(&self) -> Result<u32, TrainError> {
        self.end.ok_or(TrainError::NoToken { token: "</s>" })
    }
}

/// A model that training will write.
#[derive(Debug)]
pub struct Planned {
    /// The tensors of its file.
    pub tensors: Vec<TensorSpec>,
    /// The documents beside them, by their names; config.json is the first.
    pub configs: Vec<(&'static str, Map<String, Value>)>,
    /// What it will be recognised as.
    pub(crate) model: Model,
    /// How its first weights are drawn.
    pub(crate) beginning: Beginning,
}

impl Planned {
    /// The model of a recipe, as large as the recipe says.
    ///
    /// # Errors
    /// When it cannot be built, or its size depends on data that the recipe does not hold.
    pub fn of(recipe: &Recipe) -> Result<Self, TrainError> {
        Self::with(recipe, Vocabulary::asked_for(recipe)?)
    }

    /// The model of a recipe with a vocabulary that is known.
    pub(crate) fn with(recipe: &Recipe, vocabulary: Vocabulary) -> Result<Self, TrainError> {
        let (tensors, configs, beginning) = match (&recipe.model, &recipe.data) {
            (ModelTable::EncoderDecoder(table), _) => {
                let [config, generation] = marian::configs(table, vocabulary)?;
                let configs = vec![("config.json", config), ("generation_config.json", generation)];
                (marian::tensors(table, vocabulary)?, configs, Beginning::Transformer)
            }
            (ModelTable::Classifier(table), data) => {
                let names = match data {
                    DataTable::Classification { classes, .. } => classes.as_slice(),
                    DataTable::Translation { .. } => &[],
                };
                let configs = vec![("config.json", classifier::config(table, names, vocabulary)?)];
                (classifier::tensors(table, vocabulary)?, configs, Beginning::Torch)
            }
        };
        let model = recognised(tensors.clone(), &configs)?;
        Ok(Self { tensors, configs, model, beginning })
    }
}

/// The model that a file with these tensors and configs would be recognised as.
fn recognised(
    tensors: Vec<TensorSpec>,
    configs: &[(&'static str, Map<String, Value>)],
) -> Result<Model, TrainError> {
    let configs: Vec<Config<'_>> = configs.iter().map(|(source, facts)| Config { source, facts }).collect();
    match recognise(tensors, &configs, None) {
        Ok(Recognised::Model(model)) => match model.obstacles.first() {
            None => Ok(*model),
            Some(obstacle) => Err(TrainError::Model { why: obstacle.clone() }),
        },
        Ok(Recognised::Other(other)) => Err(TrainError::Model { why: other.because }),
        Err(e) => Err(TrainError::Model { why: e.to_string() }),
    }
}

/// The entries of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
