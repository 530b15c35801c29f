//! What is decided before any work is shared out: the order of the rows, who gives whom a source, and which rows each part has.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use attnscope_diagnose::swap_partners;

use crate::error::AuditError;
use crate::kernel::Texts;
use crate::model::Task;
use crate::reading::CorpusRow;
use crate::schema::input_schema;

/// The rows of a corpus in the order of their length, each with its partner, in parts.
#[derive(Debug)]
pub struct Plan {
    rows: Vec<CorpusRow>,
    /// Row numbers, by length: the rows of a part are about as long as each other.
    order: Vec<usize>,
    /// For each row the one whose source it is scored with, too; `None` where all sources are the same.
    partners: Option<Vec<usize>>,
    part_rows: usize,
    keep: Vec<String>,
}

impl Plan {
    /// Decides it. Partners depend on the texts alone, so that they are the same for every model; recordings are taken to be
    /// of one length.
    pub fn new(rows: Vec<CorpusRow>, task: Task, part_rows: usize, keep: &[String]) -> Self {
        let source = |row: usize| rows[row].source.as_deref().unwrap_or_default();
        let (order, partners) = by_length(task, (0..rows.len()).collect(), source, |row| &rows[row].target);
        let partners = partners.map(|partners| {
            let mut of_rows = vec![0; rows.len()];
            order.iter().zip(partners).for_each(|(&row, partner)| of_rows[row] = partner);
            of_rows
        });
        Self { rows, order, partners, part_rows: part_rows.max(1), keep: keep.to_vec() }
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.order.len().div_ceil(self.part_rows)
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// How many rows a part has.
    pub fn rows_of(&self, part: usize) -> usize {
        self.places(part).len()
    }

    fn places(&self, part: usize) -> &[usize] {
        self.order.chunks(self.part_rows).nth(part).unwrap_or_default()
    }

    /// A part, as the kernel reads it.
    ///
    /// # Errors
    /// Never for a plan that was made from rows.
    pub fn batch(&self, part: usize) -> Result<RecordBatch, AuditError> {
        let places = self.places(part);
        let rows = || places.iter().map(|&place| &self.rows[place]);
        let partners =
            || places.iter().map(|&place| self.partners.as_ref().map(|partners| &self.rows[partners[place]]));
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(rows().map(|row| Some(row.row)).collect::<Int64Array>()),
            Arc::new(rows().map(|row| Some(row.line)).collect::<Int64Array>()),
            Arc::new(rows().map(|row| row.source.as_deref()).collect::<StringArray>()),
            Arc::new(rows().map(|row| Some(row.target.as_str())).collect::<StringArray>()),
            Arc::new(partners().map(|partner| partner.map(|row| row.row)).collect::<Int64Array>()),
            Arc::new(partners().map(|partner| partner?.source.as_deref()).collect::<StringArray>()),
        ];
        let mut fields: Vec<Arc<Field>> = input_schema().fields().iter().cloned().collect();
        for (i, name) in self.keep.iter().enumerate() {
            fields.push(Arc::new(Field::new(name, DataType::Utf8, true)));
            columns.push(Arc::new(rows().map(|row| row.kept.get(i)?.as_deref()).collect::<StringArray>()));
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(unplanned)
    }
}

/// Rows in the order of the length of their texts, and for each in that order its partner. Recordings are taken to be of one
/// length; there are no partners where there are no sources to swap, or all are the same.
fn by_length<'t>(
    task: Task,
    mut rows: Vec<usize>,
    source: impl Fn(usize) -> &'t str,
    target: impl Fn(usize) -> &'t str,
) -> (Vec<usize>, Option<Vec<usize>>) {
    let length = |row: usize| if task == Task::Audio { 0 } else { source(row).chars().count() };
    rows.sort_by_cached_key(|&row| (length(row), target(row).chars().count()));
    if task == Task::Text {
        return (rows, None);
    }
    let is_same = |a: usize, b: usize| source(rows[a]) == source(rows[b]);
    let partners = swap_partners(rows.len(), |rank| length(rows[rank]), is_same);
    let partners = partners.map(|ranks| ranks.into_iter().map(|rank| rows[rank]).collect());
    (rows, partners)
}

fn unplanned(error: arrow_schema::ArrowError) -> AuditError {
    AuditError::Batch { expected: "columns of one length".into(), found: error.to_string() }
}

/// A table of `source` and `target` with what a plan adds: `row`, `swap_row` and `swap_source`, in the order of the table. For
/// whoever shares out rows by other means, before that is done. Rows are pairs, or recordings with their transcripts.
///
/// # Errors
/// When the table has no such columns.
pub fn with_swaps(table: &RecordBatch, task: Task) -> Result<RecordBatch, AuditError> {
    let names =
        || table.schema_ref().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
    let texts = |name: &str| {
        let missing = || AuditError::Batch { expected: format!("a column {name:?}"), found: names() };
        let column = table.column_by_name(name).ok_or_else(missing)?;
        Texts::of(column).ok_or_else(|| AuditError::Batch {
            expected: format!("{name:?} of type a string"),
            found: column.data_type().to_string(),
        })
    };
    let (sources, targets) = (texts("source")?, texts("target")?);
    let count = table.num_rows();
    let usable = |row: &usize| {
        let is_text = |column: &Texts<'_>| column.get(*row).is_some_and(|text| !text.trim().is_empty());
        is_text(&sources) && is_text(&targets)
    };
    let rows = (0..count).filter(usable).collect();
    let source = |row| sources.get(row).unwrap_or_default();
    let (order, partners) = by_length(task, rows, source, |row| targets.get(row).unwrap_or_default());
    let mut of_rows = vec![None; count];
    order.iter().zip(partners.unwrap_or_default()).for_each(|(&row, partner)| of_rows[row] = Some(partner));
    let number = |row: usize| i64::try_from(row).unwrap_or(i64::MAX);
    let swapped = of_rows.iter().map(|partner| sources.get((*partner)?));
    let added: [(&str, ArrayRef); 3] = [
        ("row", Arc::new((0..count).map(|row| Some(number(row))).collect::<Int64Array>())),
        ("swap_row", Arc::new(of_rows.iter().map(|row| row.map(number)).collect::<Int64Array>())),
        ("swap_source", Arc::new(swapped.collect::<StringArray>())),
    ];
    let is_added = |name: &str| added.iter().any(|(own, _)| *own == name);
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in table.schema_ref().fields().iter().zip(table.columns()) {
        if !is_added(field.name()) {
            fields.push(field.clone());
            columns.push(column.clone());
        }
    }
    for (name, column) in added {
        fields.push(Arc::new(Field::new(name, column.data_type().clone(), true)));
        columns.push(column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(unplanned)
}
