//! The kernel: from a batch of rows to their measures. Every row gives one row, in the same order, and its values do not depend
//! on the rows beside it: only texts of equal lengths are run together, so that nothing is padded.

mod columns;
mod item;
mod run;
mod sink;

use std::path::PathBuf;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use attnscope_run::Limits;
use rayon::prelude::*;
use std::sync::Arc;

use crate::error::AuditError;
use crate::model::{AuditModel, Task};
use crate::schema::{INPUT_COLUMNS, output_schema};
pub(crate) use columns::Texts;
use columns::{Input, output};
use item::Item;
use run::Wave;

/// How the kernel measures.
#[derive(Debug, Clone)]
pub struct KernelOptions {
    /// Heads and layers too; else only what a target costs.
    pub measures: bool,
    /// The source token of each target token, too.
    pub alignments: bool,
    /// Sides are cut to so many tokens; by default to the model's positions.
    pub max_tokens: Option<usize>,
    /// The folder that names of recordings are relative to.
    pub base: PathBuf,
    /// Memory, and what ends the work.
    pub limits: Limits,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            measures: true,
            alignments: false,
            max_tokens: None,
            base: PathBuf::new(),
            limits: Limits::default(),
        }
    }
}

/// Bytes of encoder outputs and recordings that are kept at once.
const HELD: usize = 192 << 20;
/// Rows that are tokenised at once.
const ROWS: usize = 8192;

/// Measures every row of a batch. The columns are those of [`INPUT_COLUMNS`]; any others are kept as they are. A row that cannot
/// be measured is in the output with the reason in `rejected`.
///
/// # Errors
/// When a column is missing or of another type, the model cannot be run, or it was cancelled.
pub fn audit_batch(
    model: &AuditModel,
    options: &KernelOptions,
    batch: &RecordBatch,
) -> Result<RecordBatch, AuditError> {
    let input = Input::of(batch, model.task())?;
    let mut measured = Vec::with_capacity(batch.num_rows());
    for from in (0..batch.num_rows()).step_by(ROWS) {
        let rows = from..batch.num_rows().min(from + ROWS);
        let items: Vec<Item> = match model.task() {
            // A recording is large: it is read when it is its turn.
            Task::Audio => rows.map(|row| Item::of(model, options, &input, row)).collect(),
            _ => rows.into_par_iter().map(|row| Item::of(model, options, &input, row)).collect(),
        };
        options.limits.cancel.check()?;
        for wave in waves(model, &items) {
            measured.extend(Wave::new(model, options, wave)?.run()?);
        }
    }
    let kept = kept(batch);
    output(&input, &measured, options, &kept)
}

/// Rows whose sources are held together: as many as there is memory for, and at least one.
fn waves<'i>(model: &AuditModel, items: &'i [Item]) -> Vec<&'i [Item]> {
    let width = model.encoded_bytes();
    let (mut waves, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (i, item) in items.iter().enumerate() {
        let own = item.source_positions(model) * width;
        if i > start && bytes + own > HELD {
            waves.push(&items[start..i]);
            (start, bytes) = (i, 0);
        }
        bytes += own;
    }
    waves.push(&items[start..]);
    waves
}

/// The columns that the kernel gives for a batch with these.
///
/// # Errors
/// When a column that is to be kept has the name of one that the kernel gives.
pub fn audited_schema(input: &Schema, alignments: bool) -> Result<SchemaRef, AuditError> {
    check_kept(input)?;
    let kept: Vec<Arc<Field>> = input.fields().iter().filter(|field| is_kept(field)).cloned().collect();
    Ok(output_schema(alignments, &kept))
}

/// Columns that are kept have other names than those that the kernel gives.
fn check_kept(input: &Schema) -> Result<(), AuditError> {
    let own = output_schema(true, &[]);
    let kept = || input.fields().iter().filter(|field| is_kept(field));
    let taken = kept().find(|field| own.field_with_name(field.name()).is_ok());
    taken.map_or(Ok(()), |field| {
        Err(AuditError::Batch {
            expected: "other names for columns that are kept".into(),
            found: format!("a column {:?}, which the output has for its own", field.name()),
        })
    })
}

fn is_kept(field: &Field) -> bool {
    !INPUT_COLUMNS.contains(&field.name().as_str())
}

/// The columns that are the user's own.
fn kept(batch: &RecordBatch) -> Vec<(Arc<Field>, Arc<dyn Array>)> {
    let fields = batch.schema_ref().fields().iter().cloned().zip(batch.columns().iter().cloned());
    fields.filter(|(field, _)| is_kept(field)).collect()
}
