//! What is wrong with a model, judged on pairs, on an input, or on its weights alone.

use std::time::Duration;

use attnscope_checkpoint::Remedy;
use attnscope_diagnose::{Rule, RuleInput, Thresholds, examine, rules};
use attnscope_graph::Side;
use attnscope_run::Counted;

use crate::answer::Diagnosis;
use crate::failure::{Argument, Failure};
use crate::input::{Input, ResolvedInput, check_pairs};
use crate::judged::{Judged, PairLines};
use crate::model::Model;
use crate::near::nearest;

/// The input, pairs, rules and thresholds of a diagnosis.
///
/// ```
/// use attnscope::{DoctorOptions, PairLines};
///
/// let pairs = PairLines::of([("Two dogs play in the snow.", "Zwei Hunde spielen im Schnee.")]);
/// let rules = attnscope::rules_named(&["first-nan".to_owned(), "dead-head".to_owned()])?;
/// let answer = attnscope::open("demo")?.doctor(&DoctorOptions { pairs, rules, ..DoctorOptions::default() })?;
/// for finding in &answer.diagnosis.findings {
///     println!("{}: {}", finding.rule, finding.evidence);
/// }
/// assert_eq!(answer.diagnosis.checked.len(), 2);
/// # Ok::<(), attnscope::Failure>(())
/// ```
pub struct DoctorOptions {
    /// Sources and targets; without any, the demo uses its own.
    pub pairs: PairLines,
    /// One input, where there are no pairs, or the texts that a decoder alone is judged on; also the languages of both.
    pub input: Input,
    /// The rules to check.
    pub rules: Vec<&'static Rule>,
    /// The numbers to decide by.
    pub thresholds: Thresholds,
    /// The most time for trying repairs of the weights, and other wirings of audio models.
    pub repair_time: Duration,
    /// How remedies are worded in the answer's text and JSON.
    pub words: fn(&Remedy) -> String,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        Self {
            pairs: PairLines::default(),
            input: Input::default(),
            rules: rules().to_vec(),
            thresholds: Thresholds::default(),
            repair_time: Duration::from_secs(60),
            words: Remedy::to_string,
        }
    }
}

/// The rules of these ids; all where there are none.
///
/// ```
/// let rules = attnscope::rules_named(&["dead-head".to_owned()])?;
/// assert_eq!(rules[0].id, "dead-head");
/// assert!(attnscope::rules_named(&["dead-haed".to_owned()]).is_err());
/// # Ok::<(), attnscope::Failure>(())
/// ```
///
/// # Errors
/// Where there is no such rule, with the nearest.
pub fn rules_named(ids: &[String]) -> Result<Vec<&'static Rule>, Failure> {
    if ids.is_empty() {
        return Ok(rules().to_vec());
    }
    let find = |id: &String| {
        rules().iter().copied().find(|rule| rule.id == id.trim()).ok_or_else(|| {
            let near = nearest(id, rules().iter().map(|rule| rule.id));
            let help = format!("the nearest are {}", near.join(", "));
            Failure::new(format!("there is no rule {id:?}"), help).about(Argument::Rule(None))
        })
    };
    ids.iter().map(find).collect()
}

/// Examines a model.
pub(crate) fn doctor(model: &Model, options: &DoctorOptions) -> Result<Diagnosis, Failure> {
    let (opened, limits) = (model.opened(), model.limits());
    // What is told is how far the searches are, not each of their runs.
    let quiet = model.clone().with_limits(limits.quiet());
    let judged = judged(&quiet, options)?;
    let input = RuleInput {
        model: opened.model()?,
        checkpoint: &opened.checkpoint,
        prepared: judged.prepared(),
        tokenizer: judged.tokenizer(),
        pad: judged.pad(),
        shift: judged.shift.as_ref(),
        sample: judged.sample.as_ref(),
        corpus: judged.corpus.as_ref(),
        too_long: &judged.too_long,
        thresholds: &options.thresholds,
        repair_time: options.repair_time,
        cancel: &limits.cancel,
        progress: &|done, total| limits.progress.tell(Counted::Trials, done, total),
    };
    Ok(Diagnosis {
        model: opened.name.clone(),
        title: input.model.title(),
        family: input.model.family.id.to_owned(),
        basis: judged.basis(),
        diagnosis: examine(&input, &options.rules)?,
        words: options.words,
    })
}

/// The weights, the input and the pairs; a model that cannot be run has none of them, and is still checked.
fn judged<'m>(model: &'m Model, options: &DoctorOptions) -> Result<Judged<'m>, Failure> {
    if !model.opened().model()?.obstacles.is_empty() {
        return Ok(Judged::at_rest());
    }
    let ready = model.ready(&options.input)?;
    if !options.pairs.lines.is_empty() {
        check_pairs(&ready)?;
        return Judged::on_pairs(ready, options.pairs.clone());
    }
    let prompts = options.input.prompts();
    if !prompts.is_empty() && !ready.model.architecture.reads(Side::Source) && options.input.target.is_none()
    {
        return Judged::on_texts(ready, prompts);
    }
    let reads_target_alone = !ready.model.architecture.reads(Side::Source) && options.input.target.is_some();
    if options.input.source.is_none() && !reads_target_alone {
        return Judged::on_pairs(ready, PairLines::default());
    }
    match options.input.read(&ready)? {
        ResolvedInput::Whole(input) => Ok(Judged::on_input(ready, input)),
        ResolvedInput::Source(source) => Judged::on_source(ready, source),
    }
}
