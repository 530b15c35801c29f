//! The tokenizer in a GGUF's own metadata: SentencePiece's unigram ("t5") and BPE ("llama"), and GPT-2's byte-level BPE
//! ("gpt2").

use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Checkpoint, Config, List};
use serde_json::{Map, Value, json};

use super::Kind;
use super::error::TokenError;
use super::huggingface::HuggingFace;
use super::sentencepiece::SentencePiece;
use super::sentencepiece::proto::{self, Algorithm, ModelProto, NormaliserSpec, Piece};

/// The metadata of a tokenizer, and the lists that belong to it.
struct Metadata<'a> {
    checkpoint: &'a Checkpoint,
    file: PathBuf,
    facts: &'a Map<String, Value>,
}

/// The tokenizer of a GGUF file; none where it holds none of a known kind.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Kind>, TokenError> {
    let model = |config: &&Config| config.facts.contains_key("tokenizer.ggml.model");
    let Some(config) = checkpoint.configs().iter().find(model) else { return Ok(None) };
    let file = checkpoint.files().next().map_or(Path::new(""), |(file, _)| file).to_owned();
    let metadata = Metadata { checkpoint, file, facts: &config.facts };
    match metadata.text("model") {
        Some("t5") => metadata.sentencepiece(Algorithm::Unigram).map(Some),
        Some("llama") => metadata.sentencepiece(Algorithm::Bpe).map(Some),
        Some("gpt2") => metadata.byte_level(),
        _ => Ok(None),
    }
}

/// What a piece is for, where the metadata do not say.
const NORMAL: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

impl Metadata<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.facts.get(&format!("tokenizer.ggml.{key}"))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    fn flag(&self, key: &str, usual: bool) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(usual)
    }

    fn token(&self, key: &str) -> Option<u32> {
        self.get(key)?.as_u64().and_then(|id| u32::try_from(id).ok())
    }

    fn wrong(&self, key: &str, expected: &str, found: impl Into<String>) -> TokenError {
        TokenError::Invalid {
            file: self.file.clone(),
            place: format!("tokenizer.ggml.{key}"),
            expected: expected.to_owned(),
            found: found.into(),
        }
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, TokenError> {
        match self.checkpoint.list(&format!("tokenizer.ggml.{key}"))? {
            Some(List::Texts(texts)) => Ok(Some(texts)),
            Some(List::Numbers(numbers)) if numbers.is_empty() => Ok(Some(Vec::new())),
            Some(List::Numbers(_)) => Err(self.wrong(key, "texts", "numbers")),
            None => Ok(None),
        }
    }

    /// Numbers, one per piece where `count` is the number of pieces.
    fn numbers(&self, key: &str, count: Option<usize>) -> Result<Option<Vec<f64>>, TokenError> {
        let numbers = match self.checkpoint.list(&format!("tokenizer.ggml.{key}"))? {
            Some(List::Numbers(numbers)) => numbers,
            Some(List::Texts(_)) => return Err(self.wrong(key, "numbers", "texts")),
            None => return Ok(None),
        };
        match count.filter(|&count| count != numbers.len()) {
            Some(count) => {
                Err(self.wrong(key, &format!("{count}, one per piece"), numbers.len().to_string()))
            }
            None => Ok(Some(numbers)),
        }
    }

    fn pieces(&self) -> Result<Vec<(String, u64)>, TokenError> {
        let texts = self.texts("tokens")?.ok_or_else(|| self.wrong("tokens", "the pieces", "none"))?;
        let kinds = self.numbers("token_type", Some(texts.len()))?;
        let kind = |at: usize| kinds.as_ref().map_or(NORMAL, |kinds| kinds[at] as u64);
        Ok(texts.into_iter().enumerate().map(|(at, text)| (text, kind(at))).collect())
    }

    /// The tokens before and after a text, as llama.cpp adds them.
    fn ends(&self, begins: bool, ends: bool) -> [Option<u32>; 2] {
        let begin = self.token("bos_token_id").filter(|_| self.flag("add_bos_token", begins));
        let end = self.token("eos_token_id").filter(|_| self.flag("add_eos_token", ends));
        [begin, end]
    }

    fn sentencepiece(&self, algorithm: Algorithm) -> Result<Kind, TokenError> {
        let unigram = algorithm == Algorithm::Unigram;
        let pieces = self.pieces()?;
        let scores = self.numbers("scores", Some(pieces.len()))?;
        let score = |at: usize| scores.as_ref().map_or(0.0, |scores| scores[at] as f32);
        let piece = |(at, (text, kind)): (usize, (String, u64))| {
            let kind = proto::Kind::numbered(kind)
                .ok_or_else(|| self.wrong("token_type", "a type from 1 to 6", kind.to_string()))?;
            Ok(Piece { text, score: score(at), kind })
        };
        let pieces = pieces.into_iter().enumerate().map(piece).collect::<Result<Vec<_>, TokenError>>()?;
        let charsmap = self.numbers("precompiled_charsmap", None)?.unwrap_or_default();
        let model = ModelProto {
            byte_fallback: pieces.iter().filter(|piece| piece.kind == proto::Kind::Byte).count() == 256,
            pieces,
            algorithm,
            whitespace_as_suffix: false,
            normaliser: NormaliserSpec {
                // Stored as signed or unsigned bytes.
                charsmap: charsmap.iter().map(|&byte| (byte as i64 & 0xff) as u8).collect(),
                add_dummy_prefix: self.flag("add_space_prefix", true),
                remove_extra_whitespaces: self.flag("remove_extra_whitespaces", unigram),
                escape_whitespaces: true,
            },
        };
        // llama.cpp's defaults.
        let ends = self.ends(!unigram, unigram);
        Ok(Kind::SentencePiece(Box::new(SentencePiece::of_model(&self.file, model, ends)?)))
    }

    /// As a tokenizer.json of the same content; none where the pre-tokenizer is not GPT-2's.
    fn byte_level(&self) -> Result<Option<Kind>, TokenError> {
        if !matches!(self.text("pre"), None | Some("default" | "gpt-2")) {
            return Ok(None);
        }
        let pieces = self.pieces()?;
        let merges = self.texts("merges")?.ok_or_else(|| self.wrong("merges", "pairs of pieces", "none"))?;
        let added: Vec<Value> = pieces
            .iter()
            .enumerate()
            .filter(|(_, (_, kind))| [CONTROL, USER_DEFINED].contains(kind))
            .map(|(id, (text, kind))| {
                json!({ "id": id, "content": text, "special": *kind == CONTROL, "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false })
            })
            .collect();
        let ends = self.ends(false, false);
        let name = |id: u32| pieces.get(id as usize).map(|(text, _)| text.clone());
        let [begin, end] = ends.map(|id| id.and_then(|id| Some((id, name(id)?))));
        let special: Map<String, Value> = [&begin, &end]
            .into_iter()
            .flatten()
            .map(|(id, text)| (text.clone(), json!({ "id": text, "ids": [id], "tokens": [text] })))
            .collect();
        let token = |one: &Option<(u32, String)>| {
            one.as_ref().map(|(_, text)| json!({ "SpecialToken": { "id": text, "type_id": 0 } }))
        };
        let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
        let single: Vec<Value> = [token(&begin), Some(text), token(&end)].into_iter().flatten().collect();
        let vocabulary: Map<String, Value> =
            pieces.iter().enumerate().map(|(id, (text, _))| (text.clone(), json!(id))).collect();
        let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": self.flag("add_space_prefix", false),
            "trim_offsets": true, "use_regex": true });
        let document = json!({
            "version": "1.0",
            "added_tokens": added,
            "normalizer": null,
            "pre_tokenizer": byte_level,
            "post_processor": { "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special },
            "decoder": byte_level,
            "model": { "type": "BPE", "vocab": vocabulary, "merges": merges },
        });
        let bytes = serde_json::to_vec(&document).unwrap_or_default();
        Ok(Some(Kind::HuggingFace(Box::new(HuggingFace::read(&self.file, &bytes)?))))
    }
}
