//! What the parts of an audit come to: how every measure is distributed, and the sentences at the extremes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray};
use attnscope_run::catch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use crate::distribution::{Collected, Distribution};
use crate::error::AuditError;
use crate::folder::AuditFolder;
use crate::measure::{HeadMeasure, JoinMeasure, SentenceMeasure};
use crate::reading::Reject;

/// Sentences at each end of a measure.
const EXTREMES: usize = 3;
/// Groups that are told apart; the rest are counted.
const GROUPS: usize = 64;
/// Runs of parts that are summarised side by side. A fixed number: the digests do not depend on the number of cores.
const RUNS: usize = 8;

/// What an audit comes to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CorpusSummary {
    /// Rows of the corpus in this audit, with those that are rejected.
    pub rows: u64,
    /// Rows that were measured.
    pub sentences: u64,
    /// Rows that could not be.
    pub rejected: u64,
    /// Target tokens of the sentences that were measured.
    pub target_tokens: u64,
    /// Sentences of which something was cut off.
    pub truncated: u64,
    /// Sentences with a word that the tokenizer does not know.
    pub unknown: u64,
    /// Sentences on which something was NaN or infinite.
    pub non_finite: u64,
    /// Sentences with more tokens than the model has positions, or its documents say.
    pub over_positions: u64,
    /// NLL, NLL with a swapped source and their difference, in nats a token, over sentences.
    pub nll: Vec<MeasureSummary<SentenceMeasure>>,
    /// Every head of every attention.
    pub heads: Vec<HeadSummary>,
    /// Every sublayer.
    pub layers: Vec<JoinSummary>,
    /// The sentences by the values of a column that was kept.
    pub groups: Vec<GroupSummary>,
    /// Sentences whose group is not among those.
    pub other_groups: u64,
    /// The sentences that are named above, and a sample where one was asked for, by their rows.
    pub examples: Vec<ExtremeSentence>,
    /// Evenly chosen sentences with the measures of every head, where they were asked for.
    pub sample: Vec<SampledSentence>,
}

/// One measure over the corpus.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MeasureSummary<M> {
    /// Which.
    pub measure: M,
    /// How it is distributed.
    pub distribution: Distribution,
    /// The sentences with the smallest values: row and value.
    pub lowest: Vec<(i64, f64)>,
    /// The sentences with the largest values.
    pub highest: Vec<(i64, f64)>,
}

/// A head over the corpus.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HeadSummary {
    /// Its attention, as `decoder.0.cross_attn`.
    pub attention: String,
    /// The layer, from 0.
    pub layer: i32,
    /// The head, from 0.
    pub head: i32,
    /// Its measures.
    pub measures: Vec<MeasureSummary<HeadMeasure>>,
}

/// A sublayer over the corpus.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JoinSummary {
    /// As `decoder.0.ffn`.
    pub sublayer: String,
    /// The layer, from 0.
    pub layer: i32,
    /// Its measures.
    pub measures: Vec<MeasureSummary<JoinMeasure>>,
}

/// The sentences with one value in a column.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GroupSummary {
    /// The column.
    pub column: String,
    /// Its value; absent where there is none.
    pub value: Option<String>,
    /// How many sentences were measured.
    pub sentences: u64,
    /// NLL in nats a token, over sentences.
    pub nll: Distribution,
    /// How much more a token costs with another source.
    pub delta_nll: Distribution,
}

/// A sentence of the corpus.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExtremeSentence {
    /// Its row, from 0.
    pub row: i64,
    /// Its line, from 1.
    pub line: Option<i64>,
    /// The source.
    pub source: Option<String>,
    /// The target.
    pub target: Option<String>,
    /// NLL in nats a token.
    pub nll: Option<f64>,
    /// How much more a token costs with another source.
    pub delta_nll: Option<f64>,
}

/// A sentence with the measures of its heads.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SampledSentence {
    /// Its row, from 0.
    pub row: i64,
    /// The values of every head, in the order of `heads`, each with its measures in their order; absent where undefined.
    pub heads: Vec<Option<f32>>,
}

/// One column of values with the sentences at its ends.
#[derive(Debug, Clone, Default)]
struct Column {
    collected: Collected,
    lowest: Vec<(i64, f64)>,
    highest: Vec<(i64, f64)>,
}

impl Column {
    fn add(&mut self, row: i64, value: Option<f64>) {
        let Some(value) = value else { return };
        self.collected.add(value);
        if value.is_finite() {
            keep(&mut self.lowest, (row, value), |a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            keep(&mut self.highest, (row, value), |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        }
    }

    fn merge(&mut self, other: Self) {
        self.collected.merge(&other.collected);
        for found in other.lowest {
            keep(&mut self.lowest, found, |a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        }
        for found in other.highest {
            keep(&mut self.highest, found, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        }
    }

    fn summary<M>(mut self, measure: M) -> MeasureSummary<M> {
        let distribution = self.collected.distribution();
        MeasureSummary { measure, distribution, lowest: self.lowest, highest: self.highest }
    }
}

/// Puts what was found among the first few of an order, if it belongs there.
fn keep(kept: &mut Vec<(i64, f64)>, found: (i64, f64), order: impl Fn(&(i64, f64), &(i64, f64)) -> Ordering) {
    let at = kept.partition_point(|known| order(known, &found) == Ordering::Less);
    if at < EXTREMES {
        kept.insert(at, found);
        kept.truncate(EXTREMES);
    }
}

/// Some parts, summed up.
#[derive(Debug, Clone, Default)]
struct Summed {
    rows: u64,
    sentences: u64,
    target_tokens: u64,
    flags: [u64; 4],
    nll: [Column; 3],
    heads: Vec<(String, i32, i32, Vec<Column>)>,
    joins: Vec<(String, i32, Vec<Column>)>,
    groups: BTreeMap<Option<String>, [Collected; 2]>,
    rejects: Vec<Reject>,
}

/// Sums up the parts of an audit, by the values of a kept column where one is named, and with so many evenly chosen sentences.
///
/// # Errors
/// When a part cannot be read or has no such column, or parts are missing.
pub fn summarise(folder: &AuditFolder, by: Option<&str>, sample: usize) -> Result<CorpusSummary, AuditError> {
    let missing = folder.missing();
    let total = folder.manifest().parts;
    if !missing.is_empty() {
        let sharded = folder.manifest().shard.count > 1;
        return Err(AuditError::Missing { folder: folder.path().to_owned(), missing, total, sharded });
    }
    let parts: Vec<usize> = (0..total).filter(|&part| folder.manifest().shard.has(part)).collect();
    let run = |parts: &[usize]| {
        let mut summed = Summed::default();
        for &part in parts {
            let file = folder.part(part);
            let corpus = &folder.manifest().corpus;
            each_batch(&file, |_| true, |batch| summed.add(&file, corpus, batch, by))?;
        }
        Ok(summed)
    };
    let size = parts.len().div_ceil(RUNS).max(1);
    let runs: Vec<Summed> = parts.par_chunks(size).map(run).collect::<Result<_, AuditError>>()?;
    let mut summed = Summed::default();
    runs.into_iter().for_each(|run| summed.merge(run));
    let read: Vec<Reject> =
        folder.rejects()?.into_iter().filter(|reject| !summed.rejects.contains(reject)).collect();
    let mut rejects = [read, std::mem::take(&mut summed.rejects)].concat();
    rejects.sort_by_key(|reject| reject.row);
    let rejected = rejects.len() as u64;
    let mut summary = summed.summary(by, rejected);
    add_examples(folder, &parts, &mut summary, sample)?;
    Ok(summary)
}

/// The rows that the kernel rejected, of every part.
pub(crate) fn kernel_rejects(folder: &AuditFolder) -> Result<Vec<Reject>, AuditError> {
    let mut rejects = Vec::new();
    for part in (0..folder.manifest().parts).filter(|&part| folder.part(part).is_file()) {
        let file = folder.part(part);
        each_batch(
            &file,
            |name| ["row", "line", "rejected"].contains(&name),
            |batch| {
                rejects.extend(rejected_rows(&file, &folder.manifest().corpus, batch)?);
                Ok(())
            },
        )?;
    }
    Ok(rejects)
}

fn rejected_rows(file: &Path, corpus: &str, batch: &RecordBatch) -> Result<Vec<Reject>, AuditError> {
    let row: &Int64Array = column(file, batch, "row", |a| a.as_primitive_opt::<Int64Type>())?;
    let line: &Int64Array = column(file, batch, "line", |a| a.as_primitive_opt::<Int64Type>())?;
    let rejected: &StringArray = column(file, batch, "rejected", |a| a.as_string_opt::<i32>())?;
    let bad = (0..batch.num_rows()).filter(|&i| rejected.is_valid(i));
    let reject = |i: usize| Reject {
        file: corpus.to_owned(),
        line: if line.is_valid(i) { line.value(i) } else { 0 },
        row: row.value(i),
        reason: rejected.value(i).to_owned(),
    };
    Ok(bad.map(reject).collect())
}

/// The batches of a part, with the columns of some names. The reader of Parquet panics on some damaged files.
pub(crate) fn each_batch(
    file: &Path,
    wants: impl Fn(&str) -> bool,
    look: impl FnMut(&RecordBatch) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    let caught = catch(|| read_batches(file, wants, look));
    caught.unwrap_or_else(|why| Err(AuditError::Parquet { file: file.to_owned(), why }))
}

fn read_batches(
    file: &Path,
    wants: impl Fn(&str) -> bool,
    mut look: impl FnMut(&RecordBatch) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    let opened = File::open(file).map_err(|why| AuditError::io(file, why))?;
    let damaged = |e| AuditError::parquet(file, e);
    let builder = ParquetRecordBatchReaderBuilder::try_new(opened).map_err(damaged)?;
    let fields = builder.schema().fields().clone();
    let roots = fields.iter().enumerate().filter(|(_, field)| wants(field.name())).map(|(i, _)| i);
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots.collect::<Vec<_>>());
    for batch in builder.with_projection(mask).build().map_err(damaged)? {
        let batch = batch.map_err(|e| AuditError::Parquet { file: file.to_owned(), why: e.to_string() })?;
        look(&batch)?;
    }
    Ok(())
}

/// A column of a part.
pub(crate) fn column<'b, A>(
    file: &Path,
    batch: &'b RecordBatch,
    name: &str,
    cast: impl Fn(&'b dyn Array) -> Option<&'b A>,
) -> Result<&'b A, AuditError> {
    let found = batch.column_by_name(name);
    found.and_then(|array| cast(array.as_ref())).ok_or_else(|| AuditError::Damaged {
        file: file.to_owned(),
        expected: format!("a column {name:?} as an audit writes it"),
        found: found.map_or("none".to_owned(), |array| array.data_type().to_string()),
    })
}

/// The values of a list of structs: how many each row has, and its columns, one after the other.
struct Structs<'b> {
    list: &'b ListArray,
    texts: &'b StringArray,
    numbers: Vec<&'b Int32Array>,
    values: Vec<&'b arrow_array::Float32Array>,
}

impl<'b> Structs<'b> {
    /// A text, so many whole numbers, then measures.
    fn of(file: &Path, batch: &'b RecordBatch, name: &str, numbers: usize) -> Result<Self, AuditError> {
        let list: &ListArray = column(file, batch, name, |array| array.as_list_opt::<i32>())?;
        let damaged = || AuditError::Damaged {
            file: file.to_owned(),
            expected: format!("{name:?} as an audit writes it"),
            found: list.data_type().to_string(),
        };
        let columns = list.values().as_struct_opt().ok_or_else(damaged)?.columns();
        let texts = columns.first().and_then(|column| column.as_string_opt::<i32>()).ok_or_else(damaged)?;
        let whole = columns.iter().skip(1).take(numbers).map(|column| column.as_primitive_opt::<Int32Type>());
        let values = columns.iter().skip(1 + numbers).map(|column| column.as_primitive_opt::<Float32Type>());
        Ok(Self {
            list,
            texts,
            numbers: whole.collect::<Option<_>>().ok_or_else(damaged)?,
            values: values.collect::<Option<_>>().ok_or_else(damaged)?,
        })
    }

    /// Where the values of a row are.
    fn of_row(&self, row: usize) -> std::ops::Range<usize> {
        let offsets = self.list.value_offsets();
        let at = |i: usize| offsets.get(i).and_then(|&n| usize::try_from(n).ok()).unwrap_or(0);
        if self.list.is_valid(row) { at(row)..at(row + 1) } else { 0..0 }
    }

    fn value(&self, measure: usize, at: usize) -> Option<f32> {
        let column = self.values.get(measure)?;
        column.is_valid(at).then(|| column.value(at))
    }
}

impl Summed {
    fn add(
        &mut self,
        file: &Path,
        corpus: &str,
        batch: &RecordBatch,
        by: Option<&str>,
    ) -> Result<(), AuditError> {
        let row: &Int64Array = column(file, batch, "row", |a| a.as_primitive_opt::<Int64Type>())?;
        let tokens: &Int32Array =
            column(file, batch, "target_tokens", |a| a.as_primitive_opt::<Int32Type>())?;
        let rejected: &StringArray = column(file, batch, "rejected", |a| a.as_string_opt::<i32>())?;
        let nats = |name| -> Result<&Float64Array, AuditError> {
            column(file, batch, name, |a| a.as_primitive_opt::<Float64Type>())
        };
        let nats = [nats("nll")?, nats("nll_swapped")?];
        let flag = |name| column(file, batch, name, |a| a.as_boolean_opt());
        let flags = [flag("truncated")?, flag("unknown")?, flag("non_finite")?, flag("over_positions")?];
        let heads = Structs::of(file, batch, "heads", 2)?;
        let joins = Structs::of(file, batch, "layers", 1)?;
        let group: Option<&StringArray> = match by {
            None => None,
            Some(name) => Some(column(file, batch, name, |a| a.as_string_opt::<i32>())?),
        };
        self.rejects.extend(rejected_rows(file, corpus, batch)?);
        for i in 0..batch.num_rows() {
            self.rows += 1;
            if rejected.is_valid(i) {
                continue;
            }
            self.sentences += 1;
            let count = if tokens.is_valid(i) { tokens.value(i) } else { 0 };
            self.target_tokens += u64::try_from(count).unwrap_or(0);
            for (sum, flag) in self.flags.iter_mut().zip(flags) {
                *sum += u64::from(flag.value(i));
            }
            let a_token = |nats: &Float64Array| nats.is_valid(i).then(|| nats.value(i) / f64::from(count));
            let [nll, swapped] = nats.map(a_token);
            let delta = nll.zip(swapped).map(|(nll, swapped)| swapped - nll);
            let row = row.value(i);
            for (column, value) in self.nll.iter_mut().zip([nll, swapped, delta]) {
                column.add(row, value);
            }
            if let Some(group) = group {
                let name = group.is_valid(i).then(|| group.value(i).to_owned());
                let [of_nll, of_delta] = self.groups.entry(name).or_default();
                nll.into_iter().for_each(|value| of_nll.add(value));
                delta.into_iter().for_each(|value| of_delta.add(value));
            }
            self.add_heads(row, i, &heads);
            self.add_joins(row, i, &joins);
        }
        Ok(())
    }

    fn add_heads(&mut self, row: i64, i: usize, heads: &Structs<'_>) {
        for (n, at) in heads.of_row(i).enumerate() {
            if self.heads.len() <= n {
                let number = |i: usize| heads.numbers.get(i).map_or(0, |numbers| numbers.value(at));
                let columns = vec![Column::default(); HeadMeasure::ALL.len()];
                self.heads.push((heads.texts.value(at).to_owned(), number(0), number(1), columns));
            }
            for (measure, column) in self.heads[n].3.iter_mut().enumerate() {
                column.add(row, heads.value(measure, at).map(f64::from));
            }
        }
    }

    fn add_joins(&mut self, row: i64, i: usize, joins: &Structs<'_>) {
        for (n, at) in joins.of_row(i).enumerate() {
            if self.joins.len() <= n {
                let layer = joins.numbers.first().map_or(0, |numbers| numbers.value(at));
                let columns = vec![Column::default(); JoinMeasure::ALL.len()];
                self.joins.push((joins.texts.value(at).to_owned(), layer, columns));
            }
            for (measure, column) in self.joins[n].2.iter_mut().enumerate() {
                column.add(row, joins.value(measure, at).map(f64::from));
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.sentences += other.sentences;
        self.target_tokens += other.target_tokens;
        self.flags.iter_mut().zip(other.flags).for_each(|(sum, n)| *sum += n);
        self.nll.iter_mut().zip(other.nll).for_each(|(own, others)| own.merge(others));
        for (n, (attention, layer, head, columns)) in other.heads.into_iter().enumerate() {
            match self.heads.get_mut(n) {
                Some(own) => own.3.iter_mut().zip(columns).for_each(|(own, others)| own.merge(others)),
                None => self.heads.push((attention, layer, head, columns)),
            }
        }
        for (n, (sublayer, layer, columns)) in other.joins.into_iter().enumerate() {
            match self.joins.get_mut(n) {
                Some(own) => own.2.iter_mut().zip(columns).for_each(|(own, others)| own.merge(others)),
                None => self.joins.push((sublayer, layer, columns)),
            }
        }
        for (name, columns) in other.groups {
            let own = self.groups.entry(name).or_default();
            own.iter_mut().zip(&columns).for_each(|(own, others)| own.merge(others));
        }
        self.rejects.extend(other.rejects);
    }

    fn summary(self, by: Option<&str>, rejected: u64) -> CorpusSummary {
        let mut groups: Vec<GroupSummary> = self
            .groups
            .into_iter()
            .map(|(value, [mut nll, mut delta])| {
                let nll = nll.distribution();
                GroupSummary {
                    column: by.unwrap_or_default().to_owned(),
                    value,
                    sentences: nll.count + nll.non_finite,
                    nll,
                    delta_nll: delta.distribution(),
                }
            })
            .collect();
        groups.sort_by(|a, b| b.sentences.cmp(&a.sentences).then(a.value.cmp(&b.value)));
        let other_groups = groups.iter().skip(GROUPS).map(|group| group.sentences).sum();
        groups.truncate(GROUPS);
        let [truncated, unknown, non_finite, over_positions] = self.flags;
        let nll =
            self.nll.into_iter().zip(SentenceMeasure::ALL).map(|(column, measure)| column.summary(measure));
        let head = |(attention, layer, head, columns): (String, i32, i32, Vec<Column>)| HeadSummary {
            attention,
            layer,
            head,
            measures: columns
                .into_iter()
                .zip(HeadMeasure::ALL)
                .map(|(c, measure)| c.summary(measure))
                .collect(),
        };
        let join = |(sublayer, layer, columns): (String, i32, Vec<Column>)| JoinSummary {
            sublayer,
            layer,
            measures: columns
                .into_iter()
                .zip(JoinMeasure::ALL)
                .map(|(c, measure)| c.summary(measure))
                .collect(),
        };
        CorpusSummary {
            rows: self.sentences + rejected,
            sentences: self.sentences,
            rejected,
            target_tokens: self.target_tokens,
            truncated,
            unknown,
            non_finite,
            over_positions,
            nll: nll.collect(),
            heads: self.heads.into_iter().map(head).collect(),
            layers: self.joins.into_iter().map(join).collect(),
            groups,
            other_groups,
            examples: Vec::new(),
            sample: Vec::new(),
        }
    }
}

impl<M> MeasureSummary<M> {
    fn rows(&self) -> impl Iterator<Item = i64> {
        self.lowest.iter().chain(&self.highest).map(|(row, _)| *row)
    }
}

/// Reads the sentences that a summary names, and the sample.
fn add_examples(
    folder: &AuditFolder,
    parts: &[usize],
    summary: &mut CorpusSummary,
    sample: usize,
) -> Result<(), AuditError> {
    let mut wanted: BTreeSet<i64> = summary.nll.iter().flat_map(MeasureSummary::rows).collect();
    wanted.extend(summary.heads.iter().flat_map(|head| &head.measures).flat_map(MeasureSummary::rows));
    wanted.extend(summary.layers.iter().flat_map(|layer| &layer.measures).flat_map(MeasureSummary::rows));
    let step = (summary.sentences as usize).div_ceil(sample.max(1)).max(1);
    let mut seen = 0usize;
    const COLUMNS: [&str; 8] =
        ["row", "line", "source", "target", "target_tokens", "nll", "delta_nll", "rejected"];
    for &part in parts {
        let file = folder.part(part);
        let wants = |name: &str| COLUMNS.contains(&name) || (sample > 0 && name == "heads");
        each_batch(&file, wants, |batch| {
            let row: &Int64Array = column(&file, batch, "row", |a| a.as_primitive_opt::<Int64Type>())?;
            let rejected: &StringArray = column(&file, batch, "rejected", |a| a.as_string_opt::<i32>())?;
            for i in (0..batch.num_rows()).filter(|&i| rejected.is_null(i)) {
                let is_sampled = sample > 0 && seen.is_multiple_of(step);
                seen += 1;
                if is_sampled {
                    let heads = Structs::of(&file, batch, "heads", 2)?;
                    let values =
                        heads.of_row(i).flat_map(|at| (0..HeadMeasure::ALL.len()).map(move |m| (m, at)));
                    let heads = values.map(|(m, at)| heads.value(m, at).filter(|x| x.is_finite())).collect();
                    summary.sample.push(SampledSentence { row: row.value(i), heads });
                }
                if is_sampled || wanted.contains(&row.value(i)) {
                    summary.examples.push(example(&file, batch, i)?);
                }
            }
            Ok(())
        })?;
    }
    summary.examples.sort_by_key(|example| example.row);
    Ok(())
}

fn example(file: &Path, batch: &RecordBatch, i: usize) -> Result<ExtremeSentence, AuditError> {
    let number = |name| -> Result<Option<i64>, AuditError> {
        let array: &Int64Array = column(file, batch, name, |a| a.as_primitive_opt::<Int64Type>())?;
        Ok(array.is_valid(i).then(|| array.value(i)))
    };
    let text = |name| -> Result<Option<String>, AuditError> {
        let array: &StringArray = column(file, batch, name, |a| a.as_string_opt::<i32>())?;
        Ok(array.is_valid(i).then(|| array.value(i).to_owned()))
    };
    let nats = |name| -> Result<Option<f64>, AuditError> {
        let array: &Float64Array = column(file, batch, name, |a| a.as_primitive_opt::<Float64Type>())?;
        Ok(array.is_valid(i).then(|| array.value(i)).filter(|x| x.is_finite()))
    };
    let tokens: &Int32Array = column(file, batch, "target_tokens", |a| a.as_primitive_opt::<Int32Type>())?;
    let count = tokens.is_valid(i).then(|| f64::from(tokens.value(i)));
    Ok(ExtremeSentence {
        row: number("row")?.unwrap_or_default(),
        line: number("line")?,
        source: text("source")?,
        target: text("target")?,
        nll: nats("nll")?.zip(count).map(|(nll, count)| nll / count),
        delta_nll: nats("delta_nll")?,
    })
}
