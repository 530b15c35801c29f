//! How well models explain sentence pairs: the negative log-likelihood of each target, teacher-forced. Several models of
//! the same weights at once; those with the same encoder run it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attnscope_graph::{Dim, Model, NodeId, Role, Side, Stack, Switch};
use attnscope_run::{
    BETAS, Input, Native, Rows, RunError, Sequence, Shift, Sink, Values, Weights, log_sum_exps, position_room,
};

use crate::corpus::{Corpus, Decoded};

/// One way to run the pairs.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) model: Arc<Model>,
    pub(crate) weights: Weights,
    pub(crate) shift: Shift,
    pub(crate) padding: Padding,
}

/// How far sources are padded. Without a word, rows of one length are run together and nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Not at all.
    None,
    /// To twice their length.
    Twice,
    /// To the longest of all and a little more, as in a batch at random.
    Longest,
}

/// How each pair did, in the order of the corpus.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Scores {
    /// Nats that its labels cost, at every inverse temperature.
    nll: Vec<[f64; BETAS.len()]>,
    /// Nats that the model itself expects to be off: the entropy of what it predicts.
    expected: Vec<f64>,
    /// Labels that were the model's first choice.
    pub(crate) right: Vec<usize>,
}

/// How one row did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Score {
    nll: [f64; BETAS.len()],
    expected: f64,
    right: usize,
}

/// The place of 1 among the inverse temperatures.
const AS_IT_IS: usize = 2;

impl Scores {
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

    /// Nats that each pair costs the model at the temperature that suits it best. Models that were trained with smoothed
    /// labels are less sure of easy sentences than they could be, and like every change that makes them surer; here
    /// that counts for nothing.
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
/// Padding that is "well past" a row's end.
const LEAST_PADDING: usize = 6;

/// Scores every candidate on every pair.
pub(crate) fn score(
    candidates: &[&Candidate],
    corpus: &Corpus,
    progress: &Progress<'_>,
) -> Result<Vec<Scores>, RunError> {
    let batches = batches(candidates, corpus);
    let classes = classes(candidates);
    let work: Vec<(&[usize], &[usize])> = classes
        .iter()
        .flat_map(|class| batches.iter().map(|batch| (class.as_slice(), batch.as_slice())))
        .collect();
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, usize, Score)>, RunError> {
        let mut native = Native::new();
        let mut losses = Vec::new();
        while let Some((class, batch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            losses.extend(score_batch(&mut native, candidates, class, corpus, batch)?);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, work.len());
        }
        Ok(losses)
    };
    let none = Scores {
        nll: vec![[f64::NAN; BETAS.len()]; corpus.len()],
        expected: vec![f64::NAN; corpus.len()],
        right: vec![0; corpus.len()],
    };
    let mut scores = vec![none; candidates.len()];
    for part in on_all_cores(&worker) {
        for (candidate, pair, score) in part? {
            scores[candidate].nll[pair] = score.nll;
            scores[candidate].expected[pair] = score.expected;
            scores[candidate].right[pair] = score.right;
        }
    }
    Ok(scores)
}

/// The same work on every core, each with a pool of one thread: many small runs side by side are faster than one run
/// after the other on all cores. Where the system gives fewer threads (a limit on processes), on those that it gives.
fn on_all_cores<T: Send>(worker: &(dyn Fn() -> T + Sync)) -> Vec<T> {
    let alone = || match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        Ok(pool) => pool.install(worker),
        Err(_) => worker(),
    };
    std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, alone).ok();
        let threads: Vec<_> = (0..rayon::current_num_threads()).map_while(start).collect();
        if threads.is_empty() {
            return vec![alone()];
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// Pairs that are run together: of one source length, so that padding is seen only where it is asked for.
fn batches(candidates: &[&Candidate], corpus: &Corpus) -> Vec<Vec<usize>> {
    let vocabulary =
        candidates.iter().filter_map(|c| c.model.sizes.get(Dim::Vocab(Side::Target))).max().unwrap_or(1);
    // Where nothing hides the end of a longer target from a shorter one.
    let bare = candidates
        .iter()
        .any(|c| c.model.wiring.padding_mask == Switch::Off && c.model.wiring.causal_mask == Switch::Off);
    let length = |pair: usize| (corpus.sources[pair].length(), corpus.targets[pair].len());
    let mut order: Vec<usize> = (0..corpus.len()).collect();
    order.sort_by_key(|&pair| length(pair));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for pair in order {
        let (source, target) = length(pair);
        let fits = |batch: &&mut Vec<usize>| {
            let (first_source, first_target) = length(batch[0]);
            let logits = (batch.len() + 1) * (target + 8) * vocabulary;
            source == first_source && (!bare || target == first_target) && logits <= MOST_LOGITS
        };
        match batches.last_mut().filter(fits) {
            Some(batch) => batch.push(pair),
            None => batches.push(vec![pair]),
        }
    }
    batches
}

/// Candidates by what their encoder computes.
fn classes(candidates: &[&Candidate]) -> Vec<Vec<usize>> {
    let mut classes: Vec<Vec<usize>> = Vec::new();
    for (i, candidate) in candidates.iter().enumerate() {
        match classes.iter_mut().find(|class| same_encoder(candidates[class[0]], candidate)) {
            Some(class) => class.push(i),
            None => classes.push(vec![i]),
        }
    }
    classes
}

/// The same nodes, which name weights by number, and the same elements behind each number.
fn same_encoder(a: &Candidate, b: &Candidate) -> bool {
    let nodes =
        |c: &'_ Candidate| c.model.graph.at(Role::StackOut(Stack::Encoder)).map_or(0, |id| id.index() + 1);
    let n = nodes(a);
    n > 0
        && n == nodes(b)
        && a.padding == b.padding
        && a.model.sizes == b.model.sizes
        && a.model.graph.nodes()[..n] == b.model.graph.nodes()[..n]
        && a.model.graph.nodes()[..n]
            .iter()
            .flat_map(|node| &node.weights)
            .all(|&id| a.weights.same(&b.weights, id))
}

/// The losses of a batch under each candidate of a class: (candidate, pair, loss).
fn score_batch(
    native: &mut Native,
    candidates: &[&Candidate],
    class: &[usize],
    corpus: &Corpus,
    batch: &[usize],
) -> Result<Vec<(usize, usize, Score)>, RunError> {
    let mut encoded: Option<Vec<f32>> = None;
    let mut losses = Vec::new();
    for &i in class {
        let candidate = candidates[i];
        let graph = &candidate.model.graph;
        let shifted = candidate.model.wiring.decoder_shift == Switch::On;
        let decoded: Vec<Decoded> =
            batch.iter().map(|&pair| corpus.decoded(pair, &candidate.shift, shifted)).collect();
        let inputs: Vec<Vec<u32>> = decoded.iter().map(|d| d.input.clone()).collect();
        let target = Rows::checked(&candidate.model, Side::Target, &inputs, corpus.pad)?;
        let input = Input::pair(source(candidate, corpus, batch), target);
        let keep = (encoded.is_none() && class.len() > 1)
            .then(|| graph.at(Role::StackOut(Stack::Encoder)))
            .flatten();
        let mut sink =
            Taker { logits: graph.at(Role::Logits), keep, decoded: &decoded, scores: Vec::new(), kept: None };
        match &encoded {
            Some(known) => {
                native.run_after_encoder(&candidate.model, &candidate.weights, &input, known, &mut sink)?
            }
            None => native.run(&candidate.model, &candidate.weights, &input, &mut sink)?,
        };
        encoded = encoded.or(sink.kept);
        losses.extend(batch.iter().zip(sink.scores).map(|(&pair, score)| (i, pair, score)));
    }
    Ok(losses)
}

/// The sources of a batch. Clips have no padding.
fn source(candidate: &Candidate, corpus: &Corpus, batch: &[usize]) -> Sequence {
    let own = batch.iter().map(|&pair| corpus.sources[pair].length()).max().unwrap_or(0);
    let room = position_room(&candidate.model, Side::Source).unwrap_or(usize::MAX);
    let length = match candidate.padding {
        Padding::None => 0,
        Padding::Twice => (2 * own).max(own + LEAST_PADDING),
        Padding::Longest => corpus.longest_source() + LEAST_PADDING,
    };
    corpus.source(batch, length.min(room))
}

/// Takes the loss of each row off the logits, and the encoder's output where others can use it.
struct Taker<'a> {
    logits: Option<NodeId>,
    keep: Option<NodeId>,
    decoded: &'a [Decoded],
    scores: Vec<Score>,
    kept: Option<Vec<f32>>,
}

impl Sink for Taker<'_> {
    fn wants(&self, node: NodeId) -> bool {
        Some(node) == self.logits || Some(node) == self.keep
    }

    fn held(&self, node: NodeId) -> u64 {
        if Some(node) == self.keep { 4 } else { 0 }
    }

    fn put(&mut self, node: NodeId, shape: &[usize], values: Values<'_>) -> Result<(), RunError> {
        let Values::F32(values) = values else { return Ok(()) };
        if Some(node) == self.keep {
            self.kept = Some(values.to_vec());
        }
        if let (true, &[_, length, width]) = (Some(node) == self.logits, shape) {
            let rows = values.chunks((length * width).max(1)).zip(self.decoded);
            self.scores = rows.map(|(row, decoded)| judge(row, width, decoded)).collect();
        }
        Ok(())
    }
}

/// −Σ ln p(label) over the labels of a row, what the model expects of it, and how many labels come first; `logits` are
/// [position, vocabulary].
fn judge(logits: &[f32], width: usize, decoded: &Decoded) -> Score {
    let rows = logits.chunks(width.max(1)).skip(decoded.first).zip(&decoded.labels);
    let mut score = Score::default();
    for (row, &label) in rows {
        let of_label = surprise(row, label);
        score.nll.iter_mut().zip(of_label.nll).for_each(|(sum, nll)| *sum += nll);
        score.expected += of_label.expected;
        score.right += of_label.right;
    }
    score
}

/// −ln softmax(β·row)[label] for every β, the entropy of softmax(row), and whether nothing in the row is larger.
fn surprise(row: &[f32], label: u32) -> Score {
    let (mut nll, mean) = log_sum_exps(row);
    let expected = nll[AS_IT_IS] - mean;
    let Some(&own) = row.get(label as usize) else {
        return Score { nll: [f64::INFINITY; BETAS.len()], expected, right: 0 };
    };
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    nll.iter_mut().zip(BETAS).for_each(|(nll, beta)| *nll -= beta * f64::from(own));
    Score { nll, expected, right: usize::from(own >= most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_that_of_a_softmax() {
        let row: Vec<f32> = (0..37).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for label in [0, 16, 36] {
            let expected = sum.ln() - f64::from(row[label]);
            assert!((surprise(&row, label as u32).nll[AS_IT_IS] - expected).abs() < 1e-5);
        }
        // The entropy is the mean of −ln p under p.
        let entropy: f64 = row.iter().map(|&x| f64::from(x).exp() / sum * (sum.ln() - f64::from(x))).sum();
        assert!((surprise(&row, 0).expected - entropy).abs() < 1e-5);
        let beyond = surprise(&row, 37);
        assert_eq!((beyond.nll, beyond.right), ([f64::INFINITY; BETAS.len()], 0));
        assert_eq!([1, 0].map(|label| surprise(&[0.5, 2.0, -1.0], label).right), [1, 0]);
    }

    #[test]
    fn only_labels_are_counted() {
        // A prompt of two tokens, then one label; two positions, a vocabulary of two.
        let decoded = Decoded { input: vec![0, 1], labels: vec![1], first: 1 };
        let even = judge(&[9.0, 0.0, 1.0, 1.0], 2, &decoded);
        assert!((even.nll[AS_IT_IS] - 2f64.ln()).abs() < 1e-6 && even.right == 1);
    }

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
