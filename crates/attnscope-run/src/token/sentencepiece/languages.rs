//! Multilingual models, with a token for the language before the text.

use std::collections::HashMap;

/// M2M100's, in the order of their ids, which follow the last piece.
const M2M100: [&str; 100] = [
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de",
    "el", "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr",
    "ht", "hu", "hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg",
    "ln", "lo", "lt", "lv", "mg", "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or",
    "pa", "pl", "ps", "pt", "ro", "ru", "sd", "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw",
    "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi", "wo", "xh", "yi", "yo", "zh", "zu",
];

/// The same of its successor for news.
const WMT21: [&str; 8] = ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"];

/// The languages of a model, and those of the texts.
#[derive(Debug)]
pub(super) struct Languages {
    pub(super) source: u32,
    /// Only the user knows it.
    pub(super) target: Option<u32>,
}

impl Languages {
    /// Adds their tokens to a list of pieces. `wmt21` is the other of the two sets.
    pub(super) fn list(rows: &mut HashMap<String, u32>, wmt21: bool) -> Option<Self> {
        let codes: &[&str] = if wmt21 { &WMT21 } else { &M2M100 };
        let first = u32::try_from(rows.len()).ok()?;
        rows.extend(codes.iter().zip(first..).map(|(code, id)| (token(code), id)));
        // Hugging Face's default.
        let source = *rows.get(&token("en"))?;
        Some(Self { source, target: None })
    }
}

/// The token of a language code.
pub(super) fn token(code: &str) -> String {
    format!("__{code}__")
}
