//! How well models explain sentence pairs: the negative log-likelihood of each target, teacher-forced. Several models of
//! the same weights at once; those with the same encoder run it once.

use std::sync::atomic::{AtomicUsize, Ordering};

use attnscope_graph::{Dim, Model, NodeId, Side, Switch};
use attnscope_run::{
    Input, Native, PadSide, Rows, RunError, Shift, Sink, Source, Values, Weights, log_sum_exp, position_room,
};

use crate::corpus::{Corpus, Decoded};

/// One way to run the pairs.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) model: Model,
    pub(crate) weights: Weights,
    pub(crate) shift: Shift,
    pub(crate) padding: Padding,
}

/// How far sources are padded. Without a word, rows of one length are run together and nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    None,
    /// To twice their length.
    Twice,
    /// To the longest of all and a little more, as in a batch at random.
    Longest,
}

/// How each pair did, in the order of the corpus.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Scores {
    /// Nats that its labels cost.
    pub(crate) nll: Vec<f64>,
    /// Labels that were the model's first choice.
    pub(crate) right: Vec<usize>,
}

/// How one row did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Score {
    nll: f64,
    right: usize,
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
    let none = Scores { nll: vec![f64::NAN; corpus.len()], right: vec![0; corpus.len()] };
    let mut scores = vec![none; candidates.len()];
    for part in on_all_cores(&worker) {
        for (candidate, pair, score) in part? {
            scores[candidate].nll[pair] = score.nll;
            scores[candidate].right[pair] = score.right;
        }
    }
    Ok(scores)
}

/// The same work on every core, each with a pool of one thread: many small runs side by side are faster than one run
/// after the other on all cores.
fn on_all_cores<T: Send>(worker: &(dyn Fn() -> T + Sync)) -> Vec<T> {
    let alone = || match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        Ok(pool) => pool.install(worker),
        Err(_) => worker(),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..rayon::current_num_threads()).map(|_| scope.spawn(alone)).collect();
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
    let length = |pair: usize| (corpus.sources[pair].len(), corpus.targets[pair].len());
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
    let nodes = |c: &'_ Candidate| c.model.graph.find("encoder.out").map_or(0, |id| id.index() + 1);
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
        let input = Input {
            source: Source::Tokens(source_rows(candidate, corpus, batch)),
            target: Rows::checked(&candidate.model, Side::Target, &inputs, corpus.pad)?,
        };
        let keep = (encoded.is_none() && class.len() > 1).then(|| graph.find("encoder.out")).flatten();
        let mut sink =
            Taker { logits: graph.find("logits"), keep, decoded: &decoded, scores: Vec::new(), kept: None };
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

fn source_rows(candidate: &Candidate, corpus: &Corpus, batch: &[usize]) -> Rows {
    let rows: Vec<Vec<u32>> = batch.iter().map(|&pair| corpus.sources[pair].clone()).collect();
    let own = rows.iter().map(Vec::len).max().unwrap_or(0);
    let room = position_room(&candidate.model, Side::Source).unwrap_or(usize::MAX);
    let length = match candidate.padding {
        Padding::None => return Rows::new(&rows, corpus.pad),
        Padding::Twice => (2 * own).max(own + LEAST_PADDING),
        Padding::Longest => corpus.sources.iter().map(Vec::len).max().unwrap_or(0) + LEAST_PADDING,
    };
    Rows::padded(&rows, corpus.pad, PadSide::Right, length.min(room))
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

/// −Σ ln p(label) over the labels of a row, and how many come first; `logits` are [position, vocabulary].
fn judge(logits: &[f32], width: usize, decoded: &Decoded) -> Score {
    let rows = logits.chunks(width.max(1)).skip(decoded.first).zip(&decoded.labels);
    rows.fold(Score::default(), |sum, (row, &label)| {
        let (nll, first) = surprise(row, label);
        Score { nll: sum.nll + nll, right: sum.right + usize::from(first) }
    })
}

/// −ln softmax(row)[label], and whether nothing in the row is larger.
fn surprise(row: &[f32], label: u32) -> (f64, bool) {
    let Some(&own) = row.get(label as usize) else { return (f64::INFINITY, false) };
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (log_sum_exp(row) - f64::from(own), own >= most)
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
            assert!((surprise(&row, label as u32).0 - expected).abs() < 1e-6);
        }
        assert_eq!(surprise(&row, 37), (f64::INFINITY, false));
        assert!(surprise(&[0.5, 2.0, -1.0], 1).1 && !surprise(&[0.5, 2.0, -1.0], 0).1);
    }

    #[test]
    fn only_labels_are_counted() {
        // A prompt of two tokens, then one label; two positions, a vocabulary of two.
        let decoded = Decoded { input: vec![0, 1], labels: vec![1], first: 1 };
        let even = judge(&[9.0, 0.0, 1.0, 1.0], 2, &decoded);
        assert!((even.nll - 2f64.ln()).abs() < 1e-6 && even.right == 1);
    }
}
