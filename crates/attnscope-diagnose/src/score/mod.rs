//! How well models explain sentence pairs: the teacher-forced negative log-likelihood of each target. Scores several similar
//! models together; what they have in common is computed once.

mod clip;
mod labels;
mod shared;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attnscope_graph::{Dim, Model, Side, Stack};
use attnscope_run::{BETAS, Prepared, RunError, Shift, on_all_cores};

use crate::corpus::Corpus;
pub use clip::{Clip, encoder_output};
use labels::Score;
pub use labels::nll_of_labels;
use shared::{Class, Worker};

/// One way to run the pairs.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) prepared: Arc<dyn Prepared>,
    pub(crate) shift: Shift,
    pub(crate) padding: Padding,
}

impl Candidate {
    /// The model as it is declared.
    pub(crate) fn declared(declared: &dyn Prepared, shift: &Shift) -> Result<Self, RunError> {
        let model = declared.model();
        let own = model.rewired(&model.wiring, None);
        let weights = declared.weights().reordered(&model.graph, &own.graph);
        let weights = weights.ok_or_else(|| RunError::Obstacle("its weights are not complete".into()))?;
        let prepared = declared.again(own.into(), weights)?;
        Ok(Self { prepared, shift: shift.clone(), padding: Padding::None })
    }

    pub(crate) fn model(&self) -> &Model {
        self.prepared.model()
    }
}

/// How far sources are padded. By default rows of one length form a batch without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Not at all.
    None,
    /// To twice their length.
    Twice,
    /// To the longest of all and a little more, as in a random batch.
    Longest,
}

/// The score of each pair, in the order of the corpus.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Scores {
    /// Nats that its labels cost, at every inverse temperature.
    nll: Vec<[f64; BETAS.len()]>,
    /// The NLL that the model expects: the entropy of its predictions.
    expected: Vec<f64>,
    /// Labels that were the model's first choice.
    pub(crate) right: Vec<usize>,
}

/// The place of 1 among the inverse temperatures.
const AS_IT_IS: usize = 2;

impl Scores {
    /// Of so many pairs, none of which was run.
    pub(crate) fn none(pairs: usize) -> Self {
        Self {
            nll: vec![[f64::NAN; BETAS.len()]; pairs],
            expected: vec![f64::NAN; pairs],
            right: vec![0; pairs],
        }
    }

    /// Puts the scores of some pairs in.
    pub(crate) fn put(&mut self, pairs: &[usize], scores: &Self) {
        for (n, &pair) in pairs.iter().enumerate() {
            self.nll[pair] = scores.nll[n];
            self.expected[pair] = scores.expected[n];
            self.right[pair] = scores.right[n];
        }
    }

    /// Those of some pairs.
    pub(crate) fn only(&self, pairs: &[usize]) -> Self {
        Self {
            nll: pairs.iter().map(|&pair| self.nll[pair]).collect(),
            expected: pairs.iter().map(|&pair| self.expected[pair]).collect(),
            right: pairs.iter().map(|&pair| self.right[pair]).collect(),
        }
    }

    /// The same cost at every temperature.
    #[cfg(test)]
    pub(crate) fn even(nll: &[f64]) -> Self {
        let even = nll.iter().map(|&nll| [nll; BETAS.len()]).collect();
        Self { nll: even, expected: nll.to_vec(), right: vec![0; nll.len()] }
    }

    /// Nats that each pair costs the model as it is.
    pub(crate) fn nll(&self) -> Vec<f64> {
        self.nll.iter().map(|nll| nll[AS_IT_IS]).collect()
    }

    /// Nats that the model expects each pair to cost.
    pub(crate) fn expected(&self) -> &[f64] {
        &self.expected
    }

    /// The NLL of each pair at the model's best temperature. Models that were trained with label smoothing are less confident
    /// than they could be, so that every change that makes them more confident would seem a gain; this removes that effect.
    pub(crate) fn calibrated(&self) -> Vec<f64> {
        let total = |i: usize| self.nll.iter().map(|nll| nll[i]).sum::<f64>();
        let totals: Vec<f64> = (0..BETAS.len()).map(total).collect();
        let least = (0..totals.len()).min_by(|&a, &b| totals[a].total_cmp(&totals[b])).unwrap_or(AS_IT_IS);
        let weights = parabola(&totals, least);
        self.nll
            .iter()
            .map(|nll| nll.iter().zip(&weights).map(|(n, w)| if *w == 0.0 { 0.0 } else { n * w }).sum())
            .collect()
    }
}

/// Weights of the values at each inverse temperature that give the value at the bottom of the parabola, in ln β, through
/// the least and its neighbours.
fn parabola(totals: &[f64], least: usize) -> [f64; BETAS.len()] {
    let mut weights = [0.0; BETAS.len()];
    if least == 0 || least + 1 == BETAS.len() || !totals.iter().all(|t| t.is_finite()) {
        weights[least] = 1.0;
        return weights;
    }
    let [a, b, c] = [least - 1, least, least + 1].map(|i| BETAS[i].ln());
    let [fa, fb, fc] = [least - 1, least, least + 1].map(|i| totals[i]);
    let (left, right) = ((b - a) * (fb - fc), (b - c) * (fb - fa));
    let bottom = b - 0.5 * ((b - a) * left - (b - c) * right) / (left - right);
    let at = if bottom.is_finite() { bottom.clamp(a, c) } else { b };
    weights[least - 1] = (at - b) * (at - c) / ((a - b) * (a - c));
    weights[least] = (at - a) * (at - c) / ((b - a) * (b - c));
    weights[least + 1] = (at - a) * (at - b) / ((c - a) * (c - b));
    weights
}

/// Called with how much of the work is done, from any thread.
pub type Progress<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Logits that are held at once.
const MOST_LOGITS: usize = 1 << 22;
/// Candidates that are run one after the other by one thread: few, so that every thread has something to do.
const TOGETHER: usize = 4;

/// Scores every candidate on every pair. What candidates have in common with the first one of the same padding is computed
/// once, so the declared model should come first.
pub(crate) fn score(
    candidates: &[&Candidate],
    corpus: &Corpus,
    progress: &Progress<'_>,
) -> Result<Vec<Scores>, RunError> {
    let batches = batches(candidates, corpus);
    let classes = Class::all(candidates);
    let reads_audio = candidates.iter().any(|c| c.model().graph.reads_audio());
    let work = parts(&classes, batches.len(), reads_audio);
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, usize, Score)>, RunError> {
        let mut worker = Worker::new(candidates, corpus);
        let mut losses = Vec::new();
        while let Some(part) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let class = &classes[part.class];
            losses.extend(worker.score(class, part.members.clone(), &batches[part.batch])?);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, work.len());
        }
        Ok(losses)
    };
    let mut scores = vec![Scores::none(corpus.len()); candidates.len()];
    for part in on_all_cores(&worker) {
        for (candidate, pair, score) in part? {
            scores[candidate].nll[pair] = score.nll;
            scores[candidate].expected[pair] = score.expected;
            scores[candidate].right[pair] = score.right;
        }
    }
    Ok(scores)
}

/// Some members of a class on one batch.
struct Part {
    class: usize,
    batch: usize,
    members: Range<usize>,
}

/// All work, so that a thread mostly stays with a batch: it then has what the candidates have in common. Clips take long to
/// encode: there no two threads share a batch, unless there are fewer batches than threads.
fn parts(classes: &[Class], batches: usize, reads_audio: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    for (class, members) in classes.iter().enumerate() {
        let count = members.len();
        let together = match reads_audio {
            true => (count * batches).div_ceil(rayon::current_num_threads().max(1)).max(TOGETHER),
            false => TOGETHER,
        };
        for batch in 0..batches {
            let starts = (0..count).step_by(together);
            parts.extend(starts.map(|from| Part {
                class,
                batch,
                members: from..(from + together).min(count),
            }));
        }
    }
    parts
}

/// Pairs that are run together: of one source length, so that padding is seen only where it is asked for.
fn batches(candidates: &[&Candidate], corpus: &Corpus) -> Vec<Vec<usize>> {
    let vocabulary =
        candidates.iter().filter_map(|c| c.model().sizes.get(Dim::Vocab(Side::Target))).max().unwrap_or(1);
    // Where nothing hides the end of a longer target from a shorter one.
    let bare = candidates.iter().any(|c| c.model().graph.self_mask(Stack::Decoder).is_none());
    // A clip is as much work as many sentences: alone it keeps one more thread busy.
    let reads_audio = candidates.iter().any(|c| c.model().graph.reads_audio());
    let length = |pair: usize| (corpus.source_length(pair), corpus.targets[pair].len());
    let mut order: Vec<usize> = (0..corpus.len()).collect();
    order.sort_by_key(|&pair| length(pair));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for pair in order {
        let (source, target) = length(pair);
        let fits = |batch: &&mut Vec<usize>| {
            let (first_source, first_target) = length(batch[0]);
            let logits = (batch.len() + 1) * (target + 8) * vocabulary;
            !reads_audio
                && source == first_source
                && (!bare || target == first_target)
                && logits <= MOST_LOGITS
        };
        match batches.last_mut().filter(fits) {
            Some(batch) => batch.push(pair),
            None => batches.push(vec![pair]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::labels::judge;
    use super::*;
    use crate::corpus::Decoded;

    /// Logits that are right 9 times of 10 and too small by a factor: the best temperature makes up for it.
    #[test]
    fn a_model_that_is_too_modest_loses_nothing() {
        let scores = |scale: f64| {
            let row = |label: u32| {
                judge(
                    &[(scale * 9f64.ln()) as f32, 0.0],
                    2,
                    &Decoded { input: vec![], labels: vec![label], first: 0 },
                )
            };
            let rows: Vec<Score> = (0..10).map(|i| row(u32::from(i == 0))).collect();
            Scores { nll: rows.iter().map(|s| s.nll).collect(), ..Scores::even(&[0.0; 10]) }
        };
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / 10.0;
        let best = -(0.9 * 0.9f64.ln() + 0.1 * 0.1f64.ln());
        for scale in [0.6, 0.8, 1.0, 1.3] {
            assert!((mean(scores(scale).calibrated()) - best).abs() < 2e-3, "{scale}");
        }
        assert!(mean(scores(0.6).nll()) > best + 0.02);
    }
}
