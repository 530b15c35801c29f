//! tokenizer.json, through the crate whose format it is.

use std::path::{Path, PathBuf};

use tokenizers::{Encoding, ModelWrapper};

use super::error::{TokenError, beginning};
use super::guard::{self, Rules};
use super::show;
use crate::caught::catch;

pub(super) struct HuggingFace {
    tokenizer: tokenizers::Tokenizer,
    file: PathBuf,
    /// Tokens are written in GPT-2's alphabet of bytes.
    byte_level: bool,
    len: usize,
    /// The languages that were asked for, source and target.
    languages: [Option<u32>; 2],
}

impl std::fmt::Debug for HuggingFace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HuggingFace")
            .field("file", &self.file)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Whisper's tokenizer.json puts this and what follows it before the text: a prompt, and no part of the sentence.
const PROMPT: &str = "<|startoftranscript|>";

impl HuggingFace {
    pub(super) fn read(file: &Path, bytes: &[u8]) -> Result<Self, TokenError> {
        let invalid = |expected: &str, found: String| TokenError::Invalid {
            file: file.to_owned(),
            place: "the tokenizer".into(),
            expected: expected.to_owned(),
            found,
        };
        if bytes.len() > guard::MOST_BYTES {
            let expected = format!("at most {} bytes", guard::MOST_BYTES);
            return Err(invalid(&expected, bytes.len().to_string()));
        }
        let rules: Rules =
            serde_json::from_slice(bytes).map_err(|e| invalid("a tokenizer.json", e.to_string()))?;
        if let Some(what) = rules.excess() {
            return Err(TokenError::Unsupported { file: file.to_owned(), what });
        }
        let read = catch(|| tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| e.to_string()));
        let mut tokenizer = read.and_then(|r| r).map_err(|e| invalid("rules that fit together", e))?;
        // The caller pads batches, and the length in the file is untrusted.
        tokenizer.with_padding(None);
        catch(|| tokenizer.with_truncation(None).map(|_| ()).map_err(|e| e.to_string()))
            .and_then(|r| r)
            .map_err(|e| invalid("a truncation that can be set", e))?;
        if let ModelWrapper::BPE(model) = tokenizer.get_model()
            && model.dropout.is_some()
        {
            // Random segmentation is for training; a trace must be reproducible.
            let mut model = model.clone();
            model.dropout = None;
            tokenizer.with_model(model);
        }
        let last = tokenizer.get_vocab(true).values().max().copied();
        let len = last.map_or(0, |id| id as usize + 1);
        Ok(Self {
            tokenizer,
            file: file.to_owned(),
            byte_level: rules.byte_level(),
            len,
            languages: [None; 2],
        })
    }

    fn encode(&self, text: &str) -> Result<Encoding, TokenError> {
        let run = || self.tokenizer.encode(text, true).map_err(|e| e.to_string());
        catch(run).and_then(|r| r).map_err(|why| TokenError::Encode {
            file: self.file.clone(),
            text: beginning(text),
            why,
        })
    }

    pub(super) fn encode_source(&self, text: &str) -> Result<Vec<u32>, TokenError> {
        Ok(self.in_language(&self.encode(text)?, self.languages[0]))
    }

    pub(super) fn encode_target(&self, text: &str) -> Result<Vec<u32>, TokenError> {
        let encoding = self.encode(text)?;
        let ids = self.in_language(&encoding, self.languages[1]);
        let prompted = ids.first().is_some_and(|&id| self.id(PROMPT) == Some(id));
        let added = encoding.get_special_tokens_mask().iter().take_while(|&&mask| mask == 1).count();
        // The last token ends the sentence, even if it is empty.
        let prompt = if prompted { added.min(ids.len().saturating_sub(1)) } else { 0 };
        Ok(ids[prompt..].to_vec())
    }

    /// Sets a side's language; false where the tokenizer adds none, or does not have this one.
    pub(super) fn set_language(&mut self, target: bool, code: &str) -> bool {
        let Ok(empty) = self.encode("") else { return false };
        let Some(id) = self.id(code) else { return false };
        if !empty.get_ids().iter().any(|&id| self.is_language(id)) || !self.is_language(id) {
            return false;
        }
        self.languages[usize::from(target)] = Some(id);
        true
    }

    /// The ids, with another language instead of the one that the tokenizer adds.
    fn in_language(&self, encoding: &Encoding, language: Option<u32>) -> Vec<u32> {
        let mut ids = encoding.get_ids().to_vec();
        let Some(language) = language else { return ids };
        for (id, &added) in ids.iter_mut().zip(encoding.get_special_tokens_mask()) {
            if added == 1 && self.is_language(*id) {
                *id = language;
            }
        }
        ids
    }

    /// A special token in the form of a language: `en_XX`, `eng_Latn`, not `<s>` or `</s>`.
    fn is_language(&self, id: u32) -> bool {
        let token = self.tokenizer.id_to_token(id);
        token.is_some_and(|t| {
            self.tokenizer.get_added_vocabulary().is_special_token(&t) && !t.starts_with(['<', '['])
        })
    }

    pub(super) fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let run = || self.tokenizer.decode(ids, skip_special).ok();
        match catch(run) {
            Ok(Some(text)) => text,
            // If the rules fail on these tokens, the tokens themselves are shown.
            Ok(None) | Err(_) => ids.iter().filter_map(|&id| self.tokenizer.id_to_token(id)).collect(),
        }
    }

    pub(super) fn id(&self, piece: &str) -> Option<u32> {
        self.tokenizer.token_to_id(piece)
    }

    pub(super) fn piece(&self, id: u32) -> Option<String> {
        let token = self.tokenizer.id_to_token(id)?;
        let added = self.tokenizer.get_added_vocabulary().is_special_token(&token);
        let bytes = show::from_byte_alphabet(&token).filter(|_| self.byte_level && !added);
        Some(bytes.map_or_else(|| show::visible(&token), |bytes| show::bytes(&bytes)))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
