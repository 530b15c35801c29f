//! What can be wrong with a tokenizer or with a text given to it, and what to do next.

use attnscope_checkpoint::Remedy;
use std::path::PathBuf;

/// A tokenizer that cannot be used, or a text that it cannot encode.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] attnscope_checkpoint::Error),
    /// A file that does not follow its format.
    #[error("{}: {place}: expected {expected}, found {found}", file.display())]
    Invalid {
        /// The file at fault.
        file: PathBuf,
        /// The line, field or piece.
        place: String,
        /// What should be there.
        expected: String,
        /// What is.
        found: String,
    },
    /// A well-formed file that this program does not read.
    #[error("{}: {what}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What it is or does.
        what: String,
    },
    /// A file that needs another one, which is missing.
    #[error("{}: needs {missing} beside it, which is missing", file.display())]
    Alone {
        /// The file that is there.
        file: PathBuf,
        /// The one that is not.
        missing: &'static str,
    },
    /// A vocabulary of whole words, and a word that is not in it.
    #[error("word {number} of {text:?}: {word:?} is not in the vocabulary of {size} words")]
    UnknownWord {
        /// The word.
        word: String,
        /// Which one, from 1.
        number: usize,
        /// The whole text.
        text: String,
        /// How many words there are.
        size: usize,
    },
    /// A model of many languages, and a target whose language is not known.
    #[error("the target's language is not known, and this model's targets begin with it")]
    NoLanguage,
    /// A language that the model has no token for.
    #[error("the tokenizer has no token for the language {code:?}")]
    UnknownLanguage {
        /// What was asked for.
        code: String,
    },
    /// The tokenizer's own rules failed on this text.
    #[error("{}: {text:?} cannot be encoded: {why}", file.display())]
    Encode {
        /// Where the rules are.
        file: PathBuf,
        /// The beginning of the text.
        text: String,
        /// What went wrong.
        why: String,
    },
}

impl TokenError {
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::File(error) => error.remedy(),
            Self::Invalid { .. } => Remedy::TokenizerAgain,
            Self::Unsupported { .. } | Self::Encode { .. } => Remedy::TokenIds,
            Self::Alone { missing, .. } => format!("copy the model's {missing} into the same folder").into(),
            Self::NoLanguage => Remedy::TargetLanguage,
            Self::UnknownLanguage { .. } => {
                "write it as the model does: de for M2M100, de_DE for mBART, deu_Latn for NLLB".into()
            }
            Self::UnknownWord { .. } => {
                "use words of the sentences that the vocabulary was made from, or give ids".into()
            }
        }
    }
}

/// The beginning of a text, for an error.
pub(super) fn beginning(text: &str) -> String {
    const MOST: usize = 40;
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
