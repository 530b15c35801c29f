//! From a target sentence to what the decoder reads: each family begins it in its own way.

use attnscope_graph::{Fact, Model};
use serde_json::Value;

/// How the decoder's input is made from a target sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shift {
    /// One token first, and the sentence without its last: the start token of Hugging Face's families, the end of
    /// sentence for fairseq.
    Start(u32),
    /// The sentence's own last token first: mBART, whose sentences end in their language.
    WrapLast {
        /// Tokens that do not count as the last.
        pad: Option<u32>,
    },
    /// A prompt first, and the sentence without its last: Whisper.
    Prompt(Vec<u32>),
    /// The sentence itself: a toy whose sentences are written with their start.
    AsIs,
}

/// A model that does not say how its decoder begins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShiftError {
    /// No config names the token, and the family has no usual one.
    #[error(
        "{family}: expected a token id under {expected}, found none: how the decoder begins is not known"
    )]
    NoStart {
        /// The model's family.
        family: &'static str,
        /// The keys that could have said it.
        expected: &'static str,
    },
    /// A config names something else.
    #[error("{source_name}: expected a token id, found {found}")]
    NotAnId {
        /// The document and key.
        source_name: String,
        /// What is there.
        found: String,
    },
    /// An audio model without a prompt.
    #[error("{family}: the decoder of an audio model begins with a prompt, and none is given")]
    NoPrompt {
        /// The model's family.
        family: &'static str,
    },
}

impl ShiftError {
    /// What the user can do next, for the `help:` line.
    pub fn help(&self) -> String {
        match self {
            Self::NoStart { .. } | Self::NoPrompt { .. } => {
                "give the decoder's input itself with --tgt-ids, its first token included".into()
            }
            Self::NotAnId { .. } => {
                "write the id of one token there, or give the decoder's input itself with --tgt-ids".into()
            }
        }
    }
}

/// A start token by the name of another, for configs that leave it out.
#[derive(Clone, Copy)]
enum Usual {
    /// The id is the same in all models of the family.
    Id(u32),
    /// The config names it under another key, which has a usual value or none.
    Key(&'static str, Option<u32>),
}

impl Shift {
    /// The model's own way. `prompt` is what an audio model's decoder begins with.
    pub fn of(model: &Model, prompt: &[u32]) -> Result<Self, ShiftError> {
        Self::for_family(model.family.id, &model.facts, prompt)
    }

    fn for_family(family: &'static str, facts: &[Fact], prompt: &[u32]) -> Result<Self, ShiftError> {
        let usual = match family {
            "tiny-transformer" => return Ok(Self::AsIs),
            "mbart" => return Ok(Self::WrapLast { pad: token(facts, "pad_token_id")? }),
            "whisper" if prompt.is_empty() => return Err(ShiftError::NoPrompt { family }),
            "whisper" => return Ok(Self::Prompt(prompt.to_vec())),
            // The decoder of fairseq starts from the end of the sentence before.
            "fairseq" => {
                let eos = token(facts, "eos_token_id")?.unwrap_or(2);
                return Ok(Self::Start(eos));
            }
            "bart" | "m2m_100" => Usual::Key("eos_token_id", Some(2)),
            "blenderbot" | "blenderbot-small" => Usual::Key("bos_token_id", Some(1)),
            "pegasus" | "t5" | "t5-v1_1" | "mt5" => Usual::Id(0),
            "marian" => Usual::Key("pad_token_id", None),
            _ => Usual::Key("bos_token_id", None),
        };
        if let Some(start) = token(facts, "decoder_start_token_id")? {
            return Ok(Self::Start(start));
        }
        let start = match usual {
            Usual::Id(id) => Some(id),
            Usual::Key(key, usual) => token(facts, key)?.or(usual),
        };
        let expected = match usual {
            Usual::Key("pad_token_id", _) => "decoder_start_token_id or pad_token_id",
            _ => "decoder_start_token_id or bos_token_id",
        };
        start.map(Self::Start).ok_or(ShiftError::NoStart { family, expected })
    }

    /// The decoder's input for a sentence that ends as the tokenizer ends it. It has the sentence's length, or that of
    /// the prompt more; an empty sentence leaves what comes first.
    pub fn apply(&self, sentence: &[u32]) -> Vec<u32> {
        let all_but_last = sentence.split_last().map_or(&[][..], |(_, rest)| rest);
        let first = match self {
            Self::AsIs => return sentence.to_vec(),
            Self::Start(start) => vec![*start],
            Self::Prompt(prompt) => prompt.clone(),
            Self::WrapLast { pad } => {
                // As Hugging Face counts: padding is on the right.
                let count = sentence.iter().filter(|&&id| Some(id) != *pad).count();
                sentence.get(count.saturating_sub(1)).into_iter().copied().collect()
            }
        };
        first.into_iter().chain(all_but_last.iter().copied()).collect()
    }
}

/// The id of padding, as configs say.
pub fn pad_token(model: &Model) -> Result<Option<u32>, ShiftError> {
    token(&model.facts, "pad_token_id")
}

fn token(facts: &[Fact], name: &str) -> Result<Option<u32>, ShiftError> {
    let Some(fact) = facts.iter().find(|fact| fact.name == name) else { return Ok(None) };
    let value = match &fact.value {
        // A few configs give several ends of a sentence; the first is the one that is trained with.
        Value::Array(ids) => ids.first().unwrap_or(&fact.value),
        value => value,
    };
    match value.as_u64().and_then(|id| u32::try_from(id).ok()) {
        Some(id) => Ok(Some(id)),
        // Old configs write "none" as a negative number.
        None if value.as_i64() == Some(-1) => Ok(None),
        None => Err(ShiftError::NotAnId { source_name: fact.source.clone(), found: value.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use attnscope_graph::Topic;
    use serde_json::json;

    use super::*;

    fn facts(tokens: &[(&str, Value)]) -> Vec<Fact> {
        let fact = |(name, value): &(&str, Value)| Fact {
            topic: Topic::Tokens,
            name: (*name).to_owned(),
            value: value.clone(),
            source: format!("config.json: {name}"),
            disagree: Vec::new(),
        };
        tokens.iter().map(fact).collect()
    }

    fn shift(family: &'static str, tokens: &[(&str, Value)]) -> Shift {
        Shift::for_family(family, &facts(tokens), &[50258, 50363]).unwrap()
    }

    #[test]
    fn the_start_token_comes_first_and_the_last_label_goes() {
        for family in ["marian", "bart", "t5", "pegasus", "m2m_100", "blenderbot-small", "torch-nn"] {
            let shift = shift(family, &[("decoder_start_token_id", json!(9))]);
            assert_eq!(shift.apply(&[5, 6, 2]), [9, 5, 6], "{family}");
            assert_eq!(shift.apply(&[]), [9], "{family}");
        }
    }

    #[test]
    fn a_config_without_a_start_token_leaves_the_usual_one() {
        assert_eq!(shift("marian", &[("pad_token_id", json!(65000))]), Shift::Start(65000));
        assert_eq!(shift("bart", &[]), Shift::Start(2));
        assert_eq!(shift("m2m_100", &[("eos_token_id", json!(7))]), Shift::Start(7));
        assert_eq!(shift("blenderbot-small", &[]), Shift::Start(1));
        for family in ["t5", "t5-v1_1", "mt5", "pegasus"] {
            assert_eq!(shift(family, &[]), Shift::Start(0));
        }
        for family in ["marian", "torch-nn"] {
            let error = Shift::for_family(family, &[], &[]).unwrap_err();
            assert!(error.to_string().contains("decoder_start_token_id"), "{error}");
            assert!(error.help().contains("--tgt-ids"));
        }
    }

    #[test]
    fn mbart_wraps_its_language_to_the_front() {
        let shift = shift("mbart", &[("pad_token_id", json!(1)), ("decoder_start_token_id", json!(2))]);
        assert_eq!(shift.apply(&[5, 6, 2, 250]), [250, 5, 6, 2]);
        assert_eq!(shift.apply(&[5, 6, 2, 250, 1, 1]), [250, 5, 6, 2, 250, 1]);
        assert_eq!(shift.apply(&[]), [0; 0]);
    }

    #[test]
    fn the_other_beginnings() {
        assert_eq!(shift("whisper", &[]).apply(&[400, 50257]), [50258, 50363, 400]);
        assert_eq!(shift("fairseq", &[]).apply(&[105, 211, 2]), [2, 105, 211]);
        assert_eq!(shift("tiny-transformer", &[]).apply(&[0, 3, 4]), [0, 3, 4]);
        assert!(matches!(Shift::for_family("whisper", &[], &[]), Err(ShiftError::NoPrompt { .. })));
    }

    #[test]
    fn an_id_that_is_none_is_an_error() {
        let error = Shift::for_family("bart", &facts(&[("decoder_start_token_id", json!("two"))]), &[]);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "config.json: decoder_start_token_id: expected a token id, found \"two\"");
        assert_eq!(shift("t5", &[("decoder_start_token_id", json!(-1))]), Shift::Start(0));
    }
}
