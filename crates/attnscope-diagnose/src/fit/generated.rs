//! What a model generates by itself, compared with the targets.

use std::collections::HashMap;

use attnscope_graph::Side;
use attnscope_run::generate::{EarlyStopping, Generator, Limit, Settings, TokenRules};
use attnscope_run::{RunError, Sequence, position_limit};
use serde::Serialize;

use super::FitTest;
use crate::corpus::{Corpus, CorpusKind};
use crate::score::{Candidate, score};

/// For how many pairs sentences are generated: enough to distinguish words from noise.
const MOST_PAIRS: usize = 24;
/// How many tokens longer than the longest target a sentence may be.
const LEEWAY: usize = 4;

/// What a model generates greedily from the sources.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generated {
    /// Sentences.
    pub pairs: usize,
    /// The share of tokens that a sentence and its own target have in common (F1 over their counts).
    pub agreement: f64,
    /// The same with another pair's target: what any two sentences of that language share.
    pub chance: f64,
    /// Tokens that repeat the one before, of all.
    pub repeated: f64,
    /// How many nats per token its own sentences cost more with another source; absent where all sources are the same.
    pub source_cost: Option<f64>,
}

/// How much larger the share of common tokens must be with the own target than with another's, and how much smaller than the
/// baseline's it may be.
const MORE_THAN_CHANCE: f64 = 0.1;
const LESS_THAN_BASELINE: f64 = 0.02;

impl Generated {
    /// Whether the sentences are about their sources, and no worse than those of a baseline with such an agreement.
    pub(crate) fn is_about_the_source(&self, baseline: f64) -> bool {
        self.agreement >= self.chance + MORE_THAN_CHANCE && self.agreement >= baseline - LESS_THAN_BASELINE
    }
}

impl FitTest<'_> {
    /// Lets a candidate generate from the first sources. `None` where it generates nothing, or there are no sources: what a
    /// language model goes on with says little about a text.
    pub(crate) fn generated(&self, candidate: &Candidate) -> Result<Option<Generated>, RunError> {
        if self.corpus.kind() == CorpusKind::Texts {
            return Ok(None);
        }
        let first = self.corpus.first(MOST_PAIRS);
        let written = greedy(candidate, &first)?;
        let count =
            |share: &dyn Fn(usize) -> f64| (0..first.len()).map(share).sum::<f64>() / first.len() as f64;
        let with = |step: usize| count(&|i| overlap(&written[i], &first.targets[(i + step) % first.len()]));
        let all: usize = written.iter().map(Vec::len).sum();
        if all == 0 {
            return Ok(None);
        }
        let again = |row: &Vec<u32>| row.windows(2).filter(|two| two[0] == two[1]).count();
        Ok(Some(Generated {
            pairs: first.len(),
            agreement: with(0),
            chance: with(first.len() / 2),
            repeated: written.iter().map(again).sum::<usize>() as f64 / all as f64,
            source_cost: source_cost(candidate, &first, written)?,
        }))
    }
}

/// How much more the model's own sentences cost with another source.
fn source_cost(
    candidate: &Candidate,
    first: &Corpus,
    written: Vec<Vec<u32>>,
) -> Result<Option<f64>, RunError> {
    let kept: Vec<usize> = (0..written.len()).filter(|&i| !written[i].is_empty()).collect();
    let own = Corpus {
        sources: kept.iter().map(|&i| first.sources[i].clone()).collect(),
        targets: kept.iter().map(|&i| written[i].clone()).collect(),
        texts: Vec::new(),
        ..first.clone()
    };
    let Some(swapped) = own.with_swapped_sources() else { return Ok(None) };
    let cost = |corpus: &Corpus| -> Result<f64, RunError> {
        let scores = score(&[candidate], corpus, &|_, _| ())?.swap_remove(0);
        Ok(scores.nll().iter().sum::<f64>() / corpus.tokens().iter().sum::<usize>().max(1) as f64)
    };
    Ok(Some(cost(&swapped)? - cost(&own)?))
}

/// Greedy search from each source, until the token that ends the targets.
fn greedy(candidate: &Candidate, corpus: &Corpus) -> Result<Vec<Vec<u32>>, RunError> {
    let begins = candidate.shift.apply(&[]);
    let longest = corpus.targets.iter().map(Vec::len).max().unwrap_or(0);
    let settings = Settings {
        start: if begins.is_empty() {
            commonest(corpus.targets.iter().filter_map(|t| t.first()))
        } else {
            begins
        },
        ends: commonest(corpus.targets.iter().filter_map(|t| t.last())),
        pad: corpus.pad,
        beams: 1,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::Heuristic,
        limit: Limit::New(longest + LEEWAY),
        positions: position_limit(candidate.model(), Side::Target),
        rules: TokenRules::default(),
        notes: Vec::new(),
    };
    let generator = Generator::new(&settings);
    let mut session = candidate.prepared.own_session();
    let all: Vec<usize> = (0..corpus.len()).collect();
    let made = match corpus.source(&all, 0) {
        Sequence::Tokens(rows) => generator.from_tokens(&mut *session, &rows.tokens())?,
        Sequence::Features(features) => generator.from_features(&mut *session, &features)?,
    };
    Ok(made
        .into_iter()
        .map(|mut beams| if beams.is_empty() { Vec::new() } else { beams.swap_remove(0).tokens })
        .collect())
}

fn commonest<'a>(tokens: impl Iterator<Item = &'a u32>) -> Vec<u32> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    tokens.for_each(|&token| *counts.entry(token).or_default() += 1);
    counts
        .into_iter()
        .max_by_key(|&(token, count)| (count, token))
        .map(|(token, _)| token)
        .into_iter()
        .collect()
}

/// F1 of two bags of tokens.
fn overlap(a: &[u32], b: &[u32]) -> f64 {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    b.iter().for_each(|&token| *counts.entry(token).or_default() += 1);
    let common = a
        .iter()
        .filter(|token| counts.get_mut(token).is_some_and(|n| std::mem::replace(n, n.saturating_sub(1)) > 0))
        .count();
    2.0 * common as f64 / (a.len() + b.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_common_are_counted_as_often_as_both_have_them() {
        assert_eq!(overlap(&[5, 6, 1], &[5, 6, 1]), 1.0);
        assert_eq!(overlap(&[5, 5, 5, 1], &[5, 7, 8, 9]), 0.25);
        assert_eq!(overlap(&[], &[5]), 0.0);
        assert_eq!(overlap(&[], &[]), 0.0);
    }
}
