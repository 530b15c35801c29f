//! Which part of the source each word of a target came from, computed from cross-attention: source words for a text, times for
//! a recording.

mod dtw;
mod heads;
mod times;
mod words;

use std::collections::BTreeSet;

use attnscope_graph::{AttentionKind, AttentionPlace, AttentionStep, NodeId, Stack};

use crate::checked::CheckedInput;
use crate::error::RunError;
use crate::executor::{Request, Session};
use crate::input::Input;
use crate::sink::Capture;
use crate::tensor::{Kept, Tensor};

pub use heads::{Head, Heads};
pub use times::{Timed, word_times};
pub use words::{Word, spoken_words, words};

/// How much each target word looked at each source word.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    /// [target word, source word]: the mean of the heads' weights, summed over the source word's tokens and averaged over
    /// the target word's.
    pub weights: Vec<Vec<f64>>,
    /// For each target word the source word that it looked at most, compared with the rest of the target; special tokens have
    /// no links.
    pub links: Vec<Option<usize>>,
}

/// The cross-attention of a run of one sentence, by head.
struct Attention {
    /// [head, query, key]
    values: Vec<f64>,
    queries: usize,
    keys: usize,
}

/// Aligns the words of a generated sentence with those of its source, by the queries that predicted each token.
/// Links are found as OpenAI finds the times of words: each head's weights are taken as deviations from their mean over the
/// target, so that a source token that always has weight (an end of sentence, a full stop) gets no links.
/// `started` is how many tokens the decoder began with; the target's words count tokens from there on.
///
/// # Errors
/// When the input does not fit the model.
pub fn align(
    session: &mut dyn Session,
    input: Input,
    heads: &Heads,
    [source, target]: [&[Word]; 2],
    started: usize,
) -> Result<Alignment, RunError> {
    let mut attention = Attention::of(session, input, heads, AttentionStep::Weights)?;
    let weights = by_words(&attention.mean(), [source, target], started);
    attention.standardise();
    let marked = by_words(&attention.mean(), [source, target], started);
    let link = |(i, to): (usize, &Word)| {
        let words = (0..source.len()).filter(|&j| !to.special && !source[j].special);
        // A target of one token has no deviation: the weight itself decides.
        let order = |a: &usize, b: &usize| {
            marked[i][*a].total_cmp(&marked[i][*b]).then(weights[i][*a].total_cmp(&weights[i][*b]))
        };
        words.max_by(order)
    };
    let links = target.iter().enumerate().map(link).collect();
    Ok(Alignment { weights, links })
}

/// A matrix of tokens, [query, key], as one of words, [target word, source word].
fn by_words(matrix: &[Vec<f64>], [source, target]: [&[Word]; 2], started: usize) -> Vec<Vec<f64>> {
    let cell = |to: &Word, from: &Word| {
        // The query at a token predicts the next one.
        let rows = to.tokens.clone().filter_map(|token| matrix.get(started.saturating_sub(1) + token));
        let sum: f64 = rows.filter_map(|row| row.get(from.tokens.clone())).flatten().sum();
        sum / to.tokens.len().max(1) as f64
    };
    target.iter().map(|to| source.iter().map(|from| cell(to, from)).collect()).collect()
}

impl Attention {
    /// Runs the model once more, with a stage of these heads' cross-attention kept: its scores or its weights.
    fn of(
        session: &mut dyn Session,
        input: Input,
        heads: &Heads,
        stage: AttentionStep,
    ) -> Result<Self, RunError> {
        let prepared = session.prepared();
        let model = prepared.model();
        let layers: BTreeSet<usize> = heads.heads.iter().map(|head| head.layer).collect();
        let node = |layer: usize| {
            let kind = AttentionKind::CrossAttention;
            model.graph.at(AttentionPlace { stack: Stack::Decoder, layer, kind }.step(stage))
        };
        let nodes: Vec<NodeId> = layers.iter().filter_map(|&layer| node(layer)).collect();
        let mut sink = Capture::new(|id| nodes.contains(&id));
        session.run(&Request::new(&CheckedInput::new(model, input)?), &mut sink)?;
        let (mut values, mut queries, mut keys) = (Vec::new(), 0, 0);
        for head in &heads.heads {
            let kept = node(head.layer).and_then(|id| sink.tensors.get(&id)).map(Tensor::to_f64);
            let Some((of_head, shape)) = kept.as_ref().and_then(|kept| one_head(kept, head.head)) else {
                return Err(RunError::NoHead { layer: head.layer, head: head.head });
            };
            [queries, keys] = shape;
            values.extend(of_head);
        }
        Ok(Self { values, queries, keys })
    }

    /// Each head's columns less their mean over queries, over their deviation; 0 where all queries are alike.
    fn standardise(&mut self) {
        let (queries, keys) = (self.queries, self.keys);
        for head in self.values.chunks_mut((queries * keys).max(1)) {
            for key in 0..keys {
                let column = || (0..queries).map(|query| query * keys + key);
                let mean = column().map(|i| head[i]).sum::<f64>() / queries as f64;
                let variance = column().map(|i| (head[i] - mean).powi(2)).sum::<f64>() / queries as f64;
                let scale = if variance > 0.0 { variance.sqrt().recip() } else { 0.0 };
                column().for_each(|i| head[i] = (head[i] - mean) * scale);
            }
        }
    }

    /// The mean over heads, [query, key].
    fn mean(&self) -> Vec<Vec<f64>> {
        let cells = (self.queries * self.keys).max(1);
        let mut mean = vec![0.0; cells];
        let heads = (self.values.len() / cells).max(1) as f64;
        for head in self.values.chunks(cells) {
            mean.iter_mut().zip(head).for_each(|(sum, x)| *sum += x / heads);
        }
        mean.chunks(self.keys.max(1)).map(<[f64]>::to_vec).collect()
    }
}

/// A head of the only row of a batch, and its [queries, keys].
fn one_head(kept: &Kept, head: usize) -> Option<(&[f64], [usize; 2])> {
    let [1, _, queries, keys] = kept.shape[..] else { return None };
    let cells = queries * keys;
    Some((kept.values.get(head * cells..(head + 1) * cells)?, [queries, keys]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_are_alike_say_nothing() {
        let mut attention = Attention { values: vec![1.0, 5.0, 3.0, 5.0], queries: 2, keys: 2 };
        attention.standardise();
        assert_eq!(attention.values, [-1.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn words_take_the_sum_over_the_source_and_the_mean_over_the_target() {
        let word = |tokens| Word { text: String::new(), tokens, special: false };
        // The decoder began with two tokens: the query of the second predicts the first new token.
        let matrix = vec![vec![9.0; 3], vec![0.1, 0.2, 0.7], vec![0.3, 0.4, 0.3]];
        let found = by_words(&matrix, [&[word(0..2), word(2..3)], &[word(0..2)]], 2);
        assert!((found[0][0] - 0.5).abs() < 1e-12 && (found[0][1] - 0.5).abs() < 1e-12, "{found:?}");
    }
}
