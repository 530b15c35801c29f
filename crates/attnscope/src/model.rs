//! The model, as users of the library see it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use attnscope_corpus::AuditModel;
use attnscope_run::{Limits, Prepared};

use crate::answer::{
    Audit, Diagnosis, Explanation, Flow, Generation, Inspection, MaskProof, Report, RunReport, Summary,
    Trace, TraceCheck,
};
use crate::audit::{AuditCorpus, AuditOptions, audit, audit_model};
use crate::device::Device;
use crate::doctor::{DoctorOptions, doctor};
use crate::explain::{ExplainOptions, explain};
use crate::failure::Failure;
use crate::flow::{FlowOptions, flow};
use crate::generate::{GenerateOptions, generate};
use crate::input::Input;
use crate::inspect::{Detail, inspect};
use crate::loaded::Loaded;
use crate::masks::{MaskOptions, prove};
use crate::note::{Listener, Note, Notes};
use crate::open::Opened;
use crate::ready::Ready;
use crate::report::{ReportOptions, RunOptions, report, run_report};
use crate::summary::{Lengths, summarise};
use crate::token_count::{TokenCount, token_counts};
use crate::trace::{TraceOptions, trace};
use crate::traced::check_trace_of;

/// A model that is open. It owns what it needs, can be sent to other threads and shared between them, and is cheap to clone.
///
/// ```
/// let model = attnscope::open("demo")?;
/// let summary = model.summary(&attnscope::Lengths::default())?;
/// assert_eq!(summary.totals.parameters, 1_174_528);
/// # Ok::<(), attnscope::Failure>(())
/// ```
#[derive(Clone)]
pub struct Model {
    opened: Arc<Opened>,
    /// Its weights, on whichever device they were asked for.
    loaded: Arc<Loaded>,
    device: Device,
    limits: Limits,
    listener: Option<Listener>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.opened.name).finish_non_exhaustive()
    }
}

/// Opens a file, a folder or a built-in: `demo` or `toy`.
///
/// # Errors
/// Where there is no checkpoint, or it cannot be read or contradicts itself.
pub fn open(name: &str) -> Result<Model, Failure> {
    Ok(Opened::open(name, None)?.into())
}

impl From<Opened> for Model {
    fn from(opened: Opened) -> Self {
        Self {
            opened: Arc::new(opened),
            loaded: Arc::default(),
            device: Device::default(),
            limits: Limits::default(),
            listener: None,
        }
    }
}

impl Model {
    /// The checkpoint, and what it was recognised as.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The same model, with a callback for notes. Answers hold the same notes.
    ///
    /// ```
    /// use attnscope::{Lengths, Note};
    ///
    /// let model = attnscope::open("demo")?.on_note(|note| eprintln!("{note:?}"));
    /// let long = Lengths { source: Some(100_000), ..Lengths::default() };
    /// assert!(model.summary(&long)?.notes.is_empty()); // The demo computes its positions.
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    #[must_use]
    pub fn on_note(self, listener: impl Fn(&Note) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Arc::new(listener)), ..self }
    }

    /// The same model on another device.
    #[must_use]
    pub fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// What it runs on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The same model within limits, which every call keeps: how many threads and how much memory, a flag that ends it, and
    /// who is told how far it is.
    ///
    /// ```
    /// use attnscope::{Cancel, FailureKind, Input, Limits};
    ///
    /// let cancel = Cancel::default(); // Another thread holds a copy, and ends what takes too long.
    /// let limits = Limits { threads: Some(1), cancel: cancel.clone(), ..Limits::default() };
    /// let model = attnscope::open("demo")?.with_limits(limits);
    /// cancel.cancel();
    /// let failure = model.trace(&Input::text("A dog."), "*").unwrap_err();
    /// assert_eq!(failure.kind, FailureKind::Cancelled);
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// What its calls may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Does the work of a call within the limits.
    fn limited<T: Send>(&self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        self.limits.cancel.check()?;
        self.limits.install(work)?
    }

    /// The model with its weights, its tokenizer and the input's languages.
    pub(crate) fn ready(&self, input: &Input) -> Result<Ready<'_>, Failure> {
        input.with_languages(Ready::with(&self.opened, self.prepared()?)?)
    }

    /// The model with its weights, which are read when they are first needed.
    pub(crate) fn prepared(&self) -> Result<Arc<dyn Prepared>, Failure> {
        self.loaded.on(&self.opened, self.device, &self.limits)
    }

    fn notes(&self) -> Notes {
        Notes::new(self.listener.clone())
    }

    /// The same model for a call that makes several others: its listener is told of each note once.
    fn telling_once(&self) -> Self {
        let Some(listener) = self.listener.clone() else { return self.clone() };
        let told = Mutex::new(Vec::new());
        self.clone().on_note(move |note| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if !told.contains(note) {
                told.push(note.clone());
                listener(note);
            }
        })
    }

    /// What the checkpoint is: format, family, every fact with its source, what is missing.
    ///
    /// ```
    /// use attnscope::Detail;
    ///
    /// let inspection = attnscope::open("demo")?.inspect(Detail::Headers)?;
    /// assert_eq!(inspection.format, "safetensors");
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// With [`Detail::Values`], where a value cannot be read or a checksum is wrong.
    pub fn inspect(&self, detail: Detail) -> Result<Inspection, Failure> {
        self.limited(|| inspect(&self.opened, detail))
    }

    /// How data flows through the model, or through a part of it. Reads headers only.
    ///
    /// ```
    /// use attnscope::{Component, FlowOptions};
    ///
    /// let options = FlowOptions { component: Component::CrossAttention, ..FlowOptions::default() };
    /// let flow = attnscope::open("demo")?.flow(&options)?;
    /// assert_eq!(flow.parts[0].layers.path(), "decoder.0–1"); // Two equal layers.
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where there is no model to draw, or the selector picks nothing of it.
    pub fn flow(&self, options: &FlowOptions) -> Result<Flow, Failure> {
        flow(&self.opened, options, self.notes())
    }

    /// The layers with their shapes, parameters and costs on an input of these sizes.
    ///
    /// # Errors
    /// Where there is no model to sum up, its head count is not known, or a number does not fit in 64 bits.
    pub fn summary(&self, lengths: &Lengths) -> Result<Summary, Failure> {
        summarise(&self.opened, lengths, self.notes())
    }

    /// How many tokens the texts of an input have, before anything is run.
    ///
    /// ```
    /// use attnscope::Input;
    ///
    /// let counts = attnscope::open("demo")?.token_counts(&Input::text("Two dogs play."))?;
    /// assert_eq!((counts[0].tokens, counts[0].positions), (5, None)); // With </s>; its positions are computed.
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model cannot be run, or has no tokenizer.
    pub fn token_counts(&self, input: &Input) -> Result<Vec<TokenCount>, Failure> {
        self.limited(|| token_counts(&self.ready(input)?, input))
    }

    /// What the model generates from every row of an input.
    ///
    /// ```
    /// use attnscope::{GenerateOptions, Input};
    ///
    /// let model = attnscope::open("demo")?;
    /// let written = model.generate(&Input::text("A man is sleeping."), &GenerateOptions::default())?;
    /// let best = written.outputs[0].best().and_then(|sentence| sentence.text.clone());
    /// assert_eq!(best.as_deref(), Some("Ein Mann schläft."));
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model cannot be run, or the input is not for it.
    pub fn generate(&self, input: &Input, options: &GenerateOptions) -> Result<Generation, Failure> {
        self.limited(|| generate(self.ready(input)?, input, options, self.notes()))
    }

    /// Runs the model and measures its tensors. A selector keeps those that it picks: `logits`,
    /// `decoder.*.cross_attn.weights`, `*`.
    ///
    /// ```
    /// use attnscope::{Input, TraceOptions};
    ///
    /// let walk = attnscope::open("demo")?.trace(&Input::text("A dog."), TraceOptions::default())?;
    /// assert_eq!(walk.walk.map(|walk| walk.stops.len()), Some(43));
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model cannot be run, the input is not for it, or nothing is picked.
    pub fn trace(&self, input: &Input, options: impl Into<TraceOptions>) -> Result<Trace, Failure> {
        let options = options.into();
        self.limited(|| trace(self, input, &options, self.notes()))
    }

    /// The masks for an input, and the proofs that nothing leaks through them.
    ///
    /// ```
    /// use attnscope::{Input, MaskOptions};
    ///
    /// let proof = attnscope::open("demo")?.masks(&Input::text("A dog."), &MaskOptions::default())?;
    /// assert!(!proof.fails());
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model cannot be run, or the input is not for it.
    pub fn masks(&self, input: &Input, options: &MaskOptions) -> Result<MaskProof, Failure> {
        self.limited(|| prove(&self.ready(input)?, input, options, self.notes()))
    }

    /// Computes every tensor of a saved trace of this model again, in f64, from its inputs.
    ///
    /// # Errors
    /// Where the trace cannot be read or is of other weights, nothing in it can be checked, or it is cancelled.
    pub fn check_trace(&self, folder: &Path) -> Result<TraceCheck, Failure> {
        check_trace_of(folder, self.opened.clone(), self.limits())
    }

    /// What a tensor is, one cell of it, an idea, a question or a rule of the doctor, with the numbers of this model.
    ///
    /// ```
    /// use attnscope::ExplainOptions;
    ///
    /// let options = ExplainOptions { cell: Some(vec![0, 1, 2, 3]), ..ExplainOptions::default() };
    /// let explanation = attnscope::open("demo")?.explain("decoder.0.cross_attn.weights", &options)?;
    /// assert!(explanation.cell.is_some_and(|cell| cell.agrees()));
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the topic is unknown, there is no model to explain it with, or the input is not for it.
    pub fn explain(&self, topic: &str, options: &ExplainOptions) -> Result<Explanation, Failure> {
        self.limited(|| explain(self, Some(topic), options, self.notes()))
    }

    /// A guided tour of all snapshots of a run.
    ///
    /// # Errors
    /// As [`Model::explain`].
    pub fn walk(&self, options: &ExplainOptions) -> Result<Explanation, Failure> {
        self.limited(|| explain(self, None, options, self.notes()))
    }

    /// What is wrong with the model, and why.
    ///
    /// # Errors
    /// Where there is no model to judge, or the pairs are not for it.
    pub fn doctor(&self, options: &DoctorOptions) -> Result<Diagnosis, Failure> {
        self.limited(|| doctor(self, options))
    }

    /// What the model does on a corpus: what every sentence costs it, with its own source and with another, and what every head
    /// and layer does there. Every row is written to the folder, in parts; the answer sums them up.
    ///
    /// ```
    /// use attnscope::{AuditCorpus, AuditOptions};
    ///
    /// let dir = std::env::temp_dir().join(format!("audit-{}", std::process::id()));
    /// std::fs::create_dir_all(&dir).unwrap();
    /// let pairs = dir.join("pairs.tsv");
    /// std::fs::write(&pairs, "A dog runs.\tEin Hund läuft.\nA man sleeps.\tEin Mann schläft.\n").unwrap();
    /// let model = attnscope::open("demo")?;
    /// let audit = model.audit(&AuditCorpus::Pairs(pairs), &dir.join("out"), &AuditOptions::default())?;
    /// assert_eq!((audit.summary.sentences, audit.summary.heads.len()), (2, 24)); // 6 attentions with 4 heads each.
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where the model cannot be run, the corpus cannot be read, or the folder is not for this audit. What is committed stays.
    pub fn audit(&self, corpus: &AuditCorpus, out: &Path, options: &AuditOptions) -> Result<Audit, Failure> {
        self.limited(|| audit(self, corpus, out, options))
    }

    /// The model as the kernel of audits uses it, for whoever shares out rows by other means:
    /// [`corpus::audit_batch`](crate::corpus::audit_batch). Of `languages` those of a multilingual model are read.
    ///
    /// # Errors
    /// Where the model cannot be run, has no tokenizer, or predicts no text.
    pub fn audit_model(&self, languages: &Input) -> Result<AuditModel, Failure> {
        self.limited(|| audit_model(self, languages))
    }

    /// Everything above about the model, and about a run of it.
    ///
    /// ```
    /// use attnscope::{Input, ReportOptions, RunOptions};
    ///
    /// let run = RunOptions { input: Input::text("Two dogs play."), ..RunOptions::default() };
    /// let options = ReportOptions { run: Some(run), doctor: None, ..ReportOptions::default() };
    /// let report = attnscope::open("demo")?.report(options)?;
    /// assert_eq!(report.run.map(|run| run.attentions.len()), Some(6)); // Two in each of two layers, and two across.
    /// # Ok::<(), attnscope::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Where there is no model, or the input is not for it. What else cannot be done is left out, with the reason.
    pub fn report(&self, options: ReportOptions) -> Result<Report, Failure> {
        self.limited(|| report(&self.telling_once(), options))
    }

    /// The part of a report that is about one run.
    ///
    /// # Errors
    /// Where the model cannot be run, or the input is not for it.
    pub fn run_report(&self, options: &RunOptions) -> Result<RunReport, Failure> {
        let model = self.telling_once();
        self.limited(|| run_report(&model, options, model.notes()))
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::Model;
    use crate::device::Device;

    #[test]
    fn a_model_can_be_shared_between_threads() {
        fn shared<T: Send + Sync + Clone + 'static>() {}
        shared::<Model>();
    }

    #[test]
    fn threads_that_come_together_load_it_once() {
        let model = super::open("demo").unwrap();
        let weights = |device| {
            let prepared = model.clone().on(device).prepared().unwrap();
            prepared.weights().clone()
        };
        let all: Vec<_> = (0..8).into_par_iter().map(|_| weights(Device::Reference)).collect();
        let id = model.opened().model().unwrap().graph.find_weight("src.embed.weight").unwrap();
        assert!(all.iter().all(|weights| weights.same(&all[0], id)));
        // Another device has them from there; a table that is only looked up in stays where it is.
        assert_eq!(weights(Device::Cpu).get(id).unwrap(), all[0].get(id).unwrap());
    }
}
