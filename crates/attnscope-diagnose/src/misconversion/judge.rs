//! Whether a repair is accepted: it gains significantly on pairs that the search has not seen, gives a working model, and no
//! other explanation is better.

use attnscope_run::RunError;

use super::edit::WeightEdit;
use super::refine::equivalents;
use super::rounds::{RepairTrial, Rounds};
use super::{BesideWiring, Refused, Repair, factors};
use crate::corpus::{Corpus, CorpusKind};
use crate::fit::FitTest;
use crate::score::{Candidate, Scores};
use crate::student::PairedTest;
use crate::thresholds::Thresholds;
use crate::wiring::Search;

/// Nats per token within which two repairs count as equal.
const TIE: f64 = 0.002;
/// What a repair is judged by.
pub(super) struct Judge<'a> {
    rounds: &'a Rounds<'a>,
    test: FitTest<'a>,
    /// The pairs that the search has not seen.
    unseen: &'a [usize],
    thresholds: &'a Thresholds,
    wirings: &'a Search,
}

/// The verdict on the best repair.
pub(super) enum Verdict {
    Believed(Repair),
    Refused(Refused),
}

/// A repair on all pairs.
struct Finalist {
    edit: WeightEdit,
    rank: usize,
    candidate: Candidate,
    scores: Scores,
    nll: f64,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        rounds: &'a Rounds<'a>,
        corpus: &'a Corpus,
        unseen: &'a [usize],
        thresholds: &'a Thresholds,
        wirings: &'a Search,
    ) -> Self {
        let test = FitTest::new(rounds.model(), corpus);
        Self { rounds, test, unseen, thresholds, wirings }
    }

    /// Of the best repairs on the search pairs, the one that is accepted, or why the best is not.
    pub(super) fn verdict(&self, trials: &[RepairTrial]) -> Result<Option<Verdict>, RunError> {
        let mut finalists = self.finalists(trials)?;
        let tested = finalists.len() as f64;
        let Some(least) = finalists.iter().map(|f| f.nll).min_by(f64::total_cmp) else { return Ok(None) };
        // Of equal ones, the simplest.
        let same = finalists.iter().enumerate().filter(|(_, other)| other.nll - least < TIE);
        let Some((at, _)) = same.min_by_key(|(_, other)| other.rank) else { return Ok(None) };
        let chosen = finalists.remove(at);
        let gain = self.gain_on_unseen(&self.wirings.declared, &chosen.scores);
        let p = (gain.p * tested).min(1.0);
        let refused = |why: String, outdoes_wiring: bool| {
            let (edit, nll) = (chosen.edit.clone(), chosen.nll);
            Ok(Some(Verdict::Refused(Refused { edit, why, nll, outdoes_wiring })))
        };
        if matches!(chosen.edit, WeightEdit::Scale { factor, .. } if !factors::is_plain_to_see(factor)) {
            return refused("so small a factor cannot be distinguished from noise".into(), false);
        }
        if gain.mean < self.thresholds.repair_gain || p > self.thresholds.wiring_p {
            let outdoes_wiring = self.outdoes_wiring(&chosen) && self.is_not_working(&chosen)?.is_none();
            let why = format!(
                "it gains {:.3} nats per token on the {} that the search had not seen, p = {p:.2}",
                gain.mean,
                self.test.corpus.kind().many()
            );
            return refused(why, outdoes_wiring);
        }
        if let Some(why) = self.is_not_working(&chosen)? {
            return refused(why, false);
        }
        if let Some(why) = self.is_no_better_than_chance(&chosen)? {
            return refused(why, self.outdoes_wiring(&chosen));
        }
        let Some(beside_wiring) = self.beside_wiring(&chosen) else {
            return refused("another wiring is significantly better".into(), false);
        };
        let compared = self.test.compare(&self.wirings.declared, &chosen.scores);
        let others = self.other_factors(&chosen.edit)?;
        let is_new = |other: &Finalist| finalists.iter().all(|known| known.edit != other.edit);
        let others: Vec<Finalist> = others.into_iter().filter(is_new).collect();
        let as_good = finalists.iter().chain(&others).filter(|other| self.does_as_well(other, &chosen));
        let as_good: Vec<WeightEdit> = as_good.map(|other| other.edit.clone()).collect();
        Ok(Some(Verdict::Believed(Repair {
            as_good,
            nll_declared: compared.before(),
            nll_best: compared.after(),
            gain: compared.gain().mean,
            p,
            kind: self.test.corpus.kind(),
            pairs: compared.pairs(),
            unseen: self.unseen.len(),
            beside_wiring,
            edit: chosen.edit,
            scores: chosen.scores,
            unseen_pairs: self.unseen.to_vec(),
        })))
    }

    /// The best repairs, and equivalent repairs of other weights, on all pairs.
    fn finalists(&self, trials: &[RepairTrial]) -> Result<Vec<Finalist>, RunError> {
        let mut edits: Vec<(usize, WeightEdit)> = trials.iter().map(|t| (t.rank, t.edit.clone())).collect();
        if let Some(best) = trials.first() {
            let more = equivalents(self.rounds.model(), &best.edit);
            let more: Vec<WeightEdit> =
                more.into_iter().filter(|edit| edits.iter().all(|(_, known)| known != edit)).collect();
            edits.extend(more.into_iter().map(|edit| (usize::MAX, edit)));
        }
        self.on_all_pairs(edits)
    }

    /// Other factors of the same projection: pairs often cannot distinguish 4 from 5.
    fn other_factors(&self, edit: &WeightEdit) -> Result<Vec<Finalist>, RunError> {
        let WeightEdit::Scale { weights, factor } = edit else { return Ok(Vec::new()) };
        let factors = factors::plain_factors(self.rounds.model(), *factor).into_iter();
        let others = factors.filter(|other| other != factor && factors::is_plain_to_see(*other));
        let scaled =
            others.map(|factor| (usize::MAX, WeightEdit::Scale { weights: weights.clone(), factor }));
        self.on_all_pairs(scaled.collect())
    }

    fn on_all_pairs(&self, edits: Vec<(usize, WeightEdit)>) -> Result<Vec<Finalist>, RunError> {
        let fitting: Vec<(usize, WeightEdit, Candidate)> = edits
            .into_iter()
            .filter_map(|(rank, edit)| self.rounds.edited(&edit).map(|candidate| (rank, edit, candidate)))
            .collect();
        let candidates: Vec<&Candidate> = fitting.iter().map(|(_, _, candidate)| candidate).collect();
        let scores = self.test.score(&candidates, &|_, _| ())?;
        let finalist = |((rank, edit, candidate), scores): ((usize, WeightEdit, Candidate), Scores)| {
            let nll = self.test.compare(&self.wirings.declared, &scores).after();
            Finalist { edit, rank, candidate, scores, nll }
        };
        Ok(fitting.into_iter().zip(scores).map(finalist).filter(|f| f.nll.is_finite()).collect())
    }

    /// What one gains over the other on the pairs that the search has not seen.
    fn gain_on_unseen(&self, base: &Scores, chosen: &Scores) -> PairedTest {
        let corpus = self.test.corpus.only(self.unseen);
        let test = FitTest::new(self.rounds.model(), &corpus);
        test.compare(&base.only(self.unseen), &chosen.only(self.unseen)).gain()
    }

    /// Whether there is a better wiring, and a repair gains more than it.
    fn outdoes_wiring(&self, chosen: &Finalist) -> bool {
        let better = self.wirings.better.as_ref();
        better.is_some_and(|wiring| self.gain_on_unseen(&wiring.scores, &chosen.scores).mean > TIE)
    }

    /// Why the repaired model does not count as working. A working one gets more tokens right than the declared one, predicts
    /// the targets from their sources, and generates sentences that fit the sources.
    fn is_not_working(&self, chosen: &Finalist) -> Result<Option<String>, RunError> {
        let more_right = self.test.compare(&self.wirings.declared, &chosen.scores).more_right();
        if more_right <= 0 {
            return Ok(Some("it gets no more tokens right".into()));
        }
        let fit = self.test.fit(&chosen.candidate, &chosen.scores)?;
        if let Err(misfit) = fit.works() {
            return Ok(Some(format!("it does not give a working model: {}", misfit.words(&fit))));
        }
        if fit.kind == CorpusKind::Texts {
            return Ok(None);
        }
        // A model that cannot generate is not checked for that.
        let generated = self.test.generated(&chosen.candidate).ok().flatten();
        let is_about_the_source = generated.is_some_and(|generated| generated.is_about_the_source(0.0));
        Ok((!is_about_the_source).then(|| "what it then generates has little to do with the sources".into()))
    }

    /// Why a repair says nothing about the weights that it changes: in a random order they do as well.
    fn is_no_better_than_chance(&self, chosen: &Finalist) -> Result<Option<String>, RunError> {
        let controls = self.rounds.controls(&chosen.edit);
        let scores = self.test.score(&controls.iter().collect::<Vec<_>>(), &|_, _| ())?;
        let nll = |control: &Scores| self.test.compare(&self.wirings.declared, control).after();
        let mut finite = scores.iter().filter(|control| nll(control).is_finite());
        let as_good = finite.find(|control| !self.is_surely_worse(control, chosen));
        Ok(as_good.map(|control| {
            let nll = nll(control);
            format!(
                "with values in a random order, the same weights explain the {} as well (NLL {nll:.3})",
                self.test.corpus.kind().many()
            )
        }))
    }

    fn is_surely_worse(&self, other: &Scores, chosen: &Finalist) -> bool {
        self.test.compare(other, &chosen.scores).gain().p <= self.thresholds.wiring_p
    }

    /// Whether another repair is not significantly worse.
    fn does_as_well(&self, other: &Finalist, chosen: &Finalist) -> bool {
        other.nll - chosen.nll < TIE || !self.is_surely_worse(&other.scores, chosen)
    }

    /// `None` where the better wiring explains the pairs significantly better.
    fn beside_wiring(&self, chosen: &Finalist) -> Option<BesideWiring> {
        let Some(wiring) = &self.wirings.better else { return Some(BesideWiring::Better) };
        let against = |a: &Scores, b: &Scores| {
            let gain = self.test.compare(a, b).gain();
            gain.mean > TIE && gain.p <= self.thresholds.wiring_p
        };
        if against(&wiring.scores, &chosen.scores) {
            Some(BesideWiring::Better)
        } else if against(&chosen.scores, &wiring.scores) {
            None
        } else {
            Some(BesideWiring::AsGood)
        }
    }
}
