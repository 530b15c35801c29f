//! What a training run came to, what one would take, and what a trained model is worth.

use super::Layer;
use attnscope_train::{Divergence, Ended, Fault, HeldOut, Metric, Warning};
use schemars::JsonSchema;
use serde::Serialize;

use super::Answer;
use crate::note::Note;

/// What a training run came to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Training {
    /// 1
    pub schema: u32,
    /// The recipe as it was named.
    pub recipe: String,
    /// The run's folder.
    pub folder: String,
    /// `encoder-decoder` or `classifier`.
    pub model: String,
    /// Distinct parameters.
    pub parameters: u64,
    /// What it learned from.
    pub data: LearnedFrom,
    /// How it ended: `finished`, `early-stop`, `interrupted` or `diverged`.
    pub ended: RunEnd,
    /// Where and why it diverged; `null` where it did not.
    pub divergence: Option<RunDivergence>,
    /// Steps that were made.
    pub steps: u64,
    /// Steps that there are, unless it ends early.
    pub all_steps: u64,
    /// Seconds of learning, validation left out.
    pub seconds: f64,
    /// The best validation; `null` where there was none.
    pub best: Option<BestValidation>,
    /// What monitors had to say.
    pub warnings: Vec<Warning>,
    /// Everything that was measured, as metrics.jsonl has it.
    pub metrics: Vec<Metric>,
}

/// Examples of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LearnedFrom {
    /// Examples to learn from.
    pub train: usize,
    /// Examples that are held out.
    pub validation: usize,
    /// Where the latter are from: `own-split`, `of-train`, `no-share` or `same`.
    pub held_out: HeldOutFrom,
    /// Pairs that were left out for their length.
    pub too_long: usize,
    /// Texts that were cut to the tokens that the classifier reads.
    pub cut_texts: usize,
    /// Classes of which there is no text to learn from.
    pub absent_classes: Vec<String>,
    /// Bad rows that were passed over.
    pub bad_rows: usize,
    /// What is wrong with the first of them.
    pub first_bad_row: Option<String>,
    /// Tokens that the tokenizer knows.
    pub vocabulary: usize,
}

/// Where the examples for validation are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeldOutFrom {
    /// A split of their own.
    OwnSplit,
    /// The training split, from which they were taken.
    OfTrain,
    /// The training split itself, since the recipe's validation_share is 0.
    NoShare,
    /// The training split itself, which is too small to take any.
    Same,
}

impl From<HeldOut> for HeldOutFrom {
    fn from(held_out: HeldOut) -> Self {
        match held_out {
            HeldOut::OwnSplit => Self::OwnSplit,
            HeldOut::OfTrain => Self::OfTrain,
            HeldOut::NoShare => Self::NoShare,
            HeldOut::Same => Self::Same,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunEnd {
    /// After all steps.
    Finished,
    /// Validation got no better.
    EarlyStop,
    /// Somebody stopped it.
    Interrupted,
    /// A loss or a gradient was NaN or infinite, or the last loss far above what a guess costs.
    Diverged,
}

/// Where a run left the numbers behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunDivergence {
    /// The step at which it was seen, from 1.
    pub step: u64,
    /// What is NaN or infinite, or what the loss was at the end.
    pub found: String,
    /// What usually leads to it, of this recipe, with what to try; the likeliest first.
    pub causes: Vec<String>,
    /// The step of the last checkpoint, which is kept; `null` where nothing was saved before.
    pub saved: Option<u64>,
}

impl From<Divergence> for RunDivergence {
    fn from(Divergence { step, found, causes, saved }: Divergence) -> Self {
        Self { step, found, causes, saved }
    }
}

impl From<Ended> for RunEnd {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Finished => Self::Finished,
            Ended::EarlyStop => Self::EarlyStop,
            Ended::Interrupted => Self::Interrupted,
            Ended::Diverged => Self::Diverged,
        }
    }
}

/// The best validation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct BestValidation {
    /// The step after which it was measured.
    pub step: u64,
    /// Nats a target.
    pub nll: f64,
    /// The share of targets that were the model's first choice.
    pub accuracy: f64,
}

/// What a run would take.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrainingPlan {
    /// 1
    pub schema: u32,
    /// The recipe as it was named.
    pub recipe: String,
    /// `encoder-decoder` or `classifier`.
    pub model: String,
    /// Distinct parameters.
    pub parameters: u64,
    /// What it would learn from.
    pub data: LearnedFrom,
    /// Batches of the first epoch.
    pub batches: usize,
    /// All steps.
    pub steps: u64,
    /// The share of padding in the first epoch's batches.
    pub padding: f64,
    /// The largest batch: the shape of each side, [rows, length].
    pub largest_batch: Vec<Vec<usize>>,
    /// The layers, with what they cost for the largest batch; empty where there is no batch.
    pub layers: Vec<Layer>,
    /// Weights, gradients and two moments in f32.
    pub bytes: u64,
    /// The most that the tensors of a step with the largest batch take at once, those kept for backward and gradients, computed
    /// from their shapes; `null` where there is no batch.
    pub step_bytes: Option<u64>,
    /// The mean of a few steps that were made and forgotten.
    pub seconds_a_step: Option<f64>,
    /// That, times all steps: validation is left out.
    pub seconds: Option<f64>,
    /// The loss before anything is learned, in nats a target.
    pub first_loss: Option<f64>,
}

/// What a trained model is worth.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Evaluation {
    /// 1
    pub schema: u32,
    /// The weights that were judged.
    pub model: String,
    /// Examples that were judged.
    pub examples: usize,
    /// Pairs that were left out of the loss for their length.
    pub too_long: usize,
    /// Texts that were cut to the tokens that the classifier reads.
    pub cut_texts: usize,
    /// Bad rows that were passed over.
    pub bad_rows: usize,
    /// What is wrong with the first of them.
    pub first_bad_row: Option<String>,
    /// Targets: a class a text, or the tokens of all sentences.
    pub targets: usize,
    /// Nats a target.
    pub nll: f64,
    /// The share of targets that were the model's first choice.
    pub accuracy: f64,
    /// The names of the classes; empty for a translator.
    pub classes: Vec<String>,
    /// Those of which no text was judged.
    pub absent_classes: Vec<String>,
    /// How often a class (row) was taken for another (column).
    pub confusion: Vec<Vec<usize>>,
    /// BLEU of what a translator generates greedily, as sacreBLEU counts it (cased, tokenizer 13a).
    pub bleu: Option<BleuScore>,
    /// Examples among them that the model learned from; `null` where that is not known, since the data is not what it was trained
    /// with.
    pub learned_from: Option<usize>,
}

/// BLEU and its parts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BleuScore {
    /// From 0 to 100.
    pub score: f64,
    /// The share of n-grams that are in the reference, in percent, for n from 1 to 4.
    pub precisions: Vec<f64>,
    /// What sentences that are too short lose.
    pub brevity_penalty: f64,
    /// Tokens that were generated.
    pub length: usize,
    /// Tokens of the references.
    pub reference_length: usize,
}

/// What a trained model makes of texts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// 1
    pub schema: u32,
    /// The weights that were used.
    pub model: String,
    /// The names of the classes; empty for a translator.
    pub classes: Vec<String>,
    /// What a user may not expect.
    pub notes: Vec<Note>,
    /// One for each text.
    pub rows: Vec<PredictedRow>,
}

/// What a model makes of one text.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PredictedRow {
    /// The text.
    pub text: String,
    /// The class with the largest probability.
    pub class: Option<String>,
    /// The probability of each class.
    pub probabilities: Vec<f64>,
    /// What a translator generates.
    pub generated: Option<String>,
}

impl Answer for Training {
    const NAME: &'static str = "train";
}

impl Answer for TrainingPlan {
    const NAME: &'static str = "train-plan";
}

impl Answer for Evaluation {
    const NAME: &'static str = "evaluate";
}

impl Answer for Prediction {
    const NAME: &'static str = "predict";
}

impl Training {
    /// Whether a monitor has something to say.
    pub fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }

    /// Whether a warning is about this.
    pub fn warns_of(&self, fault: Fault) -> bool {
        self.warnings.iter().any(|warning| warning.fault == fault)
    }
}
