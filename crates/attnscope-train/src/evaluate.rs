//! What a trained model is worth: on a split that nothing was learned from, and on texts that somebody gives.

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::Checkpoint;
use attnscope_graph::{Model, NodeId};
use attnscope_run::generate::Settings;
use attnscope_run::{Capture, Executor, Prepared, Request, Tokenizer};

use crate::batch_input::{Batch, BatchMaker};
use crate::batches::BatchSize;
use crate::bleu::{Bleu, BleuCounts};
use crate::data::{BadRows, DataSet, Example};
use crate::error::TrainError;
use crate::examples::{Examples, Fit, TooLong, encode, test_rows, training_data};
use crate::generate::{configs, greedy, translate};
use crate::recipe::{DataTable, Recipe};
use crate::start::Start;
use crate::training::{batch_size, text_length};

/// A trained model, ready to be judged.
#[derive(Debug)]
pub struct Trained {
    recipe: Recipe,
    model: Arc<Model>,
    prepared: Arc<dyn Prepared>,
    tokenizer: Tokenizer,
    maker: BatchMaker,
    /// How a translator generates.
    settings: Option<Settings>,
}

/// How a model did on a split.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// Examples that were judged.
    pub examples: usize,
    /// Texts that were cut, and pairs that were left out of the loss, for their length.
    pub too_long: TooLong,
    /// Rows that were passed over.
    pub bad: BadRows,
    /// Targets: a class a text, or the tokens of all sentences.
    pub targets: usize,
    /// Nats a target.
    pub nll: f64,
    /// The share of targets that were the model's first choice.
    pub accuracy: f64,
    /// How often a class (row) was taken for another (column); empty for a translator.
    pub confusion: Vec<Vec<usize>>,
    /// Of what a translator generates.
    pub bleu: Option<Bleu>,
    /// Examples among them that the model learned from; `None` where the data is not what it was trained with, so that this is not
    /// known.
    pub learned_from: Option<usize>,
}

/// What a model makes of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicted {
    /// The probability of each class, and whether the text has more tokens than the classifier reads.
    Classes {
        /// Of each class.
        probabilities: Vec<f64>,
        /// The rest of the text was left out.
        is_cut: bool,
    },
    /// A translation.
    Text(String),
}

/// What the logits of a batch say of its targets.
#[derive(Debug, Default)]
struct Judged {
    nll: f64,
    targets: usize,
    correct: usize,
}

impl Trained {
    /// Opens the weights in a folder, by the recipe that they were trained with.
    ///
    /// # Errors
    /// When they cannot be read or do not run.
    pub fn open(executor: &dyn Executor, recipe: Recipe, folder: &Path) -> Result<Self, TrainError> {
        let Start { model, weights, tokenizer, files } = Start::saved(&Checkpoint::open(folder)?)?;
        let settings = match &recipe.data {
            DataTable::Translation { .. } => Some(greedy(&model, &configs(&files))?),
            DataTable::Classification { .. } => None,
        };
        let maker = BatchMaker::new(&model, text_length(&recipe), 0.0)?;
        let prepared = executor.prepare(model.clone(), weights)?;
        Ok(Self { recipe, model, prepared, tokenizer, maker, settings })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokens to which a classifier pads or cuts every text.
    pub fn text_length(&self) -> Option<usize> {
        text_length(&self.recipe)
    }

    /// The names of a classifier's classes.
    pub fn classes(&self) -> &[String] {
        match &self.recipe.data {
            DataTable::Classification { classes, .. } => classes,
            DataTable::Translation { .. } => &[],
        }
    }

    /// Judges the model on the test split. `trained_on` is what the examples of its run follow from ([`RunFolder::examples`]);
    /// `progress` is told how many examples of how many are done.
    ///
    /// # Errors
    /// When data cannot be read, or a run fails.
    ///
    /// [`RunFolder::examples`]: crate::RunFolder::examples
    pub fn evaluate(
        &self,
        data: &DataSet,
        trained_on: Option<&str>,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Evaluated, TrainError> {
        let (rows, bad) = test_rows(data)?;
        let longest = text_length(&self.recipe).unwrap_or(self.recipe.train.longest);
        let (examples, fits) = encode(&self.recipe.data, &rows, &self.tokenizer, longest)?;
        let classes = self.classes().len();
        let mut confusion = vec![vec![0; classes]; classes];
        let mut all = Judged::default();
        let mut done = 0;
        for chosen in examples.epoch(self.size(), 0, 0) {
            let batch = self.maker.batch(&self.model, &examples, &chosen)?;
            let (width, logits) = self.logits(&batch)?;
            for (row, class) in logits.chunks(width.max(1)).zip(&batch.targets.classes) {
                let Some(class) = class.map(|class| class as usize) else { continue };
                let first = all.add(row, class);
                if let Some(count) = confusion.get_mut(class).and_then(|row| row.get_mut(first)) {
                    *count += 1;
                }
            }
            done += chosen.len();
            progress(done, examples.len());
        }
        Ok(Evaluated {
            examples: rows.len(),
            too_long: TooLong::of(&fits),
            bad,
            targets: all.targets,
            nll: all.nll / all.targets.max(1) as f64,
            accuracy: all.correct as f64 / all.targets.max(1) as f64,
            confusion,
            bleu: self.bleu(&rows)?,
            learned_from: trained_on.and_then(|own| self.learned_from(data, own, longest, &examples)),
        })
    }

    /// How many of some examples are among those that were learned from, where the data is that of the training.
    fn learned_from(
        &self,
        data: &DataSet,
        trained_on: &str,
        longest: usize,
        judged: &Examples,
    ) -> Option<usize> {
        // Data that has only a test split is not what the model was trained with.
        let learned = training_data(&self.recipe, data, &self.tokenizer, longest).ok()?;
        (learned.digest() == trained_on).then(|| judged.count_in(&learned.train))
    }

    /// What the model makes of texts.
    ///
    /// # Errors
    /// When a text cannot be read, or a run fails.
    pub fn predict(&self, texts: &[String]) -> Result<Vec<Predicted>, TrainError> {
        if let Some(settings) = &self.settings {
            let sources = self.sources(texts.iter().map(String::as_str))?;
            let made = translate(&*self.prepared, settings, &self.tokenizer, &sources)?;
            return Ok(made.into_iter().map(Predicted::Text).collect());
        }
        let rows: Vec<Example> =
            texts.iter().map(|text| Example::Labelled { text: text.clone(), class: 0 }).collect();
        let longest = text_length(&self.recipe).unwrap_or(usize::MAX);
        let (examples, fits) = encode(&self.recipe.data, &rows, &self.tokenizer, longest)?;
        let mut made = Vec::with_capacity(texts.len());
        let order: Vec<usize> = (0..examples.len()).collect();
        for chosen in order.chunks(32) {
            let (width, logits) = self.logits(&self.maker.batch(&self.model, &examples, chosen)?)?;
            made.extend(chosen.iter().zip(logits.chunks(width.max(1))).map(|(&i, row)| Predicted::Classes {
                probabilities: probabilities(row),
                is_cut: fits.get(i) == Some(&Fit::Cut),
            }));
        }
        Ok(made)
    }

    /// Batches of the recipe's own size.
    fn size(&self) -> BatchSize {
        batch_size(&self.recipe)
    }

    /// The last node's tensor, [row, class], and the number of classes.
    fn logits(&self, batch: &Batch) -> Result<(usize, Vec<f32>), TrainError> {
        let last: Option<NodeId> = self.model.graph.iter().last().map(|(id, _)| id);
        let mut keep = Capture::new(|id| Some(id) == last);
        let mut session = self.prepared.session(&attnscope_run::Limits::default());
        session.run(&Request::new(&batch.input), &mut keep)?;
        let tensor = last.and_then(|id| keep.tensors.get(&id));
        let tensor = tensor.ok_or_else(|| TrainError::Model { why: "it has no output".into() })?;
        Ok((tensor.shape().last().copied().unwrap_or(1), tensor.values().to_f32()))
    }

    fn sources<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Result<Vec<Vec<u32>>, TrainError> {
        texts.map(|text| Ok(self.tokenizer.encode_source(text)?)).collect()
    }

    /// BLEU of what is generated from every source, against the targets as they are written.
    fn bleu(&self, rows: &[Example]) -> Result<Option<Bleu>, TrainError> {
        let Some(settings) = &self.settings else { return Ok(None) };
        let pairs: Vec<(&str, &str)> = rows
            .iter()
            .filter_map(|row| match row {
                Example::Pair { source, target } => Some((source.as_str(), target.as_str())),
                Example::Labelled { .. } => None,
            })
            .collect();
        let sources = self.sources(pairs.iter().map(|(source, _)| *source))?;
        let made = translate(&*self.prepared, settings, &self.tokenizer, &sources)?;
        let mut counts = BleuCounts::default();
        made.iter().zip(&pairs).for_each(|(own, (_, reference))| counts.add(own, reference));
        Ok(Some(counts.bleu()))
    }
}

impl Judged {
    /// Counts a row of logits; the class that it puts first.
    fn add(&mut self, row: &[f32], class: usize) -> usize {
        let first = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        let first = first.map_or(0, |(i, _)| i);
        let own = row.get(class).map_or(f64::NEG_INFINITY, |&x| f64::from(x));
        self.nll += log_sum_exp(row) - own;
        self.targets += 1;
        self.correct += usize::from(first == class);
        first
    }
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let most = row.iter().fold(f32::NEG_INFINITY, |most, &x| most.max(x));
    let most = f64::from(most);
    most + row.iter().map(|&x| (f64::from(x) - most).exp()).sum::<f64>().ln()
}

fn probabilities(row: &[f32]) -> Vec<f64> {
    let total = log_sum_exp(row);
    row.iter().map(|&x| (f64::from(x) - total).exp()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_costs_the_negative_logarithm_of_its_class() {
        let mut judged = Judged::default();
        assert_eq!(judged.add(&[0.0, 1.0, 1.0], 2), 1, "the first of equals");
        assert_eq!(judged.add(&[3.0, 1.0, 1.0], 0), 0);
        let [a, b] =
            [[0.0, 1.0, 1.0f64], [3.0, 1.0, 1.0]].map(|row| row.map(f64::exp).iter().sum::<f64>().ln());
        assert!((judged.nll - (a - 1.0) - (b - 3.0)).abs() < 1e-12);
        assert_eq!((judged.targets, judged.correct), (2, 1));
        assert!((probabilities(&[0.0, 3f32.ln()])[1] - 0.75).abs() < 1e-6);
    }
}
