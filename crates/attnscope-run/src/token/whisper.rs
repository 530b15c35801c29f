//! Whisper's vocabularies: OpenAI's own ranks, which its checkpoints do not carry, and its special tokens, which the ranks
//! do not list: they follow the last rank, in this order.

use std::io::Read;

use flate2::read::GzDecoder;

/// Ranks of models that know English only, and of those of many languages: see `data/whisper/README.md`.
static ENGLISH: &[u8] = include_bytes!("../../data/whisper/gpt2.tiktoken.gz");
static MULTILINGUAL: &[u8] = include_bytes!("../../data/whisper/multilingual.tiktoken.gz");

/// The smallest vocabulary of a model that knows more languages than English.
pub(crate) const MULTILINGUAL_ROWS: usize = 51_865;

/// The ranks that belong to a vocabulary of so many tokens, if it is one of OpenAI's, and the name of their file.
pub(super) fn ranks(vocabulary: usize) -> Option<(&'static str, Vec<u8>)> {
    let (name, packed) = match vocabulary {
        51_864 => ("gpt2.tiktoken", ENGLISH),
        MULTILINGUAL_ROWS | 51_866 => ("multilingual.tiktoken", MULTILINGUAL),
        _ => return None,
    };
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).ok()?;
    Some((name, bytes))
}

/// OpenAI's order of languages, from the start of the token's id; a model has the first so many.
pub(super) const LANGUAGES: [&str; 100] = [
    "en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl", "ar", "sv", "it", "id",
    "hi", "fi", "vi", "he", "uk", "el", "ms", "cs", "ro", "da", "hu", "ta", "no", "th", "ur", "hr", "bg",
    "lt", "la", "mi", "ml", "cy", "sk", "te", "fa", "lv", "bn", "sr", "az", "sl", "kn", "et", "mk", "br",
    "eu", "is", "hy", "ne", "mn", "bs", "kk", "sq", "sw", "gl", "mr", "pa", "si", "km", "sn", "yo", "so",
    "af", "oc", "ka", "be", "tg", "sd", "gu", "am", "yi", "lo", "uz", "fo", "ht", "ps", "tk", "nn", "mt",
    "sa", "lb", "my", "bo", "tl", "mg", "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue",
];

/// Times from 0.00 to 30.00 seconds, every 0.02.
const TIMESTAMPS: usize = 1501;

/// Special tokens other than languages.
pub(super) const OTHER_SPECIALS: usize = 2 + 6 + TIMESTAMPS;

/// The number of languages where the size of the vocabulary is not known.
pub(super) const USUAL_LANGUAGES: usize = 99;

/// All of them, from `<|endoftext|>` on.
pub(super) fn specials(languages: usize) -> Vec<String> {
    let named = |name: &str| format!("<|{name}|>");
    let tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
    let start = ["endoftext", "startoftranscript"].into_iter().map(named);
    let languages = LANGUAGES.iter().take(languages).map(|code| named(code));
    let tasks = tasks.into_iter().map(named);
    // In whole hundredths: no rounding.
    let times = (0..TIMESTAMPS).map(|i| format!("<|{}.{:02}|>", i * 2 / 100, i * 2 % 100));
    start.chain(languages).chain(tasks).chain(times).collect()
}
