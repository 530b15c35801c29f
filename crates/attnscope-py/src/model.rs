//! A model in Python: its methods are the library's, their arguments in keywords.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use attnscope::corpus::AuditModel;
use attnscope::diagnose::masks::Mistake;
use attnscope::graph::Selector;
use attnscope::run::PadSide;
use attnscope::run::align::Head;
use attnscope::{
    Component, Detail, Device, DoctorOptions, DrawnHeads, ExplainOptions, Failure, FlowOptions,
    GenerateOptions, Gradients, Lengths, Limits, Maps, MaskOptions, Model as Library, Opened, PairLines,
    Pick, ReportOptions, RunOptions, TraceOptions, nearest, rules_named,
};
use attnscope_checkpoint::{Replace, check_output};
use attnscope_render::html::{self, Place};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::answer::Answer;
use crate::arrow::{Kernels, Languages};
use crate::failure::raised;
use crate::given::{Given, Texts};
use crate::one_of::one_of;
use crate::remedies::words;
use crate::rows::Table;
use crate::trace::Trace;
use crate::work::{run, threads};

/// Opens a checkpoint (a file or a folder), the folder of a training run, a recipe, or a built-in: `demo` or `toy`.
///
/// `heads` is the number of attention heads, where no file says it; `wiring` sets fields of the wiring, whatever the files say.
/// `device` is `cpu` or `reference` (plain loops in f64). Calls use at most so many `threads`, and the process so much `memory`, in
/// bytes.
///
/// >>> import attnscope as at
/// >>> at.open("demo")
/// <attnscope.Model demo: Marian, 1,174,528 parameters>
#[pyfunction]
#[pyo3(signature = (model = PathBuf::from("demo"), *, heads = None, wiring = None, device = "cpu", threads = None, memory = None))]
pub(crate) fn open(
    py: Python<'_>,
    model: PathBuf,
    heads: Option<usize>,
    wiring: Option<Bound<'_, PyDict>>,
    device: &str,
    threads: Option<usize>,
    memory: Option<u64>,
) -> PyResult<Model> {
    let device = named(py, "device", device, Device::ALL.map(|device| (device.name(), device)))?;
    let edits = edits(wiring)?;
    let name = model.display().to_string();
    let opened = run(py, |_| {
        let mut opened = Opened::open(&name, heads)?;
        opened.set_wiring(&edits)?;
        Ok(opened)
    })?;
    let limits = Limits { threads, memory, ..Limits::default() };
    Ok(Library::from(opened).on(device).with_limits(limits).into())
}

/// Edits of the wiring, as the library reads them: `field=value`.
fn edits(wiring: Option<Bound<'_, PyDict>>) -> PyResult<Vec<String>> {
    let Some(wiring) = wiring else { return Ok(Vec::new()) };
    let json = wiring.py().import("json")?;
    let edit = |(field, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let field: String = field.extract()?;
        let value: String = match value.extract() {
            Ok(text) => text,
            Err(_) => json.call_method1("dumps", (value,))?.extract()?,
        };
        Ok(format!("{field}={value}"))
    };
    wiring.iter().map(edit).collect()
}

/// One of several words.
pub(crate) fn named<T, const N: usize>(
    py: Python<'_>,
    argument: &str,
    word: &str,
    known: [(&str, T); N],
) -> PyResult<T> {
    let names = known.each_ref().map(|(name, _)| *name);
    let found = known.into_iter().find(|(name, _)| *name == word).map(|(_, value)| value);
    found.ok_or_else(|| {
        let error = format!("{argument}='{word}': expected one of {}", names.join(", "));
        raised(py, &Failure::new(error, format!("is it {}?", nearest(word, names.into_iter()).join(" or "))))
    })
}

/// A model that is open. It is cheap to copy, and threads may share it: a call runs without the GIL, and Ctrl-C ends it.
///
/// What it is run on is the same for every method: a text or a list of texts, or `ids` (with `mask`, the attention mask of a padded
/// batch), `audio` or `features` in its place; `target` or `target_ids` (with `target_mask`) where the decoder's side is known, which
/// is generated otherwise; `source_language` and `target_language` of a multilingual model.
///
/// >>> import attnscope as at
/// >>> m = at.open("demo")
/// >>> m.family
/// 'marian'
/// >>> m.generate("A man is sleeping.")["outputs"][0]["hypotheses"][0]["text"]
/// 'Ein Mann schläft.'
#[pyclass(frozen, module = "attnscope")]
pub(crate) struct Model(pub(crate) Library, Kernels);

impl From<Library> for Model {
    fn from(model: Library) -> Self {
        Self(model, Kernels::default())
    }
}

impl Model {
    /// Calls the library without the GIL, so that a signal can cancel it.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Library) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let threads = self.0.limits().threads.or_else(threads);
        run(py, |cancel| {
            let limits = Limits { cancel: cancel.clone(), threads, ..self.0.limits().clone() };
            work(&self.0.clone().with_limits(limits))
        })
    }

    /// The model as the kernel of audits uses it, and limits for a call. It is made once.
    pub(crate) fn with_kernel<T: Send>(
        &self,
        py: Python<'_>,
        languages: Languages,
        work: impl FnOnce(&AuditModel, Limits) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let threads = self.0.limits().threads.or_else(threads);
        run(py, |cancel| {
            let limits = Limits { threads, ..self.0.limits().clone() };
            let kernel = self.1.of(&self.0.clone().with_limits(limits.clone()), languages)?;
            work(&kernel, Limits { cancel: cancel.clone(), ..limits })
        })
    }
}

#[pymethods]
impl Model {
    /// What it was opened as.
    #[getter]
    fn name(&self) -> &str {
        &self.0.opened().name
    }

    /// The id of its family, as `marian` or `llama`.
    #[getter]
    fn family(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.0.opened().model().map_err(|failure| raised(py, &failure))?.family.id)
    }

    /// The paths of its nodes, in the order of computation, or of those that a selector picks.
    ///
    /// >>> import attnscope as at
    /// >>> at.open("demo").nodes("decoder.0.cross_attn.scores")
    /// ['decoder.0.cross_attn.scores']
    #[pyo3(signature = (select = "*"))]
    fn nodes(&self, py: Python<'_>, select: &str) -> PyResult<Vec<String>> {
        let model = self.0.opened().model().map_err(|failure| raised(py, &failure))?;
        let selector = Selector::new(select);
        let nodes = model.graph.nodes().iter().filter(|node| selector.matches(&node.path));
        Ok(nodes.map(|node| node.path.to_string()).collect())
    }

    fn __repr__(&self) -> String {
        let opened = self.0.opened();
        match opened.model() {
            Ok(model) => {
                let parameters = attnscope::figures::thousands(model.parameters().0);
                format!("<attnscope.Model {}: {}, {parameters} parameters>", opened.name, model.title())
            }
            Err(_) => format!("<attnscope.Model {}: not recognised>", opened.name),
        }
    }

    /// What the checkpoint is: format, family, every fact with its source, what is missing. With `tensors`, all of them by name; with
    /// `values`, their statistics and checksums.
    #[pyo3(signature = (*, tensors = false, values = false))]
    fn inspect(&self, py: Python<'_>, tensors: bool, values: bool) -> PyResult<Answer> {
        let detail = match (tensors, values) {
            (_, true) => Detail::Values,
            (true, false) => Detail::Tensors,
            (false, false) => Detail::Headers,
        };
        self.call(py, |model| model.inspect(detail)).map(Answer::new)
    }

    /// The layers with their shapes, parameters and multiply-adds on an input of these sizes.
    ///
    /// >>> import attnscope as at
    /// >>> at.open("demo").summary()["totals"]["parameters"]
    /// 1174528
    #[pyo3(signature = (*, batch = None, source_length = None, target_length = 64))]
    fn summary(
        &self,
        py: Python<'_>,
        batch: Option<usize>,
        source_length: Option<usize>,
        target_length: usize,
    ) -> PyResult<Py<Table>> {
        let lengths = Lengths { batch, source: source_length, target: target_length };
        Table::new(py, self.call(py, |model| model.summary(&lengths))?, "layers")
    }

    /// How data flows through the model, or through a part of it: `full`, `encoder`, `decoder`, `self_attn`, `cross_attn` or `ffn`.
    #[pyo3(signature = (component = "full", *, layer = None, symbolic = false))]
    fn flow(&self, py: Python<'_>, component: &str, layer: Option<&str>, symbolic: bool) -> PyResult<Answer> {
        let known = [
            ("full", Component::Full),
            ("encoder", Component::Encoder),
            ("decoder", Component::Decoder),
            ("self_attn", Component::SelfAttention),
            ("cross_attn", Component::CrossAttention),
            ("ffn", Component::FeedForward),
        ];
        let component = named(py, "component", component, known)?;
        let options = FlowOptions { component, layer: layer.map(Selector::new), symbolic };
        self.call(py, |model| model.flow(&options)).map(Answer::new)
    }

    /// Runs the model and keeps its tensors: all, or those that `select` picks (`cross_attn`, `decoder.*.ffn.act`).
    ///
    /// `gradients` adds the gradient of the target's mean NLL by each tensor, under `grad:` and its path; a classifier needs the class of
    /// each row in `classes`. The walk and the pictures of attentions show one `row` of the batch, the layer `layer_index`, and the mean
    /// of all heads, one `head`, or `"all"`.
    ///
    /// >>> import attnscope as at
    /// >>> t = at.open("demo").trace("Two dogs play.", select="cross_attn.weights")
    /// >>> list(t)
    /// ['decoder.0.cross_attn.weights', 'decoder.1.cross_attn.weights']
    #[pyo3(signature = (text = None, *, select = None, layer_index = 0, row = 0, head = None, gradients = false, classes = None, **input))]
    #[allow(clippy::too_many_arguments)] // They are keywords.
    fn trace(
        &self,
        py: Python<'_>,
        text: Option<Texts>,
        select: Option<String>,
        layer_index: usize,
        row: usize,
        head: Option<HeadOrAll>,
        gradients: bool,
        classes: Option<Vec<ClassName>>,
        input: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Py<Trace>> {
        let input = Given::new(py, text, input)?.input(&self.0)?;
        let options = TraceOptions {
            pick: match select {
                Some(selector) => Pick::Nodes(selector),
                None => Pick::Walk { layer_index, stops: None },
            },
            keep: true,
            row,
            maps: Maps::Picked,
            heads: head.map(|head| head.drawn(py)).transpose()?,
            gradients: match (gradients, classes) {
                (_, Some(classes)) => {
                    Gradients::OfClasses(classes.into_iter().map(ClassName::text).collect())
                }
                (true, None) => Gradients::OfTarget,
                (false, None) => Gradients::None,
            },
            ..TraceOptions::default()
        };
        Trace::new(py, self.call(py, |model| model.trace(&input, options))?)
    }

    /// What the model generates: translations, transcripts, continuations. `start_ids` are what the decoder begins with; `align` says
    /// which source words (or which seconds) each word came from, by heads that may be chosen: pairs of a layer and a head.
    ///
    /// >>> import attnscope as at
    /// >>> beams = at.open("demo").generate("Two dogs play.", beams=4)
    /// >>> len(beams["outputs"][0]["hypotheses"])
    /// 4
    #[pyo3(signature = (text = None, *, beams = None, max_length = None, start_ids = None, timestamps = false, align = false, align_heads = Vec::new(), **input))]
    #[allow(clippy::too_many_arguments)] // They are keywords.
    fn generate(
        &self,
        py: Python<'_>,
        text: Option<Texts>,
        beams: Option<usize>,
        max_length: Option<usize>,
        start_ids: Option<Vec<u32>>,
        timestamps: bool,
        align: bool,
        align_heads: Vec<(usize, usize)>,
        input: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Answer> {
        let input = Given::new(py, text, input)?.input(&self.0)?;
        let align_heads = align_heads.into_iter().map(|(layer, head)| Head { layer, head }).collect();
        let options = GenerateOptions { start: start_ids, beams, max_length, timestamps, align, align_heads };
        self.call(py, |model| model.generate(&input, &options)).map(Answer::new)
    }

    /// The masks for an input, and the proofs by perturbation that nothing leaks through them. `wrong` shows usual mistakes beside the
    /// right mask: `causal-cross`, `multiply-after`, `multiply-before`, `no-padding`, `no-causal`.
    ///
    /// >>> import attnscope as at
    /// >>> at.open("demo").masks(["A dog.", "Two dogs play in the snow."]).ok
    /// True
    #[pyo3(signature = (text = None, *, pad = "right", wrong = Vec::new(), layer_index = 0, head = 0, row = 0, **input))]
    #[allow(clippy::too_many_arguments)] // They are keywords.
    fn masks(
        &self,
        py: Python<'_>,
        text: Option<Texts>,
        pad: &str,
        wrong: Vec<String>,
        layer_index: usize,
        head: usize,
        row: usize,
        input: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Answer> {
        let input = Given::new(py, text, input)?.input(&self.0)?;
        let known = Mistake::ALL.map(|mistake| (mistake.id(), mistake));
        let wrong = wrong.iter().map(|word| named(py, "wrong", word, known)).collect::<PyResult<_>>()?;
        let pad = named(py, "pad", pad, [("left", PadSide::Left), ("right", PadSide::Right)])?;
        let options = MaskOptions { pad, wrong, layer: layer_index, head, row };
        self.call(py, |model| model.masks(&input, &options)).map(Answer::new)
    }

    /// What a node is, one cell of it (`at`, an index a dimension), an idea, a question or a rule of the doctor, with the numbers of this
    /// model; without a topic, a walk through the whole model.
    ///
    /// >>> import attnscope as at
    /// >>> cell = at.open("demo").explain("decoder.0.cross_attn.weights", at=(0, 1, 2, 3))["cell"]
    /// >>> cell["steps"][-1]["name"]
    /// 'weights'
    #[pyo3(signature = (topic = None, *, at = None, every_term = false, layer_index = 0, text = None, **input))]
    #[allow(clippy::too_many_arguments)] // They are keywords.
    fn explain(
        &self,
        py: Python<'_>,
        topic: Option<String>,
        at: Option<Vec<usize>>,
        every_term: bool,
        layer_index: usize,
        text: Option<Texts>,
        input: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Answer> {
        let given = Given::new(py, text, input)?;
        let input = given.is_some().then(|| given.input(&self.0)).transpose()?;
        let options = ExplainOptions { input, layer_index, cell: at, every_term };
        let answer = self.call(py, |model| match &topic {
            Some(topic) => model.explain(topic, &options),
            None => model.walk(&options),
        });
        answer.map(Answer::new)
    }

    /// What is wrong with the model, and why. It is judged on `pairs`, tuples of a source and its target or a file of them with a tab
    /// between, a decoder alone on the texts of `text`; without any on the input, and on random tokens without an input. `rules` are
    /// the ids of the rules to check; repairs of weights are tried for at most `repair_time` seconds.
    ///
    /// >>> import attnscope as at
    /// >>> diagnosis = at.open("demo", heads=8).doctor(rules=["wiring-mismatch"])
    /// >>> diagnosis.ok
    /// False
    /// >>> diagnosis["findings"][0]["rule"]
    /// 'wiring-mismatch'
    #[pyo3(signature = (pairs = None, *, rules = Vec::new(), repair_time = 60.0, text = None, **input))]
    fn doctor(
        &self,
        py: Python<'_>,
        pairs: Option<Pairs>,
        rules: Vec<String>,
        repair_time: f64,
        text: Option<Texts>,
        input: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Answer> {
        let input = Given::new(py, text, input)?.input(&self.0)?;
        let rules = rules_named(&rules).map_err(|failure| raised(py, &failure))?;
        let options = DoctorOptions { input, rules, ..self.doctor_options(py, pairs, repair_time)? };
        self.call(py, |model| model.doctor(&options)).map(Answer::new)
    }

    /// Everything about the model and a run of it as one HTML file that needs no network. The doctor judges it on `pairs`, else on the
    /// input.
    #[pyo3(signature = (file, text = None, *, pairs = None, repair_time = 20.0, row = 0, **input))]
    #[allow(clippy::too_many_arguments)] // They are keywords.
    fn report(
        &self,
        py: Python<'_>,
        file: PathBuf,
        text: Option<Texts>,
        pairs: Option<Pairs>,
        repair_time: f64,
        row: usize,
        input: Option<Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let input = Given::new(py, text, input)?.input(&self.0)?;
        let doctor = match pairs.is_some() || self.0.opened().name == "demo" {
            true => self.doctor_options(py, pairs, repair_time)?,
            false => DoctorOptions { input: input.clone(), ..self.doctor_options(py, None, repair_time)? },
        };
        self.call(py, move |model| {
            check_output(&file, Replace::Results)?;
            let run = Some(RunOptions { input, row });
            let report =
                model.report(ReportOptions { run, doctor: Some(doctor), ..ReportOptions::default() })?;
            let page = html::report(&report, &crate::answer::json(&report)?, Place::File { commands: "{}" });
            let page = page.map_err(|e| Failure::new(e.to_string(), "please report this"))?;
            let written = attnscope_checkpoint::write_file(&file, |mut open| {
                let failed =
                    |e| attnscope_checkpoint::Error::new(&file, attnscope_checkpoint::ErrorKind::Write(e));
                open.write_all(page.as_bytes()).map_err(failed)
            });
            Ok(written?)
        })
    }
}

impl Model {
    fn doctor_options(&self, py: Python<'_>, pairs: Option<Pairs>, seconds: f64) -> PyResult<DoctorOptions> {
        let repair_time = Duration::try_from_secs_f64(seconds).map_err(|_| {
            let error = format!("repair_time={seconds}: expected a number of seconds, 0 or more");
            raised(py, &Failure::new(error, "0 tries no repairs"))
        })?;
        let pairs = match pairs {
            None => PairLines::default(),
            Some(Pairs::Given(pairs)) if pairs.is_empty() => {
                let error = "pairs: expected pairs of a source and a target, found an empty list";
                return Err(raised(py, &Failure::new(error, "leave pairs out, or pass some")));
            }
            Some(Pairs::Given(pairs)) => PairLines::of(pairs),
            Some(Pairs::File(file)) => run(py, |_| PairLines::read(file))?,
        };
        Ok(DoctorOptions { pairs, repair_time, words, ..DoctorOptions::default() })
    }
}

one_of! {
    /// Sentences with their targets: a file, or a list.
    pub(crate) enum Pairs {
        File(PathBuf),
        Given(Vec<(String, String)>),
    }
    "a file, or a list of pairs of a source and a target"
}

one_of! {
    /// A head by its number, or all.
    pub(crate) enum HeadOrAll {
        One(usize),
        Word(String),
    }
    "the number of a head, or \"all\""
}

impl HeadOrAll {
    fn drawn(self, py: Python<'_>) -> PyResult<DrawnHeads> {
        match self {
            Self::One(head) => Ok(DrawnHeads::One(head)),
            Self::Word(word) => named(py, "head", &word, [("all", DrawnHeads::All)]),
        }
    }
}

one_of! {
    /// A class by its name or its number.
    pub(crate) enum ClassName {
        Number(usize),
        Name(String),
    }
    "the number or the name of a class"
}

impl ClassName {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Name(name) => name,
        }
    }
}
