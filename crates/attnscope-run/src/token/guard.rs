//! Limits for an untrusted tokenizer.json that the crate that reads it does not check.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The largest that are in use have 35 MB.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// How many times longer its rules may make a text. Those in use stay below a hundred.
const MOST_GROWTH: usize = 1 << 14;

/// Ids and pieces that a post-processor may put around a text. Those in use add a handful, for each language one.
const MOST_ADDED: usize = 1 << 12;

/// The parts of a tokenizer.json that change text.
#[derive(Debug, Deserialize)]
pub(super) struct Rules {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    /// Required, and read elsewhere.
    #[serde(rename = "model")]
    _model: IgnoredAny,
}

impl Rules {
    /// An error where the rules would make a text absurdly long: a chain of replacements that each double it fills any memory.
    pub(super) fn excess(&self) -> Option<String> {
        let added = items(&self.post_processor);
        if added > MOST_ADDED {
            return Some(format!(
                "a post_processor with lists of {added} items, which it may put around every text; no tokenizer \
                 needs more than {MOST_ADDED}"
            ));
        }
        if let Some((claimed, found)) = short_charsmap(&self.normalizer) {
            return Some(format!(
                "a precompiled_charsmap that begins with a table of {claimed} bytes and has {found}"
            ));
        }
        let encode = growth(&self.normalizer).saturating_mul(growth(&self.pre_tokenizer));
        let worst = encode.max(growth(&self.decoder));
        (worst > MOST_GROWTH).then(|| {
            format!(
                "rules that can make a text more than {MOST_GROWTH} times longer; no tokenizer needs that"
            )
        })
    }

    /// Whether tokens are written in GPT-2's alphabet of bytes.
    pub(super) fn byte_level(&self) -> bool {
        [&self.pre_tokenizer, &self.normalizer, &self.decoder].into_iter().any(mentions_bytes)
    }
}

/// The items of all lists in a value.
fn items(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.iter().map(items).fold(list.len(), usize::saturating_add),
        Value::Object(map) => map.values().map(items).fold(0, usize::saturating_add),
        _ => 0,
    }
}

fn mentions_bytes(rule: &Value) -> bool {
    match rule {
        Value::Object(map) => {
            map.get("type").and_then(Value::as_str) == Some("ByteLevel") || map.values().any(mentions_bytes)
        }
        Value::Array(items) => items.iter().any(mentions_bytes),
        _ => false,
    }
}

/// The largest factor by which a rule, or a sequence of rules, lengthens a text.
fn growth(rule: &Value) -> usize {
    let length = |value: Option<&Value>| value.and_then(Value::as_str).map_or(0, str::len);
    match rule {
        Value::Array(items) => items.iter().map(growth).fold(1, usize::saturating_mul),
        Value::Object(map) => {
            let own = match map.get("type").and_then(Value::as_str) {
                Some("Replace") => {
                    let pattern = map.get("pattern").and_then(|p| p.get("String"));
                    match length(pattern) {
                        // A regular expression may match between any two characters.
                        0 => length(map.get("content")) + 1,
                        n => length(map.get("content")).div_ceil(n).max(1),
                    }
                }
                // Added once for every piece that the text was split into before.
                Some("Prepend") => length(map.get("prepend")) + 1,
                Some("ByteLevel" | "Metaspace") => 4,
                Some("Precompiled") => charsmap_growth(map.get("precompiled_charsmap")),
                Some("WordPiece" | "BPEDecoder" | "CTC") => 2 + length(map.get("word_delimiter_token")),
                _ => 1,
            };
            map.values().map(growth).fold(own, usize::saturating_mul)
        }
        _ => 1,
    }
}

/// A table of replacements that says it is larger than it is, in bytes, and what is there: its reader makes room for what it says.
fn short_charsmap(rule: &Value) -> Option<(usize, usize)> {
    match rule {
        Value::Array(items) => items.iter().find_map(short_charsmap),
        Value::Object(map) => {
            let text = map.get("precompiled_charsmap").and_then(Value::as_str);
            let own = text.and_then(super::tiktoken::base64).and_then(|bytes| {
                let claimed = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
                let found = bytes.len() - 4;
                (claimed > found).then_some((claimed, found))
            });
            own.or_else(|| map.values().find_map(short_charsmap))
        }
        _ => None,
    }
}

/// The longest replacement in a table of them; bounded by the distance between its zero bytes.
fn charsmap_growth(table: Option<&Value>) -> usize {
    let Some(text) = table.and_then(Value::as_str) else { return 1 };
    let Some(bytes) = super::tiktoken::base64(text) else { return 1 };
    let size = bytes.first_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    let replacements = bytes.get(size.saturating_add(4)..).unwrap_or_default();
    replacements.split(|&b| b == 0).map(<[u8]>::len).max().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_put_around_a_text_is_counted() {
        let rules = |ids: usize| Rules {
            normalizer: Value::Null,
            pre_tokenizer: Value::Null,
            post_processor: json!({"type": "TemplateProcessing", "special_tokens": {"a": {"ids": vec![1; ids]}}}),
            decoder: Value::Null,
            _model: IgnoredAny,
        };
        assert_eq!(rules(2).excess(), None);
        assert!(rules(200_000).excess().is_some_and(|why| why.contains("200000")));
    }

    #[test]
    fn a_table_that_says_it_is_larger_than_it_is_is_refused() {
        let rules = |charsmap: &str| {
            let table = json!({"type": "Precompiled", "precompiled_charsmap": charsmap});
            json!({"type": "Sequence", "normalizers": [table]})
        };
        // Five bytes that claim 0x65000100, and four zeros, an empty table.
        assert_eq!(short_charsmap(&rules("AAEAZQA=")), Some((0x6500_0100, 1)));
        assert_eq!(short_charsmap(&rules("AAAAAA==")), None);
    }

    #[test]
    fn chains_of_replacements_multiply() {
        let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
        assert_eq!(growth(&double), 2);
        let chain = json!({"type": "Sequence", "normalizers": vec![double; 10]});
        assert_eq!(growth(&chain), 1024);
        let usual = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]});
        assert_eq!(growth(&usual), 12);
    }
}
