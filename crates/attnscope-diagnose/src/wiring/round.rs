//! A round: edits of one setup, each run on the pairs. An edit that clearly loses on a few pairs is not run on all of them.

use std::time::Instant;

use attnscope_run::RunError;

use super::Trial;
use super::edit::WiringEdit;
use super::hypothesis::edits;
use super::search::Searcher;
use super::setup::Setup;
use crate::fit::{Comparison, FitTest};
use crate::score::{Candidate, Padding, Scores, score};
use crate::student::PairedTest;

/// After so many pairs the losing edits are dropped.
const STAGES: [usize; 2] = [16, 64];
/// An edit is dropped that loses more nats per token than the first number and more standard errors than the second. An edit
/// that really gains is dropped by chance once in 500 times.
const LOST: (f64, f64) = (0.01, 3.5);

/// The same for clips, which take long to encode.
const CLIP_STAGES: [usize; 2] = [1, 8];
/// One clip gives no standard error. After it, edits that lose more nats per token than this are dropped: a right edit gains,
/// and most wrong ones fail badly.
const ONE_CLIP_LOSES: f64 = 1.0;
/// Clips times edits that are run before the time limit is checked.
const CLIP_RUNS: usize = 32;

/// What came of a round.
pub(super) struct Round {
    /// The scores of the setup itself.
    pub(super) base: Scores,
    /// Edits that were run on all pairs, the largest gain first.
    pub(super) tried: Vec<Tried>,
    /// Edits that lost on a few.
    pub(super) lost: Vec<Lost>,
}

/// An edit that was tried from some setup.
pub(super) struct Tried {
    pub(super) edit: WiringEdit,
    pub(super) setup: Setup,
    pub(super) base: Scores,
    pub(super) scores: Scores,
    /// Nats per token that the edit gains, each at its best temperature; −∞ where the NLL is NaN.
    pub(super) gain: f64,
}

impl Tried {
    pub(super) fn trial(&self, test: &FitTest<'_>) -> Trial {
        trial(self.edit, self.gain, &test.compare(&self.base, &self.scores))
    }
}

/// An edit that surely loses, or of an audio model surely gains less than is reported.
pub(super) struct Lost {
    pub(super) padding: Padding,
    pub(super) trial: Trial,
}

/// An edit, and what it makes of a setup.
struct Edited {
    edit: WiringEdit,
    setup: Setup,
    candidate: Candidate,
}

/// How setups did on some pairs: as they are, by how they are padded, and with each edit.
struct Scored {
    bases: Vec<(Padding, Scores)>,
    edited: Vec<Scores>,
}

impl Scored {
    /// Before anything is run.
    fn none(from: &Setup, options: &[Edited], pairs: usize) -> Self {
        let mut bases = vec![(from.padding, Scores::none(pairs))];
        for Edited { setup, .. } in options {
            if bases.iter().all(|(padding, _)| *padding != setup.padding) {
                bases.push((setup.padding, Scores::none(pairs)));
            }
        }
        Self { bases, edited: vec![Scores::none(pairs); options.len()] }
    }

    fn base(&self, padding: Padding) -> &Scores {
        let at = self.bases.iter().position(|(of, _)| *of == padding).unwrap_or(0);
        &self.bases[at].1
    }
}

impl Searcher<'_> {
    /// Some edits of a setup.
    pub(super) fn round(
        &self,
        from: &Setup,
        wanted: &dyn Fn(&WiringEdit) -> bool,
    ) -> Result<Round, RunError> {
        let longest = self.test.corpus.longest_target();
        let mut options: Vec<Edited> = edits(self.model, self.declared.weights(), from, longest)
            .into_iter()
            .filter(wanted)
            .filter_map(|edit| {
                let setup = from.with(edit);
                let candidate = setup.candidate(self.declared, self.test.corpus)?;
                Some(Edited { edit, setup, candidate })
            })
            .collect();
        self.tried.set(self.tried.get() + options.len());
        if self.model.graph.reads_audio() {
            // Edits that do not change the encoder reuse its output from the setup's own run, and come first.
            options.sort_by_key(|option| option.edit.changes_encoder());
        }
        let (scored, lost) = self.raced(from, &mut options)?;
        let tried = |(Edited { edit, setup, .. }, scores): (Edited, &Scores)| {
            let base = scored.base(setup.padding).clone();
            let gain = finite(gain_of(&self.test.compare(&base, scores), edit).mean);
            Tried { edit, setup, base, scores: scores.clone(), gain }
        };
        let mut tried: Vec<Tried> = options.into_iter().zip(&scored.edited).map(tried).collect();
        tried.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        Ok(Round { base: scored.base(from.padding).clone(), tried, lost })
    }

    /// Runs edits on some pairs, spread evenly over all, then on more and more; drops those that clearly lose.
    fn raced(&self, from: &Setup, options: &mut Vec<Edited>) -> Result<(Scored, Vec<Lost>), RunError> {
        let pairs = self.test.corpus.len();
        let mut scored = Scored::none(from, options, pairs);
        let (mut done, mut lost) = (Vec::new(), Vec::new());
        self.untried.set(0);
        let stages = if self.model.graph.reads_audio() { CLIP_STAGES } else { STAGES };
        for stage in stages.into_iter().filter(|stage| 2 * stage <= pairs).chain([pairs]) {
            let spread = (0..stage).map(|n| n * pairs / stage);
            let new: Vec<usize> = spread.filter(|pair| !done.contains(pair)).collect();
            self.score_more(from, options, &new, &mut scored)?;
            done.extend(new);
            if done.len() < pairs {
                lost.extend(self.take_losers(options, &mut scored, &done));
            }
        }
        lost.sort_by(|a, b| b.trial.gain.total_cmp(&a.trial.gain));
        Ok((scored, lost))
    }

    /// Takes out the edits that surely lose on the pairs that were run, of an audio model those that surely gain too little.
    fn take_losers(&self, options: &mut Vec<Edited>, scored: &mut Scored, done: &[usize]) -> Vec<Lost> {
        let few = self.test.corpus.only(done);
        let test = FitTest::new(self.model, &few);
        let (nats, errors) = LOST;
        let reads_audio = self.model.graph.reads_audio();
        let (mut kept, mut lost) = (Vec::new(), Vec::new());
        for (option, scores) in options.drain(..).zip(std::mem::take(&mut scored.edited)) {
            let compared = test.compare(&scored.base(option.setup.padding).only(done), &scores.only(done));
            let gain = gain_of(&compared, option.edit);
            let loses = match done.len() {
                1 => gain.mean < -ONE_CLIP_LOSES,
                // What changes next to nothing is not run on every clip to show that it does.
                _ if reads_audio => gain.mean + errors * gain.error < self.thresholds.wiring_gain,
                _ => gain.mean < -nats && gain.mean < -errors * gain.error,
            };
            if loses {
                let trial = trial(option.edit, finite(gain.mean), &compared);
                lost.push(Lost { padding: option.setup.padding, trial });
            } else {
                kept.push(option);
                scored.edited.push(scores);
            }
        }
        *options = kept;
        lost
    }

    /// Runs a setup, padded as each of its edits wants it, and the edits on some pairs. Edits without time left are dropped.
    fn score_more(
        &self,
        from: &Setup,
        options: &mut Vec<Edited>,
        pairs: &[usize],
        scored: &mut Scored,
    ) -> Result<(), RunError> {
        let bases = scored.bases.iter().map(|(padding, _)| self.candidate(&from.padded(*padding)));
        let bases = bases.collect::<Result<Vec<Candidate>, RunError>>()?;
        let corpus = self.test.corpus.only(pairs);
        let at_once = match self.end {
            Some(_) => (CLIP_RUNS / pairs.len().max(1)).max(1),
            None => options.len(),
        };
        let mut done = 0;
        loop {
            let is_over = self.end.is_some_and(|end| Instant::now() >= end);
            let until = if is_over { done } else { (done + at_once).min(options.len()) };
            // The setup itself is run in any case.
            if until == done && done > 0 {
                break;
            }
            let some = options[done..until].iter().map(|option| &option.candidate);
            let all: Vec<&Candidate> = bases.iter().chain(some).collect();
            let new = score(&all, &corpus, self.progress)?;
            let edited = &mut scored.edited[done..until];
            let known = scored.bases.iter_mut().map(|(_, scores)| scores).chain(edited);
            known.zip(new).for_each(|(known, new)| known.put(pairs, &new));
            done = until;
            if done == 0 || done == options.len() {
                break;
            }
        }
        self.untried.set(self.untried.get() + options.len() - done);
        options.truncate(done);
        scored.edited.truncate(done);
        Ok(())
    }
}

fn trial(edit: WiringEdit, gain: f64, compared: &Comparison) -> Trial {
    let (nll_declared, nll, right) = (compared.before(), compared.after(), compared.right());
    Trial { edit, nll_declared, nll, gain, right, p: gain_of(compared, edit).p, pairs: compared.pairs() }
}

fn finite(gain: f64) -> f64 {
    if gain.is_finite() { gain } else { f64::NEG_INFINITY }
}

/// What an edit gains: the scale of the logits is a temperature, and is judged as it is.
pub(super) fn gain_of(compared: &Comparison, edit: WiringEdit) -> PairedTest {
    if edit.is_temperature() { compared.plain_gain() } else { compared.gain() }
}
