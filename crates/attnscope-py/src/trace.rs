//! A run in Python: a mapping from the paths of nodes to arrays.

use std::path::PathBuf;
use std::sync::Arc;

use attnscope::graph::{NodeId, Selector};
use attnscope::run::Tensor as RunTensor;
use attnscope::{Failure, Values, answer, nearest};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Forms};
use crate::rows::{Rows, Table};
use crate::work;

/// A tensor of a run, in the memory of the run: what numpy's arrays keep alive.
#[pyclass(frozen, module = "attnscope")]
pub(crate) struct Tensor(RunTensor);

#[pymethods]
impl Tensor {
    /// Where its values are, in numpy's words: the array that is made of it is read-only, and holds on to it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (address, kind) = match self.0.values() {
            Values::F32(values) => (values.as_ptr() as usize, "f4"),
            Values::F64(values) => (values.as_ptr() as usize, "f8"),
        };
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, self.0.shape())?)?;
        interface.set_item("typestr", format!("{order}{kind}"))?;
        interface.set_item("data", (address, true))?;
        Ok(interface)
    }
}

/// One run of a model: a mapping from the paths of its nodes to arrays, which are read-only and share the memory of the run.
///
/// >>> import attnscope as at
/// >>> t = at.open("demo").trace("Two dogs play in the snow.", target="Zwei Hunde spielen im Schnee.")
/// >>> t["decoder.1.cross_attn.weights"].shape
/// (1, 4, 7, 8)
/// >>> t.dims("decoder.1.cross_attn.weights")
/// ['B', 'H', 'T', 'S']
/// >>> t["decoder.1.cross_attn.weights"].sum(axis=-1).round(5).min().item()
/// 1.0
/// >>> t.nodes("cross_attn.weights")
/// ['decoder.0.cross_attn.weights', 'decoder.1.cross_attn.weights']
/// >>> t.tokens["target"][0][1]
/// '▁Zwei'
#[pyclass(frozen, extends = Answer, mapping, module = "attnscope")]
pub(crate) struct Trace {
    pub(crate) run: Arc<answer::Trace>,
}

impl Trace {
    pub(crate) fn new(py: Python<'_>, run: answer::Trace) -> PyResult<Py<Self>> {
        let run = Arc::new(run);
        let answer = Answer::of(run.clone());
        Py::new(py, PyClassInitializer::from(answer).add_subclass(Self { run }))
    }

    /// The paths of what was kept, in the order of computation; gradients behind their tensors.
    fn paths(&self) -> impl Iterator<Item = String> {
        self.run.nodes.iter().flat_map(|node| {
            let tensor = self.run.shared(node.id).map(|_| node.path.clone());
            let gradient = self.run.shared_gradient(node.id).map(|_| format!("grad:{}", node.path));
            tensor.into_iter().chain(gradient)
        })
    }

    fn find(&self, path: &str) -> Option<&RunTensor> {
        let id = |path: &str| self.run.nodes.iter().find(|node| node.path == path).map(|node| node.id);
        match path.strip_prefix("grad:") {
            Some(of) => self.run.shared_gradient(id(of)?),
            None => self.run.shared(id(path)?),
        }
    }
}

fn array<'py>(py: Python<'py>, tensor: &RunTensor) -> PyResult<Bound<'py, PyAny>> {
    py.import("numpy")?.call_method1("asarray", (Py::new(py, Tensor(tensor.clone()))?,))
}

/// A view of a mapping, as Python makes them.
fn view<'py>(mapping: &Bound<'py, Trace>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    mapping.py().import("collections.abc")?.call_method1(name, (mapping,))
}

#[pymethods]
impl Trace {
    fn __len__(&self) -> usize {
        self.paths().count()
    }

    fn __contains__(&self, path: &Bound<'_, PyAny>) -> bool {
        path.extract::<String>().is_ok_and(|path| self.find(&path).is_some())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(py, self.paths().collect::<Vec<_>>())?.try_iter()?.into_any())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.find(path) {
            Some(tensor) => array(py, tensor),
            None => {
                let paths: Vec<String> = self.paths().collect();
                let near = nearest(path, paths.iter().map(String::as_str)).join(", ");
                Err(PyKeyError::new_err(format!(
                    "{path}: no tensor of that name was kept; the nearest are {near}"
                )))
            }
        }
    }

    /// The array of a path, or the default where there is none.
    #[pyo3(signature = (path, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.find(path).map_or(Ok(default), |tensor| array(py, tensor).map(Some))
    }

    /// The paths of what was kept, in the order of computation.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "KeysView")
    }

    /// The arrays.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ValuesView")
    }

    /// Paths and arrays.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ItemsView")
    }

    /// The paths of what was kept that a selector picks, as `cross_attn` or `decoder.*.ffn.act`; all without one.
    #[pyo3(signature = (select = "*"))]
    fn nodes(&self, select: &str) -> Vec<String> {
        let selector = Selector::new(select);
        let graph = self.run.model().opened().model().ok().map(|model| &model.graph);
        let picked = |id: NodeId| graph.is_some_and(|graph| selector.matches(&graph.node(id).path));
        let of = |node: &answer::TracedNode| {
            (picked(node.id) && self.run.shared(node.id).is_some()).then(|| node.path.clone())
        };
        self.run.nodes.iter().filter_map(of).collect()
    }

    /// The dimensions of a node by their letters: B batch, H heads, T target, S source, D d_model, K d_head, F d_ff, V vocabulary.
    fn dims(&self, path: &str) -> PyResult<Vec<String>> {
        let found = self.run.nodes.iter().find(|node| node.path == path);
        let node = found.ok_or_else(|| PyKeyError::new_err(format!("{path}: the run has no such node")))?;
        Ok(node.dims.clone())
    }

    /// The tokens of each side, row by row: their text, or their number where no tokenizer is known.
    #[getter]
    fn tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sides = PyDict::new(py);
        for (name, rows) in [("source", &self.run.tokens.source), ("target", &self.run.tokens.target)] {
            let labels =
                |row: &Vec<attnscope::Token>| row.iter().map(attnscope::Token::label).collect::<Vec<_>>();
            if let Some(rows) = rows {
                sides.set_item(name, rows.iter().map(labels).collect::<Vec<_>>())?;
            }
        }
        Ok(sides)
    }

    /// The arithmetic of one cell of a tensor of this run: an index a dimension.
    ///
    /// >>> import attnscope as at
    /// >>> t = at.open("demo").trace("Two dogs play.")
    /// >>> cell = t.explain("decoder.0.cross_attn.weights", at=(0, 1, 2, 3))
    /// >>> stored = t["decoder.0.cross_attn.weights"][0, 1, 2, 3].item()
    /// >>> abs(cell["cell"]["steps"][-1]["value"] - stored) < 1e-5
    /// True
    #[pyo3(signature = (path, at, *, every_term = false))]
    fn explain(&self, py: Python<'_>, path: &str, at: Vec<usize>, every_term: bool) -> PyResult<Answer> {
        work::run(py, |_| self.run.explain_cell(path, &at, every_term)).map(Answer::new)
    }

    /// Minimum, mean, maximum, spread, zeros, NaN and infinite values of every tensor that was measured.
    ///
    /// >>> import attnscope as at
    /// >>> rows = at.open("demo").trace("Two dogs play.").stats().rows()
    /// >>> rows[0]["path"], sum(row["nan"] for row in rows)
    /// ('src.ids', 0)
    fn stats(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        let row = |node: &answer::TracedNode| {
            let stats = node.stats.as_ref()?;
            let row = json!({
                "path": node.path, "op": node.op, "dims": node.dims, "shape": node.shape,
                "min": stats.min, "mean": stats.mean, "max": stats.max, "std": stats.std,
                "zeros": stats.zeros, "nan": stats.nan, "inf": stats.inf,
            });
            object(row)
        };
        let rows = self.run.nodes.iter().filter_map(row).collect();
        Table::new(py, Rows { name: "stats", rows }, "rows")
    }

    /// What each head of each drawn attention does: the entropy of its weights, their peak, and how much the end token gets.
    ///
    /// >>> import attnscope as at
    /// >>> heads = at.open("demo").trace("Two dogs play.").heads().rows()
    /// >>> [row["head"] for row in heads if row["node"] == "decoder.0.cross_attn.weights"]
    /// [0, 1, 2, 3]
    fn heads(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        let rows = self.run.maps.iter().flat_map(|map| {
            map.heads.iter().enumerate().filter_map(|(head, of)| {
                object(json!({
                    "node": map.path, "row": self.run.row, "head": head,
                    "entropy": of.entropy, "peak": of.peak, "end_share": of.end_share,
                }))
            })
        });
        Table::new(py, Rows { name: "heads", rows: rows.collect() }, "rows")
    }

    /// Writes what was kept to a folder that does not exist yet: a trace that every command of attnscope reads.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        work::run(py, |_| self.run.save(&folder))
    }

    /// What is pickled of a run: its forms as an answer. The model and the tensors stay; `save` writes those.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let restore = py.get_type::<Answer>().getattr("_restored")?;
        let forms: Forms = slf.as_super().get().forms(py)?;
        Ok((restore, forms.into_pyobject(py)?))
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(row) => Some(row),
        _ => None,
    }
}

impl crate::answer::Shown for Arc<answer::Trace> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn json(&self) -> Result<String, Failure> {
        crate::answer::json(&**self)
    }

    fn text(&self, look: crate::answer::Look) -> Result<String, Failure> {
        (**self).text(look)
    }

    fn pictures(&self) -> Result<(Vec<String>, String), Failure> {
        (**self).pictures()
    }
}
