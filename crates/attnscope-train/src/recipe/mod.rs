//! Recipes: what is learned from what, by which model, in which steps. A TOML file, whose errors say where they are.

mod check;
mod culprit;
mod error;
mod model;
mod shipped;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use culprit::Culprit;
pub use error::RecipeError;
pub use model::{Classifier, EncoderDecoder, ModelTable, Size};
pub use shipped::{SHIPPED, shipped};

/// Everything that a training run follows from, besides the data itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Weights, the order of examples and dropout are drawn from this.
    #[serde(default)]
    pub seed: u64,
    /// What is learned from.
    pub data: DataTable,
    /// From text to ids.
    pub tokens: TokensTable,
    /// What learns.
    pub model: ModelTable,
    /// How weights follow from gradients.
    #[serde(default)]
    pub optimiser: OptimiserTable,
    /// The learning rate over the steps.
    #[serde(default)]
    pub schedule: Schedule,
    /// Batches and steps.
    pub train: TrainTable,
    /// What is watched on the way.
    #[serde(default)]
    pub monitors: MonitorsTable,
}

/// What is learned from: rows of data, and how to read them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DataTable {
    /// Texts with a class each.
    Classification {
        /// The names of the classes. A row gives one of them, or its number from 0.
        classes: Vec<String>,
        /// The field or column that holds the text.
        #[serde(default = "default_text")]
        text: String,
        /// The field or column that holds the class.
        #[serde(default = "default_label")]
        label: String,
        /// The field or column that says which split a row is of: `train`, `validation` or `test`. Rows without it are `train`.
        #[serde(default = "default_split")]
        split: String,
        /// The share of the training split that is held out for validation, where no split of that name exists.
        #[serde(default = "default_validation_share")]
        validation_share: f64,
    },
    /// Pairs of a source and a target.
    Translation {
        /// The pairs themselves, where they are few.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pairs: Vec<[String; 2]>,
        /// Two files of a folder, line by line: sources and targets. Each may be compressed (`.gz`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        train: Option<[String; 2]>,
        /// The same for validation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        validation: Option<[String; 2]>,
        /// The same for `evaluate`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test: Option<[String; 2]>,
        /// The share of the training pairs that is held out for validation, where there are no files for it.
        #[serde(default = "default_validation_share")]
        validation_share: f64,
    },
}

/// How text becomes ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TokensTable {
    /// Whole words, the most frequent first.
    Words {
        /// How a text is cut.
        rules: WordRules,
        /// How many tokens there are at most, special ones included.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<usize>,
        /// How often a word must stand in the training split.
        #[serde(default = "default_min_frequency")]
        min_frequency: usize,
        /// The first ids, in this order.
        specials: Vec<String>,
    },
    /// Byte-pair encoding, trained on both sides of the training split.
    Bpe {
        /// How many pieces, special ones included.
        size: usize,
        /// The first ids, in this order.
        specials: Vec<String>,
    },
}

/// How a text is cut into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WordRules {
    /// torchtext's `basic_english`: lower case, punctuation apart.
    BasicEnglish,
    /// At white space.
    Whitespace,
}

/// AdamW.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimiserTable {
    /// The largest learning rate; the schedule says what share of it is used.
    pub learning_rate: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of the latter.
    pub epsilon: f64,
    /// The share of a weight that is taken away at each step, times the learning rate.
    pub weight_decay: f64,
    /// The largest norm of all gradients together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
}

impl Default for OptimiserTable {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            clip_norm: None,
        }
    }
}

/// The learning rate over the steps, as a share of the largest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// The same at every step.
    #[default]
    Constant,
    /// Rises to the largest in a straight line, and stays.
    LinearWarmUp {
        /// Steps until the largest.
        warm_up: u64,
    },
    /// Rises in a straight line, then falls with the root of the step (Vaswani et al. 2017).
    InverseSquareRoot {
        /// Steps until the largest.
        warm_up: u64,
    },
}

/// Batches and steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainTable {
    /// Examples in a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Or positions in a batch at most, padding included, on the longer side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_tokens: Option<usize>,
    /// How often every example is seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Or how many batches are learned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The share of a target that goes to all classes evenly.
    #[serde(default)]
    pub label_smoothing: f64,
    /// Steps between validations; an epoch where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate_every: Option<u64>,
    /// Steps between checkpoints; as validations where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<u64>,
    /// Steps between lines of metrics.
    #[serde(default = "default_log_every")]
    pub log_every: u64,
    /// Validations without a better one after which training ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Held-out sources that are translated at each validation, for BLEU.
    #[serde(default)]
    pub bleu_examples: usize,
    /// Longer pairs are left out of training. A classifier cuts its texts instead.
    #[serde(default = "default_longest")]
    pub longest: usize,
}

/// What is watched on the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorsTable {
    /// Steps between looks; as validations where nothing is said, never at 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Held-out examples that are looked at.
    pub examples: usize,
    /// Steps before which nothing is warned of: at first every decoder ignores its source.
    pub patience: u64,
}

impl Default for MonitorsTable {
    fn default() -> Self {
        Self { every: None, examples: 32, patience: 1000 }
    }
}

fn default_text() -> String {
    "text".into()
}

fn default_label() -> String {
    "label".into()
}

fn default_split() -> String {
    "split".into()
}

fn default_validation_share() -> f64 {
    0.1
}

fn default_min_frequency() -> usize {
    1
}

fn default_log_every() -> u64 {
    50
}

fn default_longest() -> usize {
    256
}

impl Recipe {
    /// Reads a recipe's text. `file` is what errors call it.
    ///
    /// # Errors
    /// When it is not TOML, a key is not known, a value is of the wrong kind, or values cannot go together; the error says where.
    pub fn parse(file: &str, text: &str) -> Result<Self, RecipeError> {
        let recipe: Self = toml::from_str(text).map_err(|e| match culprit::culprit(text) {
            Some(Culprit { at, why }) => RecipeError::at(file, text, at, why),
            None => {
                let at = e.span().map(|span| span.start);
                RecipeError::at(file, text, at, culprit::worded(text, at, e.message()))
            }
        })?;
        match check::fault(&recipe) {
            None => Ok(recipe),
            Some(fault) => {
                let at = error::span_of(text, &fault.key);
                Err(RecipeError::at(file, text, at, format!("{}: {}", fault.key.join("."), fault.why)))
            }
        }
    }

    /// Reads a document whose places are not known.
    fn deserialize_from(document: toml::Table) -> Result<Self, toml::de::Error> {
        document.try_into()
    }

    /// What two recipes differ in: the key, and what each says.
    pub fn differences(&self, other: &Self) -> Vec<RecipeDifference> {
        let [own, others] = [self, other].map(|recipe| flat(&recipe.to_toml()));
        let said = |all: &BTreeMap<String, String>, key: &str| all.get(key).cloned();
        let keys: BTreeSet<&String> = own.keys().chain(others.keys()).collect();
        let each = keys.into_iter().map(|key| RecipeDifference {
            key: key.clone(),
            own: said(&own, key),
            other: said(&others, key),
        });
        each.filter(|difference| difference.own != difference.other).collect()
    }

    /// The recipe as a file, with everything that was left to its default.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_default()
    }
}

/// A key that two recipes differ in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeDifference {
    /// `train.steps`
    pub key: String,
    /// What the first says; nothing where it leaves it out.
    pub own: Option<String>,
    /// What the second says.
    pub other: Option<String>,
}

/// Every value of a document by its key.
fn flat(text: &str) -> BTreeMap<String, String> {
    fn walk(value: &toml::Value, key: &str, all: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) => table.iter().for_each(|(name, value)| {
                let dot = if key.is_empty() { "" } else { "." };
                walk(value, &format!("{key}{dot}{name}"), all);
            }),
            toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
                items.iter().enumerate().for_each(|(i, item)| walk(item, &format!("{key}.{i}"), all));
            }
            other => drop(all.insert(key.to_owned(), other.to_string())),
        }
    }
    let mut all = BTreeMap::new();
    if let Ok(table) = toml::from_str::<toml::Table>(text) {
        walk(&toml::Value::Table(table), "", &mut all);
    }
    all
}

#[cfg(test)]
mod tests;
