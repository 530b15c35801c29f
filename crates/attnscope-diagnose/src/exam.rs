//! What rules look at: a model, its weights, an input, pairs, and what was measured on the way, each measured once.

use std::cell::OnceCell;
use std::time::Duration;

use attnscope_checkpoint::{Checkpoint, Stats};
use attnscope_graph::{Model, Side, Slot, Stack, Weight, WeightId};
use attnscope_run::{Input, RunError, Shift, Tokenizer, Weights};

use crate::corpus::{Corpus, LEAST_PAIRS};
use crate::finding::Finding;
use crate::measure::Outcome;
use crate::misconversion::{BesideWiring, Repair, RepairSearch, search_repairs};
use crate::observe::{Observed, observe};
use crate::rule::{Checked, NotChecked, Rule};
use crate::score::Progress;
use crate::thresholds::Thresholds;
use crate::wiring::{Search, search};

/// An input that rules run the model on.
#[derive(Debug)]
pub struct Sample {
    /// Source and decoder input.
    pub input: Input,
    /// Sentences that somebody wrote, not made-up tokens: what heads do with the latter says little.
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
    /// The positions that there are.
    pub room: usize,
    /// They are computed, and go on here: only code that keeps them in a table has no more.
    pub computed: bool,
}

/// A model, and everything that is known beside it.
#[derive(Clone, Copy)]
pub struct Patient<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its file.
    pub checkpoint: &'a Checkpoint,
    /// Its weights; absent where it does not run.
    pub weights: Option<&'a Weights>,
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
    /// Pairs for which the model has no positions, and which are left out, or for which Hugging Face has none.
    pub too_long: &'a [TooLong],
    /// The numbers that are decided by.
    pub thresholds: &'a Thresholds,
    /// How long repairs of the weights may be tried at the most.
    pub repair_time: Duration,
    /// Told how far a search has come.
    pub progress: &'a Progress<'a>,
}

/// A patient under examination: what several rules want to know is measured once, when the first asks.
pub(crate) struct Exam<'a> {
    pub(crate) patient: &'a Patient<'a>,
    stats: OnceCell<Vec<Result<Stats, String>>>,
    distinct: OnceCell<Corpus>,
    search: OnceCell<Result<Search, RunError>>,
    repairs: OnceCell<Result<RepairSearch, RunError>>,
    observed: OnceCell<Result<Observed, RunError>>,
}

impl<'a> Exam<'a> {
    pub(crate) fn new(patient: &'a Patient<'a>) -> Self {
        Self {
            patient,
            stats: OnceCell::new(),
            distinct: OnceCell::new(),
            search: OnceCell::new(),
            repairs: OnceCell::new(),
            observed: OnceCell::new(),
        }
    }

    pub(crate) fn model(&self) -> &'a Model {
        self.patient.model
    }

    pub(crate) fn thresholds(&self) -> &'a Thresholds {
        self.patient.thresholds
    }

    /// The weights, or why there is no run.
    pub(crate) fn weights(&self) -> Result<&'a Weights, NotChecked> {
        self.patient.weights.ok_or_else(|| {
            let why =
                self.model().obstacles.first().cloned().unwrap_or_else(|| "the model does not run".into());
            NotChecked::new(why, "mend that first; `attnscope inspect` says who says what")
        })
    }

    /// The input, or how to give one.
    pub(crate) fn sample(&self) -> Result<&'a Sample, NotChecked> {
        self.weights()?;
        let how = "give a text with --src, token ids with --src-ids, or a recording with --audio";
        self.patient.sample.ok_or_else(|| NotChecked::new("there is nothing to run the model on", how))
    }

    /// The pairs, each once, or how to give some.
    pub(crate) fn corpus(&self) -> Result<&Corpus, NotChecked> {
        self.weights()?;
        let architecture = &self.model().architecture;
        if !architecture.has_cross_attention() {
            let why = format!(
                "it is judged on pairs of a source and a target, and a model that is {} reads one text",
                architecture.kind()
            );
            return Err(NotChecked::new(why, "what can be checked of such a model is listed above"));
        }
        let [one, many, how] = match self.model().graph.reads_audio() {
            false => [
                "sentence pair",
                "sentence pairs",
                "give --pairs FILE: a source, a tab and its target a line, 50 lines or more of what it was trained for",
            ],
            true => [
                "clip with a transcript",
                "clips with transcripts",
                "give --pairs FILE: the file of a clip, a tab and what is said in it a line, 50 lines or more",
            ],
        };
        let pairs = self.patient.corpus.filter(|c| !c.is_empty());
        let given = pairs.ok_or_else(|| NotChecked::new(format!("there are no {many}"), how))?;
        let corpus = self.distinct.get_or_init(|| given.distinct());
        match corpus.len() {
            LEAST_PAIRS.. => Ok(corpus),
            n if n < given.len() => Err(NotChecked::new(
                format!(
                    "only {n} of {} {many} are distinct, and {LEAST_PAIRS} are the least to be sure of anything",
                    given.len()
                ),
                how,
            )),
            1 => Err(NotChecked::new(format!("one {one} says nothing for sure"), how)),
            n => Err(NotChecked::new(
                format!("{n} {many} are too few to be sure of anything: {LEAST_PAIRS} are the least"),
                how,
            )),
        }
    }

    /// What a rule finds in each weight that is bound, from the statistics of its tensor. A tensor that cannot be read
    /// leaves the rule unchecked, unless it has found something in another.
    pub(crate) fn each_weight(
        &self,
        rule: &Rule,
        find: impl Fn(&Weight, usize, &Stats) -> Option<Finding>,
    ) -> Checked {
        let stats = self.stats.get_or_init(|| {
            self.patient.checkpoint.stats().into_iter().map(|s| s.map_err(|e| e.to_string())).collect()
        });
        let (mut findings, mut unread, mut read) = (Vec::new(), None, 0);
        for (id, _) in self.model().binding.iter() {
            let Some(tensor) = self.tensor(id) else { continue };
            match stats.get(tensor) {
                Some(Ok(stats)) => {
                    read += 1;
                    findings.extend(find(self.model().graph.weight(id), tensor, stats));
                }
                Some(Err(why)) => unread = unread.or(Some((tensor, why))),
                None => {}
            }
        }
        match unread {
            Some((tensor, why)) if findings.is_empty() => {
                let why = format!("{} cannot be read: {why}", self.name(tensor));
                Err(NotChecked::new(why, "mend or replace the file"))
            }
            _ => {
                let measure = rule.measure("weights", findings.len() as f64).threshold(0.0);
                Ok(Outcome::from(findings).measured([measure.words(format!("none of {read} weights"))]))
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
        let (weights, sample) = (self.weights()?, self.sample()?);
        let seen = self.observed.get_or_init(|| observe(self.model(), weights, &sample.input));
        seen.as_ref().map_err(NotChecked::from)
    }

    /// The same where all of it is finite: what is not is a finding of its own, and nothing else can be told from it.
    pub(crate) fn finite(&self) -> Result<&Observed, NotChecked> {
        let seen = self.observed()?;
        match seen.broken {
            Some(_) => Err(NotChecked::new("the run is not finite", "see first-nan, which comes first")),
            None => Ok(seen),
        }
    }

    /// The same where the sample is of sentences and all of it is finite: what is to be said of heads.
    pub(crate) fn behaviour(&self) -> Result<&Observed, NotChecked> {
        if !self.sample()?.real {
            let how = match self.model().architecture.has(Stack::Encoder) {
                true => "give sentences: --src TEXT, --audio FILE or --pairs FILE",
                false => "give a text: --prompt TEXT or --text FILE",
            };
            return Err(NotChecked::new("made-up tokens say nothing of what heads do", how));
        }
        self.finite()
    }

    /// The search, if any rule asked for it.
    pub(crate) fn into_search(self) -> Option<Search> {
        self.search.into_inner().and_then(Result::ok)
    }

    /// The search for a better wiring.
    pub(crate) fn search(&self) -> Result<&Search, NotChecked> {
        let (weights, corpus) = (self.weights()?, self.corpus()?);
        let found = self
            .search
            .get_or_init(|| search(self.model(), weights, corpus, self.thresholds(), self.patient.progress));
        found.as_ref().map_err(NotChecked::from)
    }

    /// The search for a mistake of a converter, beside the wirings that were tried, where the pairs can tell anything.
    pub(crate) fn repairs(&self) -> Result<&RepairSearch, NotChecked> {
        let (weights, corpus) = (self.weights()?, self.corpus()?);
        let Patient { model, thresholds, repair_time, progress, .. } = *self.patient;
        if repair_time.is_zero() {
            return Err(NotChecked::new("--repair-time is 0", "give the search for repairs some seconds"));
        }
        if let Some(path) = constant_matrix(model, weights) {
            return Err(NotChecked::new(
                format!("every value of {path} is the same, and no repair brings the others back"),
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
        let found = self.repairs.get_or_init(|| {
            search_repairs(model, weights, corpus, thresholds, wirings, repair_time, progress)
        });
        found.as_ref().map_err(NotChecked::from)
    }

    /// The repair of the weights that explains the pairs, if one was looked for and found.
    pub(crate) fn repair(&self) -> Option<&Repair> {
        self.repairs().ok()?.repair.as_ref()
    }

    /// Whether a repair of the weights explains the pairs surely better than the better wiring.
    pub(crate) fn is_repaired_better(&self) -> bool {
        self.repair().is_some_and(|repair| repair.beside_wiring == BesideWiring::Better)
    }
}

/// The first matrix or table in which every value is the same.
fn constant_matrix<'m>(model: &'m Model, weights: &Weights) -> Option<&'m str> {
    let is_constant = |id: WeightId| weights.get(id).iter().all(|x| Some(x) == weights.get(id).first());
    let mut ids = model.binding.iter().map(|(id, _)| id);
    let found = ids.find(|&id| model.graph.weight(id).dims.len() > 1 && is_constant(id))?;
    Some(&model.graph.weight(found).path)
}
