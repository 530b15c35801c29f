//! What Python holds in memory: the weights of a live model, the tensors that hooks kept.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope::checkpoint::{DType, Dump, DumpKind, HeldTensor};
use attnscope::diagnose::diff::NameMap;
use attnscope::diagnose::rounding::Precision;
use attnscope::{DiffOptions, Failure, Limits, Opened, Run};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::answer::Answer;
use crate::failure::raised;
use crate::model::Model;
use crate::trace::Trace;
use crate::work::{run, threads};

/// A tensor in Python: its name, the name of its type, its shape, its bytes. They are not copied.
#[derive(FromPyObject)]
pub(crate) struct Array(String, String, Vec<usize>, PyBackedBytes);

/// Arrays as tensors. Arrays of the same bytes are one tensor with several names.
fn held(arrays: Vec<Array>) -> Result<Vec<HeldTensor>, Failure> {
    let mut known: HashMap<usize, Arc<PyBackedBytes>> = HashMap::new();
    let mut tensor = |Array(name, dtype, shape, bytes): Array| {
        let dtype = DType::plain(&dtype).ok_or_else(|| {
            let error = format!("{name}: its elements are {dtype}, which is not read");
            Failure::new(error, "convert it to a floating-point or whole-number type")
        })?;
        let bytes = known.entry(bytes.as_ptr() as usize).or_insert_with(|| Arc::new(bytes)).clone();
        Ok(HeldTensor { name, dtype, shape, bytes })
    };
    arrays.into_iter().map(&mut tensor).collect()
}

/// Opens a model whose tensors are in memory, with the documents that a folder would hold beside them.
#[pyfunction]
#[pyo3(signature = (name, tensors, documents, *, heads = None, threads = None, memory = None))]
pub(crate) fn open_held(
    py: Python<'_>,
    name: &str,
    tensors: Vec<Array>,
    documents: Vec<(String, Vec<u8>)>,
    heads: Option<usize>,
    threads: Option<usize>,
    memory: Option<u64>,
) -> PyResult<Model> {
    let opened = run(py, |_| Opened::held(name, held(tensors)?, documents, heads))?;
    let limits = Limits { threads, memory, ..Limits::default() };
    Ok(attnscope::Model::from(opened).with_limits(limits).into())
}

/// A run: one of ours, a folder or a file, or arrays with the name of what they were captured from.
#[derive(FromPyObject)]
pub(crate) enum GivenRun<'py> {
    Trace(Bound<'py, Trace>),
    Captured(String, Vec<Array>),
    At(PathBuf),
}

/// The same without Python.
enum Ready {
    Trace(Arc<attnscope::answer::Trace>),
    Dump(Dump),
    At(PathBuf),
}

impl Ready {
    fn of(py: Python<'_>, given: GivenRun<'_>) -> PyResult<Self> {
        let dump = |name: String, arrays| Ok(Dump::held(Path::new(&name), DumpKind::Capture, held(arrays)?)?);
        match given {
            GivenRun::Trace(trace) => Ok(Self::Trace(trace.get().run.clone())),
            GivenRun::Captured(name, arrays) => match dump(name, arrays) {
                Ok(dump) => Ok(Self::Dump(dump)),
                Err(failure) => Err(raised(py, &failure)),
            },
            GivenRun::At(path) => Ok(Self::At(path)),
        }
    }

    fn run(&self) -> Run<'_> {
        match self {
            Self::Trace(trace) => Run::Trace(trace),
            Self::Dump(dump) => Run::Dump(dump.clone()),
            Self::At(path) => Run::At(path),
        }
    }
}

/// Compares two runs.
#[pyfunction]
#[pyo3(signature = (a, b, *, model = None, heads = None, names = String::new(), tolerance = None, their_precision = None))]
#[allow(clippy::too_many_arguments)] // They are keywords.
pub(crate) fn diff_runs(
    py: Python<'_>,
    a: GivenRun<'_>,
    b: GivenRun<'_>,
    model: Option<String>,
    heads: Option<usize>,
    names: String,
    tolerance: Option<f64>,
    their_precision: Option<&str>,
) -> PyResult<Answer> {
    let known = [
        ("f32", Precision::F32),
        ("tf32", Precision::TF32),
        ("bf16", Precision::BF16),
        ("fp16", Precision::F16),
    ];
    let their_precision =
        their_precision.map(|word| crate::model::named(py, "their_precision", word, known)).transpose()?;
    let map = NameMap::parse(Path::new("names="), &names).map_err(|e| raised(py, &e.into()))?;
    let (a, b) = (Ready::of(py, a)?, Ready::of(py, b)?);
    let answer = run(py, |cancel| {
        let limits = Limits { cancel: cancel.clone(), threads: threads(), ..Limits::default() };
        let options = DiffOptions { model, heads, map, tolerance, their_precision, limits };
        attnscope::diff(a.run(), b.run(), &options)
    });
    answer.map(Answer::new)
}
