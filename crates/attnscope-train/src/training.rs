//! The loop: batches, steps, validations, checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use attnscope_run::{AdamW, Executor, Learner, LearningBatch, Limits, Nothing, RunError, Weights};

use crate::batch_input::BatchMaker;
use crate::batches::{BatchSize, Stream};
use crate::error::TrainError;
use crate::examples::{Examples, TrainingData};
use crate::generate::Generated;
use crate::metrics::{Metric, MetricsFile, TrainMetric, ValidationMetric};
use crate::monitor::{MonitorMetric, Warning, Watched, block_norms, judge};
use crate::progress::{Best, Progress, Window};
use crate::recipe::{ModelTable, Recipe, Schedule};
use crate::saved::RunFolder;
use crate::start::Start;

/// Everything that a run is made of.
#[derive(Debug)]
pub struct Setup {
    /// What was asked for.
    pub recipe: Recipe,
    /// What learns.
    pub start: Start,
    /// From what.
    pub data: TrainingData,
}

/// How a run is run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Where everything is kept.
    pub folder: RunFolder,
    /// Goes on where the folder's run stopped.
    pub resume: bool,
    /// Ends the run after the step that is under way; it is saved, and can be resumed.
    pub stop: Arc<AtomicBool>,
}

/// Is told how a run gets on.
pub trait TrainWatcher {
    /// After every step.
    fn stepped(&mut self, _: &StepReport) {}
    /// After every line of metrics, with all until then.
    fn measured(&mut self, _: &[Metric]) {}
}

impl TrainWatcher for () {}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Steps that were made, and how many there are.
    pub step: u64,
    /// How many there are, unless it ends early.
    pub steps: u64,
    /// The mean loss since the last line of metrics.
    pub loss: f64,
    /// The share of targets that were the model's first choice since then.
    pub accuracy: f64,
    /// Tokens a second since then.
    pub tokens_per_second: f64,
    /// Seconds that the rest takes at the mean pace of this process.
    pub seconds_left: f64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// After all steps.
    Finished,
    /// Validation got no better.
    EarlyStop,
    /// Somebody stopped it.
    Interrupted,
    /// A loss or a gradient was NaN or infinite: nothing can be learned any more. What was saved before stays. Or it came to its
    /// end with a loss far above what a guess costs.
    Diverged,
}

/// Where a run left the numbers behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The step at which it was seen, from 1.
    pub step: u64,
    /// `the loss is NaN`
    pub found: String,
    /// What usually leads to it, of this recipe, with what to try; the likeliest first.
    pub causes: Vec<String>,
    /// The step of the last checkpoint; `None` where nothing was saved before.
    pub saved: Option<u64>,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct TrainingRun {
    /// How it ended.
    pub ended: Ended,
    /// Steps that were made.
    pub steps: u64,
    /// How many there are, unless it ends early.
    pub all_steps: u64,
    /// Seconds of learning, validation left out.
    pub seconds: f64,
    /// The step, nats a target and accuracy of the best validation.
    pub best: Option<(u64, f64, f64)>,
    /// Everything that was measured.
    pub metrics: Vec<Metric>,
    /// Where and why, if it diverged.
    pub divergence: Option<Divergence>,
}

impl TrainingRun {
    /// What monitors had to say.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.metrics.iter().filter_map(|line| match line {
            Metric::Warning(warning) => Some(warning),
            _ => None,
        })
    }
}

/// Trains a model.
///
/// # Errors
/// When a file cannot be written, or a run fails. What was saved before stays.
pub fn train(
    executor: &dyn Executor,
    limits: &Limits,
    setup: Setup,
    options: &RunOptions,
    watcher: &mut dyn TrainWatcher,
) -> Result<TrainingRun, TrainError> {
    let mut run = Run::begin(executor, limits, setup, options)?;
    let is_new = !options.folder.path().exists();
    let ended = match run.learn(options, watcher) {
        Err(TrainError::NotFinite { step, found }) => {
            run.divergence = Some(run.diverged(step, found));
            Ended::Diverged
        }
        Ok(ended @ (Ended::Finished | Ended::EarlyStop)) => match run.exploded() {
            Some(found) => {
                run.divergence = Some(run.diverged(run.progress.step, found));
                Ended::Diverged
            }
            None => ended,
        },
        ended if options.resume => ended?,
        ended => ended.map_err(|cause| run.folder.abandon(is_new, cause))?,
    };
    let best = run.progress.best.map(|best| (best.step, best.nll, best.accuracy));
    Ok(TrainingRun {
        ended,
        steps: run.progress.step,
        all_steps: run.all_steps,
        seconds: run.progress.seconds,
        best,
        metrics: run.metrics.lines,
        divergence: run.divergence,
    })
}

/// How large batches are.
pub(crate) fn batch_size(recipe: &Recipe) -> BatchSize {
    match (recipe.train.batch, recipe.train.batch_tokens) {
        (Some(examples), _) => BatchSize::Examples(examples),
        (None, tokens) => BatchSize::Tokens(tokens.unwrap_or(1)),
    }
}

/// What a classifier's texts are padded to.
pub(crate) fn text_length(recipe: &Recipe) -> Option<usize> {
    match &recipe.model {
        ModelTable::Classifier(model) => Some(model.length),
        ModelTable::EncoderDecoder(_) => None,
    }
}

/// All steps of a recipe on so many examples.
pub(crate) fn all_steps(recipe: &Recipe, train: &Examples) -> u64 {
    let batches = |epoch| train.epoch(batch_size(recipe), recipe.seed, epoch).len() as u64;
    match (recipe.train.steps, recipe.train.epochs) {
        (Some(steps), _) => steps,
        (None, epochs) => (0..epochs.unwrap_or(1)).map(batches).sum(),
    }
}

/// A run whose last loss is above so many times what a guess costs has learned nothing; up to the first it may still be on its
/// way down.
const FAR: f64 = 10.0;
const NEAR: f64 = 2.0;

struct Run<'a> {
    executor: &'a dyn Executor,
    learner: Box<dyn Learner>,
    recipe: Recipe,
    data: TrainingData,
    files: Vec<(String, Vec<u8>)>,
    generated: Option<Generated>,
    maker: BatchMaker,
    watched: Option<Watched>,
    folder: RunFolder,
    metrics: MetricsFile,
    progress: Progress,
    all_steps: u64,
    validate_every: u64,
    /// When this process began, and at which step.
    began: (Instant, u64),
    /// The step of the last checkpoint.
    saved: Option<u64>,
    divergence: Option<Divergence>,
}

impl<'a> Run<'a> {
    fn begin(
        executor: &'a dyn Executor,
        limits: &Limits,
        setup: Setup,
        options: &RunOptions,
    ) -> Result<Self, TrainError> {
        let Setup { recipe, start, data } = setup;
        let Start { model, weights, tokenizer, files } = start;
        let folder = options.folder.clone();
        let digest = data.digest();
        let (weights, optimiser, progress) = match options.resume {
            true => {
                let (weights, optimiser, progress) = folder.load_state(&model)?;
                if progress.digest != digest {
                    let why = "the examples are not those that it was begun with".to_owned();
                    return Err(TrainError::Resume { place: folder.path().to_owned(), why });
                }
                (weights, Some(optimiser), progress)
            }
            false => (weights, None, Progress { digest, ..Progress::default() }),
        };
        let metrics = match options.resume {
            true => MetricsFile::resume(folder.metrics(), progress.step)?,
            false => MetricsFile::new(folder.metrics()),
        };
        let maker = BatchMaker::new(&model, text_length(&recipe), recipe.train.label_smoothing)?;
        let watched = match recipe.monitors.every {
            Some(0) => None,
            _ => Some(Watched::new(&model, &maker, &data.validation, recipe.monitors.examples)?),
        };
        let generated =
            Generated::new(&model, &files, tokenizer, &data.validation, recipe.train.bleu_examples)?;
        let mut learner = executor.learner(model, weights, limits)?;
        if let Some(optimiser) = optimiser {
            learner.set_optimiser_state(optimiser)?;
        }
        let first_epoch = data.train.epoch(batch_size(&recipe), recipe.seed, 0).len() as u64;
        let began = (Instant::now(), progress.step);
        let saved = options.resume.then_some(progress.step);
        Ok(Self {
            executor,
            learner,
            all_steps: all_steps(&recipe, &data.train),
            validate_every: recipe.train.validate_every.unwrap_or(first_epoch).max(1),
            recipe,
            data,
            files,
            generated,
            maker,
            watched,
            folder,
            metrics,
            progress,
            began,
            saved,
            divergence: None,
        })
    }

    fn learn(&mut self, options: &RunOptions, watcher: &mut dyn TrainWatcher) -> Result<Ended, TrainError> {
        if !options.resume {
            self.folder.begin(&self.recipe)?;
        }
        let patience = self.recipe.train.patience;
        let is_patient = |progress: &Progress| patience.is_none_or(|most| progress.since_best < most);
        while self.progress.step < self.all_steps {
            let batches =
                self.data.train.epoch(batch_size(&self.recipe), self.recipe.seed, self.progress.epoch);
            while let Some(batch) = batches.get(self.progress.batch) {
                if self.progress.step >= self.all_steps {
                    break;
                }
                if !is_patient(&self.progress) {
                    self.finish()?;
                    return Ok(Ended::EarlyStop);
                }
                if options.stop.load(Ordering::Relaxed) {
                    self.save()?;
                    return Ok(Ended::Interrupted);
                }
                self.step(batch, watcher)?;
            }
            if self.progress.batch >= batches.len() {
                self.progress.epoch += 1;
                self.progress.batch = 0;
            }
        }
        self.finish()?;
        Ok(if is_patient(&self.progress) { Ended::Finished } else { Ended::EarlyStop })
    }

    /// One step, and what is due after it.
    fn step(&mut self, batch: &[usize], watcher: &mut dyn TrainWatcher) -> Result<(), TrainError> {
        let began = Instant::now();
        let step = self.progress.step + 1;
        let look_due = self.watched.is_some() && step.is_multiple_of(self.look_every());
        let batch = self.maker.batch(self.learner.model(), &self.data.train, batch)?;
        let seed = Stream::Dropout(step).seed(self.recipe.seed);
        let given = LearningBatch { input: &batch.input, targets: &batch.targets, dropout_seed: Some(seed) };
        let loss = self.learner.step(&given, &mut Nothing)?;
        if !loss.nats.is_finite() {
            return Err(TrainError::NotFinite { step, found: format!("the loss is {}", loss.nats) });
        }
        let model = self.learner.model().clone();
        let blocks = look_due.then(|| block_norms(&model, &*self.learner, loss.count));
        let rule = self.rule(step, loss.count);
        let update = self.learner.update(&rule).map_err(|error| match error {
            RunError::Gradient { parameter } => {
                TrainError::NotFinite { step, found: format!("the gradient of {parameter} is not finite") }
            }
            other => other.into(),
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let progress = &mut self.progress;
        progress.step = step;
        progress.batch += 1;
        progress.seconds += seconds;
        progress.window.add(&loss, batch.cells, batch.tokens, seconds);
        watcher.stepped(&self.report());
        let lines = self.metrics.lines.len();
        let padding = self.progress.window.padding();
        if step.is_multiple_of(self.recipe.train.log_every) || step == self.all_steps {
            self.log(f64::from(rule.learning_rate), update.gradient_norm)?;
        }
        if step.is_multiple_of(self.validate_every) || step == self.all_steps {
            self.validate()?;
        }
        if let Some(blocks) = blocks {
            self.look(blocks, padding)?;
        }
        if step.is_multiple_of(self.recipe.train.checkpoint_every.unwrap_or(self.validate_every)) {
            self.save()?;
        }
        if self.metrics.lines.len() > lines {
            watcher.measured(&self.metrics.lines);
        }
        Ok(())
    }

    fn look_every(&self) -> u64 {
        self.recipe.monitors.every.unwrap_or(self.validate_every).max(1)
    }

    fn rule(&self, step: u64, targets: usize) -> AdamW {
        let own = &self.recipe.optimiser;
        AdamW {
            learning_rate: (own.learning_rate * self.recipe.schedule.share(step)) as f32,
            beta1: own.beta1 as f32,
            beta2: own.beta2 as f32,
            epsilon: own.epsilon as f32,
            weight_decay: own.weight_decay as f32,
            clip_norm: own.clip_norm.map(|norm| norm as f32),
            divide_by: targets.max(1) as f64,
        }
    }

    fn report(&self) -> StepReport {
        let Progress { step, window, .. } = &self.progress;
        let (since, first) = self.began;
        let pace = since.elapsed().as_secs_f64() / (step - first).max(1) as f64;
        StepReport {
            step: *step,
            steps: self.all_steps,
            loss: window.nats / window.count.max(1) as f64,
            accuracy: window.correct as f64 / window.count.max(1) as f64,
            tokens_per_second: window.tokens as f64 / window.seconds,
            seconds_left: pace * self.all_steps.saturating_sub(*step) as f64,
        }
    }

    fn log(&mut self, learning_rate: f64, gradient_norm: f64) -> Result<(), TrainError> {
        let Progress { step, epoch, ref window, .. } = self.progress;
        let count = window.count.max(1) as f64;
        let line = TrainMetric {
            step,
            epoch,
            loss: window.nats / count,
            nll: window.nll / count,
            accuracy: window.correct as f64 / count,
            learning_rate,
            gradient_norm,
            padding: window.padding(),
            tokens_per_second: window.tokens as f64 / window.seconds,
        };
        self.progress.window = Window::default();
        self.metrics.add(Metric::Train(line))
    }

    fn validate(&mut self) -> Result<(), TrainError> {
        let (nll, accuracy) =
            held_out_loss(&mut *self.learner, &self.maker, &self.data.validation, batch_size(&self.recipe))?;
        let bleu = match &self.generated {
            Some(generated) => {
                let prepared =
                    self.executor.prepare(self.learner.model().clone(), self.learner.weights()?)?;
                Some(generated.bleu(&*prepared)?)
            }
            None => None,
        };
        let step = self.progress.step;
        if !nll.is_finite() {
            return Err(TrainError::NotFinite { step, found: format!("the validation loss is {nll}") });
        }
        let best = self.progress.best.is_none_or(|best| nll < best.nll);
        self.progress.since_best += 1;
        if best {
            self.progress.best = Some(Best { step, nll, accuracy });
            self.progress.since_best = 0;
            let weights = self.learner.weights()?;
            self.folder.save_model(&self.folder.best(), self.learner.model(), &weights, &self.files)?;
        }
        let epoch = self.progress.epoch;
        self.metrics.add(Metric::Validation(ValidationMetric { step, epoch, nll, accuracy, bleu, best }))
    }

    fn look(
        &mut self,
        gradient_norms: std::collections::BTreeMap<String, f64>,
        padding: f64,
    ) -> Result<(), TrainError> {
        let Some(watched) = &self.watched else { return Ok(()) };
        let seen = watched.look(self.executor, &mut *self.learner, self.progress.step)?;
        let look = MonitorMetric { gradient_norms, padding, ..seen };
        let warnings = judge(&mut self.progress.monitors, &look, self.recipe.monitors.patience);
        self.metrics.add(Metric::Monitor(look))?;
        warnings.into_iter().try_for_each(|warning| self.metrics.add(Metric::Warning(warning)))
    }

    /// Writes what others open, then what this goes on with: whichever is there is whole.
    fn save(&mut self) -> Result<(), TrainError> {
        let weights: Weights = self.learner.weights()?;
        let model = self.learner.model();
        // A gradient that is finite can still lead to a weight that is not.
        for id in model.graph.weight_ids() {
            if !weights.get(id)?.iter().all(|value| value.is_finite()) {
                let found = format!("the weight {} is not finite", model.graph.weight(id).path);
                return Err(TrainError::NotFinite { step: self.progress.step, found });
            }
        }
        self.folder.save_model(&self.folder.checkpoint(), model, &weights, &self.files)?;
        self.folder.save_state(model, &weights, &self.learner.optimiser_state(), &self.progress)?;
        self.saved = Some(self.progress.step);
        Ok(())
    }

    /// What is known about a run that left the numbers behind.
    fn diverged(&self, step: u64, found: String) -> Divergence {
        let own = &self.recipe.optimiser;
        let rate = own.learning_rate * self.recipe.schedule.share(step);
        let mut causes = Vec::new();
        if step == 1 {
            causes
                .push("the weights that it began with: look for NaN, infinite or very large ones".to_owned());
        }
        causes.push(format!(
            "the learning rate, {rate:e} at that step: lower optimiser.learning_rate, {:e}, by a factor of 10",
            own.learning_rate
        ));
        if own.clip_norm.is_none() {
            causes.push("gradients are not clipped: set optimiser.clip_norm, for example to 1.0".to_owned());
        }
        if self.recipe.schedule == Schedule::Constant {
            causes.push("there is no warm-up: set schedule.kind to \"linear-warm-up\"".to_owned());
        }
        Divergence { step, found, causes, saved: self.saved }
    }

    /// What the loss has become at the end, where it exploded without ever being infinite: far above what a guess costs, and no
    /// better than at the beginning. A few steps say nothing.
    fn exploded(&self) -> Option<String> {
        let losses: Vec<f64> = self
            .metrics
            .lines
            .iter()
            .filter_map(|line| match line {
                Metric::Train(line) => Some(line.loss),
                _ => None,
            })
            .collect();
        let [first, .., last] = losses[..] else { return None };
        let model = self.learner.model();
        let (_, logits) = model.graph.iter().last()?;
        let choices = model.sizes.get(*logits.dims.last()?)?;
        let guess = (choices as f64).ln();
        let is_far = last > FAR * guess || (last > NEAR * guess && last >= first);
        is_far.then(|| {
            format!("the loss is {last:.4} nats a target, and a guess among {choices} costs {guess:.4}")
        })
    }

    fn finish(&mut self) -> Result<(), TrainError> {
        self.progress.ended = true;
        self.save()
    }
}

/// Nats a target and the share of first choices that are right.
pub(crate) fn held_out_loss(
    learner: &mut dyn Learner,
    maker: &BatchMaker,
    examples: &Examples,
    size: BatchSize,
) -> Result<(f64, f64), TrainError> {
    let maker = maker.unsmoothed();
    let mut sum = Window::default();
    let model = learner.model().clone();
    for batch in examples.epoch(size, 0, 0) {
        let batch = maker.batch(&model, examples, &batch)?;
        let given = LearningBatch { input: &batch.input, targets: &batch.targets, dropout_seed: None };
        let loss = learner.evaluate(&given, &mut Nothing)?;
        sum.add(&loss, batch.cells, batch.tokens, 0.0);
    }
    let count = sum.count.max(1) as f64;
    Ok((sum.nll / count, sum.correct as f64 / count))
}
