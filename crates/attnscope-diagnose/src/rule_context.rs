//! What rules read: a model, its weights, an input, pairs, and measurements, each made once.

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use attnscope_checkpoint::{Checkpoint, Remedy, Stats, TensorInfo};
use attnscope_graph::{Model, Side, Slot, Weight, WeightId};
use attnscope_run::{Cancel, Input, Prepared, RunError, Shift, Tokenizer, Weights};
use rayon::prelude::*;

use crate::corpus::{Corpus, LEAST_PAIRS};
use crate::finding::Finding;
use crate::measure::Outcome;
use crate::misconversion::{BesideWiring, Refused, Repair, RepairSearch, search_repairs};
use crate::observe::{Observed, observe};
use crate::pair_edit::{EditedPairs, PairEdits};
use crate::rule::{Checked, NotChecked, Rule};
use crate::score::Progress;
use crate::thresholds::Thresholds;
use crate::wiring::{Better, Search, search};

/// The share of the time for searches that other wirings of an audio model may take.
const FOR_WIRINGS: f64 = 0.6;

/// An input that rules run the model on.
#[derive(Debug)]
pub struct Sample {
    /// Source and decoder input.
    pub input: Input,
    /// Real sentences, not random tokens, on which the behaviour of heads means little.
    pub real: bool,
}

/// A sentence for which the model has no positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong {
    /// The line of the pair in its file, counted from 1.
    pub line: usize,
    /// Which of its sentences.
    pub side: Side,
    /// Its tokens.
    pub length: usize,
    /// The number of positions.
    pub room: usize,
    /// Positions are computed, so attnscope can go on; only code with a table is limited.
    pub computed: bool,
}

/// A model, and everything that rules need with it.
#[derive(Clone, Copy)]
pub struct RuleInput<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its file.
    pub checkpoint: &'a Checkpoint,
    /// The prepared model; absent where it cannot be run.
    pub prepared: Option<&'a dyn Prepared>,
    /// Its tokenizer, where one is known.
    pub tokenizer: Option<&'a Tokenizer>,
    /// What fills the shorter rows of a batch.
    pub pad: u32,
    /// How its decoder begins, where that is known.
    pub shift: Option<&'a Shift>,
    /// What it is run on.
    pub sample: Option<&'a Sample>,
    /// Sentence pairs that it is judged on.
    pub corpus: Option<&'a Corpus>,
    /// Pairs that are too long for the model and left out, or too long for Hugging Face's table.
    pub too_long: &'a [TooLong],
    /// The thresholds of the rules.
    pub thresholds: &'a Thresholds,
    /// The time limit for repairs of the weights; for an audio model, whose encoder takes long, also for other wirings.
    pub repair_time: Duration,
    /// Ends the examination.
    pub cancel: &'a Cancel,
    /// Receives the progress of a search.
    pub progress: &'a Progress<'a>,
}

/// The input of the rules, and measurements on it: what several rules need is measured once, when the first rule needs it.
pub(crate) struct RuleContext<'a> {
    pub(crate) input: &'a RuleInput<'a>,
    stats: OnceCell<Vec<Result<Stats, String>>>,
    distinct: OnceCell<Corpus>,
    search: OnceCell<Result<Search, RunError>>,
    /// How long the search took.
    searched: Cell<Duration>,
    repairs: OnceCell<Result<RepairSearch, RunError>>,
    edited_pairs: OnceCell<Result<Option<EditedPairs>, RunError>>,
    observed: OnceCell<Result<Observed, RunError>>,
}

impl<'a> RuleContext<'a> {
    pub(crate) fn new(input: &'a RuleInput<'a>) -> Self {
        Self {
            input,
            stats: OnceCell::new(),
            distinct: OnceCell::new(),
            search: OnceCell::new(),
            searched: Cell::default(),
            repairs: OnceCell::new(),
            edited_pairs: OnceCell::new(),
            observed: OnceCell::new(),
        }
    }

    pub(crate) fn model(&self) -> &'a Model {
        self.input.model
    }

    pub(crate) fn thresholds(&self) -> &'a Thresholds {
        self.input.thresholds
    }

    /// The weights, or why the model cannot be run.
    pub(crate) fn weights(&self) -> Result<&'a Weights, NotChecked> {
        Ok(self.prepared()?.weights())
    }

    /// The prepared model, or why it cannot be run.
    pub(crate) fn prepared(&self) -> Result<&'a dyn Prepared, NotChecked> {
        self.input.prepared.ok_or_else(|| {
            let why =
                self.model().obstacles.first().cloned().unwrap_or_else(|| "the model cannot be run".into());
            NotChecked::new(why, Remedy::MendFirst)
        })
    }

    /// The input, or how to give one.
    pub(crate) fn sample(&self) -> Result<&'a Sample, NotChecked> {
        self.weights()?;
        let nothing = "there is nothing to run the model on";
        self.input.sample.ok_or_else(|| NotChecked::new(nothing, Remedy::Sample))
    }

    /// The pairs, or texts, each once, or how to give some.
    pub(crate) fn corpus(&self) -> Result<&Corpus, NotChecked> {
        self.weights()?;
        let architecture = &self.model().architecture;
        let is_judged = architecture.classifier().is_none() && architecture.reads(Side::Target);
        if !is_judged {
            let why = format!(
                "it is judged by what a decoder predicts, and {} has none",
                match architecture.classifier().is_some() {
                    true => "a classifier".to_owned(),
                    false => format!("a model that is {}", architecture.kind()),
                }
            );
            return Err(NotChecked::new(why, "what can be checked of such a model is listed above"));
        }
        let (one, many, how) = match (architecture.reads(Side::Source), self.model().graph.reads_audio()) {
            (false, _) => ("text", "texts", Remedy::Texts),
            (true, false) => ("sentence pair", "sentence pairs", Remedy::SentencePairs),
            (true, true) => ("clip with a transcript", "clips with transcripts", Remedy::ClipPairs),
        };
        let pairs = self.input.corpus.filter(|c| !c.is_empty());
        let given = pairs.ok_or_else(|| NotChecked::new(format!("there are no {many}"), how.clone()))?;
        let corpus = self.distinct.get_or_init(|| given.distinct());
        match corpus.len() {
            LEAST_PAIRS.. => Ok(corpus),
            n if n < given.len() => Err(NotChecked::new(
                format!(
                    "of {} {many} only {n} {} distinct, and at least {LEAST_PAIRS} are needed",
                    given.len(),
                    if n == 1 { "is" } else { "are" }
                ),
                how,
            )),
            1 => {
                Err(NotChecked::new(format!("one {one} is too few: at least {LEAST_PAIRS} are needed"), how))
            }
            n => Err(NotChecked::new(
                format!("{n} {many} are too few: at least {LEAST_PAIRS} are needed"),
                how,
            )),
        }
    }

    /// What a rule finds in each weight that is bound and of its kind, from the statistics of its tensor. A tensor that cannot
    /// be
    /// read leaves the rule unchecked, unless it has found something in another. `(kind, counts)` says which weights it looks
    /// at.
    pub(crate) fn each_weight(
        &self,
        rule: &Rule,
        (kind, counts): (&str, impl Fn(WeightId) -> bool),
        find: impl Fn(&Weight, usize, &Stats) -> Option<Finding>,
    ) -> Checked {
        let stats = self.stats.get_or_init(|| {
            let RuleInput { checkpoint, cancel, .. } = *self.input;
            let of = |tensor: &TensorInfo| match cancel.check() {
                Ok(()) => checkpoint.stats_of(tensor).map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            };
            checkpoint.tensors().par_iter().map(of).collect()
        });
        let (mut findings, mut unread, mut read) = (Vec::new(), None, 0);
        for (id, _) in self.model().binding.iter() {
            let weight = self.model().graph.weight(id);
            let Some(tensor) = self.tensor(id).filter(|_| counts(id)) else { continue };
            match stats.get(tensor) {
                Some(Ok(stats)) => {
                    read += 1;
                    findings.extend(find(weight, tensor, stats));
                }
                Some(Err(why)) => unread = unread.or(Some((tensor, why))),
                None => {}
            }
        }
        match unread {
            Some((tensor, why)) if findings.is_empty() => {
                let why = format!("{} cannot be read: {why}", self.name(tensor));
                Err(NotChecked::new(why, "repair or replace the file"))
            }
            _ => {
                let measure = rule.measure("weights", findings.len() as f64).threshold(0.0);
                Ok(Outcome::from(findings).measured([measure.words(format!("none of {read} {kind}"))]))
            }
        }
    }

    /// The tensor of a weight that is bound.
    pub(crate) fn tensor(&self, weight: WeightId) -> Option<usize> {
        match self.model().binding.slot(weight) {
            Slot::Bound(found) => Some(found.tensor),
            Slot::Missing { .. } | Slot::Mismatched { .. } => None,
        }
    }

    /// What the file calls a tensor.
    pub(crate) fn name(&self, tensor: usize) -> &'a str {
        self.model().tensors.get(tensor).map_or("", |t| t.name.as_str())
    }

    /// One run of the sample.
    pub(crate) fn observed(&self) -> Result<&Observed, NotChecked> {
        let (prepared, sample) = (self.prepared()?, self.sample()?);
        let seen = self.observed.get_or_init(|| observe(prepared, &sample.input));
        seen.as_ref().map_err(NotChecked::from)
    }

    /// The same where the whole run is finite: a NaN is a separate finding, and nothing else can be concluded from such a run.
    pub(crate) fn finite(&self) -> Result<&Observed, NotChecked> {
        let seen = self.observed()?;
        match seen.broken {
            Some(_) => Err(NotChecked::new("the run is not finite", "see first-nan, which comes first")),
            None => Ok(seen),
        }
    }

    /// The same where the sample is real sentences and the run is finite: the basis for statements about heads.
    pub(crate) fn behaviour(&self) -> Result<&Observed, NotChecked> {
        if !self.sample()?.real {
            let how = match self.model().architecture.reads(Side::Source) {
                true => Remedy::RealSentences,
                false => Remedy::RealText,
            };
            return Err(NotChecked::new("random tokens say nothing about what heads do", how));
        }
        self.finite()
    }

    /// The search, if any rule needed it, without a wiring that was not accepted.
    pub(crate) fn into_search(self) -> Option<Search> {
        let are_edited = matches!(self.edited_pairs.into_inner(), Some(Ok(Some(_))));
        let repairs = self.repairs.into_inner().and_then(Result::ok);
        let is_outdone = repairs.and_then(|repairs| repairs.refused).is_some_and(|r| r.outdoes_wiring);
        let mut search = self.search.into_inner().and_then(Result::ok)?;
        search.better = search.better.filter(|_| !are_edited && !is_outdone);
        Some(search)
    }

    /// The search for a better wiring.
    pub(crate) fn search(&self) -> Result<&Search, NotChecked> {
        let (prepared, corpus) = (self.prepared()?, self.corpus()?);
        let RuleInput { thresholds, repair_time, progress, .. } = *self.input;
        let found = self.search.get_or_init(|| {
            let start = Instant::now();
            let found = search(prepared, corpus, thresholds, repair_time.mul_f64(FOR_WIRINGS), progress);
            self.searched.set(start.elapsed());
            found
        });
        found.as_ref().map_err(NotChecked::from)
    }

    /// The search for a mistake of a converter, in addition to the wirings that were tried, where the pairs are informative.
    pub(crate) fn repairs(&self) -> Result<&RepairSearch, NotChecked> {
        let (prepared, corpus) = (self.prepared()?, self.corpus()?);
        let RuleInput { model, thresholds, repair_time, progress, .. } = *self.input;
        if repair_time.is_zero() {
            return Err(NotChecked::new("--repair-time is 0", "give the search for repairs some seconds"));
        }
        if let Some(path) = constant_matrix(model, prepared.weights()) {
            return Err(NotChecked::new(
                format!("every value of {path} is the same, and no repair can restore the others"),
                "see zero-weight and constant-weight, which come first",
            ));
        }
        let wirings = self.search()?;
        if !wirings.nll.is_finite() {
            return Err(NotChecked::new(
                "the pairs have no finite likelihood with these weights",
                "see first-nan and nonfinite-weight, which come first",
            ));
        }
        // For audio one limit covers both searches; whatever the wirings took, repairs have a part of it.
        let left = match model.graph.reads_audio() {
            true => {
                repair_time.saturating_sub(self.searched.get()).max(repair_time.mul_f64(1.0 - FOR_WIRINGS))
            }
            false => repair_time,
        };
        let found = self
            .repairs
            .get_or_init(|| search_repairs(prepared, corpus, thresholds, wirings, left, progress));
        found.as_ref().map_err(NotChecked::from)
    }

    /// The edit of the pairs with which the declared model works, if nothing else is significantly better. Edits are tried
    /// where a wiring or a repair would be accepted, or where the pairs do not fit.
    pub(crate) fn edited_pairs(&self) -> Result<Option<&EditedPairs>, NotChecked> {
        let (declared, corpus, search) = (self.prepared()?, self.corpus()?, self.search()?);
        let RuleInput { thresholds, tokenizer, .. } = *self.input;
        // A repair that no rule asked for is not reported.
        let has_repair = || matches!(self.repairs.get(), Some(Ok(RepairSearch { repair: Some(_), .. })));
        let is_fine = search.better.is_none() && search.fit.works().is_ok() && !has_repair();
        if is_fine || !search.nll.is_finite() {
            return Ok(None);
        }
        let edits = PairEdits { declared, tokenizer, corpus, search, thresholds };
        let edited = self.edited_pairs.get_or_init(|| edits.best(|| self.best_repair()));
        edited.as_ref().map(Option::as_ref).map_err(NotChecked::from)
    }

    /// The better wiring, if there is one and nothing else explains the pairs as well.
    pub(crate) fn better(&self) -> Result<Option<&Better>, NotChecked> {
        let search = self.search()?;
        let Some(better) = &search.better else { return Ok(None) };
        let is_contested = self.edited_pairs()?.is_some() || self.repair_beyond_wiring().is_some();
        Ok((!is_contested).then_some(better))
    }

    /// A repair that is not certain but explains the pairs better than the better wiring, which is then not certain either.
    pub(crate) fn repair_beyond_wiring(&self) -> Option<&Refused> {
        self.repairs().ok()?.refused.as_ref().filter(|refused| refused.outdoes_wiring)
    }

    /// The repair that was found, whatever else explains the pairs.
    fn best_repair(&self) -> Option<&Repair> {
        self.repairs().ok()?.repair.as_ref()
    }

    /// The repair of the weights that explains the pairs, if one was looked for and found, and no edit of the pairs does as
    /// well.
    pub(crate) fn repair(&self) -> Option<&Repair> {
        self.best_repair().filter(|_| !matches!(self.edited_pairs(), Ok(Some(_))))
    }

    /// Whether a repair of the weights explains the pairs significantly better than the better wiring.
    pub(crate) fn is_repaired_better(&self) -> bool {
        self.repair().is_some_and(|repair| repair.beside_wiring == BesideWiring::Better)
    }
}

/// The first matrix or table in which every value is the same.
fn constant_matrix<'m>(model: &'m Model, weights: &Weights) -> Option<&'m str> {
    let is_constant =
        |id: WeightId| weights.get(id).is_ok_and(|values| values.iter().all(|x| Some(x) == values.first()));
    let mut ids = model.binding.iter().map(|(id, _)| id);
    let found = ids.find(|&id| model.graph.weight(id).dims.len() > 1 && is_constant(id))?;
    Some(&model.graph.weight(found).path)
}
