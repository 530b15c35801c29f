//! A round: some repairs, each run on the same pairs, the largest gain first.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use attnscope_graph::{AttentionPlace, AttentionStep, FeedForwardStep, Model, Role, Stack, WeightKind};
use attnscope_run::{Prepared, RunError, Shift, Weights};

use super::control;
use super::edit::{WeightEdit, heads_of};
use super::factors;
use super::hypotheses::{
    PERMUTED, head_orders, of_attention, of_feed_forward, of_model, permuted, sublayer_exchanges,
};
use super::sites::{Sublayer, attentions, feed_forwards, weights_of};
use crate::corpus::Corpus;
use crate::fit::FitTest;
use crate::score::{Candidate, Padding, Progress};
use crate::student::PairedTest;

/// Candidates that are kept in memory at once: each has its own copy of the tensors that it edits.
const AT_ONCE: usize = 48;
/// Attentions, and feed-forward layers, at which every repair is tried. If there are more, those whose removal hurts least: a
/// broken part contributes little.
const MOST_SITES: usize = 12;

/// The heads of some projections of an attention; 1, which has no other order, where they have different numbers of them.
fn common_heads(model: &Model, site: AttentionPlace, projections: &[AttentionStep]) -> usize {
    let heads =
        |step: &AttentionStep| heads_of(model, site.step(*step).weight()).map_or(1, |(heads, _)| heads);
    let first = projections.first().map_or(1, heads);
    if projections.iter().all(|step| heads(step) == first) { first } else { 1 }
}

/// A repair and its scores.
#[derive(Debug, Clone)]
pub(super) struct RepairTrial {
    pub(super) edit: WeightEdit,
    /// Its index among the hypotheses: of equal repairs, the first is the simplest.
    pub(super) rank: usize,
    /// What it gains.
    pub(super) gain: PairedTest,
}

/// What rounds are run with.
pub(super) struct Rounds<'a> {
    declared: Arc<dyn Prepared>,
    shift: &'a Shift,
    progress: &'a Progress<'a>,
    start: Instant,
    time: Duration,
    /// Repairs of the last round that were run before its time was over.
    tried: Cell<usize>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        declared: &dyn Prepared,
        shift: &'a Shift,
        progress: &'a Progress<'a>,
        time: Duration,
    ) -> Result<Self, RunError> {
        let declared = Candidate::declared(declared, shift)?.prepared;
        Ok(Self { declared, shift, progress, start: Instant::now(), time, tried: Cell::new(0) })
    }

    pub(super) fn model(&self) -> &Model {
        self.declared.model()
    }

    /// Repairs of the last round that were run.
    pub(super) fn tried(&self) -> usize {
        self.tried.get()
    }

    /// Whether the time for the search is over.
    pub(super) fn is_over(&self) -> bool {
        self.start.elapsed() >= self.time
    }

    fn weights(&self) -> &Weights {
        self.declared.weights()
    }

    fn candidate(&self, prepared: Arc<dyn Prepared>) -> Candidate {
        Candidate { prepared, shift: self.shift.clone(), padding: Padding::None }
    }

    /// The model with an edit; `None` where it does not fit.
    pub(super) fn edited(&self, edit: &WeightEdit) -> Option<Candidate> {
        self.with_weights(edit.apply(self.model(), self.weights())?)
    }

    /// The model with the weights that an edit changes in random orders.
    pub(super) fn controls(&self, edit: &WeightEdit) -> Vec<Candidate> {
        let controls = control::controls(edit, self.model(), self.weights());
        controls.into_iter().filter_map(|weights| self.with_weights(weights)).collect()
    }

    fn with_weights(&self, weights: Weights) -> Option<Candidate> {
        Some(self.candidate(self.declared.again(self.declared.model().clone(), weights).ok()?))
    }

    /// Every repair, each with its place: the plainest first. `few` pairs choose among sites where there are many.
    pub(super) fn hypotheses(&self, few: &Corpus) -> Result<Vec<(usize, WeightEdit)>, RunError> {
        let model = self.model();
        let sites = attentions(&model.graph);
        let queries = self.least_missed(few, &sites, |site| site.step(AttentionStep::Q))?;
        let outputs = self.least_missed(few, &sites, |site| site.step(AttentionStep::Out))?;
        let ffns = feed_forwards(&model.graph);
        let kept_ffns = self.least_missed(few, &ffns, |site| site.step(FeedForwardStep::Out))?;
        let mut edits = of_model(model);
        let (mut plain, mut reordered) = (Vec::new(), Vec::new());
        let is_kept = |(i, _): &(usize, &AttentionPlace)| queries.contains(i) || outputs.contains(i);
        let kept: Vec<AttentionPlace> =
            sites.iter().enumerate().filter(is_kept).map(|(_, site)| *site).collect();
        for &site in &kept {
            plain.extend(of_attention(model, site));
            for projections in PERMUTED {
                let orders = head_orders(common_heads(model, site, projections));
                reordered.extend(orders.iter().map(|order| permuted(model, site, projections, order)));
            }
        }
        for (_, &site) in ffns.iter().enumerate().filter(|(i, _)| kept_ffns.contains(i)) {
            plain.extend(of_feed_forward(model, site));
        }
        for suspect in factors::suspects(model, self.weights()) {
            plain.extend(factors::rescaled(model, &suspect));
        }
        let kept = kept.into_iter().map(Sublayer::from);
        let kept = kept.chain(kept_ffns.iter().map(|&i| Sublayer::from(ffns[i])));
        edits.extend(sublayer_exchanges(model, &kept.collect::<Vec<_>>()));
        edits.extend(plain);
        edits.extend(reordered);
        let mut distinct: Vec<WeightEdit> = Vec::new();
        for edit in edits.into_iter().filter(|edit| self.is_affordable(edit)) {
            if !distinct.contains(&edit) {
                distinct.push(edit);
            }
        }
        Ok(distinct.into_iter().enumerate().collect())
    }

    /// Whether an edit is a factor on a projection that looks like noise.
    pub(super) fn scales_noise(&self, edit: &WeightEdit) -> bool {
        let WeightEdit::Scale { weights, .. } = edit else { return false };
        let matrix = weights.first().filter(|weight| weight.kind == WeightKind::Weight);
        let module = matrix.map(|weight| weight.owner);
        !module.is_some_and(|module| factors::is_trained_together(self.model(), self.weights(), module))
    }

    /// Encoding a clip takes as long as many sentences, so for audio models the encoder is not edited.
    fn is_affordable(&self, edit: &WeightEdit) -> bool {
        let weights = edit.weights(self.model());
        let of_encoder = weights.iter().any(|weight| weight.owner.stack() == Some(Stack::Encoder));
        !(self.model().graph.reads_audio() && of_encoder)
    }

    /// The sites, by their numbers, whose module hurts least when it is set to zero; all of them where they are few.
    fn least_missed<S>(
        &self,
        few: &Corpus,
        sites: &[S],
        module: impl Fn(&S) -> Role,
    ) -> Result<Vec<usize>, RunError> {
        if sites.len() <= MOST_SITES {
            return Ok((0..sites.len()).collect());
        }
        let muted = |site: &S| WeightEdit::Scale {
            weights: weights_of(&self.model().graph, module(site), true),
            factor: 0.0,
        };
        let trials = self.round(few, sites.iter().map(muted).enumerate().collect(), 1.0)?;
        Ok(trials.into_iter().take(MOST_SITES).map(|trial| trial.rank).collect())
    }

    /// Repairs on pairs, the largest gain first, as many as can be run before a share of the time is over. Repairs with a NaN
    /// score are left out.
    pub(super) fn round(
        &self,
        corpus: &Corpus,
        edits: Vec<(usize, WeightEdit)>,
        share: f64,
    ) -> Result<Vec<RepairTrial>, RunError> {
        let test = FitTest::new(self.model(), corpus);
        let declared = self.candidate(self.declared.clone());
        let (mut trials, total) = (Vec::new(), edits.len());
        self.tried.set(0);
        for chunk in edits.chunks(AT_ONCE) {
            if self.start.elapsed() >= self.time.mul_f64(share) {
                break;
            }
            let fitting: Vec<(&(usize, WeightEdit), Candidate)> =
                chunk.iter().filter_map(|edit| Some((edit, self.edited(&edit.1)?))).collect();
            // The declared model comes first, so that an edit computes only what it changes.
            let candidates: Vec<&Candidate> =
                [&declared].into_iter().chain(fitting.iter().map(|(_, candidate)| candidate)).collect();
            let scores = test.score(&candidates, &|_, _| ())?;
            self.tried.set(self.tried.get() + chunk.len());
            (self.progress)(self.tried.get(), total);
            let Some((base, scores)) = scores.split_first() else { break };
            for (((rank, edit), _), scores) in fitting.iter().zip(scores) {
                let gain = test.compare(base, scores).gain();
                trials.push(RepairTrial { edit: edit.clone(), rank: *rank, gain });
            }
        }
        trials.retain(|trial| trial.gain.mean.is_finite());
        trials.sort_by(|a, b| b.gain.mean.total_cmp(&a.gain.mean));
        Ok(trials)
    }
}
