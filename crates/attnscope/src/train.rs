//! Trains a model by a recipe, says what that would take, and judges what was trained.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use attnscope_checkpoint::{Checkpoint, Remedy};
use attnscope_graph::{Model, Side};
use attnscope_run::Limits;
use attnscope_train::data::DataSet;
use attnscope_train::recipe::{ModelTable, SHIPPED, shipped};
use attnscope_train::{
    Bleu, Predicted, Recipe, RunFolder, RunOptions, Setup, Start, TrainError, TrainWatcher, Trained,
    TrainingData, dry_run, learn_tokenizer, train as train_run, training_data,
};

use crate::answer::{
    BestValidation, BleuScore, Evaluation, Layer, LearnedFrom, PredictedRow, Prediction, SCHEMA, Training,
    TrainingPlan,
};
use crate::device::Device;
use crate::failure::Failure;
use crate::note::Note;
use crate::open::Opened;
use crate::summary::layers;

/// What a run is given besides its recipe.
#[derive(Debug, Clone, Default)]
pub struct TrainOptions {
    /// The data; a recipe may bring its own.
    pub data: Option<PathBuf>,
    /// Bad rows are counted, and are no error.
    pub skip_bad: bool,
    /// Goes on where the folder's run stopped.
    pub resume: bool,
    /// A model to begin with, as [`crate::open`] names it, in place of weights by chance.
    pub init: Option<String>,
    /// Another seed than the recipe's.
    pub seed: Option<u64>,
    /// So many steps, in place of the recipe's steps or epochs.
    pub steps: Option<u64>,
    /// What it runs on.
    pub device: Device,
    /// Ends the run after the step that is under way; it is saved, and can be resumed.
    pub stop: Arc<AtomicBool>,
}

/// A recipe by its name or from its file.
///
/// # Errors
/// Where there is no such recipe, or what is there is none.
pub fn recipe(name: &str) -> Result<Recipe, Failure> {
    let path = Path::new(name);
    let text = match shipped(name) {
        Some(text) => text.to_owned(),
        None => fs::read_to_string(path).map_err(|e| {
            let names = SHIPPED.map(|(name, _)| name).join(", ");
            Failure::new(format!("{name}: {e}"), format!("give a recipe's file (.toml), or one of {names}"))
        })?,
    };
    Ok(Recipe::parse(name, &text).map_err(TrainError::from)?)
}

/// Trains a model by a recipe, and keeps everything in a folder. `name` is what the answer calls the recipe.
///
/// # Errors
/// Where the recipe or the data cannot be used, the folder is not empty, or learning fails.
pub fn train(
    name: &str,
    recipe: Recipe,
    folder: &Path,
    options: &TrainOptions,
    watcher: &mut dyn TrainWatcher,
) -> Result<Training, Failure> {
    let recipe = edited(recipe, options);
    let folder = match options.resume {
        true => RunFolder::existing(folder)?,
        false => RunFolder::new(folder)?,
    };
    if options.resume {
        check_recipe(&folder, &recipe)?;
    }
    let init = match options.resume {
        true => Some(Checkpoint::open(&folder.checkpoint())?),
        false => first_model(options)?,
    };
    let setup = setup(&recipe, options, init.as_ref())?;
    let (parameters, _) = setup.start.model.parameters();
    let data = learned_from(&setup.data, &setup.start);
    let run = RunOptions { folder: folder.clone(), resume: options.resume, stop: options.stop.clone() };
    let done = train_run(&*options.device.executor(), &Limits::default(), setup, &run, watcher)?;
    Ok(Training {
        schema: SCHEMA,
        recipe: name.to_owned(),
        folder: folder.path().display().to_string(),
        model: kind(&recipe).to_owned(),
        parameters,
        data,
        ended: done.ended.into(),
        divergence: done.divergence.clone().map(Into::into),
        steps: done.steps,
        all_steps: done.all_steps,
        seconds: done.seconds,
        best: done.best.map(|(step, nll, accuracy)| BestValidation { step, nll, accuracy }),
        warnings: done.warnings().cloned().collect(),
        metrics: done.metrics,
    })
}

/// What a run would take: examples, batches, parameters, memory, and time from a few steps that are made and forgotten.
///
/// # Errors
/// As [`train`].
pub fn plan_training(name: &str, recipe: Recipe, options: &TrainOptions) -> Result<TrainingPlan, Failure> {
    let recipe = edited(recipe, options);
    let setup = setup(&recipe, options, first_model(options)?.as_ref())?;
    let data = learned_from(&setup.data, &setup.start);
    let model = setup.start.model.clone();
    let plan = dry_run(&*options.device.executor(), &Limits::default(), setup)?;
    Ok(TrainingPlan {
        schema: SCHEMA,
        recipe: name.to_owned(),
        model: kind(&recipe).to_owned(),
        parameters: plan.parameters,
        data,
        batches: plan.batches,
        steps: plan.steps,
        padding: plan.padding,
        layers: planned_layers(&model, &plan.largest),
        largest_batch: plan.largest,
        bytes: plan.bytes,
        step_bytes: plan.step_bytes,
        seconds_a_step: plan.seconds_a_step,
        seconds: plan.seconds_a_step.map(|seconds| seconds * plan.steps as f64),
        first_loss: plan.first_loss,
    })
}

/// The layers with what they cost for a batch, given as the shape of each side; none where there is no batch.
fn planned_layers(model: &Model, batch: &[Vec<usize>]) -> Vec<Layer> {
    let sides: Vec<(Side, &Vec<usize>)> = model.architecture.sides().zip(batch).collect();
    let of = |side: Side, i: usize| {
        let shape = sides.iter().find(|(own, _)| *own == side);
        shape.and_then(|(_, shape)| shape.get(i).copied())
    };
    let Some(rows) = of(Side::Source, 0).or_else(|| of(Side::Target, 0)) else { return Vec::new() };
    let length = |side: Side| of(side, 1).unwrap_or(0);
    layers(model, &model.sizes.with_lengths(rows, length(Side::Source), length(Side::Target)))
        .unwrap_or_default()
}

/// Judges what a run has trained on the test split of its data.
///
/// # Errors
/// Where the folder holds no run, or the data cannot be used.
pub fn evaluate(
    folder: &Path,
    data: Option<&Path>,
    skip_bad: bool,
    device: Device,
    progress: &dyn Fn(usize, usize),
) -> Result<Evaluation, Failure> {
    let (recipe, weights) = trained(folder)?;
    let data = DataSet::open(&recipe.data, data).map_err(TrainError::from)?.skipping_bad(skip_bad);
    let trained = Trained::open(&*device.executor(), recipe, &weights)?;
    let trained_on = RunFolder::existing(folder).ok().and_then(|run| run.examples());
    let done = trained.evaluate(&data, trained_on.as_deref(), progress)?;
    Ok(Evaluation {
        schema: SCHEMA,
        model: weights.display().to_string(),
        examples: done.examples,
        too_long: done.too_long.left_out,
        cut_texts: done.too_long.cut,
        bad_rows: done.bad.count,
        first_bad_row: done.bad.first,
        targets: done.targets,
        nll: done.nll,
        accuracy: done.accuracy,
        classes: trained.classes().to_vec(),
        absent_classes: without_rows(trained.classes(), &done.confusion),
        confusion: done.confusion,
        bleu: done.bleu.map(bleu_score),
        learned_from: done.learned_from,
    })
}

/// The classes whose row of a confusion matrix counts nothing.
fn without_rows(classes: &[String], confusion: &[Vec<usize>]) -> Vec<String> {
    let is_empty = |row: &[usize]| row.iter().all(|&count| count == 0);
    let absent = classes.iter().zip(confusion).filter(|(_, row)| is_empty(row));
    absent.map(|(class, _)| class.clone()).collect()
}

/// What a run's model makes of texts.
///
/// # Errors
/// Where the folder holds no run, or a text cannot be read.
pub fn predict(folder: &Path, texts: &[String], device: Device) -> Result<Prediction, Failure> {
    let (recipe, weights) = trained(folder)?;
    let trained = Trained::open(&*device.executor(), recipe, &weights)?;
    let classes = trained.classes().to_vec();
    let row = |(text, made): (&String, Predicted)| match made {
        Predicted::Classes { probabilities, .. } => {
            let best =
                (0..probabilities.len()).max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
            let class = best.and_then(|best| classes.get(best).cloned());
            PredictedRow { text: text.clone(), class, probabilities, generated: None }
        }
        Predicted::Text(generated) => PredictedRow {
            text: text.clone(),
            class: None,
            probabilities: Vec::new(),
            generated: Some(generated),
        },
    };
    let made = trained.predict(texts)?;
    let is_cut = |made: &Predicted| matches!(made, Predicted::Classes { is_cut: true, .. });
    let cut: Vec<usize> = (0..made.len()).filter(|&i| is_cut(&made[i])).collect();
    let note = trained.text_length().filter(|_| !cut.is_empty());
    Ok(Prediction {
        schema: SCHEMA,
        model: weights.display().to_string(),
        classes: classes.clone(),
        notes: note.map(|length| Note::TextsCut { length, rows: cut }).into_iter().collect(),
        rows: texts.iter().zip(made).map(row).collect(),
    })
}

/// The recipe of a run, and the folder of its best weights, or of its latest where nothing was validated yet.
fn trained(folder: &Path) -> Result<(Recipe, PathBuf), Failure> {
    let file = folder.join("recipe.toml");
    if !file.is_file() {
        let error = "expected the folder of a training run, found no recipe.toml in it";
        return Err(Failure::new(error, Remedy::RunFolder).of(&folder.display().to_string()));
    }
    let text = fs::read_to_string(&file)
        .map_err(|e| Failure::new(format!("{}: {e}", file.display()), Remedy::RunFolder))?;
    let recipe = Recipe::parse(&file.display().to_string(), &text).map_err(TrainError::from)?;
    let weights = RunFolder::weights_in(folder).ok_or_else(|| {
        let error = "expected best or checkpoint, found neither: nothing was saved yet";
        Failure::new(error, Remedy::RunFolder).of(&folder.display().to_string())
    })?;
    Ok((recipe, weights))
}

/// The recipe with what was asked for otherwise.
fn edited(mut recipe: Recipe, options: &TrainOptions) -> Recipe {
    if let Some(seed) = options.seed {
        recipe.seed = seed;
    }
    if let Some(steps) = options.steps {
        recipe.train.steps = Some(steps);
        recipe.train.epochs = None;
    }
    recipe
}

/// A run goes on by its own recipe.
fn check_recipe(folder: &RunFolder, recipe: &Recipe) -> Result<(), Failure> {
    let file = folder.recipe();
    let odd = |why: String| TrainError::Resume { place: file.clone(), why };
    let text = fs::read_to_string(&file).map_err(|e| odd(e.to_string()))?;
    let own = Recipe::parse(&file.display().to_string(), &text).map_err(TrainError::from)?;
    if own == *recipe {
        return Ok(());
    }
    Err(TrainError::OtherRecipe { differences: own.differences(recipe), recipe: file }.into())
}

/// The model that learning is to begin with.
fn first_model(options: &TrainOptions) -> Result<Option<Checkpoint>, Failure> {
    options.init.as_deref().map(|name| Ok(Opened::open(name, None)?.checkpoint)).transpose()
}

fn setup(recipe: &Recipe, options: &TrainOptions, init: Option<&Checkpoint>) -> Result<Setup, Failure> {
    let data = DataSet::open(&recipe.data, options.data.as_deref()).map_err(TrainError::from)?;
    let data = data.skipping_bad(options.skip_bad);
    let start = match init {
        Some(checkpoint) => Start::resumed(recipe, checkpoint)?,
        None => Start::untrained(recipe, &learn_tokenizer(recipe, &data)?, &Limits::default())?,
    };
    let longest = match &recipe.model {
        ModelTable::Classifier(model) => model.length,
        ModelTable::EncoderDecoder(_) => recipe.train.longest,
    };
    let data = training_data(recipe, &data, &start.tokenizer, longest)?;
    Ok(Setup { recipe: recipe.clone(), start, data })
}

fn learned_from(data: &TrainingData, start: &Start) -> LearnedFrom {
    LearnedFrom {
        train: data.train.len(),
        validation: data.validation.len(),
        held_out: data.held_out.into(),
        too_long: data.too_long.left_out,
        cut_texts: data.too_long.cut,
        absent_classes: data.absent_classes.clone(),
        bad_rows: data.bad.count,
        first_bad_row: data.bad.first.clone(),
        vocabulary: start.tokenizer.len(),
    }
}

fn kind(recipe: &Recipe) -> &'static str {
    match recipe.model {
        ModelTable::Classifier(_) => "classifier",
        ModelTable::EncoderDecoder(_) => "encoder-decoder",
    }
}

fn bleu_score(bleu: Bleu) -> BleuScore {
    BleuScore {
        score: bleu.score,
        precisions: bleu.precisions.to_vec(),
        brevity_penalty: bleu.brevity_penalty,
        length: bleu.length,
        reference_length: bleu.reference_length,
    }
}
