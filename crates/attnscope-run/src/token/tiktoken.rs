//! Ranks of byte strings, as tiktoken keeps them, with Whisper's special tokens after them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::error::TokenError;
use super::merge::{Symbol, merge};
use super::whisper;

/// GPT-2's pattern but for its look-ahead, `\s+(?!\S)`, which [`words`] does by hand: this way a text is split in
/// linear time.
static WORD: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+").ok());

/// `<|startoftranscript|>` and the like are all shorter.
const LONGEST_SPECIAL: usize = 32;

#[derive(Debug)]
pub(super) struct Tiktoken {
    /// By rank, which is the id.
    tokens: Vec<Vec<u8>>,
    ranks: HashMap<Vec<u8>, u32>,
    /// The first has the id after the last rank.
    specials: Vec<String>,
    special_ids: HashMap<String, u32>,
}

impl Tiktoken {
    /// Lines of base64, a space and a rank. `vocabulary` is the number of rows of the model's embedding, from which
    /// the number of languages follows.
    pub(super) fn read(file: &Path, bytes: &[u8], vocabulary: Option<usize>) -> Result<Self, TokenError> {
        let invalid = |place: String, expected: &str, found: String| TokenError::Invalid {
            file: file.to_owned(),
            place,
            expected: expected.to_owned(),
            found,
        };
        let wrong = |line: usize, expected: &str, found| invalid(format!("line {line}"), expected, found);
        let mut tokens = Vec::new();
        let mut ranks = HashMap::new();
        for (i, line) in bytes.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let shown = || super::error::beginning(&String::from_utf8_lossy(line));
            let parsed = std::str::from_utf8(line)
                .ok()
                .and_then(|l| l.split_once(' '))
                .and_then(|(token, rank)| Some((base64(token)?, rank.trim().parse::<u32>().ok()?)));
            let Some((token, rank)) = parsed else {
                return Err(wrong(i + 1, "base64, a space and a rank", shown()));
            };
            if rank as usize != tokens.len() {
                return Err(wrong(i + 1, &format!("rank {}", tokens.len()), rank.to_string()));
            }
            if ranks.insert(token.clone(), rank).is_some() {
                return Err(wrong(i + 1, "a token of its own", shown()));
            }
            tokens.push(token);
        }
        if let Some(byte) = (0..=u8::MAX).find(|&b| !ranks.contains_key([b].as_slice())) {
            let found = format!("none for {byte:#04x}");
            return Err(invalid("the ranks".into(), "one for each of the 256 bytes", found));
        }
        // Only the ranks of many languages have the empty token, and only they come with a hundredth language.
        let most = if ranks.contains_key([].as_slice()) {
            whisper::LANGUAGES.len()
        } else {
            whisper::USUAL_LANGUAGES
        };
        let specials = whisper::specials(languages(file, tokens.len(), most, vocabulary)?);
        let special_ids = specials.iter().cloned().zip(tokens.len() as u32..).collect();
        Ok(Self { tokens, ranks, specials, special_ids })
    }

    /// Special tokens in the text are recognised.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut plain = 0;
        let mut at = 0;
        while let Some(start) = text[at..].find("<|").map(|i| at + i) {
            let near = &text.as_bytes()[start..text.len().min(start + LONGEST_SPECIAL)];
            let end = near.windows(2).position(|pair| pair == b"|>").map(|i| start + i + 2);
            let special = end.and_then(|end| Some((end, *self.special_ids.get(&text[start..end])?)));
            at = match special {
                Some((end, id)) => {
                    self.encode_plain(&text[plain..start], &mut ids);
                    ids.push(id);
                    plain = end;
                    end
                }
                None => start + 2,
            };
        }
        self.encode_plain(&text[plain..], &mut ids);
        ids
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) {
        for word in words(text) {
            let word = word.as_bytes();
            if let Some(&id) = self.ranks.get(word) {
                ids.push(id);
                continue;
            }
            let symbols = (0..word.len()).map(|i| Symbol { range: i..i + 1, frozen: false }).collect();
            let rank = |a: &std::ops::Range<usize>, b: &std::ops::Range<usize>| {
                self.ranks.get(&word[a.start..b.end]).map(|&rank| Reverse(rank))
            };
            // Every byte has a rank, and only what has one is merged.
            ids.extend(merge(symbols, rank).into_iter().filter_map(|r| self.ranks.get(&word[r]).copied()));
        }
    }

    pub(super) fn end(&self) -> Option<u32> {
        self.id("<|endoftext|>")
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.special_ids.get(token).or_else(|| self.ranks.get(token.as_bytes())).copied()
    }

    /// The bytes of a token.
    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let special = || self.specials.get((id as usize).checked_sub(self.tokens.len())?);
        self.tokens.get(id as usize).map(Vec::as_slice).or_else(|| special().map(String::as_bytes))
    }

    /// Bytes that are not UTF-8, such as at the end of a cut text, become U+FFFD.
    pub(super) fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let kept = ids.iter().filter(|&&id| !skip_special || (id as usize) < self.tokens.len());
        let bytes: Vec<u8> = kept.filter_map(|&id| self.bytes(id)).flatten().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len() + self.specials.len()
    }
}

/// How many languages make up the rest of the vocabulary.
fn languages(file: &Path, ranks: usize, most: usize, vocabulary: Option<usize>) -> Result<usize, TokenError> {
    let Some(rows) = vocabulary else { return Ok(whisper::USUAL_LANGUAGES) };
    let fewest = ranks + whisper::OTHER_SPECIALS;
    let languages = rows.checked_sub(fewest).filter(|&n| n <= most);
    languages.ok_or_else(|| TokenError::Invalid {
        file: file.to_owned(),
        place: format!("{ranks} ranks"),
        expected: format!("a vocabulary of {fewest} to {} tokens", fewest + most),
        found: format!("{rows} rows in the model's embedding"),
    })
}

/// The words within which pairs are merged, with the space before them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let found = WORD.as_ref().and_then(|word| word.find(rest)).filter(|m| m.start() == 0);
        // Every character matches an alternative; if the pattern did not compile, the text is one word.
        let mut end = found.map_or(rest.len(), |m| m.end());
        let word = rest.get(..end).filter(|w| !w.is_empty())?;
        // Of several spaces before a word, the last one belongs to the word.
        let last = word.chars().next_back().filter(|c| c.is_whitespace()).map_or(0, char::len_utf8);
        if last > 0 && end < rest.len() && end > last {
            end -= last;
        }
        at += end;
        rest.get(..end)
    })
}

/// Standard base64 with its padding.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    // How OpenAI's multilingual ranks write the empty token, which no text becomes.
    if text == "=" { Some(Vec::new()) } else { attnscope_checkpoint::base64(text.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_the_last_space_before_them() {
        let split = |text| words(text).collect::<Vec<_>>();
        assert_eq!(split("it's  two   words "), ["it", "'s", " ", " two", "  ", " words", " "]);
        assert_eq!(split("a\n\nb\t\t"), ["a", "\n", "\n", "b", "\t\t"]);
        assert_eq!(split("x=12 ½"), ["x", "=", "12", " ½"]);
        assert_eq!(split(""), [""; 0]);
    }

    #[test]
    fn base64_is_read_and_nothing_else() {
        assert_eq!(base64("IQ==").as_deref(), Some(b"!".as_slice()));
        assert_eq!(base64("IHQ=").as_deref(), Some(b" t".as_slice()));
        assert_eq!(base64("IHRo").as_deref(), Some(b" th".as_slice()));
        for bad in ["IQ", "I===", "I!==", "=IQ="] {
            assert_eq!(base64(bad), None, "{bad}");
        }
    }
}
