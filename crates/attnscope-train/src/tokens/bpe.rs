//! Byte-pair encoding of both sides, learned by the crate whose format tokenizer.json is.

use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    TokenizerBuilder, TokenizerImpl,
};

use super::TokenizerRules;
use super::error::VocabularyError;

/// The texts to learn from.
#[derive(Debug)]
pub(super) struct Corpus {
    texts: Vec<String>,
    size: usize,
    specials: Vec<String>,
}

impl Corpus {
    pub(super) fn new(size: usize, specials: &[String]) -> Self {
        Self { texts: Vec::new(), size, specials: specials.to_vec() }
    }

    pub(super) fn add(&mut self, text: &str) {
        self.texts.push(text.to_owned());
    }

    pub(super) fn finish(self) -> Result<(TokenizerRules, Vec<String>), VocabularyError> {
        let model = self.model()?;
        let rules = TokenizerRules {
            normalizer: normalizer(),
            pre_tokenizer: metaspace(),
            decoder: metaspace(),
            model,
        };
        Ok((rules, self.specials))
    }

    fn model(&self) -> Result<Value, VocabularyError> {
        let (size, texts) = (self.size, self.texts.len());
        let training = |why: String| VocabularyError::Training { size, texts, why };
        let rules = |e: serde_json::Error| VocabularyError::Rules { why: e.to_string() };
        let specials = self.specials.iter().map(|token| AddedToken::from(token.clone(), true)).collect();
        let mut trainer =
            BpeTrainer::builder().vocab_size(size).show_progress(false).special_tokens(specials).build();
        let bpe = BPE::builder().unk_token("<unk>".into()).build().map_err(|e| training(e.to_string()))?;
        let normalizer: NormalizerWrapper = serde_json::from_value(normalizer()).map_err(rules)?;
        let pre_tokenizer: PreTokenizerWrapper = serde_json::from_value(metaspace()).map_err(rules)?;
        let mut tokenizer: TokenizerImpl<
            BPE,
            NormalizerWrapper,
            PreTokenizerWrapper,
            PostProcessorWrapper,
            DecoderWrapper,
        > = TokenizerBuilder::new()
            .with_model(bpe)
            .with_normalizer(Some(normalizer))
            .with_pre_tokenizer(Some(pre_tokenizer))
            .with_post_processor(None)
            .with_decoder(None)
            .build()
            .map_err(|e| training(e.to_string()))?;
        tokenizer.train(&mut trainer, self.texts.iter()).map_err(|e| training(e.to_string()))?;
        serde_json::to_value(tokenizer.get_model()).map_err(rules)
    }
}

fn normalizer() -> Value {
    json!({ "type": "NFKC" })
}

/// A word begins with `▁`.
fn metaspace() -> Value {
    json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true })
}
