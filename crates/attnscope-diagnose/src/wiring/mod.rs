//! Under which wiring do the weights make sense? Every other plausible wiring of the same weights, judged by how well it
//! explains sentence pairs. A model finds its own training targets likely only when it is joined as it was trained.

mod hypothesis;

use attnscope_graph::Model;
use attnscope_run::{RunError, Weights};
use serde_json::{Map, Value};

use crate::bootstrap::{Estimate, bootstrap};
use crate::corpus::Corpus;
use crate::score::{Candidate, Padding, Progress, Scores, score};
use crate::thresholds::Thresholds;
pub use hypothesis::Change;
use hypothesis::{Setup, changes};

/// Changes that are combined at the most.
const MOST_CHANGES: usize = 3;
/// Enough that p can fall below 0.001 after a correction for a hundred hypotheses.
const RESAMPLES: usize = 100_000;
/// Nats a token within which two explanations are as good as each other.
const TIE: f64 = 0.002;

/// One hypothesis and how it did.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What was changed.
    pub change: Change,
    /// Nats a token as declared, on the same rows.
    pub nll_declared: f64,
    /// Nats a token with the change.
    pub nll: f64,
}

/// The changes that explain the weights better than what is declared.
#[derive(Debug)]
pub struct Better {
    /// What was changed, the most telling first.
    pub changes: Vec<Change>,
    /// The changed fields as they are declared.
    pub declared: Map<String, Value>,
    /// And as the weights were trained.
    pub best: Map<String, Value>,
    /// Nats a token as declared.
    pub nll_declared: f64,
    /// Nats a token with the changes.
    pub nll_best: f64,
    /// How likely the gain is none, corrected for the number of hypotheses.
    pub p: f64,
    /// Changes that do as well as the first.
    pub ties: Vec<Change>,
    /// The model under the better wiring.
    pub(crate) candidate: Candidate,
}

/// What came of the search.
#[derive(Debug)]
pub struct Search {
    /// Sentence pairs.
    pub pairs: usize,
    /// Nats a token as declared.
    pub nll: f64,
    /// Every single change, the best first.
    pub trials: Vec<Trial>,
    /// The better wiring, if there is one.
    pub better: Option<Better>,
}

/// Tries every other wiring of a model's weights on sentence pairs.
///
/// # Errors
/// When the pairs do not fit the model.
pub fn search(
    model: &Model,
    weights: &Weights,
    corpus: &Corpus,
    thresholds: &Thresholds,
    progress: &Progress<'_>,
) -> Result<Search, RunError> {
    let searcher = Searcher { model, weights, corpus, thresholds, progress, tokens: corpus.tokens() };
    searcher.run()
}

/// Whether a further change is more than a better temperature: a model that was trained with smoothed labels likes every
/// change that makes it surer of itself. The scale of the logits is one, and has nothing else to show for it.
fn is_more_right(tried: &Tried) -> bool {
    let right = |scores: &Scores| scores.right.iter().sum::<usize>();
    let (before, after) = (right(&tried.base), right(&tried.scores));
    after > before || (after == before && tried.change.field() == "logit_scale")
}

struct Searcher<'a> {
    model: &'a Model,
    weights: &'a Weights,
    corpus: &'a Corpus,
    thresholds: &'a Thresholds,
    progress: &'a Progress<'a>,
    /// Labels of each pair.
    tokens: Vec<usize>,
}

/// A change that was tried from some setup.
struct Tried {
    change: Change,
    setup: Setup,
    base: Scores,
    scores: Scores,
}

impl Searcher<'_> {
    fn run(&self) -> Result<Search, RunError> {
        let declared = Setup::declared(self.model, &self.corpus.shift);
        let (nll, first) = self.round(&declared, &[])?;
        let hypotheses = first.len();
        let trial = |t: &Tried| Trial {
            change: t.change.clone(),
            nll_declared: self.mean(&t.base),
            nll: self.mean(&t.scores),
        };
        let trials = first.iter().map(trial).collect();
        let better = match self.pick(first) {
            Some((best, ties)) => self.refine(&declared, best, ties, hypotheses)?,
            None => None,
        };
        Ok(Search { pairs: self.corpus.len(), nll, trials, better })
    }

    /// Every single change of a setup but for the fields that are settled, the largest gain first, and what the setup
    /// itself costs.
    fn round(&self, from: &Setup, settled: &[&str]) -> Result<(f64, Vec<Tried>), RunError> {
        let options: Vec<(Change, Setup, Candidate)> = changes(self.model, self.weights, from)
            .into_iter()
            .filter(|change| !settled.contains(&change.field()))
            .filter_map(|change| {
                let setup = from.with(&change)?;
                let candidate = setup.candidate(self.model, self.weights, self.corpus)?;
                Some((change, setup, candidate))
            })
            .collect();
        // What the setup itself costs on rows as each change wants them padded.
        let mut paddings = vec![from.padding];
        for (_, setup, _) in &options {
            if !paddings.contains(&setup.padding) {
                paddings.push(setup.padding);
            }
        }
        let base = |&padding: &Padding| from.padded(padding).candidate(self.model, self.weights, self.corpus);
        let Some(bases) = paddings.iter().map(base).collect::<Option<Vec<Candidate>>>() else {
            return Err(RunError::Obstacle("the pairs do not fit its positions".into()));
        };
        let all: Vec<&Candidate> = bases.iter().chain(options.iter().map(|(_, _, c)| c)).collect();
        let mut losses = score(&all, self.corpus, self.progress)?;
        let tried = losses.split_off(bases.len());
        let mut tried: Vec<Tried> = options
            .into_iter()
            .zip(tried)
            .map(|((change, setup, _), own)| {
                let at = paddings.iter().position(|p| *p == setup.padding).unwrap_or(0);
                Tried { change, setup, base: losses[at].clone(), scores: own }
            })
            .collect();
        let gain = |t: &Tried| self.mean(&t.base) - self.mean(&t.scores);
        tried.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        tried.sort_by_key(|t| gain(t).is_nan());
        Ok((self.mean(&losses[0]), tried))
    }

    /// The largest gain, if it is large enough and sure, with what does as well.
    fn pick(&self, tried: Vec<Tried>) -> Option<(Tried, Vec<Change>)> {
        let hypotheses = tried.len();
        let mut tried = tried.into_iter();
        let best = tried.next()?;
        let gain = self.gain(&best.base, &best.scores, hypotheses);
        if !(gain.mean >= self.thresholds.wiring_gain && gain.p <= self.thresholds.wiring_p) {
            return None;
        }
        let nll = self.mean(&best.scores);
        let as_good = |t: &Tried| {
            (self.mean(&t.scores) - nll).abs() < TIE
                && t.setup.padding == best.setup.padding
                && t.change.field() == best.change.field()
        };
        let ties = tried.filter(as_good).map(|t| t.change).collect();
        Some((best, ties))
    }

    /// Adds change after change as long as each explains more.
    fn refine(
        &self,
        declared: &Setup,
        first: Tried,
        ties: Vec<Change>,
        hypotheses: usize,
    ) -> Result<Option<Better>, RunError> {
        let mut changes = vec![first.change];
        let (mut setup, mut losses) = (first.setup, first.scores);
        while changes.len() < MOST_CHANGES {
            let fields: Vec<&str> = changes.iter().map(Change::field).collect();
            let (_, mut tried) = self.round(&setup, &fields)?;
            tried.retain(is_more_right);
            let Some((next, _)) = self.pick(tried) else { break };
            changes.push(next.change);
            (setup, losses) = (next.setup, next.scores);
        }
        let plain = declared.padded(setup.padding);
        let candidate = |setup: &Setup| setup.candidate(self.model, self.weights, self.corpus);
        let (Some(base), Some(best)) = (candidate(&plain), candidate(&setup)) else { return Ok(None) };
        let base = score(&[&base], self.corpus, &|_, _| ())?.swap_remove(0);
        let gain = self.gain(&base, &losses, hypotheses);
        let (mut before, mut after) = (Map::new(), Map::new());
        for change in &changes {
            change.shown(declared, &mut before);
            change.shown(&setup, &mut after);
        }
        Ok(Some(Better {
            changes,
            declared: before,
            best: after,
            nll_declared: self.mean(&base),
            nll_best: self.mean(&losses),
            p: gain.p,
            ties,
            candidate: best,
        }))
    }

    fn mean(&self, scores: &Scores) -> f64 {
        scores.nll.iter().sum::<f64>() / self.tokens.iter().sum::<usize>().max(1) as f64
    }

    /// Nats a token that are gained, with p corrected by Bonferroni.
    fn gain(&self, base: &Scores, scores: &Scores, hypotheses: usize) -> Estimate {
        let gains: Vec<f64> = base.nll.iter().zip(&scores.nll).map(|(a, b)| a - b).collect();
        let estimate = bootstrap(&gains, &self.tokens, RESAMPLES);
        Estimate { p: (estimate.p * hypotheses as f64).min(1.0), ..estimate }
    }
}
