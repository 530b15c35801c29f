//! From a batch of Arrow to rows, and from measures to a batch of Arrow.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use attnscope_diagnose::HeadMeasures;
use attnscope_graph::AttentionPlace;

use super::run::Measured;
use super::sink::RowSeen;
use super::{KernelOptions, check_kept};
use crate::error::AuditError;
use crate::measure::HeadMeasure;
use crate::model::Task;
use crate::schema::{alignment_fields, head_fields, join_fields, output_schema};

/// The columns that the kernel reads.
pub(super) struct Input<'b> {
    task: Task,
    rows: usize,
    row: Option<&'b Int64Array>,
    line: Option<&'b Int64Array>,
    source: Option<Texts<'b>>,
    target: Texts<'b>,
    swap_row: Option<&'b Int64Array>,
    swap_source: Option<Texts<'b>>,
}

/// A column of texts, in any of Arrow's forms.
pub(crate) enum Texts<'b> {
    Small(&'b StringArray),
    Large(&'b arrow_array::LargeStringArray),
    View(&'b arrow_array::StringViewArray),
}

impl<'b> Texts<'b> {
    pub(crate) fn of(array: &'b ArrayRef) -> Option<Self> {
        let small = array.as_string_opt::<i32>().map(Self::Small);
        let large = || array.as_string_opt::<i64>().map(Self::Large);
        small.or_else(large).or_else(|| array.as_string_view_opt().map(Self::View))
    }

    pub(crate) fn get(&self, row: usize) -> Option<&'b str> {
        match self {
            Self::Small(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Large(array) => array.is_valid(row).then(|| array.value(row)),
            Self::View(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }
}

impl<'b> Input<'b> {
    pub(super) fn of(batch: &'b RecordBatch, task: Task) -> Result<Self, AuditError> {
        let text = |name: &str| match batch.column_by_name(name) {
            None => Ok(None),
            Some(array) => {
                Texts::of(array).map(Some).ok_or_else(|| wrong(name, "a string", array.data_type()))
            }
        };
        let number = |name: &str| match batch.column_by_name(name) {
            None => Ok(None),
            Some(array) => {
                let found = array.as_primitive_opt::<Int64Type>();
                found.map(Some).ok_or_else(|| wrong(name, "int64", array.data_type()))
            }
        };
        let (source, target) = (text("source")?, text("target")?);
        let names =
            || batch.schema_ref().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
        let missing =
            |name: &str| AuditError::Batch { expected: format!("a column {name:?}"), found: names() };
        if task != Task::Text && source.is_none() {
            return Err(missing("source"));
        }
        check_kept(batch.schema_ref())?;
        Ok(Self {
            task,
            rows: batch.num_rows(),
            row: number("row")?,
            line: number("line")?,
            source: source.filter(|_| task != Task::Text),
            target: target.ok_or_else(|| missing("target"))?,
            swap_row: number("swap_row")?,
            swap_source: text("swap_source")?.filter(|_| task != Task::Text),
        })
    }

    pub(super) fn source(&self, row: usize) -> Option<&'b str> {
        self.source.as_ref()?.get(row)
    }

    pub(super) fn target(&self, row: usize) -> Option<&'b str> {
        self.target.get(row)
    }

    pub(super) fn swap_source(&self, row: usize) -> Option<&'b str> {
        self.swap_source.as_ref()?.get(row)
    }

    fn number(column: Option<&Int64Array>, row: usize) -> Option<i64> {
        column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
    }
}

fn wrong(name: &str, expected: &str, found: &DataType) -> AuditError {
    AuditError::Batch { expected: format!("{name:?} of type {expected}"), found: found.to_string() }
}

/// The batch that the kernel writes.
pub(super) fn output(
    input: &Input<'_>,
    measured: &[Measured],
    options: &KernelOptions,
    kept: &[(Arc<Field>, ArrayRef)],
) -> Result<RecordBatch, AuditError> {
    let fields: Vec<Arc<Field>> = kept.iter().map(|(field, _)| field.clone()).collect();
    let schema = output_schema(options.alignments, &fields);
    let rows = 0..input.rows;
    let of_rows = |get: &dyn Fn(usize) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.clone().map(get).collect::<Int64Array>())
    };
    let texts = |get: &dyn Fn(usize) -> Option<String>| -> ArrayRef {
        Arc::new(rows.clone().map(get).collect::<StringArray>())
    };
    let counts = |get: &dyn Fn(usize) -> Option<usize>| -> ArrayRef {
        let count = |row| get(row).and_then(|n| i32::try_from(n).ok());
        Arc::new(rows.clone().map(count).collect::<Int32Array>())
    };
    let flags = |get: &dyn Fn(&Measured) -> bool| -> ArrayRef {
        Arc::new(measured.iter().map(|row| Some(get(row))).collect::<BooleanArray>())
    };
    let nats = |get: &dyn Fn(&Measured) -> Option<f64>| -> ArrayRef {
        Arc::new(measured.iter().map(get).collect::<Float64Array>())
    };
    let characters = |text: Option<&str>| text.map(|text| text.chars().count());
    let mut columns: Vec<ArrayRef> = vec![
        of_rows(&|row| Input::number(input.row, row).or(i64::try_from(row).ok())),
        of_rows(&|row| Input::number(input.line, row)),
        texts(&|row| input.source(row).map(str::to_owned)),
        texts(&|row| input.target(row).map(str::to_owned)),
        of_rows(&|row| Input::number(input.swap_row, row)),
        counts(&|row| measured.get(row)?.source_tokens),
        counts(&|row| measured.get(row)?.target_tokens),
        counts(&|row| characters(input.source(row)).filter(|_| input.task != Task::Audio)),
        counts(&|row| characters(input.target(row))),
        nats(&|row| row.nll),
        nats(&|row| row.nll_swapped),
        nats(&|row| Some((row.nll_swapped? - row.nll?) / row.target_tokens? as f64)),
        flags(&|row| row.flags.truncated),
        flags(&|row| row.flags.unknown),
        flags(&Measured::is_non_finite),
        flags(&|row| row.flags.over_positions),
        Arc::new(measured.iter().map(|row| row.rejected.as_deref()).collect::<StringArray>()),
        heads(measured, options),
        joins(measured, options),
    ];
    if options.alignments {
        columns.push(alignments(measured));
    }
    columns.extend(kept.iter().map(|(_, column)| column.clone()));
    RecordBatch::try_new(schema, columns)
        .map_err(|e| AuditError::Batch { expected: "columns of one length".into(), found: e.to_string() })
}

impl Measured {
    /// Whether something that was measured is NaN or infinite.
    fn is_non_finite(&self) -> bool {
        let is_bad = |x: &f64| !x.is_finite();
        let of_heads = self.seen.iter().flat_map(|seen| &seen.attentions).flat_map(|(_, heads)| heads);
        let of_joins = self.seen.iter().flat_map(|seen| &seen.joins).flat_map(|(_, _, values)| values);
        self.nll.iter().chain(&self.nll_swapped).any(is_bad)
            || of_heads.map(|head| &head.effective_keys).chain(of_joins).any(is_bad)
    }
}

/// Lists of structs: of each row, as many as it has. A row that was not measured has none.
fn lists(
    measured: &[Measured],
    fields: Fields,
    lengths: &[usize],
    columns: Vec<ArrayRef>,
    wanted: bool,
) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Struct(fields.clone()), false));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    let nulls: NullBuffer =
        measured.iter().map(|row| wanted && row.rejected.is_none()).collect::<Vec<_>>().into();
    Arc::new(ListArray::new(item, offsets, Arc::new(StructArray::new(fields, columns, None)), Some(nulls)))
}

fn seen(row: &Measured) -> impl Iterator<Item = &RowSeen> {
    row.seen.iter().filter(|_| row.rejected.is_none())
}

fn heads(measured: &[Measured], options: &KernelOptions) -> ArrayRef {
    let of_row = |row: &Measured| -> Vec<(AttentionPlace, usize, HeadMeasures)> {
        let attentions = seen(row).flat_map(|seen| &seen.attentions);
        let heads =
            attentions.flat_map(|(place, heads)| heads.iter().enumerate().map(move |(h, m)| (*place, h, *m)));
        heads.collect()
    };
    let rows: Vec<Vec<(AttentionPlace, usize, HeadMeasures)>> = measured.iter().map(of_row).collect();
    let all = || rows.iter().flatten();
    let as_i32 = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(all().map(|(place, ..)| Some(place.to_string())).collect::<StringArray>()),
        Arc::new(all().map(|(place, ..)| Some(as_i32(place.layer))).collect::<Int32Array>()),
        Arc::new(all().map(|(_, head, _)| Some(as_i32(*head))).collect::<Int32Array>()),
    ];
    for measure in HeadMeasure::ALL {
        let values = all().map(|(.., head)| measure.of(head).map(|x| x as f32));
        columns.push(Arc::new(values.collect::<Float32Array>()));
    }
    let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
    lists(measured, head_fields(), &lengths, columns, options.measures)
}

fn joins(measured: &[Measured], options: &KernelOptions) -> ArrayRef {
    let all = || measured.iter().flat_map(seen).flat_map(|seen| &seen.joins);
    let as_i32 = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(all().map(|(path, ..)| Some(path.as_str())).collect::<StringArray>()),
        Arc::new(all().map(|(_, layer, _)| Some(as_i32(*layer))).collect::<Int32Array>()),
    ];
    for i in 0..2 {
        columns.push(Arc::new(all().map(|(.., values)| Some(values[i] as f32)).collect::<Float32Array>()));
    }
    let lengths: Vec<usize> =
        measured.iter().map(|row| seen(row).map(|seen| seen.joins.len()).sum()).collect();
    lists(measured, join_fields(), &lengths, columns, options.measures)
}

fn alignments(measured: &[Measured]) -> ArrayRef {
    let all = || measured.iter().flat_map(seen).flat_map(|seen| &seen.alignment);
    let as_i32 = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(all().map(|(source, ..)| Some(as_i32(*source))).collect::<Int32Array>()),
        Arc::new(all().map(|(_, target, _)| Some(as_i32(*target))).collect::<Int32Array>()),
        Arc::new(all().map(|(.., weight)| Some(*weight as f32)).collect::<Float32Array>()),
    ];
    let lengths: Vec<usize> =
        measured.iter().map(|row| seen(row).map(|seen| seen.alignment.len()).sum()).collect();
    lists(measured, alignment_fields(), &lengths, columns, true)
}
