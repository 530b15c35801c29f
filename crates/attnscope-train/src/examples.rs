//! Examples as the model reads them: token ids in memory, with some of them held out.

use std::collections::HashSet;

use attnscope_run::Tokenizer;

use crate::batches::{self, BatchSize, Stream, shuffled};
use crate::data::{BadRows, DataError, DataSet, Example, Split};
use crate::error::TrainError;
use crate::recipe::{DataTable, Recipe};
use crate::tokens::VocabularyBuilder;

/// Examples as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Examples {
    /// Texts and their classes.
    Labelled {
        /// The tokens of each text, no more than the model reads.
        texts: Vec<Vec<u32>>,
        /// The class of each.
        classes: Vec<u32>,
    },
    /// Sentences and their translations, both with the token that ends them.
    Pairs {
        /// The tokens of each source.
        sources: Vec<Vec<u32>>,
        /// The tokens of each target.
        targets: Vec<Vec<u32>>,
    },
}

impl Examples {
    /// None, for a task.
    fn none(table: &DataTable) -> Self {
        match table {
            DataTable::Classification { .. } => Self::Labelled { texts: Vec::new(), classes: Vec::new() },
            DataTable::Translation { .. } => Self::Pairs { sources: Vec::new(), targets: Vec::new() },
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Labelled { texts, .. } => texts.len(),
            Self::Pairs { sources, .. } => sources.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batches of an epoch, by the numbers of their examples: every example once, in an order that follows from the seed.
    /// Pairs of like length go together, by their longer side; texts are all padded to one length.
    pub fn epoch(&self, size: BatchSize, seed: u64, number: u64) -> Vec<Vec<usize>> {
        let lengths = match self {
            Self::Labelled { .. } => None,
            Self::Pairs { sources, targets } => {
                Some(sources.iter().zip(targets).map(|(s, t)| s.len().max(t.len())).collect::<Vec<_>>())
            }
        };
        batches::epoch(self.len(), lengths.as_deref(), size, seed, number)
    }

    /// Adds an example. A text that is too long is cut, and a pair left out.
    fn push(&mut self, example: &Example, cut: &Cut<'_>) -> Result<Fit, TrainError> {
        match (self, example) {
            (Self::Labelled { texts, classes }, Example::Labelled { text, class }) => {
                let mut ids = cut.tokenizer.encode_source(text)?;
                let fit = if ids.len() > cut.longest { Fit::Cut } else { Fit::Whole };
                ids.truncate(cut.longest);
                texts.push(ids);
                classes.push(*class);
                Ok(fit)
            }
            (Self::Pairs { sources, targets }, Example::Pair { source, target }) => {
                let (source, target) =
                    (cut.tokenizer.encode_source(source)?, cut.tokenizer.encode_target(target)?);
                if source.len().max(target.len()) > cut.longest {
                    return Ok(Fit::LeftOut);
                }
                sources.push(source);
                targets.push(target);
                Ok(Fit::Whole)
            }
            // A data set has one task.
            _ => Ok(Fit::LeftOut),
        }
    }

    /// A number that follows from every token and class: examples that are not the same have another.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |n: u32| digest = (digest ^ u64::from(n)).wrapping_mul(0x0100_0000_01b3);
        let mut rows = |rows: &[Vec<u32>]| {
            for row in rows {
                row.iter().for_each(|&id| add(id));
                add(u32::MAX);
            }
        };
        match self {
            Self::Labelled { texts, classes } => {
                rows(texts);
                rows(std::slice::from_ref(classes));
            }
            Self::Pairs { sources, targets } => {
                rows(sources);
                rows(targets);
            }
        }
        digest
    }

    /// How many of these are among others.
    pub(crate) fn count_in(&self, others: &Self) -> usize {
        let all: HashSet<_> = others.each().collect();
        self.each().filter(|own| all.contains(own)).count()
    }

    /// The tokens of each text with its class, or of each source with its target.
    fn each(&self) -> Box<dyn Iterator<Item = (&[u32], &[u32])> + '_> {
        match self {
            Self::Labelled { texts, classes } => {
                Box::new(texts.iter().map(Vec::as_slice).zip(classes.iter().map(std::slice::from_ref)))
            }
            Self::Pairs { sources, targets } => {
                Box::new(sources.iter().map(Vec::as_slice).zip(targets.iter().map(Vec::as_slice)))
            }
        }
    }

    /// Some of them, in this order.
    #[must_use]
    pub fn select(&self, chosen: &[usize]) -> Self {
        let rows = |all: &[Vec<u32>]| chosen.iter().filter_map(|&i| all.get(i).cloned()).collect();
        match self {
            Self::Labelled { texts, classes } => Self::Labelled {
                texts: rows(texts),
                classes: chosen.iter().filter_map(|&i| classes.get(i).copied()).collect(),
            },
            Self::Pairs { sources, targets } => {
                Self::Pairs { sources: rows(sources), targets: rows(targets) }
            }
        }
    }
}

/// How texts are cut.
struct Cut<'a> {
    tokenizer: &'a Tokenizer,
    longest: usize,
}

/// What became of an example for its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Whole,
    Cut,
    LeftOut,
}

/// Examples with more tokens than the model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TooLong {
    /// Texts that were cut.
    pub cut: usize,
    /// Pairs that were left out.
    pub left_out: usize,
}

/// What is learned from, and what is held out.
#[derive(Debug, Clone)]
pub struct TrainingData {
    /// To learn from.
    pub train: Examples,
    /// To compare checkpoints with.
    pub validation: Examples,
    /// Where the latter comes from.
    pub held_out: HeldOut,
    /// Those of both that were cut or left out for their length.
    pub too_long: TooLong,
    /// Classes of which there is no text to learn from.
    pub absent_classes: Vec<String>,
    /// Rows that were passed over.
    pub bad: BadRows,
}

impl TrainingData {
    /// What follows from all examples: a run goes on with the same ones.
    pub(crate) fn digest(&self) -> String {
        format!("{:x} {:x}", self.train.digest(), self.validation.digest())
    }
}

/// Where the examples for validation come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldOut {
    /// A split of their own.
    OwnSplit,
    /// The training split, from which they were taken.
    OfTrain,
    /// The training split itself, since the recipe holds none out.
    NoShare,
    /// The training split itself, which is too small to take any.
    Same,
}

/// Learns a tokenizer from the training split: its tokenizer.json.
///
/// # Errors
/// When data cannot be read, or nothing can be learned from it.
pub fn learn_tokenizer(recipe: &Recipe, data: &DataSet) -> Result<String, TrainError> {
    let mut builder = VocabularyBuilder::new(recipe)?;
    let mut rows = data.rows(&[Split::Train], Split::Train)?;
    let mut count = 0;
    for row in &mut rows {
        count += 1;
        match row?.1 {
            Example::Labelled { text, .. } => builder.add(&text)?,
            Example::Pair { source, target } => {
                builder.add(&source)?;
                builder.add(&target)?;
            }
        }
    }
    if count == 0 {
        return Err(DataError::Empty { split: Split::Train.name(), bad: rows.bad().count }.into());
    }
    Ok(builder.finish()?)
}

/// Reads the training and the validation split as token ids. The test split is not looked at.
///
/// # Errors
/// When data cannot be read, or there is nothing to learn from.
pub fn training_data(
    recipe: &Recipe,
    data: &DataSet,
    tokenizer: &Tokenizer,
    longest: usize,
) -> Result<TrainingData, TrainError> {
    let cut = Cut { tokenizer, longest };
    let (mut train, mut validation) = (Examples::none(&recipe.data), Examples::none(&recipe.data));
    let mut too_long = TooLong::default();
    let mut rows = data.rows(&[Split::Train, Split::Validation], Split::Train)?;
    for row in &mut rows {
        let (split, example) = row?;
        let into = if split == Split::Validation { &mut validation } else { &mut train };
        too_long.count(into.push(&example, &cut)?);
    }
    let bad = rows.bad().clone();
    if train.is_empty() {
        return Err(DataError::Empty { split: Split::Train.name(), bad: bad.count }.into());
    }
    let absent_classes = absent_classes(&recipe.data, &train)?;
    let (DataTable::Classification { validation_share, .. }
    | DataTable::Translation { validation_share, .. }) = &recipe.data;
    let mut held_out = HeldOut::OwnSplit;
    if validation.is_empty() {
        (train, validation, held_out) = hold_out(&train, *validation_share, recipe.seed);
    }
    Ok(TrainingData { train, validation, held_out, too_long, absent_classes, bad })
}

/// The classes of which there is no text. One class alone teaches nothing.
fn absent_classes(table: &DataTable, train: &Examples) -> Result<Vec<String>, DataError> {
    let (DataTable::Classification { classes: names, .. }, Examples::Labelled { classes, .. }) =
        (table, train)
    else {
        return Ok(Vec::new());
    };
    let there: HashSet<usize> = classes.iter().map(|&class| class as usize).collect();
    if let (Some(&only), 1) = (there.iter().next(), there.len()) {
        let class = names.get(only).cloned().unwrap_or_default();
        return Err(DataError::OneClass { class, examples: classes.len() });
    }
    Ok((0..names.len()).filter(|i| !there.contains(i)).map(|i| names[i].clone()).collect())
}

/// Takes a share of the examples away, by chance. Both parts keep the order that they were in.
fn hold_out(all: &Examples, share: f64, seed: u64) -> (Examples, Examples, HeldOut) {
    let count = (all.len() as f64 * share).round() as usize;
    if count == 0 || count >= all.len() {
        let why = if share == 0.0 { HeldOut::NoShare } else { HeldOut::Same };
        return (all.clone(), all.clone(), why);
    }
    let order = shuffled(all.len(), Stream::Validation.seed(seed));
    let (mut held, mut kept) = (order[..count].to_vec(), order[count..].to_vec());
    held.sort_unstable();
    kept.sort_unstable();
    (all.select(&kept), all.select(&held), HeldOut::OfTrain)
}

impl TooLong {
    /// Of examples of which this became.
    pub(crate) fn of(fits: &[Fit]) -> Self {
        let mut too_long = Self::default();
        fits.iter().for_each(|&fit| too_long.count(fit));
        too_long
    }

    fn count(&mut self, fit: Fit) {
        match fit {
            Fit::Whole => {}
            Fit::Cut => self.cut += 1,
            Fit::LeftOut => self.left_out += 1,
        }
    }
}

/// Examples of rows that are in memory, and what became of each.
pub(crate) fn encode(
    table: &DataTable,
    rows: &[Example],
    tokenizer: &Tokenizer,
    longest: usize,
) -> Result<(Examples, Vec<Fit>), TrainError> {
    let cut = Cut { tokenizer, longest };
    let mut examples = Examples::none(table);
    let fits = rows.iter().map(|row| examples.push(row, &cut)).collect::<Result<_, _>>()?;
    Ok((examples, fits))
}

/// Every row that is judged with, and those that were passed over.
///
/// # Errors
/// When data cannot be read, or there is none.
pub fn test_rows(data: &DataSet) -> Result<(Vec<Example>, BadRows), TrainError> {
    let mut rows = data.rows(&[Split::Test], Split::Test)?;
    let examples = (&mut rows).map(|row| Ok(row?.1)).collect::<Result<Vec<_>, TrainError>>()?;
    let bad = rows.bad().clone();
    if examples.is_empty() {
        return Err(DataError::Empty { split: Split::Test.name(), bad: bad.count }.into());
    }
    Ok((examples, bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_out_is_learned_from_no_more() {
        let all = Examples::Labelled { texts: (0..50).map(|i| vec![i]).collect(), classes: vec![0; 50] };
        let (train, validation, held_out) = hold_out(&all, 0.1, 3);
        assert_eq!((train.len(), validation.len(), held_out), (45, 5, HeldOut::OfTrain));
        let (Examples::Labelled { texts: a, .. }, Examples::Labelled { texts: b, .. }) =
            (&train, &validation)
        else {
            panic!("labelled")
        };
        assert!(b.iter().all(|text| !a.contains(text)));
        assert_eq!(hold_out(&all, 0.1, 3).1, validation);
        assert_ne!(hold_out(&all, 0.1, 4).1, validation);
        assert_ne!(train.digest(), validation.digest());
        assert_eq!(train.digest(), train.clone().digest());
        let one = all.select(&[0]);
        assert_eq!(hold_out(&one, 0.1, 3), (one.clone(), one.clone(), HeldOut::Same));
        assert_eq!(hold_out(&all, 0.0, 3), (all.clone(), all, HeldOut::NoShare));
    }
}
