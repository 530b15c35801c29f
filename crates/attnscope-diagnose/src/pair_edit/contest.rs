//! The declared model on edited pairs, against other wirings and repairs of the weights on the pairs as they are.

use attnscope_run::{Prepared, RunError, Tokenizer};

use super::{EditedPairs, PairEdit, Rival};
use crate::corpus::{Corpus, CorpusKind};
use crate::fit::{Fit, FitTest};
use crate::misconversion::Repair;
use crate::score::{Candidate, Scores, score};
use crate::student::{PairedTest, paired_test};
use crate::thresholds::Thresholds;
use crate::wiring::{Better, Search};

/// Nats per token within which two explanations count as equal.
const TIE: f64 = 0.002;

/// Scores with the number of their labels, which an edit of the targets can change.
struct Rated<'s> {
    scores: &'s Scores,
    tokens: &'s [usize],
}

/// An edit that gains significantly.
struct PairTrial {
    edit: PairEdit,
    corpus: Corpus,
    tokens: Vec<usize>,
    scores: Scores,
    gain: PairedTest,
}

impl PairTrial {
    fn rated(&self) -> Rated<'_> {
        Rated { scores: &self.scores, tokens: &self.tokens }
    }
}

/// What is needed to edit pairs, and the model's scores on the pairs as they are.
pub(crate) struct PairEdits<'a> {
    /// The model as it is declared.
    pub(crate) declared: &'a dyn Prepared,
    pub(crate) tokenizer: Option<&'a Tokenizer>,
    /// Distinct pairs.
    pub(crate) corpus: &'a Corpus,
    pub(crate) search: &'a Search,
    pub(crate) thresholds: &'a Thresholds,
}

impl PairEdits<'_> {
    /// The edit with which the declared model works, if there is one and neither a repair of the weights nor another wiring is
    /// significantly better. `repair` is asked only where there is such an edit: a repair takes time to find.
    pub(crate) fn best<'r>(
        &self,
        repair: impl FnOnce() -> Option<&'r Repair>,
    ) -> Result<Option<EditedPairs>, RunError> {
        let candidate = Candidate::declared(self.declared, &self.corpus.shift)?;
        let (sure, tried) = self.sure(&candidate)?;
        let Some((at, fit)) = self.first_that_works(&candidate, &sure)? else { return Ok(None) };
        let best = &sure[at];
        let mut rivals = Vec::new();
        for (rival, scores, pairs) in
            [self.search.better.as_ref().map(of_wiring), repair().map(of_repair)].into_iter().flatten()
        {
            let rated = Rated { scores, tokens: &self.corpus.tokens() };
            if self.is_surely_better(&rated, &best.rated(), &pairs) {
                return Ok(None);
            }
            if !self.is_surely_better(&best.rated(), &rated, &pairs) {
                rivals.push(rival);
            }
        }
        let all: Vec<usize> = (0..self.corpus.len()).collect();
        let as_good = |(i, other): &(usize, &PairTrial)| {
            *i != at && !self.is_surely_better(&best.rated(), &other.rated(), &all)
        };
        Ok(Some(EditedPairs {
            edit: best.edit,
            as_good: sure.iter().enumerate().filter(as_good).map(|(_, other)| other.edit).collect(),
            nll_declared: self.search.fit.nll,
            nll_best: fit.nll,
            p: corrected(best.gain.p, tried),
            fit,
            rivals,
        }))
    }

    /// The edits that gain significantly, the largest gain first, and how many were tried.
    fn sure(&self, candidate: &Candidate) -> Result<(Vec<PairTrial>, usize), RunError> {
        let mut trials: Vec<PairTrial> = Vec::new();
        for edit in PairEdit::all(self.corpus.kind()) {
            let Some(corpus) = edit.apply(self.corpus, self.tokenizer, self.declared.model()) else {
                continue;
            };
            // Where one side is already in lower case, lower-casing both is not a different edit.
            let is_new = |known: &PairTrial| {
                known.corpus.sources != corpus.sources || known.corpus.targets != corpus.targets
            };
            if !trials.iter().all(is_new) {
                continue;
            }
            let (tokens, scores) =
                (corpus.tokens(), score(&[candidate], &corpus, &|_, _| ())?.swap_remove(0));
            let declared = Rated { scores: &self.search.declared, tokens: &self.corpus.tokens() };
            let gain = gain(&declared, &Rated { scores: &scores, tokens: &tokens });
            trials.push(PairTrial { edit, corpus, tokens, scores, gain });
        }
        let tried = trials.len();
        trials.retain(|trial| {
            trial.gain.mean >= self.thresholds.pairs_gain
                && corrected(trial.gain.p, tried) <= self.thresholds.wiring_p
        });
        trials.sort_by(|a, b| b.gain.mean.total_cmp(&a.gain.mean));
        Ok((trials, tried))
    }

    /// The first of some edits with which the declared model works: it predicts the targets from their sources, and generates
    /// sentences that fit the sources.
    fn first_that_works(
        &self,
        candidate: &Candidate,
        trials: &[PairTrial],
    ) -> Result<Option<(usize, Fit)>, RunError> {
        for (i, trial) in trials.iter().enumerate() {
            let test = FitTest::new(self.declared.model(), &trial.corpus);
            let fit = test.fit(candidate, &trial.scores)?;
            if fit.works().is_err() {
                continue;
            }
            if fit.kind == CorpusKind::Texts {
                return Ok(Some((i, fit)));
            }
            // A model that cannot generate is not checked for that.
            let generated = test.generated(candidate).ok().flatten();
            if generated.is_some_and(|generated| generated.is_about_the_source(0.0)) {
                return Ok(Some((i, fit)));
            }
        }
        Ok(None)
    }

    /// Whether one explanation costs significantly less than another on some pairs.
    fn is_surely_better(&self, one: &Rated<'_>, other: &Rated<'_>, pairs: &[usize]) -> bool {
        let of = |rated: &Rated<'_>| {
            let tokens: Vec<usize> = pairs.iter().map(|&pair| rated.tokens[pair]).collect();
            (rated.scores.only(pairs), tokens)
        };
        let ((scores, tokens), (other_scores, other_tokens)) = (of(one), of(other));
        let gain = gain(
            &Rated { scores: &other_scores, tokens: &other_tokens },
            &Rated { scores: &scores, tokens: &tokens },
        );
        gain.mean > TIE && gain.p <= self.thresholds.wiring_p
    }
}

/// A wiring as a rival, with how it did and the pairs that it is compared on.
fn of_wiring(better: &Better) -> (Rival, &Scores, Vec<usize>) {
    let what = format!("these weights were trained with {}", better.words());
    let rival = Rival { rule: "wiring-mismatch", what, nll: better.nll_best };
    (rival, &better.scores, (0..better.fit.pairs).collect())
}

/// A repair as a rival: compared on the pairs that its search has not seen.
fn of_repair(repair: &Repair) -> (Rival, &Scores, Vec<usize>) {
    let rival = Rival { rule: "misconverted-weight", what: repair.edit.mistake(), nll: repair.nll_best };
    (rival, &repair.scores, repair.unseen_pairs.clone())
}

/// By Bonferroni, for every edit that was tried.
fn corrected(p: f64, tried: usize) -> f64 {
    (p * tried as f64).min(1.0)
}

/// How many nats per token one costs less than the other, each at its best temperature and with its own labels.
fn gain(from: &Rated<'_>, to: &Rated<'_>) -> PairedTest {
    let rates = |rated: &Rated<'_>| -> Vec<f64> {
        rated.scores.calibrated().iter().zip(rated.tokens).map(|(nll, &tokens)| nll / tokens as f64).collect()
    };
    let differences = rates(from).into_iter().zip(rates(to)).map(|(from, to)| from - to);
    let gains: Vec<f64> = differences.zip(from.tokens).map(|(gain, &tokens)| gain * tokens as f64).collect();
    paired_test(&gains, from.tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice as many labels at half the nats each are no gain in nats, but a gain of a half in nats per token.
    #[test]
    fn a_gain_is_by_the_labels_of_each() {
        let (few, many) = ([2, 4], [4, 8]);
        let before = Scores::even(&[4.0, 8.0]);
        let after = Scores::even(&[6.0, 12.0]);
        let found = gain(&Rated { scores: &before, tokens: &few }, &Rated { scores: &after, tokens: &many });
        assert_eq!((found.mean, found.error), (0.5, 0.0));
        let lost = Scores::even(&[f64::NAN, 1.0]);
        let found = gain(&Rated { scores: &before, tokens: &few }, &Rated { scores: &lost, tokens: &few });
        assert_eq!(found.p, 1.0);
    }
}
