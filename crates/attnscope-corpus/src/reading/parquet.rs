//! Corpora in Parquet. Columns may be within a struct: `translation.de`.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field};
use attnscope_run::catch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use super::{Collector, ColumnNames, CorpusRead};
use crate::error::AuditError;
use crate::model::Task;

/// Rows that are read at once.
const ROWS: usize = 8192;

/// The reader of Parquet panics on some damaged files.
pub(super) fn read(file: &Path, task: Task, columns: &ColumnNames) -> Result<CorpusRead, AuditError> {
    let caught = catch(|| read_all(file, task, columns));
    caught.unwrap_or_else(|why| Err(AuditError::Parquet { file: file.to_owned(), why }))
}

fn read_all(file: &Path, task: Task, columns: &ColumnNames) -> Result<CorpusRead, AuditError> {
    let damaged = |e| AuditError::parquet(file, e);
    let opened = attnscope_checkpoint::open_input(file).map_err(|why| AuditError::io(file, why))?;
    // Types as Parquet has them: what another program kept of its own in the file does not matter here.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(opened, options).map_err(damaged)?;
    let mut collector = Collector::new(file, task);
    let schema = builder.schema().clone();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let source = match task {
        Task::Text => None,
        Task::Pairs | Task::Audio => Some(columns.source()),
    };
    let wanted: Vec<&str> = source
        .into_iter()
        .chain([columns.target(task)])
        .chain(columns.keep.iter().map(String::as_str))
        .collect();
    let mut roots = Vec::new();
    for &name in &wanted {
        let found = names.iter().position(|root| *root == name).or_else(|| {
            let (root, _) = name.split_once('.')?;
            names.iter().position(|other| *other == root)
        });
        roots.push(found.ok_or_else(|| collector.no_column(name, &names))?);
    }
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder.with_projection(mask).with_batch_size(ROWS).build().map_err(damaged)?;
    for batch in reader {
        let batch = batch.map_err(|e| unreadable(file, e))?;
        add(&mut collector, &batch, &wanted, source.is_some())?;
    }
    collector.finish()
}

fn unreadable(file: &Path, error: ArrowError) -> AuditError {
    match error {
        ArrowError::IoError(_, why) => AuditError::io(file, why),
        other => AuditError::unreadable(file, other.to_string()),
    }
}

/// The rows of a batch. `wanted` are the source, where there is one, the target, and what is kept.
fn add(
    collector: &mut Collector<'_>,
    batch: &RecordBatch,
    wanted: &[&str],
    has_source: bool,
) -> Result<(), AuditError> {
    let texts = usize::from(has_source) + 1;
    let mut columns = Vec::new();
    for (i, name) in wanted.iter().enumerate() {
        let column = column(batch, name).ok_or_else(|| {
            let fields = batch.schema_ref().fields();
            let within: Vec<&str> = fields.iter().flat_map(|field| within(field)).collect();
            collector.no_column(name, &within)
        })?;
        let is_fine = if i < texts { is_text(column.data_type()) } else { is_shown(column.data_type()) };
        if !is_fine {
            return Err(AuditError::ColumnType {
                file: collector.file.to_owned(),
                column: (*name).to_owned(),
                expected: if i < texts { "texts" } else { "texts, numbers or truth values" },
                found: column.data_type().to_string(),
            });
        }
        columns.push(column);
    }
    for i in 0..batch.num_rows() {
        let line = collector.next + 1;
        let mut cells: Vec<Option<String>> = columns.iter().map(|column| cell(column, i)).collect();
        let kept = cells.split_off(texts);
        let target = cells.pop().flatten();
        let source = cells.pop().flatten();
        collector.add(line, source.as_deref(), target.as_deref(), kept);
    }
    Ok(())
}

/// The names of the fields within a struct, else the field's own.
fn within(field: &Field) -> Vec<&str> {
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().map(|field| field.name().as_str()).collect(),
        _ => vec![field.name()],
    }
}

/// A column by its name, or by a path through structs.
fn column(batch: &RecordBatch, path: &str) -> Option<ArrayRef> {
    if let Some(column) = batch.column_by_name(path) {
        return Some(column.clone());
    }
    let mut parts = path.split('.');
    let mut column = batch.column_by_name(parts.next()?)?.clone();
    for part in parts {
        // A struct that is null makes what is in it null; its fields have that in their own nulls as Parquet is read.
        column = column.as_struct_opt()?.column_by_name(part)?.clone();
    }
    Some(column)
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_shown(kind: &DataType) -> bool {
    is_text(kind)
        || kind.is_integer()
        || matches!(kind, DataType::Boolean | DataType::Float32 | DataType::Float64)
}

/// A cell as text.
fn cell(column: &ArrayRef, i: usize) -> Option<String> {
    macro_rules! number {
        ($kind:ty) => {
            column.as_primitive::<$kind>().value(i).to_string()
        };
    }
    if column.is_null(i) {
        return None;
    }
    Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(i).to_owned(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(i).to_owned(),
        DataType::Utf8View => column.as_string_view().value(i).to_owned(),
        DataType::Boolean => column.as_boolean().value(i).to_string(),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        _ => return None,
    })
}
