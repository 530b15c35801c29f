//! From text to ids: a tokenizer that is learned from the training split and written as tokenizer.json.

mod bpe;
mod error;
mod words;

use serde_json::{Value, json};

pub use error::VocabularyError;

use crate::recipe::{DataTable, Recipe, TokensTable};

/// Learns a tokenizer from texts, and gives its tokenizer.json.
#[derive(Debug)]
pub struct VocabularyBuilder {
    kind: Kind,
    /// Every text that is encoded ends with this token.
    end: Option<String>,
}

#[derive(Debug)]
enum Kind {
    Words(Box<words::WordCounts>),
    Bpe(bpe::Corpus),
}

impl VocabularyBuilder {
    /// The tokenizer that a recipe asks for.
    ///
    /// # Errors
    /// When the rules cannot be set up.
    pub fn new(recipe: &Recipe) -> Result<Self, VocabularyError> {
        let end = matches!(recipe.data, DataTable::Translation { .. }).then(|| "</s>".to_owned());
        let kind = match &recipe.tokens {
            TokensTable::Words { rules, size, min_frequency, specials } => {
                Kind::Words(Box::new(words::WordCounts::new(*rules, *size, *min_frequency, specials)?))
            }
            TokensTable::Bpe { size, specials } => Kind::Bpe(bpe::Corpus::new(*size, specials)),
        };
        Ok(Self { kind, end })
    }

    /// One text of the training split.
    ///
    /// # Errors
    /// When the rules fail on it.
    pub fn add(&mut self, text: &str) -> Result<(), VocabularyError> {
        match &mut self.kind {
            Kind::Words(counts) => counts.add(text),
            Kind::Bpe(corpus) => {
                corpus.add(text);
                Ok(())
            }
        }
    }

    /// The tokenizer.json of the tokens of all texts.
    ///
    /// # Errors
    /// When no tokenizer can be learned from them.
    pub fn finish(self) -> Result<String, VocabularyError> {
        let (rules, specials) = match self.kind {
            Kind::Words(counts) => counts.finish(),
            Kind::Bpe(corpus) => corpus.finish()?,
        };
        document(rules, &specials, self.end.as_deref())
    }
}

/// The parts of a tokenizer.json that differ.
struct TokenizerRules {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    model: Value,
}

fn document(
    rules: TokenizerRules,
    specials: &[String],
    end: Option<&str>,
) -> Result<String, VocabularyError> {
    let added: Vec<Value> = specials
        .iter()
        .enumerate()
        .map(|(id, token)| {
            json!({
                "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        })
        .collect();
    let end = end.and_then(|end| Some((end, specials.iter().position(|token| token == end)?)));
    let post_processor = end.map(|(end, id)| {
        json!({
            "type": "TemplateProcessing",
            "single": [
                { "Sequence": { "id": "A", "type_id": 0 } },
                { "SpecialToken": { "id": end, "type_id": 0 } },
            ],
            "pair": [
                { "Sequence": { "id": "A", "type_id": 0 } },
                { "Sequence": { "id": "B", "type_id": 1 } },
            ],
            "special_tokens": { end: { "id": end, "ids": [id], "tokens": [end] } },
        })
    });
    let document = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": rules.normalizer, "pre_tokenizer": rules.pre_tokenizer,
        "post_processor": post_processor, "decoder": rules.decoder, "model": rules.model,
    });
    serde_json::to_string(&document).map_err(|e| VocabularyError::Rules { why: e.to_string() })
}

/// The tokenizer_config.json that lets Hugging Face's `AutoTokenizer` open the tokenizer.json beside it.
pub fn tokenizer_config(specials: &[String]) -> String {
    let mut config =
        json!({ "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false });
    for (key, token) in
        [("pad_token", "<pad>"), ("unk_token", "<unk>"), ("eos_token", "</s>"), ("bos_token", "<s>")]
    {
        if specials.iter().any(|own| own == token) {
            config[key] = token.into();
        }
    }
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests;
