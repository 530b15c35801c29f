//! Why a run could not be made.

use attnscope_checkpoint::Error as CheckpointError;
use attnscope_checkpoint::Remedy;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The model can be drawn but not run.
    #[error("this model cannot be run: {0}")]
    Obstacle(String),
    /// Nothing says how large a tensor or weight is.
    #[error("this model does not run: the shape of {of} is not known")]
    NoShape {
        /// The node or the weight.
        of: String,
    },
    /// The graph has nothing that could be asked for.
    #[error("this model does not run: the graph has no {what}")]
    NoOutput {
        /// `logits` or `output`.
        what: &'static str,
    },
    /// There is no such head.
    #[error("there is no head {layer}.{head} to align by")]
    NoHead {
        /// The layer.
        layer: usize,
        /// The head in it.
        head: usize,
    },
    /// Tensors, weights or an input are not those of the graph that they are computed with.
    #[error("{place}: expected {expected}")]
    Misfit {
        /// The node, or what of the input.
        place: String,
        /// What the graph has.
        expected: String,
    },
    /// A defect of attnscope.
    #[error("{place}: {what}: this is a defect of attnscope")]
    Defect {
        /// The node or the weight.
        place: String,
        /// What should not be.
        what: &'static str,
    },
    /// A tensor could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Token ids that the model cannot read.
    #[error(transparent)]
    Tokens(#[from] crate::input::InputError),
    /// There is not enough memory.
    #[error("this run {0}")]
    Memory(attnscope_checkpoint::Shortage),
    /// There is not enough memory for all weights at once.
    #[error("holding all weights in f32 {0}")]
    WeightsMemory(attnscope_checkpoint::Shortage),
    /// The system refused memory in the middle of a run.
    #[error("this run needs another {need} bytes of memory, and the system has no more")]
    OutOfMemory {
        /// The bytes.
        need: u64,
    },
    /// The work was ended from outside.
    #[error("this run was cancelled")]
    Cancelled,
    /// The system does not give as many threads as were asked for.
    #[error("the system does not give {wanted} threads")]
    Threads {
        /// How many were asked for.
        wanted: usize,
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
        remedy: Remedy,
    },
    /// A tensor holds a NaN or an infinity, so that no token can be chosen.
    #[error("{node}: {value} at {at:?}: no token can be chosen by it")]
    NotANumber {
        /// The first node with such a value, as far as it is known.
        node: String,
        /// Where in its tensor.
        at: Vec<usize>,
        /// NaN, or an infinity that becomes NaN.
        value: f32,
    },
    /// Learning was asked of an executor that only runs.
    #[error("{executor} computes no gradients")]
    NoGradients {
        /// Which one.
        executor: &'static str,
    },
    /// A gradient with which no weight can be changed.
    #[error("the gradient of {parameter} is NaN or infinite: this update was not made")]
    Gradient {
        /// The path of the first weight that has such a gradient.
        parameter: String,
    },
    /// Nothing says what the decoder begins with.
    #[error("{family}: what the decoder begins with is not known: no config names its start token")]
    NoStart {
        /// The model's family.
        family: &'static str,
    },
    /// The generation rules exclude every token.
    #[error("after {step} tokens every token of the vocabulary is ruled out by the settings of generation")]
    NoToken {
        /// How many tokens there were before, what the decoder began with included.
        step: usize,
    },
    /// A captured tensor could not be stored.
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
}

impl RunError {
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Obstacle(_) | Self::NoShape { .. } => Remedy::Inspect,
            Self::NoOutput { .. } => "take a model whose graph ends in an output".into(),
            Self::NoHead { .. } => "layers and heads are counted from 0".into(),
            Self::Misfit { .. } => "give the tensors and the input of a run of this model".into(),
            Self::Defect { .. } => "please report what it was run on".into(),
            Self::Checkpoint(e) => e.remedy(),
            Self::Tokens(e) => e.remedy(),
            Self::Memory(shortage) => {
                Remedy::Or("give a shorter input, keep fewer tensors", Box::new(shortage.remedy()))
            }
            Self::WeightsMemory(shortage) => shortage.remedy(),
            Self::OutOfMemory { .. } => {
                "give a shorter input, keep fewer tensors, or run it where there is more memory".into()
            }
            Self::Cancelled => "start it again".into(),
            Self::Threads { .. } => "ask for fewer threads".into(),
            Self::Input { remedy, .. } => remedy.clone(),
            Self::Trace(e) => e.remedy(),
            Self::NotANumber { .. } => Remedy::InspectValues,
            Self::NoGradients { .. } => Remedy::OtherDevice,
            Self::Gradient { .. } => {
                "give a lower learning rate, a longer warm-up, or clip the gradient's norm".into()
            }
            Self::NoStart { .. } => Remedy::DecoderStart,
            Self::NoToken { .. } => {
                "look for bad_words_ids, suppress_tokens and no_repeat_ngram_size in generation_config.json"
                    .into()
            }
        }
    }
}
