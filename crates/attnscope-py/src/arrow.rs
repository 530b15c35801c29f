//! The kernel of audits in Python: from a record batch of Arrow to a record batch. Batches come and go in Arrow's IPC format, because
//! what shares memory between two programs needs unsafe code, and copying them takes no time beside running a model.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use attnscope::corpus::{AuditModel, KernelOptions, Task, audited_schema};
use attnscope::{Failure, Input, Model as Library};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::model::Model;
use crate::work;

/// The languages of both sides, for a multilingual model.
pub(crate) type Languages = (Option<String>, Option<String>);

/// A model as the kernel uses it, for each pair of languages.
#[derive(Default)]
pub(crate) struct Kernels(Mutex<HashMap<Languages, Arc<AuditModel>>>);

impl Kernels {
    pub(crate) fn of(&self, model: &Library, languages: Languages) -> Result<Arc<AuditModel>, Failure> {
        // Whoever comes second waits for the first.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = known.get(&languages) {
            return Ok(kernel.clone());
        }
        let (source_language, target_language) = languages.clone();
        let kernel = model.audit_model(&Input { source_language, target_language, ..Input::default() })?;
        Ok(known.entry(languages).or_insert(Arc::new(kernel)).clone())
    }
}

fn unreadable(error: ArrowError) -> Failure {
    Failure::new(format!("record batch: {error}"), "pass a pyarrow.RecordBatch or a pyarrow.Table")
}

/// The batches of a stream.
fn read(stream: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>), Failure> {
    let reader = StreamReader::try_new(stream, None).map_err(unreadable)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<_, _>>().map_err(unreadable)?;
    Ok((schema, batches))
}

/// Batches as a stream.
fn write(schema: &Schema, batches: &[RecordBatch]) -> Result<Vec<u8>, Failure> {
    let written = || {
        let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.into_inner()
    };
    written().map_err(unreadable)
}

/// Measures every row of a stream of batches.
#[pyfunction]
#[pyo3(signature = (model, batches, *, measures, alignments, max_tokens, source_language, target_language, folder))]
#[allow(clippy::too_many_arguments)] // They are keywords.
pub(crate) fn audit_stream<'py>(
    py: Python<'py>,
    model: &Bound<'py, Model>,
    batches: PyBackedBytes,
    measures: bool,
    alignments: bool,
    max_tokens: Option<usize>,
    source_language: Option<String>,
    target_language: Option<String>,
    folder: PathBuf,
) -> PyResult<Bound<'py, PyBytes>> {
    let measured = model.get().with_kernel(py, (source_language, target_language), |kernel, limits| {
        let (schema, batches) = read(&batches)?;
        let options =
            KernelOptions { measures, alignments, max_tokens, base: folder, limits: limits.clone() };
        let audit = || -> Result<Vec<RecordBatch>, Failure> {
            let of = |batch| Ok(attnscope::corpus::audit_batch(kernel, &options, batch)?);
            batches.iter().map(of).collect()
        };
        write(&*audited_schema(&schema, alignments)?, &limits.install(audit)??)
    })?;
    Ok(PyBytes::new(py, &measured))
}

/// A table with the partner of each row, in a stream of one batch.
#[pyfunction]
#[pyo3(signature = (batch, *, audio))]
pub(crate) fn with_swaps_stream(
    py: Python<'_>,
    batch: PyBackedBytes,
    audio: bool,
) -> PyResult<Bound<'_, PyBytes>> {
    let swapped = work::run(py, |_| {
        let (_, batches) = read(&batch)?;
        let [batch] = &batches[..] else {
            let error = format!("expected one record batch, found {}", batches.len());
            return Err(Failure::new(error, "pass a table of less than 2 GiB of text in each column"));
        };
        let task = if audio { Task::Audio } else { Task::Pairs };
        let batch = attnscope::corpus::with_swaps(batch, task)?;
        write(&batch.schema(), &[batch])
    })?;
    Ok(PyBytes::new(py, &swapped))
}

/// The columns of what is measured, from those of what is given, as streams without batches.
#[pyfunction]
#[pyo3(signature = (schema, *, alignments))]
pub(crate) fn audited_schema_stream(
    py: Python<'_>,
    schema: PyBackedBytes,
    alignments: bool,
) -> PyResult<Bound<'_, PyBytes>> {
    let audited = work::at_once(py, || write(&*audited_schema(&read(&schema)?.0, alignments)?, &[]))?;
    Ok(PyBytes::new(py, &audited))
}
