//! A tokenizer that cannot be learned.

use attnscope_checkpoint::Remedy;

/// A tokenizer that cannot be learned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VocabularyError {
    /// Rules that the tokenizer's crate refuses.
    #[error("the tokenizer's rules: {why}")]
    Rules {
        /// What it says.
        why: String,
    },
    /// Byte-pair encoding that cannot be learned from these texts.
    #[error("byte-pair encoding of {size} pieces cannot be learned from {texts} texts: {why}")]
    Training {
        /// How many pieces were asked for.
        size: usize,
        /// From how many texts.
        texts: usize,
        /// What the trainer says.
        why: String,
    },
}

impl VocabularyError {
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Rules { .. } => "this is a defect of attnscope: please report it".into(),
            Self::Training { .. } => "give more text, or fewer pieces under tokens.size".into(),
        }
    }
}
