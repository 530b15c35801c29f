//! Why a run cannot begin, or cannot go on.

use std::path::PathBuf;

use attnscope_checkpoint::{Remedy, Shortage};
use attnscope_run::RunError;

use crate::data::DataError;
use crate::recipe::{RecipeDifference, RecipeError};
use crate::tokens::VocabularyError;

/// Why a run cannot begin, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The vocabulary.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    /// A text that the tokenizer fails on.
    #[error(transparent)]
    Tokens(#[from] attnscope_run::TokenError),
    /// A file that cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] attnscope_checkpoint::Error),
    /// A model that cannot be built from the recipe.
    #[error("the recipe's model cannot be built: {why}")]
    Model {
        /// Why.
        why: String,
    },
    /// A model that is too large to learn here.
    #[error("a model of {parameters} parameters, with gradients and two moments, {shortage}")]
    Memory {
        /// How many parameters it has.
        parameters: u64,
        /// What is needed, and what there is.
        shortage: Shortage,
    },
    /// A model that learning cannot begin with.
    #[error("{}: learning cannot begin with it: {why}", place.display())]
    Init {
        /// Where it is.
        place: PathBuf,
        /// Why.
        why: String,
    },
    /// A tokenizer without a token that the task needs.
    #[error("the tokenizer has no token {token}")]
    NoToken {
        /// The token.
        token: &'static str,
    },
    /// A folder that holds a run already.
    #[error("{}: expected a new or empty folder, found {found}", folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
        /// What is in it.
        found: String,
    },
    /// A run that cannot be gone on with.
    #[error("{}: the run cannot be resumed: {why}", place.display())]
    Resume {
        /// The file or folder.
        place: PathBuf,
        /// Why.
        why: String,
    },
    /// A run that was begun otherwise.
    #[error("{}: the run was begun otherwise: {}", recipe.display(), listed(.differences))]
    OtherRecipe {
        /// The recipe that it was begun with.
        recipe: PathBuf,
        /// What that one says, and what is given now.
        differences: Vec<RecipeDifference>,
    },
    /// A file of a run that cannot be read or written.
    #[error("{}: {why}", place.display())]
    Io {
        /// The file or folder.
        place: PathBuf,
        /// What the operating system said.
        why: std::io::Error,
    },
    /// A run that failed after it saved weights and before it saved what it could go on with.
    #[error("{cause}; weights are kept in {}, and the run cannot be resumed", weights.display())]
    NotSaved {
        /// Why it failed.
        cause: Box<TrainError>,
        /// What was saved.
        weights: PathBuf,
    },
    /// A model that has left the numbers behind.
    #[error("step {step}: {found}; learning cannot go on")]
    NotFinite {
        /// The step, from 1.
        step: u64,
        /// What is not finite.
        found: String,
    },
    /// How the decoder begins.
    #[error(transparent)]
    Shift(#[from] attnscope_run::ShiftError),
    /// A setting of generation.
    #[error(transparent)]
    Settings(#[from] attnscope_run::generate::SettingsError),
    /// A run of the model.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// `train.steps is 60 there, and 80 is given; …`
fn listed(all: &[RecipeDifference]) -> String {
    const SOME: usize = 8;
    let mut said: Vec<String> = all
        .iter()
        .take(SOME)
        .map(|RecipeDifference { key, own, other }| match (own, other) {
            (Some(own), Some(other)) => format!("{key} is {own} there, and {other} is given"),
            (Some(own), None) => format!("{key} is {own} there, and none is given"),
            (None, other) => {
                format!("{key} is not set there, and {} is given", other.as_deref().unwrap_or("?"))
            }
        })
        .collect();
    if all.len() > SOME {
        said.push(format!("{} more", all.len() - SOME));
    }
    said.join("; ")
}

impl TrainError {
    /// A shortage of memory as one of the whole model.
    pub(crate) fn of_model(error: RunError, parameters: u64) -> Self {
        match error {
            RunError::Memory(shortage) => Self::Memory { parameters, shortage },
            other => Self::Run(other),
        }
    }

    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Recipe(e) => e.remedy(),
            Self::Data(e) => e.remedy(),
            Self::Vocabulary(e) => e.remedy(),
            Self::Tokens(e) => e.remedy(),
            Self::Checkpoint(e) => e.remedy(),
            Self::Memory { shortage, .. } => {
                Remedy::Or("choose a smaller model", Box::new(shortage.remedy()))
            }
            Self::Run(RunError::Memory(shortage)) => {
                Remedy::Or("choose smaller batches or shorter examples", Box::new(shortage.remedy()))
            }
            Self::Run(e) => e.remedy(),
            Self::NotSaved { cause, .. } => {
                Remedy::Noting(Box::new(cause.remedy()), "then begin again in another folder")
            }
            Self::Shift(e) => e.remedy(),
            Self::Settings(e) => e.remedy(),
            Self::Model { .. } => "correct the recipe's [model] table".into(),
            Self::Init { .. } => "give a folder with weights, config.json and tokenizer.json".into(),
            Self::NoToken { .. } => "name it under tokens.specials of the recipe".into(),
            Self::Occupied { .. } => Remedy::OtherRunFolder,
            Self::Resume { .. } => Remedy::BeginAnew,
            Self::OtherRecipe { .. } => Remedy::OwnRecipe,
            Self::Io { why, .. } => {
                attnscope_checkpoint::limit_help(why).unwrap_or("give a folder that you can write to").into()
            }
            Self::NotFinite { .. } => {
                "lower optimiser.learning_rate, warm up for longer, or set optimiser.clip_norm".into()
            }
        }
    }
}
