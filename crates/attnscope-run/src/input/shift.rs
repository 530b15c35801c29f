//! From a target sentence to the decoder's input, which each family begins in its own way.

use attnscope_checkpoint::Remedy;
use attnscope_graph::{Fact, Family, Model, Start};
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
    /// The sentence itself: a toy model whose sentences contain their start.
    AsIs,
}

/// It is not known how the decoder begins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShiftError {
    /// No config names the token, and the family has no usual one.
    #[error(
        "{family}: expected a token id under decoder_start_token_id or {expected}, found none: how the decoder \
         begins is not known"
    )]
    NoStart {
        /// The model's family.
        family: &'static str,
        /// The other key that could have said it.
        expected: &'static str,
    },
    /// A config names something else.
    #[error("{source_name}: expected a token id, found {found}")]
    NotAnId {
        /// The document and key.
        source_name: String,
        /// What was found there.
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
    /// What the user can do next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::NoStart { .. } | Self::NoPrompt { .. } => Remedy::DecoderInput,
            Self::NotAnId { .. } => Remedy::StartToken,
        }
    }
}

impl Shift {
    /// The model's own way. `prompt` is what an audio model's decoder begins with.
    pub fn of(model: &Model, prompt: &[u32]) -> Result<Self, ShiftError> {
        Self::for_family(model.family, &model.facts, prompt)
    }

    fn for_family(family: &'static Family, facts: &[Fact], prompt: &[u32]) -> Result<Self, ShiftError> {
        let (key, usual) = match family.start {
            Start::Sentence => return Ok(Self::AsIs),
            Start::LastOfSentence => return Ok(Self::WrapLast { pad: token(facts, "pad_token_id")? }),
            Start::Prompt if prompt.is_empty() => return Err(ShiftError::NoPrompt { family: family.id }),
            Start::Prompt => return Ok(Self::Prompt(prompt.to_vec())),
            Start::Id(id) => (None, Some(id)),
            Start::End => (Some("eos_token_id"), family.end),
            Start::Token { key, usual } => (Some(key), usual),
        };
        let mut start = token(facts, "decoder_start_token_id")?;
        if let (None, Some(key)) = (start, key) {
            start = token(facts, key)?;
        }
        let nowhere = ShiftError::NoStart { family: family.id, expected: key.unwrap_or_default() };
        start.or(usual).map(Self::Start).ok_or(nowhere)
    }

    /// The decoder's input for a sentence that ends as the tokenizer ends it. It has the sentence's length, or with a prompt,
    /// that of both; for an empty sentence it is the start alone.
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

    /// What each position of the input that [`Shift::apply`] makes should give: the token that comes next. A prompt is given, and
    /// only what follows it is predicted.
    pub fn labels(&self, sentence: &[u32]) -> Vec<Option<u32>> {
        match self {
            Self::AsIs => (1..=sentence.len()).map(|next| sentence.get(next).copied()).collect(),
            Self::Start(_) | Self::Prompt(_) | Self::WrapLast { .. } => {
                let before = self.apply(sentence).len().saturating_sub(sentence.len());
                std::iter::repeat_n(None, before).chain(sentence.iter().copied().map(Some)).collect()
            }
        }
    }
}

/// The id of padding, as configs say.
pub fn pad_token(model: &Model) -> Result<Option<u32>, ShiftError> {
    token(&model.facts, "pad_token_id")
}

/// The end token. A few configs give several: then the first, which the model was trained with.
fn token(facts: &[Fact], name: &str) -> Result<Option<u32>, ShiftError> {
    let Some(fact) = facts.iter().find(|fact| fact.name == name) else { return Ok(None) };
    let wrong = || ShiftError::NotAnId { source_name: fact.source.clone(), found: fact.value.to_string() };
    Ok(token_ids(&fact.value).ok_or_else(wrong)?.first().copied())
}

/// The token ids that a document gives, one or a list of them. Negative ones mean none, as in old configs.
pub(crate) fn token_ids(value: &Value) -> Option<Vec<u32>> {
    let one = |value: &Value| match value.as_u64() {
        Some(id) => u32::try_from(id).ok().map(Some),
        None => value.as_i64().map(|_| None),
    };
    match value {
        Value::Array(ids) => {
            ids.iter().map(one).collect::<Option<Vec<_>>>().map(|ids| ids.into_iter().flatten().collect())
        }
        value => one(value).map(|id| id.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use attnscope_graph::{FAMILIES, Topic};
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

    fn family(id: &str) -> &'static Family {
        FAMILIES.iter().find(|family| family.id == id).unwrap()
    }

    fn shift(id: &str, tokens: &[(&str, Value)]) -> Shift {
        Shift::for_family(family(id), &facts(tokens), &[50258, 50363]).unwrap()
    }

    #[test]
    fn every_position_has_the_token_that_comes_next() {
        for (shift, input, labels) in [
            (Shift::Start(0), vec![0, 5, 6], vec![Some(5), Some(6), Some(1)]),
            (Shift::Prompt(vec![8, 9]), vec![8, 9, 5, 6], vec![None, Some(5), Some(6), Some(1)]),
            (Shift::WrapLast { pad: None }, vec![1, 5, 6], vec![Some(5), Some(6), Some(1)]),
            (Shift::AsIs, vec![5, 6, 1], vec![Some(6), Some(1), None]),
        ] {
            assert_eq!((shift.apply(&[5, 6, 1]), shift.labels(&[5, 6, 1])), (input, labels), "{shift:?}");
        }
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
        for (id, other) in [("marian", "pad_token_id"), ("torch-nn", "bos_token_id")] {
            let error = Shift::for_family(family(id), &[], &[]).unwrap_err();
            assert!(error.to_string().contains(&format!("decoder_start_token_id or {other}")), "{error}");
            assert_eq!(error.remedy(), Remedy::DecoderInput);
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
        assert!(matches!(Shift::for_family(family("whisper"), &[], &[]), Err(ShiftError::NoPrompt { .. })));
    }

    #[test]
    fn an_id_that_is_none_is_an_error() {
        let error =
            Shift::for_family(family("bart"), &facts(&[("decoder_start_token_id", json!("two"))]), &[]);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "config.json: decoder_start_token_id: expected a token id, found \"two\"");
        // Negative numbers mean "none" in old configs; of a list the first is used.
        for none in [json!(-1), json!(-100), json!([])] {
            assert_eq!(shift("t5", &[("decoder_start_token_id", none)]), Shift::Start(0));
        }
        assert_eq!(shift("bart", &[("eos_token_id", json!([7, 2]))]), Shift::Start(7));
        assert_eq!(token_ids(&json!([3, 4294967296u64])), None);
    }
}
