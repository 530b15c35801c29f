//! Whole words: the vocabulary of a toy is the words of its own sentences.

use super::error::TokenError;

/// Sorted distinct words; a word's id is its place.
#[derive(Debug)]
pub(super) struct Words(Vec<String>);

impl Words {
    pub(super) fn new(sentences: &[&str]) -> Self {
        let mut words: Vec<String> =
            sentences.iter().flat_map(|s| s.split_whitespace()).map(str::to_owned).collect();
        words.sort_unstable();
        words.dedup();
        Self(words)
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenError> {
        let id = |(i, word): (usize, &str)| {
            self.id(word).ok_or_else(|| TokenError::UnknownWord {
                word: word.to_owned(),
                number: i + 1,
                text: super::error::beginning(text),
                size: self.0.len(),
            })
        };
        text.split_whitespace().enumerate().map(id).collect()
    }

    pub(super) fn id(&self, word: &str) -> Option<u32> {
        let place = self.0.binary_search_by(|w| w.as_str().cmp(word)).ok()?;
        u32::try_from(place).ok()
    }

    pub(super) fn word(&self, id: u32) -> Option<&str> {
        self.0.get(id as usize).map(String::as_str)
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        let words: Vec<&str> = ids.iter().map(|&id| self.word(id).unwrap_or("?")).collect();
        words.join(" ")
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
