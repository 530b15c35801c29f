//! A run that is not made: what it would take.

use std::time::Instant;

use attnscope_run::{AdamW, Executor, LearningBatch, Limits, Nothing};

use crate::batch_input::BatchMaker;
use crate::error::TrainError;
use crate::training::{Setup, all_steps, batch_size, text_length};

/// Steps that are timed; the first of them is not, since it makes the buffers.
const TIMED: usize = 3;

/// What a run would take.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// All steps.
    pub steps: u64,
    /// Batches of the first epoch.
    pub batches: usize,
    /// The share of padding in them.
    pub padding: f64,
    /// Positions of the batch with most of them: rows, and the length of each side.
    pub largest: Vec<Vec<usize>>,
    /// Distinct parameters.
    pub parameters: u64,
    /// Weights, gradients and two moments in f32.
    pub bytes: u64,
    /// The most that the tensors of a step with the largest batch take at once: those that are kept for backward, and gradients.
    /// Computed from their shapes; `None` where there is no batch.
    pub step_bytes: Option<u64>,
    /// The mean of a few steps; `None` where there is no batch.
    pub seconds_a_step: Option<f64>,
    /// The loss before anything is learned, in nats a target.
    pub first_loss: Option<f64>,
}

/// Makes a few steps with the largest batches and forgets them.
///
/// # Errors
/// When a run fails.
pub fn dry_run(executor: &dyn Executor, limits: &Limits, setup: Setup) -> Result<DryRun, TrainError> {
    let Setup { recipe, start, data } = setup;
    let model = start.model;
    let maker = BatchMaker::new(&model, text_length(&recipe), recipe.train.label_smoothing)?;
    let batches = data.train.epoch(batch_size(&recipe), recipe.seed, 0);
    let (mut cells, mut tokens) = (0, 0);
    let mut largest: Option<(usize, usize)> = None;
    for (i, chosen) in batches.iter().enumerate() {
        let batch = maker.batch(&model, &data.train, chosen)?;
        cells += batch.cells;
        tokens += batch.tokens;
        if largest.is_none_or(|(_, most)| batch.cells > most) {
            largest = Some((i, batch.cells));
        }
    }
    let (parameters, _) = model.parameters();
    let mut plan = DryRun {
        steps: all_steps(&recipe, &data.train),
        batches: batches.len(),
        padding: 1.0 - tokens as f64 / cells.max(1) as f64,
        largest: Vec::new(),
        parameters,
        bytes: parameters.saturating_mul(16),
        step_bytes: None,
        seconds_a_step: None,
        first_loss: None,
    };
    let Some((largest, _)) = largest else { return Ok(plan) };
    let batch = maker.batch(&model, &data.train, &batches[largest])?;
    plan.largest = batch.input.input().tokens().map(|(_, rows)| vec![rows.batch(), rows.length()]).collect();
    let rule = AdamW {
        learning_rate: recipe.optimiser.learning_rate as f32,
        beta1: recipe.optimiser.beta1 as f32,
        beta2: recipe.optimiser.beta2 as f32,
        epsilon: recipe.optimiser.epsilon as f32,
        weight_decay: 0.0,
        clip_norm: None,
        divide_by: 1.0,
    };
    let mut learner = executor.learner(model.clone(), start.weights, limits)?;
    let given = LearningBatch { input: &batch.input, targets: &batch.targets, dropout_seed: Some(0) };
    plan.step_bytes = Some(learner.step_bytes(&given)?);
    // Batches all over the epoch, so that long and short ones have their share.
    let stride = (batches.len() / TIMED).max(1);
    let timed = batches.iter().step_by(stride).take(TIMED);
    let (mut seconds, mut count) = (0.0, 0);
    for (i, chosen) in std::iter::once(&batches[largest]).chain(timed).enumerate() {
        let began = Instant::now();
        let batch = maker.batch(&model, &data.train, chosen)?;
        let given = LearningBatch { input: &batch.input, targets: &batch.targets, dropout_seed: Some(0) };
        let loss = learner.step(&given, &mut Nothing)?;
        learner.update(&AdamW { divide_by: loss.count.max(1) as f64, ..rule })?;
        plan.first_loss.get_or_insert(loss.nats / loss.count.max(1) as f64);
        if i > 0 {
            seconds += began.elapsed().as_secs_f64();
            count += 1;
        }
    }
    plan.seconds_a_step = (count > 0).then(|| seconds / f64::from(count));
    Ok(plan)
}
