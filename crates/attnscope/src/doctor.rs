//! What is wrong with a model, judged on pairs, on an input or on what there is.

use std::time::Duration;

use attnscope_diagnose::{Patient, Progress, Rule, Thresholds, examine, rules};
use attnscope_graph::Stack;

use crate::answer::Diagnosis;
use crate::failure::Failure;
use crate::given::{Given, Input, check_pairs};
use crate::judged::{Judged, PairLines};
use crate::model::Model;

/// What a model is judged on and by.
///
/// ```
/// use attnscope::{DoctorOptions, PairLines};
///
/// let pairs = PairLines::of([("Two dogs play in the snow.", "Zwei Hunde spielen im Schnee.")]);
/// let options = DoctorOptions { pairs, ..DoctorOptions::default() };
/// assert_eq!(options.rules.len(), attnscope::diagnose::rules().len());
/// ```
pub struct DoctorOptions<'a> {
    /// Sources and what the model should write; where there are none, the demo has its own.
    pub pairs: PairLines,
    /// One input, where there are no pairs; also the languages of both.
    pub input: Input,
    /// The rules to check.
    pub rules: Vec<&'static Rule>,
    /// The numbers to decide by.
    pub thresholds: Thresholds,
    /// The most time for trying repairs of the weights.
    pub repair_time: Duration,
    /// Told of other wirings and repairs that are done, and of how many.
    pub progress: &'a Progress<'a>,
}

impl Default for DoctorOptions<'_> {
    fn default() -> Self {
        Self {
            pairs: PairLines::default(),
            input: Input::default(),
            rules: rules().to_vec(),
            thresholds: Thresholds::default(),
            repair_time: Duration::from_secs(60),
            progress: &|_, _| {},
        }
    }
}

/// Examines a model.
pub(crate) fn doctor(model: &Model, options: &DoctorOptions<'_>) -> Result<Diagnosis, Failure> {
    let opened = model.opened();
    let judged = judged(model, options)?;
    let patient = Patient {
        model: opened.model()?,
        checkpoint: &opened.checkpoint,
        weights: judged.weights(),
        tokenizer: judged.tokenizer(),
        pad: judged.pad(),
        shift: judged.shift.as_ref(),
        sample: judged.sample.as_ref(),
        corpus: judged.corpus.as_ref(),
        too_long: &judged.too_long,
        thresholds: &options.thresholds,
        repair_time: options.repair_time,
        progress: options.progress,
    };
    Ok(Diagnosis {
        model: opened.name.clone(),
        title: patient.model.title(),
        family: patient.model.family.id.to_owned(),
        basis: judged.basis(),
        diagnosis: examine(&patient, &options.rules),
    })
}

/// The weights, the input and the pairs; a model that does not run has none, and is still looked at.
fn judged<'m>(model: &'m Model, options: &DoctorOptions<'_>) -> Result<Judged<'m>, Failure> {
    if !model.opened().model()?.obstacles.is_empty() {
        return Ok(Judged::at_rest());
    }
    let ready = model.ready(&options.input)?;
    if !options.pairs.lines.is_empty() {
        check_pairs(&ready)?;
        return Judged::on_pairs(ready, options.pairs.clone());
    }
    let reads_target_alone = !ready.model.architecture.has(Stack::Encoder) && options.input.target.is_some();
    if options.input.source.is_none() && !reads_target_alone {
        return Judged::on_pairs(ready, PairLines::default());
    }
    match options.input.read(&ready)? {
        Given::Whole(input) => Ok(Judged::on_input(ready, input)),
        Given::Source(source) => Judged::on_source(ready, source),
    }
}
