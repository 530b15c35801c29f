//! What learning begins with: a model, its weights, its tokenizer, and the files that go beside the weights.

use std::sync::Arc;

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::{Config, Model, Recognised, Wiring, recognise};
use attnscope_run::{Limits, Tokenizer, Weights, learning_bytes, tensor_specs};
use serde_json::{Map, Value};

use crate::error::TrainError;
use crate::first_weights::draw;
use crate::planned::{Planned, Vocabulary};
use crate::recipe::{DataTable, ModelTable, Recipe, TokensTable};
use crate::tokens::tokenizer_config;

/// A model that is about to learn.
#[derive(Debug)]
pub struct Start {
    /// The model.
    pub model: Arc<Model>,
    /// Its weights.
    pub weights: Weights,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Files that are written beside the weights, by their names: configs and the tokenizer.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Start {
    /// The model of a recipe, with weights that are drawn from its seed and the tokenizer of a tokenizer.json.
    ///
    /// # Errors
    /// When the recipe's model cannot be built, or there is not enough memory for it to learn.
    pub fn untrained(recipe: &Recipe, tokenizer_json: &str, limits: &Limits) -> Result<Self, TrainError> {
        let tokenizer = Tokenizer::from_json(tokenizer_json)?;
        let (TokensTable::Words { specials, .. } | TokensTable::Bpe { specials, .. }) = &recipe.tokens;
        let mut files = vec![
            ("tokenizer.json".to_owned(), tokenizer_json.as_bytes().to_vec()),
            ("tokenizer_config.json".to_owned(), tokenizer_config(specials).into_bytes()),
        ];
        let Planned { model, configs, beginning, .. } = Planned::with(recipe, Vocabulary::of(&tokenizer))?;
        files.extend(configs.iter().map(|(name, facts)| ((*name).to_owned(), document(facts))));
        let (parameters, _) = model.parameters();
        limits.check_memory(learning_bytes(parameters)).map_err(|e| TrainError::of_model(e, parameters))?;
        let weights = draw(&model, beginning, recipe.seed)?;
        Ok(Self { model: Arc::new(model), weights, tokenizer, files }.dropping(recipe))
    }

    /// The same with the recipe's dropout, which a model that is only run does not have.
    #[must_use]
    fn dropping(mut self, recipe: &Recipe) -> Self {
        let dropout = match &recipe.model {
            ModelTable::EncoderDecoder(table) => table.dropout,
            ModelTable::Classifier(table) => table.dropout,
        };
        let wiring = Wiring { dropout: dropout as f32, ..self.model.wiring };
        self.model = Arc::new(self.model.rewired(&wiring, None));
        self
    }

    /// A saved model that goes on learning by a recipe.
    ///
    /// # Errors
    /// As [`Start::saved`], and when the model is not for the recipe's task.
    pub fn resumed(recipe: &Recipe, checkpoint: &Checkpoint) -> Result<Self, TrainError> {
        let start = Self::saved(checkpoint)?;
        let odd = |why: String| Err(TrainError::Init { place: checkpoint.path().to_owned(), why });
        let architecture = &start.model.architecture;
        match (&recipe.data, architecture.classifier()) {
            (DataTable::Classification { classes, .. }, Some(own)) if own.classes != classes.len() => {
                odd(format!("it knows {} classes, and the recipe has {}", own.classes, classes.len()))
            }
            (DataTable::Classification { .. }, None) => {
                odd(format!("the recipe is for a classifier, and it is {}", architecture.kind()))
            }
            (DataTable::Translation { .. }, None) if architecture.has_cross_attention() => {
                Ok(start.dropping(recipe))
            }
            (DataTable::Translation { .. }, _) => {
                odd(format!("the recipe is for an encoder-decoder, and it is {}", architecture.kind()))
            }
            (DataTable::Classification { .. }, Some(_)) => Ok(start.dropping(recipe)),
        }
    }

    /// A model that was saved, by this program or another: learning goes on with its weights, its tokenizer and its configs.
    ///
    /// # Errors
    /// When it cannot be read, does not run, or has no tokenizer.json.
    pub fn saved(checkpoint: &Checkpoint) -> Result<Self, TrainError> {
        let configs: Vec<Config<'_>> =
            checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
        let odd = |why: String| TrainError::Init { place: checkpoint.path().to_owned(), why };
        let model = match recognise(tensor_specs(checkpoint), &configs, None) {
            Ok(Recognised::Model(model)) => *model,
            Ok(Recognised::Other(other)) => return Err(odd(other.because)),
            Err(e) => return Err(odd(e.to_string())),
        };
        let weights = Weights::load(&model, checkpoint)?.widened(&Limits::default())?;
        let tokenizer = Tokenizer::from_companions(checkpoint.tokenizer())?
            .ok_or_else(|| odd("no tokenizer is beside its weights".into()))?;
        let mut files = Vec::new();
        for config in checkpoint.configs().iter().filter(|config| config.source.ends_with(".json")) {
            files.push((config.source.clone(), document(&config.facts)));
        }
        for file in checkpoint.tokenizer() {
            files.push((file.name().into_owned(), file.read()?.into_owned()));
        }
        Ok(Self { model: Arc::new(model), weights, tokenizer, files })
    }
}

fn document(map: &Map<String, Value>) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(map).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
