//! Whisper's special tokens, which its ranks file does not list: they follow the last rank, in this order.

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

/// Special tokens that are no language.
pub(super) const OTHER_SPECIALS: usize = 2 + 6 + TIMESTAMPS;

/// How many languages a model has that does not say how large its vocabulary is.
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
