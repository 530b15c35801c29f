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
/// Fields that the best change may be combined with.
const RUNNERS_UP: usize = 3;
/// Enough that p can fall below 0.001 after a correction for a hundred hypotheses.
const RESAMPLES: usize = 100_000;
/// Nats a token within which two explanations are as good as each other.
const TIE: f64 = 0.001;
/// How much more the scale of logits must gain, which any mood of the sentences at hand moves a little.
const TEMPERATURE: f64 = 10.0;
/// How much more a further change must gain than the first: near ties add up to something when one looks for them.
const FURTHER: f64 = 2.0;

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
        let (nll, first) = self.round(&declared, &|_| true)?;
        let trial = |t: &Tried| Trial {
            change: t.change.clone(),
            nll_declared: self.mean(&t.base),
            nll: self.mean(&t.scores),
        };
        let trials: Vec<Trial> = first.iter().map(trial).collect();
        let others = self.runners_up(&first);
        let better = match self.pick(first, self.thresholds.wiring_gain, trials.len()) {
            Some((best, ties)) => self.refine(&declared, best, ties, &others, trials.len())?,
            None => None,
        };
        Ok(Search { pairs: self.corpus.len(), nll, trials, better })
    }

    /// Some changes of a setup, the largest gain first, and what the setup itself costs.
    fn round(&self, from: &Setup, wanted: &dyn Fn(&Change) -> bool) -> Result<(f64, Vec<Tried>), RunError> {
        let options: Vec<(Change, Setup, Candidate)> = changes(self.model, self.weights, from)
            .into_iter()
            .filter(wanted)
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
        let mut scores = score(&all, self.corpus, self.progress)?;
        let own = scores.split_off(bases.len());
        let tried = |((change, setup, _), scored): ((Change, Setup, Candidate), Scores)| {
            let at = paddings.iter().position(|p| *p == setup.padding).unwrap_or(0);
            Tried { change, setup, base: scores[at].clone(), scores: scored }
        };
        let mut tried: Vec<Tried> = options.into_iter().zip(own).map(tried).collect();
        // What gives no number comes last.
        tried.sort_by(|a, b| {
            let gain =
                |t: &Tried| Some(self.raw_gain(t)).filter(|g| g.is_finite()).unwrap_or(f64::NEG_INFINITY);
            gain(b).total_cmp(&gain(a))
        });
        Ok((self.mean(&scores[0]), tried))
    }

    /// The largest gain, if it is sure and `least` nats a token at the least, with what does as well. `hypotheses` are all
    /// that were looked at: who stands in a later round was chosen from them.
    fn pick(&self, tried: Vec<Tried>, least: f64, hypotheses: usize) -> Option<(Tried, Vec<Change>)> {
        let best = tried.first()?;
        let gain = self.estimate(&self.gains(best), hypotheses);
        let scale = best.change.field() == "logit_scale";
        let least = if scale { TEMPERATURE * least } else { least };
        // The costs as they are must fall too: they are what the report speaks of.
        let falls = self.mean(&best.scores) < self.mean(&best.base);
        if !(gain.mean >= least && gain.p <= self.thresholds.wiring_p && falls) {
            return None;
        }
        let (nll, field, padding) = (self.mean(&best.scores), best.change.field(), best.setup.padding);
        let as_good = |t: &Tried| {
            (self.mean(&t.scores) - nll).abs() < TIE
                && t.setup.padding == padding
                && t.change.field() == field
        };
        let mut tied: Vec<Tried> = tried.into_iter().filter(as_good).collect();
        // Of values that do as well as each other, the family's own is the likeliest.
        let usual = Setup::usual(self.model, &self.corpus.shift).get(field);
        let chosen = tied.iter().position(|t| t.setup.get(field) == usual).unwrap_or(0);
        let best = tied.remove(chosen);
        Some((best, tied.into_iter().map(|t| t.change).collect()))
    }

    /// The best change of each other field that gains something by itself: what the best may be combined with.
    fn runners_up(&self, tried: &[Tried]) -> Vec<Change> {
        let mut fields = Vec::from_iter(tried.first().map(|t| t.change.field()));
        let mut best = Vec::new();
        for t in tried.iter().filter(|t| self.raw_gain(t) >= self.thresholds.wiring_gain) {
            if !fields.contains(&t.change.field()) && best.len() < RUNNERS_UP {
                fields.push(t.change.field());
                best.push(t.change.clone());
            }
        }
        best
    }

    /// Adds change after change as long as each explains more.
    fn refine(
        &self,
        declared: &Setup,
        first: Tried,
        ties: Vec<Change>,
        others: &[Change],
        hypotheses: usize,
    ) -> Result<Option<Better>, RunError> {
        let mut changes = vec![first.change];
        let (mut setup, mut scores) = (first.setup, first.scores);
        while changes.len() < MOST_CHANGES && !others.is_empty() {
            let (_, mut tried) = self.round(&setup, &|c| others.contains(c) && !changes.contains(c))?;
            tried.retain(is_more_right);
            let least = FURTHER * self.thresholds.wiring_gain;
            let Some((next, _)) = self.pick(tried, least, hypotheses) else { break };
            changes.push(next.change);
            (setup, scores) = (next.setup, next.scores);
        }
        if changes.len() > 1 {
            (changes, setup, scores) = self.polish(changes, setup, scores)?;
        }
        let plain = declared.padded(setup.padding);
        let candidate = |setup: &Setup| setup.candidate(self.model, self.weights, self.corpus);
        let (Some(base), Some(best)) = (candidate(&plain), candidate(&setup)) else { return Ok(None) };
        let base = score(&[&base], self.corpus, &|_, _| ())?.swap_remove(0);
        let gains: Vec<f64> = base.nll().iter().zip(scores.nll()).map(|(a, b)| a - b).collect();
        let gain = self.estimate(&gains, hypotheses);
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
            nll_best: self.mean(&scores),
            p: gain.p,
            ties,
            candidate: best,
        }))
    }

    /// A field was chosen while another was still wrong: once more among its values, now that none is.
    fn polish(
        &self,
        mut changes: Vec<Change>,
        mut setup: Setup,
        mut scores: Scores,
    ) -> Result<(Vec<Change>, Setup, Scores), RunError> {
        for change in &mut changes {
            let field = change.field();
            let (_, tried) = self.round(&setup, &|c| c.field() == field && c.padding == Padding::None)?;
            if let Some(best) = tried.into_iter().next().filter(|t| self.raw_gain(t) > 0.0) {
                *change = best.change;
                (setup, scores) = (best.setup, best.scores);
            }
        }
        Ok((changes, setup, scores))
    }

    /// Nats a token that a change gains at each one's best temperature.
    fn raw_gain(&self, tried: &Tried) -> f64 {
        self.gains(tried).iter().sum::<f64>() / self.tokens.iter().sum::<usize>().max(1) as f64
    }

    /// What each pair gains. The scale of logits is a temperature itself, and is judged by the costs as they are.
    fn gains(&self, tried: &Tried) -> Vec<f64> {
        let (base, own) = match tried.change.field() {
            "logit_scale" => (tried.base.nll(), tried.scores.nll()),
            _ => (tried.base.calibrated(), tried.scores.calibrated()),
        };
        base.iter().zip(&own).map(|(a, b)| a - b).collect()
    }

    fn mean(&self, scores: &Scores) -> f64 {
        scores.nll().iter().sum::<f64>() / self.tokens.iter().sum::<usize>().max(1) as f64
    }

    /// Nats a token that are gained, with p corrected by Bonferroni.
    fn estimate(&self, gains: &[f64], hypotheses: usize) -> Estimate {
        let estimate = bootstrap(gains, &self.tokens, RESAMPLES);
        Estimate { p: (estimate.p * hypotheses as f64).min(1.0), ..estimate }
    }
}
