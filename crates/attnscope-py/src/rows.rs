//! Answers that are tables: rows of named values, for pyarrow and pandas.

use attnscope::Failure;
use attnscope::figures::number;
use attnscope_render::{Column, Table as Drawn};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use serde_json::{Map, Value};

use crate::answer::{Answer, Forms, Look, Shown};
use crate::failure::raised;

/// Rows of named values, every row with the same names.
pub(crate) struct Rows {
    pub(crate) name: &'static str,
    pub(crate) rows: Vec<Map<String, Value>>,
}

impl Shown for Rows {
    fn name(&self) -> &str {
        self.name
    }

    fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::json!({ "schema": 1, "rows": self.rows }).to_string())
    }

    fn text(&self, look: Look) -> Result<String, Failure> {
        let first = self.rows.iter().flatten();
        let column = |(name, value): (&String, &Value)| match value {
            Value::String(_) | Value::Array(_) => Column::left(name),
            _ => Column::right(name),
        };
        let columns = first.take(self.rows.first().map_or(0, Map::len)).map(column).collect();
        let mut drawn = Drawn::new(columns, look.options.glyphs);
        for row in &self.rows {
            drawn.row(row.values().map(cell));
        }
        Ok(drawn.render(look.options.width))
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => n.as_f64().map(number).unwrap_or_default(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// An answer that is a table: the layers of a model, the statistics of a run, the measures of its heads.
///
/// >>> import attnscope as at
/// >>> table = at.open("demo").summary()
/// >>> table.rows()[0]["path"]
/// 'src'
/// >>> sum(row["parameters"] for row in table.rows() if row["depth"] == 1 and not row["tied"])
/// 1174528
#[pyclass(frozen, extends = Answer, module = "attnscope")]
pub(crate) struct Table {
    /// Where its rows are in its JSON.
    key: String,
}

impl Table {
    pub(crate) fn new(py: Python<'_>, answer: impl Shown + 'static, key: &'static str) -> PyResult<Py<Self>> {
        Self::made(py, Answer::new(answer), key.to_owned())
    }

    fn made(py: Python<'_>, answer: Answer, key: String) -> PyResult<Py<Self>> {
        Py::new(py, PyClassInitializer::from(answer).add_subclass(Self { key }))
    }
}

#[pymethods]
impl Table {
    /// Its rows, each a dictionary of the same names.
    fn rows<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let rows = slf.as_super().get().to_dict(slf.py())?.get_item(&slf.get().key)?;
        Ok(rows.cast_into::<PyList>()?)
    }

    /// As a `pyarrow.Table`.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let arrow = extra(slf.py(), "pyarrow", "arrow")?;
        let table = arrow.getattr("Table")?.call_method1("from_pylist", (Self::rows(slf)?,))?;
        // A column of nulls alone is one of numbers that no row has: the schema of a table does not depend on its values.
        let (types, number) = (arrow.getattr("types")?, arrow.call_method0("float64")?);
        let mut fields = Vec::new();
        for field in table.getattr("schema")?.try_iter()? {
            let field = field?;
            let is_null = types.call_method1("is_null", (field.getattr("type")?,))?.is_truthy()?;
            fields.push(if is_null { field.call_method1("with_type", (&number,))? } else { field });
        }
        table.call_method1("cast", (arrow.call_method1("schema", (fields,))?,))
    }

    /// As a `pandas.DataFrame`.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        extra(slf.py(), "pandas", "pandas")?.call_method1("DataFrame", (Self::rows(slf)?,))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let restore = py.get_type::<Self>().getattr("_restored_table")?;
        let forms = slf.as_super().get().forms(py)?;
        Ok((restore, (slf.get().key.clone(), forms).into_pyobject(py)?))
    }

    /// What pickle calls.
    #[staticmethod]
    fn _restored_table(py: Python<'_>, key: String, forms: Forms) -> PyResult<Py<Self>> {
        Self::made(py, Answer::restored(forms), key)
    }
}

/// A package that attnscope works with and does not need.
fn extra<'py>(py: Python<'py>, package: &str, extra: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(package).map_err(|e| match e.is_instance_of::<pyo3::exceptions::PyImportError>(py) {
        true => raised(
            py,
            &Failure::new(
                format!("{package} is not installed"),
                format!("pip install \"attnscope[{extra}]\""),
            ),
        ),
        false => e,
    })
}
