//! Words of tokens.

use std::ops::Range;

use attnscope_graph::Side;

use crate::token::Tokenizer;

/// A word and the tokens that make it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its text, without the space before it; for a recording with it, as OpenAI's tool gives words.
    pub text: String,
    /// Which tokens of the sentence, from 0.
    pub tokens: Range<usize>,
    /// A special token: an end of sentence, a language.
    pub special: bool,
}

/// The words of a sentence: a space begins one, and so does punctuation. Where there is no tokenizer, each token is a word.
pub fn words(tokenizer: Option<&Tokenizer>, side: Side, ids: &[u32], specials: &[u32]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for (i, &id) in ids.iter().enumerate() {
        let piece = tokenizer.and_then(|t| t.piece(side, id));
        let spaced = tokenizer.is_none_or(|t| t.begins_word(side, id));
        let text = piece.as_deref().map_or_else(|| id.to_string(), |p| p.replace('▁', " ").trim().to_owned());
        let special = specials.contains(&id);
        let sign = is_sign(&text);
        match words.last_mut() {
            Some(word) if !special && !word.special && !spaced && !sign => {
                word.text += &text;
                word.tokens.end = i + 1;
            }
            _ => words.push(Word { text, tokens: i..i + 1, special }),
        }
    }
    words
}

/// The words of a transcript, each with the space before it; punctuation by itself. This is how OpenAI's tokenizer splits
/// languages with spaces; in others, such as Chinese, about each character is a word.
pub fn spoken_words(tokenizer: &Tokenizer, ids: &[u32], spaces: bool) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for part in characters(tokenizer, ids) {
        let begins = !spaces || part.text.starts_with(' ') || is_sign(part.text.trim());
        match words.last_mut() {
            Some(word) if !begins => {
                word.text += &part.text;
                word.tokens.end = part.tokens.end;
            }
            _ => words.push(part),
        }
    }
    words
}

/// The shortest runs of tokens that are whole characters.
fn characters(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<Word> {
    const BROKEN: char = '\u{fffd}';
    let full: Vec<char> = tokenizer.decode(ids, false).chars().collect();
    let (mut parts, mut from, mut before) = (Vec::new(), 0, 0);
    for i in 0..ids.len() {
        let text = tokenizer.decode(&ids[from..=i], false);
        let broken = text.chars().position(|c| c == BROKEN);
        // A character that is broken in the whole text, too, stays broken.
        if broken.is_none_or(|at| full.get(before + at) == Some(&BROKEN)) {
            before += text.chars().count();
            parts.push(Word { text, tokens: from..i + 1, special: false });
            from = i + 1;
        }
    }
    if from < ids.len() {
        let text = tokenizer.decode(&ids[from..], false);
        parts.push(Word { text, tokens: from..ids.len(), special: false });
    }
    parts
}

fn is_sign(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_punctuation())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[Word]) -> Vec<&str> {
        words.iter().map(|w| w.text.as_str()).collect()
    }

    #[test]
    fn spaces_and_signs_begin_words() {
        let tokenizer = Tokenizer::whisper(51_864).unwrap().unwrap();
        let text = " Unbelievably, it's 5 — a naïve café.";
        let ids = tokenizer.encode_source(text).unwrap();
        let spoken = spoken_words(&tokenizer, &ids, true);
        assert_eq!(texts(&spoken), [" Unbelievably", ",", " it's", " 5", " —", " a", " naïve", " café", "."]);
        assert_eq!(spoken.iter().map(|w| w.text.as_str()).collect::<String>(), text);
        let ends: Vec<usize> = spoken.iter().map(|w| w.tokens.end).collect();
        assert!(ends.is_sorted() && ends.last() == Some(&ids.len()));
        let written = words(Some(&tokenizer), Side::Target, &ids, &[]);
        assert_eq!(texts(&written)[..4], ["Unbelievably", ",", "it's", "5"]);
    }

    #[test]
    fn characters_stay_whole_without_spaces() {
        let tokenizer = Tokenizer::whisper(51_865).unwrap().unwrap();
        let ids = tokenizer.encode_source("鼹鼠🦀").unwrap();
        assert!(ids.len() > 3, "characters of several tokens");
        assert_eq!(texts(&spoken_words(&tokenizer, &ids, false)), ["鼹", "鼠", "🦀"]);
        // A text that was cut within a character.
        let cut = spoken_words(&tokenizer, &ids[..ids.len() - 1], false);
        assert_eq!(cut.last().map(|w| w.tokens.end), Some(ids.len() - 1));
    }

    #[test]
    fn without_a_tokenizer_each_token_is_a_word() {
        let words = words(None, Side::Source, &[5, 6, 2], &[2]);
        assert_eq!(texts(&words), ["5", "6", "2"]);
        assert!(words[2].special && !words[0].special);
    }
}
