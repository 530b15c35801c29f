//! How long the texts of an input are, before anything is run.

use attnscope_graph::Side;
use attnscope_run::{computed_positions, position_limit};

use crate::failure::Failure;
use crate::input::{Input, SourceInput, TargetInput};
use crate::ready::Ready;

/// The longest text of one side of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCount {
    /// Whose sequence the text becomes. A prompt is the target of a decoder alone.
    pub side: Side,
    /// Its tokens, as the model reads them.
    pub tokens: usize,
    /// For how many tokens the model has positions; `None` where there is no limit.
    pub positions: Option<usize>,
    /// Where they are computed: the rows of the table that Hugging Face makes of them.
    pub table: Option<usize>,
}

/// Counts the tokens of the texts that were given; ids and recordings are no texts.
pub(crate) fn token_counts(ready: &Ready<'_>, input: &Input) -> Result<Vec<TokenCount>, Failure> {
    let longest = |side: Side, texts: &[String], read: &dyn Fn(&str) -> Result<Vec<u32>, Failure>| {
        let lengths = texts.iter().map(|text| Ok(read(text)?.len()));
        let tokens = lengths.collect::<Result<Vec<_>, Failure>>()?.into_iter().max().unwrap_or(0);
        let [positions, table] = [position_limit, computed_positions].map(|ask| ask(ready.model, side));
        Ok(TokenCount { side, tokens, positions, table })
    };
    let source = match &input.source {
        Some(SourceInput::Texts(texts)) => {
            Some(longest(Side::Source, texts, &|text| ready.source_tokens(text)))
        }
        Some(SourceInput::Prompts(texts)) => {
            Some(longest(Side::Target, texts, &|text| ready.prompt_tokens(text)))
        }
        Some(SourceInput::Ids(_) | SourceInput::Audio(_) | SourceInput::Features(_)) | None => None,
    };
    let target = match &input.target {
        Some(TargetInput::Texts(texts)) => {
            Some(longest(Side::Target, texts, &|text| ready.target_tokens(text)))
        }
        Some(TargetInput::Ids(_)) | None => None,
    };
    source.into_iter().chain(target).collect()
}
