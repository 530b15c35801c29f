//! The search: a round over every single edit, further rounds that add to the best, and the tests that the result must pass.

use attnscope_graph::{Model, Switch};
use attnscope_run::{Prepared, RunError};
use serde_json::Map;
use std::cell::Cell;
use std::time::{Duration, Instant};

use super::edit::WiringEdit;
use super::round::{Lost, Round, Tried, gain_of};
use super::setup::Setup;
use super::{Better, Search, Singled, Trial};
use crate::corpus::{Corpus, CorpusKind};
use crate::fit::{Comparison, FitTest, LEAST_COPIED};
use crate::score::{Candidate, Progress, Scores};
use crate::thresholds::Thresholds;

/// Edits that are combined at the most.
const MOST_CHANGES: usize = 3;
/// Fields that the best edit may be combined with.
const RUNNERS_UP: usize = 3;
/// Nats per token within which two explanations count as equal, even if the difference is significant.
const TIE: f64 = 0.001;
/// How much more the scale of logits must gain than other fields: it also fits how hard the pairs are.
const TEMPERATURE: f64 = 10.0;
/// How much more a further edit must gain than the first: many near ties can add up to a gain by chance.
const FURTHER: f64 = 2.0;

/// Tries every other wiring of a model's weights on distinct sentence pairs. For an audio model, whose encoder takes long, only
/// as many as the time limit allows.
///
/// # Errors
/// When the pairs are too long for the model.
pub fn search(
    declared: &dyn Prepared,
    corpus: &Corpus,
    thresholds: &Thresholds,
    time: Duration,
    progress: &Progress<'_>,
) -> Result<Search, RunError> {
    let model = declared.model();
    let test = FitTest::new(model, corpus);
    let end = model.graph.reads_audio().then(|| Instant::now().checked_add(time)).flatten();
    let (tried, untried) = (Cell::new(0), Cell::new(0));
    Searcher { declared, model, test: &test, thresholds, progress, end, tried, untried }.run()
}

pub(super) struct Searcher<'a> {
    pub(super) model: &'a Model,
    /// As its config declares it.
    pub(super) declared: &'a dyn Prepared,
    pub(super) test: &'a FitTest<'a>,
    pub(super) thresholds: &'a Thresholds,
    pub(super) progress: &'a Progress<'a>,
    /// When no further edit is begun, where time is limited.
    pub(super) end: Option<Instant>,
    /// Hypotheses so far.
    pub(super) tried: Cell<usize>,
    /// Those of the last round that there was no time for.
    pub(super) untried: Cell<usize>,
}

/// The edits that were chosen, and what they make together.
struct Found {
    changes: Vec<Singled>,
    setup: Setup,
    scores: Scores,
}

impl Found {
    fn has(&self, field: &str) -> bool {
        self.changes.iter().any(|change| change.edit.field() == field)
    }

    fn words(&self) -> String {
        self.changes.iter().map(|change| change.edit.words()).collect::<Vec<_>>().join(" and ")
    }
}

impl Searcher<'_> {
    fn run(&self) -> Result<Search, RunError> {
        let declared = Setup::declared(self.model, &self.test.corpus.shift);
        let Round { base, tried: first, lost } = self.round(&declared, &|_| true)?;
        let mut trials: Vec<Trial> = first.iter().map(|t| t.trial(self.test)).collect();
        trials.extend(lost.iter().map(|lost| lost.trial.clone()));
        let own = self.test.compare(&base, &base);
        let untried = self.untried.get();
        let swapped = self.test.swapped(&self.candidate(&declared)?)?;
        let fit = self.test.fit_of(&base, swapped.as_ref());
        let telling = self.telling(&first);
        let found = match self.pick(first, &lost, self.thresholds.wiring_gain) {
            Some(first) => Some(self.refine(&declared, first, &telling)?),
            None => None,
        };
        let mut search = Search {
            pairs: self.test.corpus.len(),
            finite: own.pairs(),
            nll: own.before(),
            fit,
            trials,
            hypotheses: 0,
            untried,
            better: None,
            refused: None,
            declared: base,
            swapped,
        };
        if let Some(found) = found.filter(|found| !found.changes.is_empty()) {
            let (words, nll) = (found.words(), self.test.compare(&search.declared, &found.scores).after());
            search.better = self.better(&declared, &search, found)?;
            search.refused = search.better.is_none().then_some((words, nll));
        }
        search.hypotheses = self.tried.get();
        Ok(search)
    }

    pub(super) fn candidate(&self, setup: &Setup) -> Result<Candidate, RunError> {
        let candidate = setup.candidate(self.declared, self.test.corpus);
        candidate.ok_or_else(|| {
            RunError::Obstacle(format!("the {} do not fit its positions", self.test.corpus.kind().many()))
        })
    }

    /// The field with the largest gain that is sure and `least` nats a token at the least, with its other values.
    fn pick(&self, tried: Vec<Tried>, lost: &[Lost], least: f64) -> Option<(Tried, Singled)> {
        // Of each field its best value, or none: a lesser one that is surer would be the wrong answer.
        let mut fields = Vec::new();
        let mut is_best_of_field = |t: &&Tried| {
            let new = !fields.contains(&t.edit.field());
            fields.push(t.edit.field());
            new
        };
        let best = tried
            .iter()
            .take_while(|t| t.gain >= least)
            .filter(|t| is_best_of_field(t))
            .find(|t| self.is_sure(t, least))?;
        // A model trained without a causal mask also copies a token that stands at its own place; one trained without the
        // shift does not look at the next place.
        let unmasked = |t: &&Tried| t.edit == WiringEdit::CausalMask(Switch::Off) && self.is_sure(t, least);
        let best = match best.edit {
            WiringEdit::DecoderShift(Switch::Off) => tried.iter().find(unmasked).unwrap_or(best),
            _ => best,
        };
        let field = best.edit.field();
        let of_field: Vec<Tried> = tried.into_iter().filter(|t| t.edit.field() == field).collect();
        self.singled(of_field, lost)
    }

    /// Of the values of one field, sorted by gain: the best, those that do not do surely worse, and the rest, those among them
    /// that were lost early. Of values that do as well as each other, the family's own is the likeliest.
    fn singled(&self, mut of_field: Vec<Tried>, lost: &[Lost]) -> Option<(Tried, Singled)> {
        let first = of_field.first()?;
        let (field, padding) = (first.edit.field(), first.setup.padding);
        let others = of_field.len() as f64;
        let beaten = |t: &Tried| {
            let compared = self.test.compare(&t.scores, &first.scores);
            let gain = gain_of(&compared, t.edit);
            gain.mean >= TIE && others * gain.p <= self.thresholds.wiring_p
        };
        let mut excluded: Vec<WiringEdit> =
            of_field.iter().filter(|t| t.setup.padding == padding && beaten(t)).map(|t| t.edit).collect();
        of_field.retain(|t| t.setup.padding == padding && !excluded.contains(&t.edit));
        let lost = lost.iter().filter(|lost| lost.padding == padding).map(|lost| lost.trial.edit);
        excluded.extend(lost.filter(|edit| edit.field() == field));
        let usual = Setup::usual(self.model, &self.test.corpus.shift);
        let chosen = of_field.iter().position(|t| !t.edit.differs(&t.setup, &usual)).unwrap_or(0);
        let best = of_field.remove(chosen);
        let as_good = of_field.into_iter().map(|t| t.edit).collect();
        let singled = Singled { edit: best.edit, as_good, excluded };
        Some((best, singled))
    }

    /// The best edit of each field that gains something by itself: what is combined.
    fn telling(&self, tried: &[Tried]) -> Vec<WiringEdit> {
        let mut best: Vec<WiringEdit> = Vec::new();
        for t in tried.iter().filter(|t| t.gain >= self.thresholds.wiring_gain) {
            if best.iter().all(|edit| edit.field() != t.edit.field()) && best.len() <= RUNNERS_UP {
                best.push(t.edit);
            }
        }
        best
    }

    /// Adds edit after edit as long as each explains more.
    fn refine(
        &self,
        declared: &Setup,
        (first, singled): (Tried, Singled),
        telling: &[WiringEdit],
    ) -> Result<Found, RunError> {
        let mut found = Found { changes: vec![singled], setup: first.setup, scores: first.scores };
        while found.changes.len() < MOST_CHANGES {
            let others: Vec<&WiringEdit> = telling.iter().filter(|edit| !found.has(edit.field())).collect();
            if others.is_empty() {
                break;
            }
            let Round { mut tried, lost, .. } = self.round(&found.setup, &|edit| others.contains(&edit))?;
            tried.retain(|t| self.is_more_right(t));
            let least = FURTHER * self.thresholds.wiring_gain;
            let Some((next, singled)) = self.pick(tried, &lost, least) else { break };
            found.changes.push(singled);
            (found.setup, found.scores) = (next.setup, next.scores);
        }
        if found.changes.len() > 1 {
            self.polish(declared, &mut found)?;
        }
        Ok(found)
    }

    /// A field was chosen while another was still wrong: once more among its values, now that none is. A field whose
    /// declared value does best is not wrong.
    fn polish(&self, declared: &Setup, found: &mut Found) -> Result<(), RunError> {
        for n in 0..found.changes.len() {
            let now = found.changes[n].edit;
            let of_field = |edit: &WiringEdit| edit.field() == now.field() && edit.padding() == now.padding();
            let Round { base, mut tried, lost } = self.round(&found.setup, &of_field)?;
            let own = Tried {
                edit: now,
                setup: found.setup.clone(),
                base,
                scores: found.scores.clone(),
                gain: 0.0,
            };
            tried.push(own);
            tried.sort_by(|a, b| b.gain.total_cmp(&a.gain));
            let Some((best, mut singled)) = self.singled(tried, &lost) else { continue };
            // The declared value is no edit.
            let changes = |edit: &WiringEdit| edit.differs(&declared.with(*edit), declared);
            singled.as_good.retain(changes);
            singled.excluded.retain(changes);
            found.changes[n] = singled;
            (found.setup, found.scores) = (best.setup, best.scores);
        }
        let setup = &found.setup;
        found.changes.retain(|change| change.edit.differs(setup, declared));
        Ok(())
    }

    /// What was found, against what is declared: `None` where it does not lead to a working model.
    fn better(&self, declared: &Setup, search: &Search, found: Found) -> Result<Option<Better>, RunError> {
        let Found { changes, setup, scores } = found;
        let Some(first) = changes.first().map(|change| change.edit) else { return Ok(None) };
        let base_candidate = self.candidate(&declared.padded(setup.padding))?;
        let base = self.test.score(&[&base_candidate], &|_, _| ())?.swap_remove(0);
        let compared = self.test.compare(&base, &scores);
        let p = self.corrected(gain_of(&compared, first).p);
        let candidate = self.candidate(&setup)?;
        let fit = self.test.fit(&candidate, &scores)?;
        // A model that cannot generate is not checked for that.
        let generated = self.test.generated(&candidate).ok().flatten();
        let is_working = match setup.leaks() && !declared.leaks() {
            // The decoder sees what it is to predict, and cannot generate as it was trained: only a model that has learned
            // nothing else copies without a mistake.
            true => fit.copies() && search.fit.predicts().is_err(),
            false => {
                let before = self.test.generated(&base_candidate).ok().flatten();
                let agreement = before.as_ref().map_or(0.0, |g| g.agreement);
                let is_about_the_source = match self.test.corpus.kind() {
                    CorpusKind::Pairs => generated.as_ref().is_some_and(|g| g.is_about_the_source(agreement)),
                    CorpusKind::Texts => true,
                };
                fit.works().is_ok() && is_about_the_source
            }
        };
        if !is_working || p > self.thresholds.wiring_p {
            return Ok(None);
        }
        let (mut before, mut after) = (Map::new(), Map::new());
        for change in &changes {
            change.edit.shown(declared, &mut before);
            change.edit.shown(&setup, &mut after);
        }
        Ok(Some(Better {
            changes,
            declared: before,
            best: after,
            nll_declared: compared.before(),
            nll_best: compared.after(),
            pairs: compared.pairs(),
            p,
            fit,
            generated,
            candidate,
            scores,
        }))
    }

    fn compared(&self, tried: &Tried) -> Comparison {
        self.test.compare(&tried.base, &tried.scores)
    }

    /// By Bonferroni, for every hypothesis so far.
    fn corrected(&self, p: f64) -> f64 {
        (p * self.tried.get() as f64).min(1.0)
    }

    /// Whether a further edit is more than a better temperature. The scale of the logits is one, and has nothing else to show
    /// for it.
    fn is_more_right(&self, tried: &Tried) -> bool {
        let more = self.compared(tried).more_right();
        more > 0 || (more == 0 && tried.edit.is_temperature())
    }

    /// Whether an edit gains `least` nats a token at the least, and surely.
    fn is_sure(&self, tried: &Tried, least: f64) -> bool {
        let compared = self.compared(tried);
        let gain = gain_of(&compared, tried.edit);
        let least = if tried.edit.is_temperature() { TEMPERATURE * least } else { least };
        // Where the decoder sees what it is to predict, only a model that has learned to copy it says anything.
        if leaks_more(tried) && compared.right() < LEAST_COPIED {
            return false;
        }
        // The costs as they are must fall too: they are what the report speaks of.
        gain.mean >= least
            && compared.after() < compared.before()
            && self.corrected(gain.p) <= self.thresholds.wiring_p
    }
}

/// Whether an edit lets the decoder see the token that it is to predict.
fn leaks_more(tried: &Tried) -> bool {
    matches!(tried.edit, WiringEdit::CausalMask(Switch::Off) | WiringEdit::DecoderShift(Switch::Off))
}
