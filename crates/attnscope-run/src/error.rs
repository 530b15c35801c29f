//! Why a run could not be made.

use attnscope_checkpoint::Error as CheckpointError;

/// What stands in the way of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The checkpoint draws and does not run.
    #[error("this model does not run: {0}")]
    Obstacle(String),
    /// A tensor could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Token ids that the model cannot read.
    #[error(transparent)]
    Tokens(#[from] crate::input::InputError),
    /// There is not enough memory.
    #[error("this run {0}")]
    Memory(attnscope_checkpoint::Shortage),
    /// The system refused memory in the middle of a run.
    #[error("this run needs another {need} bytes of memory, and the system has none to give")]
    OutOfMemory {
        /// The bytes.
        need: u64,
    },
    /// The input does not fit the model.
    #[error("{place}: {found}, but {expected}")]
    Input {
        /// Which part of the input.
        place: String,
        /// What was given.
        found: String,
        /// What the model can take.
        expected: String,
        /// What to do next.
        help: String,
    },
    /// A tensor holds a value with which nothing can be computed.
    #[error("{node}: {value} at {at:?}: no token can be chosen by it")]
    NotANumber {
        /// The first node with such a value, as far as it is known.
        node: String,
        /// Where in its tensor.
        at: Vec<usize>,
        /// NaN, or an infinity that becomes one.
        value: f32,
    },
    /// Nothing says what the decoder begins with.
    #[error("{family}: what the decoder begins with is not known: no config names its start token")]
    NoStart {
        /// The model's family.
        family: &'static str,
    },
    /// The rules of generation leave nothing to choose from.
    #[error("after {step} tokens every token of the vocabulary is ruled out by the settings of generation")]
    NoToken {
        /// How many tokens there were before, what the decoder began with included.
        step: usize,
    },
    /// A captured tensor could not be put where it should go.
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
}

impl RunError {
    /// What the user can do next, for the `help:` line.
    pub fn help(&self) -> String {
        match self {
            Self::Obstacle(_) => "`attnscope inspect` lists what is missing, and who says what".into(),
            Self::Checkpoint(e) => e.help(),
            Self::Tokens(e) => e.help(),
            Self::Memory(shortage) => {
                format!("give a shorter input, keep fewer tensors, or {}", shortage.help())
            }
            Self::OutOfMemory { .. } => {
                "give a shorter input, keep fewer tensors, or run it where there is more memory".into()
            }
            Self::Input { help, .. } => help.clone(),
            Self::Trace(e) => e.help(),
            Self::NotANumber { .. } => {
                "`attnscope inspect MODEL --stats` counts what is not finite in the weights".into()
            }
            Self::NoStart { .. } => "give the decoder's first tokens with --tgt-ids".into(),
            Self::NoToken { .. } => {
                "look for bad_words_ids, suppress_tokens and no_repeat_ngram_size in generation_config.json"
                    .into()
            }
        }
    }
}
