//! Under which wiring do the weights make sense? Every other plausible wiring of the same weights, judged by how well it
//! explains sentence pairs. A model finds its own training targets likely only when it is joined as it was trained.

mod hypothesis;

use attnscope_graph::Model;
use attnscope_run::{RunError, Weights};
use serde_json::{Map, Value};

use crate::bootstrap::bootstrap;
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
    /// Pairs that both are of.
    pub pairs: usize,
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
    /// Those that cost a finite number as declared. The rest say nothing of a gain.
    pub finite: usize,
    /// Nats a token as declared, over those.
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

/// The changes that were chosen, each with others of its field that do as well, and what they make together.
struct Found {
    changes: Vec<(Change, Vec<Change>)>,
    setup: Setup,
    scores: Scores,
}

impl Found {
    fn has(&self, field: &str) -> bool {
        self.changes.iter().any(|(change, _)| change.field() == field)
    }
}

impl Searcher<'_> {
    fn run(&self) -> Result<Search, RunError> {
        let declared = Setup::declared(self.model, &self.corpus.shift);
        let (nll, first) = self.round(&declared, &|_| true)?;
        let trial = |t: &Tried| {
            let compared = self.compared(t);
            Trial { change: t.change.clone(), nll_declared: compared.before(), nll: compared.after() }
        };
        let trials: Vec<Trial> = first.iter().map(trial).collect();
        let plain = first.iter().find(|t| t.setup.padding == declared.padding);
        let finite = plain.map_or(self.corpus.len(), |t| self.compared(t).tokens.len());
        let telling = self.telling(&first);
        let better = match self.pick(first, self.thresholds.wiring_gain, trials.len()) {
            Some(first) => self.refine(&declared, first, &telling, trials.len())?,
            None => None,
        };
        Ok(Search { pairs: self.corpus.len(), finite, nll, trials, better })
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
        Ok((Compared::new(&scores[0], &scores[0], &self.tokens).before(), tried))
    }

    /// The largest gain that is sure and `least` nats a token at the least, with what does as well. `hypotheses` are all
    /// that were looked at: who stands in a later round was chosen from them.
    fn pick(&self, tried: Vec<Tried>, least: f64, hypotheses: usize) -> Option<(Tried, Vec<Change>)> {
        let mut gaining = tried.iter().take_while(|t| self.raw_gain(t) >= least);
        let sure = gaining.find(|t| self.is_sure(t, least, hypotheses))?;
        // That the field is wrong is sure by one of its values; which one it should have is told by the largest gain.
        let of_field = |t: &&Tried| {
            t.change.field() == sure.change.field()
                && t.setup.padding == sure.setup.padding
                && self.nll(t) <= self.nll(sure)
        };
        let best = tried.iter().find(of_field).unwrap_or(sure);
        let (nll, field, padding) = (self.nll(best), best.change.field(), best.setup.padding);
        let as_good = |t: &Tried| {
            (self.nll(t) - nll).abs() < TIE && t.setup.padding == padding && t.change.field() == field
        };
        let mut tied: Vec<Tried> = tried.into_iter().filter(as_good).collect();
        // Of values that do as well as each other, the family's own is the likeliest.
        let usual = Setup::usual(self.model, &self.corpus.shift).get(field);
        let chosen = tied.iter().position(|t| t.setup.get(field) == usual).unwrap_or(0);
        let best = tied.remove(chosen);
        Some((best, tied.into_iter().map(|t| t.change).collect()))
    }

    /// The best change of each field that gains something by itself: what is combined.
    fn telling(&self, tried: &[Tried]) -> Vec<Change> {
        let mut best: Vec<Change> = Vec::new();
        for t in tried.iter().filter(|t| self.raw_gain(t) >= self.thresholds.wiring_gain) {
            if best.iter().all(|change| change.field() != t.change.field()) && best.len() <= RUNNERS_UP {
                best.push(t.change.clone());
            }
        }
        best
    }

    /// Adds change after change as long as each explains more.
    fn refine(
        &self,
        declared: &Setup,
        first: (Tried, Vec<Change>),
        telling: &[Change],
        hypotheses: usize,
    ) -> Result<Option<Better>, RunError> {
        let (Tried { change, setup, scores, .. }, ties) = first;
        let mut found = Found { changes: vec![(change, ties)], setup, scores };
        while found.changes.len() < MOST_CHANGES {
            let others: Vec<&Change> = telling.iter().filter(|c| !found.has(c.field())).collect();
            if others.is_empty() {
                break;
            }
            let (_, mut tried) = self.round(&found.setup, &|c| others.contains(&c))?;
            tried.retain(is_more_right);
            let least = FURTHER * self.thresholds.wiring_gain;
            let Some((next, _)) = self.pick(tried, least, hypotheses) else { break };
            found.changes.push((next.change, Vec::new()));
            (found.setup, found.scores) = (next.setup, next.scores);
        }
        if found.changes.len() > 1 {
            self.polish(declared, &mut found)?;
        }
        self.better(declared, found, hypotheses)
    }

    /// A field was chosen while another was still wrong: once more among its values, now that none is. A field whose
    /// declared value turns out to do best is none that is wrong.
    fn polish(&self, declared: &Setup, found: &mut Found) -> Result<(), RunError> {
        for n in 0..found.changes.len() {
            let field = found.changes[n].0.field();
            let of_field = |c: &Change| c.field() == field && c.padding == Padding::None;
            let (mut nll, mut tried) = self.round(&found.setup, &of_field)?;
            if tried.first().is_some_and(|t| self.raw_gain(t) > TIE) {
                let best = tried.remove(0);
                nll = self.nll(&best);
                found.changes[n].0 = best.change;
                (found.setup, found.scores) = (best.setup, best.scores);
            }
            let as_good = |t: &Tried| (self.nll(t) - nll).abs() < TIE && t.change.differs(&t.setup, declared);
            found.changes[n].1 = tried.into_iter().filter(as_good).map(|t| t.change).collect();
        }
        let setup = &found.setup;
        found.changes.retain(|(change, _)| change.differs(setup, declared));
        Ok(())
    }

    /// What was found, against what is declared.
    fn better(&self, declared: &Setup, found: Found, hypotheses: usize) -> Result<Option<Better>, RunError> {
        let Found { changes, setup, scores } = found;
        let Some((first, _)) = changes.first() else { return Ok(None) };
        let plain = declared.padded(setup.padding);
        let candidate = |setup: &Setup| setup.candidate(self.model, self.weights, self.corpus);
        let (Some(base), Some(best)) = (candidate(&plain), candidate(&setup)) else { return Ok(None) };
        let base = score(&[&base], self.corpus, &|_, _| ())?.swap_remove(0);
        let (mut before, mut after) = (Map::new(), Map::new());
        for (change, _) in &changes {
            change.shown(declared, &mut before);
            change.shown(&setup, &mut after);
        }
        let tried = Tried { change: first.clone(), setup, base, scores };
        let compared = self.compared(&tried);
        let ties = changes.first().map(|(_, ties)| ties.clone()).unwrap_or_default();
        Ok(Some(Better {
            changes: changes.into_iter().map(|(change, _)| change).collect(),
            declared: before,
            best: after,
            nll_declared: compared.before(),
            nll_best: compared.after(),
            pairs: compared.tokens.len(),
            p: compared.p(&compared.plain_gains(), hypotheses),
            ties,
            candidate: best,
        }))
    }

    fn compared(&self, tried: &Tried) -> Compared {
        Compared::new(&tried.base, &tried.scores, &self.tokens)
    }

    /// Nats a token with a change.
    fn nll(&self, tried: &Tried) -> f64 {
        self.compared(tried).after()
    }

    /// Nats a token that a change gains at each one's best temperature.
    fn raw_gain(&self, tried: &Tried) -> f64 {
        let compared = self.compared(tried);
        compared.mean(&compared.gains(&tried.change))
    }

    /// Whether a change gains `least` nats a token at the least, and surely.
    fn is_sure(&self, tried: &Tried, least: f64, hypotheses: usize) -> bool {
        let compared = self.compared(tried);
        let gains = compared.gains(&tried.change);
        let least = if is_temperature(&tried.change) { TEMPERATURE * least } else { least };
        // The costs as they are must fall too: they are what the report speaks of.
        compared.mean(&gains) >= least
            && compared.after() < compared.before()
            && compared.p(&gains, hypotheses) <= self.thresholds.wiring_p
    }
}

/// The scale of logits is a temperature itself, and is judged by the costs as they are.
fn is_temperature(change: &Change) -> bool {
    change.field() == "logit_scale"
}

/// Two ways on the pairs that cost the first a finite number. The second is none the better for what it loses: one pair
/// that costs it no number, and its mean is none.
struct Compared {
    base: Scores,
    scores: Scores,
    tokens: Vec<usize>,
}

impl Compared {
    fn new(base: &Scores, scores: &Scores, tokens: &[usize]) -> Self {
        let nll = base.nll();
        let finite: Vec<usize> = (0..nll.len()).filter(|&pair| nll[pair].is_finite()).collect();
        let tokens = finite.iter().map(|&pair| tokens[pair]).collect();
        Self { base: base.only(&finite), scores: scores.only(&finite), tokens }
    }

    /// A sum a token; NaN where no pair is left.
    fn mean(&self, sums: &[f64]) -> f64 {
        sums.iter().sum::<f64>() / self.tokens.iter().sum::<usize>() as f64
    }

    fn before(&self) -> f64 {
        self.mean(&self.base.nll())
    }

    fn after(&self) -> f64 {
        self.mean(&self.scores.nll())
    }

    /// What each pair gains by a change.
    fn gains(&self, change: &Change) -> Vec<f64> {
        match is_temperature(change) {
            true => self.plain_gains(),
            false => difference(&self.base.calibrated(), &self.scores.calibrated()),
        }
    }

    /// What each pair gains with costs as they are.
    fn plain_gains(&self) -> Vec<f64> {
        difference(&self.base.nll(), &self.scores.nll())
    }

    /// How likely gains are none, corrected by Bonferroni.
    fn p(&self, gains: &[f64], hypotheses: usize) -> f64 {
        (bootstrap(gains, &self.tokens, RESAMPLES).p * hypotheses as f64).min(1.0)
    }
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_lost_as_declared_is_left_out_and_one_that_a_change_loses_is_not() {
        let compared = |base: &[f64], scores: &[f64]| {
            Compared::new(&Scores::even(base), &Scores::even(scores), &[2, 2, 4])
        };
        let cured = compared(&[4.0, f64::NAN, 8.0], &[2.0, 1.0, 4.0]);
        assert_eq!((cured.before(), cured.after(), cured.plain_gains()), (2.0, 1.0, vec![2.0, 4.0]));
        let lost = compared(&[4.0, 6.0, 8.0], &[2.0, f64::NAN, 4.0]);
        assert!(lost.before() == 2.25 && lost.after().is_nan());
        assert!(compared(&[f64::NAN; 3], &[1.0; 3]).before().is_nan());
    }
}
