//! Answers in Python: one class for all of them. Its text is the terminal's, its HTML that of the renderer, its dictionary the JSON of
//! the published schema.

use std::sync::Arc;

use attnscope::answer::{
    Answer as Schema, Audit, AuditComparison, Diagnosis, Difference, Evaluation, Explanation, Flow,
    Generation, Inspection, MaskProof, Prediction, Summary, Trace, TraceCheck, Training, TrainingPlan,
    WorkedExamples,
};
use attnscope::{Failure, Outcome};
use attnscope_render::{
    Glyphs, Options, Reader, Style, audit, diff, findings, flow, generate, inspect, masks, notebook, page,
    summary, trace, trace_check, training, worked,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::work::at_once;

/// Columns of a text where nothing is said: what fits a notebook's cell.
const WIDTH: usize = 100;

/// How an answer's text is drawn.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) options: Options,
    pub(crate) style: Style,
}

impl Look {
    /// As in a notebook or a log: no colours.
    pub(crate) fn plain(width: usize) -> Self {
        Self {
            options: Options { width, glyphs: Glyphs::Unicode, reader: Reader::Python },
            style: Style { color: false },
        }
    }
}

/// What an answer needs for its Python face.
pub(crate) trait Shown: Send + Sync {
    /// The name of its schema.
    fn name(&self) -> &str;
    fn json(&self) -> Result<String, Failure>;
    fn text(&self, look: Look) -> Result<String, Failure>;
    /// Its drawings as SVG, and the text that stands beside them.
    fn pictures(&self) -> Result<(Vec<String>, String), Failure> {
        Ok((Vec::new(), self.text(Look::plain(WIDTH))?))
    }
    /// Whether nothing is wrong; `None` where the answer does not judge.
    fn ok(&self) -> Option<bool> {
        None
    }
    /// Its HTML.
    fn html(&self) -> Result<String, Failure> {
        let (drawings, text) = self.pictures()?;
        Ok(notebook::fragment(&text, &drawings))
    }
}

/// The JSON of an answer.
pub(crate) fn json(answer: &impl Schema) -> Result<String, Failure> {
    answer.to_json().map_err(|e| Failure::new(format!("the answer: {e}"), "please report this"))
}

fn fine(outcome: Outcome) -> Option<bool> {
    Some(outcome == Outcome::Fine)
}

fn drawn<T>(drawing: Result<T, attnscope_render::LayoutError>) -> Result<T, Failure> {
    drawing.map_err(|e| Failure::new(e.to_string(), "draw a part of the model: component= or layer="))
}

/// The attentions of a run, and its text without them.
fn attentions(run: &Trace) -> (Vec<String>, String) {
    let drawn = (!run.maps.is_empty()).then(|| trace::svg(run)).into_iter().collect();
    let mut rest = run.clone();
    rest.maps.clear();
    let look = Look::plain(WIDTH);
    (drawn, trace::text(&rest, false, look.options, look.style))
}

/// Answers with the renderer of each.
macro_rules! shown {
    ($($answer:ty { text: |$it:ident, $look:ident| $text:expr, $($more:ident: |$me:ident| $value:expr),* $(,)? })*) => { $(
        impl Shown for $answer {
            fn name(&self) -> &str {
                <$answer as Schema>::NAME
            }

            fn json(&self) -> Result<String, Failure> {
                json(self)
            }

            fn text(&self, look: Look) -> Result<String, Failure> {
                let ($it, $look) = (self, look);
                Ok($text)
            }

            $(shown!(@ $more, $me, $value);)*
        }
    )* };
    (@ pictures, $me:ident, $value:expr) => {
        fn pictures(&self) -> Result<(Vec<String>, String), Failure> {
            let $me = self;
            Ok($value)
        }
    };
    (@ ok, $me:ident, $value:expr) => {
        fn ok(&self) -> Option<bool> {
            let $me = self;
            $value
        }
    };
}

shown! {
    Inspection { text: |it, look| inspect::text(it, look.options), }
    Summary { text: |it, look| summary::text(it, look.options), }
    Flow {
        text: |it, look| drawn(flow::text(it, look.options, look.style))?,
        pictures: |it| (vec![drawn(flow::svg(it))?], String::new()),
    }
    Trace {
        text: |it, look| trace::text(it, false, look.options, look.style),
        pictures: |it| attentions(it),
    }
    TraceCheck { text: |it, look| trace_check::text(it, look.options), ok: |it| fine(it.outcome()) }
    Generation { text: |it, look| generate::text(it, look.options, look.style), }
    MaskProof {
        text: |it, look| masks::text(it, None, look.options, look.style),
        // A proof that could not be made proves nothing.
        ok: |it| it.outcome().map_or(Some(false), fine),
    }
    Explanation { text: |it, look| page::text(it, look.options), }
    Diagnosis {
        text: |it, look| findings::text(it, findings::Shown::Summary, look.options, look.style),
        ok: |it| Some(it.diagnosis.findings.is_empty()),
    }
    Difference { text: |it, look| diff::text(it, false, look.options), ok: |it| fine(it.outcome()) }
    WorkedExamples { text: |it, look| worked::text(it, look.options, look.style), ok: |it| fine(it.outcome()) }
    Training {
        text: |it, look| training::text(it, look.options),
        pictures: |it| (vec![training::curves(&it.recipe, &it.metrics)], training::text(it, Look::plain(WIDTH).options)),
        ok: |it| Some(it.divergence.is_none() && !it.has_warnings()),
    }
    TrainingPlan { text: |it, look| training::plan_text(it, look.options), }
    Evaluation { text: |it, look| training::evaluation_text(it, look.options), }
    Audit { text: |it, look| audit::text(it, look.options), }
    AuditComparison { text: |it, look| audit::comparison(it, look.options), }
    Prediction { text: |it, look| training::prediction_text(it, look.options), }
}

/// An answer that was pickled: its forms, as they were.
pub(crate) struct Kept {
    pub(crate) name: String,
    pub(crate) json: String,
    pub(crate) text: String,
    pub(crate) html: String,
    pub(crate) ok: Option<bool>,
}

impl Shown for Kept {
    fn name(&self) -> &str {
        &self.name
    }

    fn json(&self) -> Result<String, Failure> {
        Ok(self.json.clone())
    }

    fn text(&self, _: Look) -> Result<String, Failure> {
        Ok(self.text.clone())
    }

    fn html(&self) -> Result<String, Failure> {
        Ok(self.html.clone())
    }

    fn ok(&self) -> Option<bool> {
        self.ok
    }
}

/// What attnscope answers with. It shows itself: its text in a terminal, drawings in a notebook.
///
/// >>> import attnscope as at
/// >>> answer = at.open("demo").explain("heads")
/// >>> answer.name
/// 'explain'
/// >>> answer["schema"]
/// 1
#[pyclass(frozen, subclass, module = "attnscope")]
pub(crate) struct Answer(Arc<dyn Shown>);

/// The forms of an answer in which it is pickled.
pub(crate) type Forms = (String, String, String, String, Option<bool>);

impl Answer {
    pub(crate) fn new(answer: impl Shown + 'static) -> Self {
        Self(Arc::new(answer))
    }

    pub(crate) fn of(answer: Arc<dyn Shown>) -> Self {
        Self(answer)
    }

    pub(crate) fn restored((name, json, text, html, ok): Forms) -> Self {
        Self::new(Kept { name, json, text, html, ok })
    }

    pub(crate) fn forms(&self, py: Python<'_>) -> PyResult<Forms> {
        let it = &self.0;
        let forms =
            || Ok((it.name().to_owned(), it.json()?, it.text(Look::plain(WIDTH))?, it.html()?, it.ok()));
        at_once(py, forms)
    }
}

#[pymethods]
impl Answer {
    /// The name of its schema: which answer it is.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether nothing was found: no finding, no difference, no wrong claim. None where the answer does not judge.
    #[getter]
    fn ok(&self) -> Option<bool> {
        self.0.ok()
    }

    /// The JSON of the published schema.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        at_once(py, || self.0.json())
    }

    /// The same as Python's dictionaries and lists.
    pub(crate) fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.to_json(py)?,))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.get_item(key)
    }

    /// Its text in so many columns, in colour where that is asked for.
    #[pyo3(signature = (*, width = 100, color = false))]
    fn text(&self, py: Python<'_>, width: usize, color: bool) -> PyResult<String> {
        let look = Look { style: Style { color }, ..Look::plain(width) };
        at_once(py, || self.0.text(look))
    }

    pub(crate) fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.text(py, WIDTH, false)?.trim_end().to_owned())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        at_once(py, || self.0.html())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let restore = py.get_type::<Self>().getattr("_restored")?;
        Ok((restore, slf.get().forms(py)?.into_pyobject(py)?))
    }

    /// What pickle calls.
    #[staticmethod]
    fn _restored(name: String, json: String, text: String, html: String, ok: Option<bool>) -> Self {
        Self::restored((name, json, text, html, ok))
    }
}
