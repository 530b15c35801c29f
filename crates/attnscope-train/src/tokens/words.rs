//! Whole words, numbered by how often they stand in the training split.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tokenizers::tokenizer::{Normalizer, OffsetReferential, OffsetType, PreTokenizer};
use tokenizers::{NormalizedString, NormalizerWrapper, PreTokenizedString, PreTokenizerWrapper};

use super::TokenizerRules;
use super::error::VocabularyError;
use crate::recipe::WordRules;

/// How often each word stands in the texts.
#[derive(Debug)]
pub(super) struct WordCounts {
    counts: HashMap<String, usize>,
    rules: WordRules,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: PreTokenizerWrapper,
    size: Option<usize>,
    min_frequency: usize,
    specials: Vec<String>,
}

impl WordCounts {
    pub(super) fn new(
        rules: WordRules,
        size: Option<usize>,
        min_frequency: usize,
        specials: &[String],
    ) -> Result<Self, VocabularyError> {
        let wrong = |e: serde_json::Error| VocabularyError::Rules { why: e.to_string() };
        Ok(Self {
            counts: HashMap::new(),
            rules,
            normalizer: serde_json::from_value(normalizer(rules)).map_err(wrong)?,
            pre_tokenizer: serde_json::from_value(pre_tokenizer(rules)).map_err(wrong)?,
            size,
            min_frequency,
            specials: specials.to_vec(),
        })
    }

    /// Counts the words of a text, cut by the very rules that the tokenizer is saved with.
    pub(super) fn add(&mut self, text: &str) -> Result<(), VocabularyError> {
        let wrong = |e: tokenizers::Error| VocabularyError::Rules { why: e.to_string() };
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = &self.normalizer {
            normalizer.normalize(&mut normalized).map_err(wrong)?;
        }
        let mut cut = PreTokenizedString::from(normalized);
        self.pre_tokenizer.pre_tokenize(&mut cut).map_err(wrong)?;
        for (word, _, _) in cut.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            match self.counts.get_mut(word) {
                Some(count) => *count += 1,
                None => drop(self.counts.insert(word.to_owned(), 1)),
            }
        }
        Ok(())
    }

    /// The most frequent first; among equals, by the alphabet. Special tokens have the first numbers, and count.
    pub(super) fn finish(self) -> (TokenizerRules, Vec<String>) {
        let Self { counts, rules, size, min_frequency, specials, .. } = self;
        let is_word = |(word, count): &(String, usize)| *count >= min_frequency && !specials.contains(word);
        let mut words: Vec<(String, usize)> = counts.into_iter().filter(is_word).collect();
        words.sort_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
        words.truncate(size.map_or(usize::MAX, |size| size.saturating_sub(specials.len())));
        let tokens = specials.iter().cloned().chain(words.into_iter().map(|(word, _)| word));
        let vocabulary: Map<String, Value> =
            tokens.enumerate().map(|(id, token)| (token, json!(id))).collect();
        let rules = TokenizerRules {
            normalizer: normalizer(rules),
            pre_tokenizer: pre_tokenizer(rules),
            // Words with spaces between them.
            decoder: json!({
                "type": "Sequence",
                "decoders": [
                    { "type": "Replace", "pattern": { "Regex": "^" }, "content": " " },
                    { "type": "Fuse" },
                    { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
                ],
            }),
            model: json!({ "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>" }),
        };
        (rules, specials)
    }
}

/// What changes in a text before it is cut.
fn normalizer(rules: WordRules) -> Value {
    let replace =
        |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
    match rules {
        WordRules::Whitespace => Value::Null,
        // As torchtext orders them: quotation marks go first, and may leave a line break behind.
        WordRules::BasicEnglish => json!({
            "type": "Sequence",
            "normalizers": [{ "type": "Lowercase" }, replace("\"", ""), replace("<br />", " ")],
        }),
    }
}

/// Where a text is cut. Python's white space has four separators (1c to 1f) that Unicode's has not.
fn pre_tokenizer(rules: WordRules) -> Value {
    let split = |pattern: &str, behavior: &str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": behavior, "invert": false });
    match rules {
        WordRules::Whitespace => split(r"[\s\x1c-\x1f]+", "Removed"),
        WordRules::BasicEnglish => json!({
            "type": "Sequence",
            "pretokenizers": [split(r"[\s\x1c-\x1f;:]+", "Removed"), split(r"['.,()!?]", "Isolated")],
        }),
    }
}
