//! Audits in Python: a corpus measured, shards joined, two audits side by side.

use std::collections::HashMap;
use std::path::PathBuf;

use attnscope::corpus::{ColumnNames, Shard};
use attnscope::{AuditCorpus, AuditOptions, Failure, Input};
use pyo3::prelude::*;

use crate::answer::Answer;
use crate::failure::raised;
use crate::model::{Model, named, open};
use crate::one_of::one_of;
use crate::work::run;

one_of! {
    /// A model that is open, or what it is opened as.
    pub(crate) enum GivenModel<'py> {
        Open(Bound<'py, Model>),
        Name(PathBuf),
    }
    "a Model, or what `open` takes"
}

/// Measures a model over a corpus: what every sentence costs, with its own source and with another's, and what every head and layer
/// does there. Every row is written to the folder `out`, in parts in Parquet; the answer sums them up.
///
/// The corpus is one of `pairs` (sources and targets), `text` (for a decoder alone) and `audio` (recordings and their transcripts):
/// tab-separated lines, JSON lines or Parquet. `columns` says which of its columns hold what, as `{"source": "de", "target": "en"}` or
/// `{"text": "body"}`; `keep` are columns that the output has, too, and `by` is one of them whose values are summed up apart. `resume`
/// goes on with the audit that is in the folder. `shard=(2, 8)` measures the third of eight shards; `merge_audits` joins them.
///
/// >>> import attnscope as at, pathlib, tempfile
/// >>> folder = pathlib.Path(tempfile.mkdtemp())
/// >>> _ = (folder / "pairs.tsv").write_text("A dog runs.\tEin Hund läuft.\nA man sleeps.\tEin Mann schläft.\n", "utf-8")
/// >>> audit = at.audit("demo", folder / "out", pairs=folder / "pairs.tsv")
/// >>> audit["summary"]["sentences"], len(audit["summary"]["heads"])
/// (2, 24)
#[pyfunction]
#[pyo3(signature = (
    model, out, *, pairs = None, text = None, audio = None, columns = HashMap::new(), keep = Vec::new(), by = None,
    measures = true, alignments = false, max_tokens = None, part_rows = None, shard = (0, 1), resume = false,
    source_language = None, target_language = None
))]
#[allow(clippy::too_many_arguments)] // They are keywords.
pub(crate) fn audit(
    py: Python<'_>,
    model: GivenModel<'_>,
    out: PathBuf,
    pairs: Option<PathBuf>,
    text: Option<PathBuf>,
    audio: Option<PathBuf>,
    columns: HashMap<String, String>,
    keep: Vec<String>,
    by: Option<String>,
    measures: bool,
    alignments: bool,
    max_tokens: Option<usize>,
    part_rows: Option<usize>,
    shard: (usize, usize),
    resume: bool,
    source_language: Option<String>,
    target_language: Option<String>,
) -> PyResult<Answer> {
    let wrong = |error: String, help: &str| raised(py, &Failure::new(error, help));
    let corpus = match (pairs, text, audio) {
        (Some(file), None, None) => AuditCorpus::Pairs(file),
        (None, Some(file), None) => AuditCorpus::Text(file),
        (None, None, Some(file)) => AuditCorpus::Audio(file),
        (None, None, None) => {
            return Err(wrong(
                "there is no corpus to measure".into(),
                "pass pairs=FILE, text=FILE or audio=FILE",
            ));
        }
        _ => {
            return Err(wrong(
                "pairs=, text= and audio=: only one of them can be given".into(),
                "leave the others out",
            ));
        }
    };
    let (index, count) = shard;
    if index >= count {
        let error =
            format!("shard=({index}, {count}): expected a number below {count} before how many there are");
        return Err(wrong(error, "shards are counted from 0: shard=(0, 8) is the first of eight"));
    }
    for (argument, number) in [("max_tokens", max_tokens), ("part_rows", part_rows)] {
        if number == Some(0) {
            return Err(wrong(
                format!("{argument}=0: expected 1 or more"),
                "leave it out for the usual number",
            ));
        }
    }
    let options = AuditOptions {
        columns: names(py, columns, keep)?,
        languages: Input { source_language, target_language, ..Input::default() },
        measures,
        alignments,
        max_tokens,
        part_rows,
        shard: Shard { index, count },
        resume,
        by,
    };
    let opened;
    let model = match &model {
        GivenModel::Open(model) => model.get(),
        GivenModel::Name(name) => {
            opened = open(py, name.clone(), None, None, "cpu", None, None)?;
            &opened
        }
    };
    model.call(py, |model| model.audit(&corpus, &out, &options)).map(Answer::new)
}

/// Which columns hold what.
fn names(py: Python<'_>, columns: HashMap<String, String>, keep: Vec<String>) -> PyResult<ColumnNames> {
    let mut names = ColumnNames { keep, ..ColumnNames::default() };
    for (side, column) in columns {
        let known = [("source", &mut names.source), ("target", &mut names.target), ("text", &mut names.text)];
        *named(py, "columns", &side, known)? = Some(column);
    }
    Ok(names)
}

/// Joins the folders of all shards of an audit in a new folder.
///
/// >>> import attnscope as at, pathlib, tempfile
/// >>> folder = pathlib.Path(tempfile.mkdtemp())
/// >>> _ = (folder / "pairs.tsv").write_text("A dog runs.\tEin Hund läuft.\nA man sleeps.\tEin Mann schläft.\n", "utf-8")
/// >>> for i in range(2):
/// ...     _ = at.audit("demo", folder / f"shard-{i}", pairs=folder / "pairs.tsv", shard=(i, 2), part_rows=1)
/// >>> at.merge_audits([folder / "shard-0", folder / "shard-1"], folder / "all")["summary"]["sentences"]
/// 2
#[pyfunction]
#[pyo3(signature = (shards, out, *, by = None))]
pub(crate) fn merge_audits(
    py: Python<'_>,
    shards: Vec<PathBuf>,
    out: PathBuf,
    by: Option<String>,
) -> PyResult<Answer> {
    run(py, |_| attnscope::merge_audits(&shards, &out, by.as_deref())).map(Answer::new)
}

/// Sums up the audit that is in a folder.
///
/// >>> import attnscope as at, pathlib, tempfile
/// >>> folder = pathlib.Path(tempfile.mkdtemp())
/// >>> _ = (folder / "pairs.tsv").write_text("A dog runs.\tEin Hund läuft.\nA man sleeps.\tEin Mann schläft.\n", "utf-8")
/// >>> _ = at.audit("demo", folder / "out", pairs=folder / "pairs.tsv")
/// >>> at.read_audit(folder / "out")["summary"]["rejected"]
/// 0
#[pyfunction]
#[pyo3(signature = (folder, *, by = None))]
pub(crate) fn read_audit(py: Python<'_>, folder: PathBuf, by: Option<String>) -> PyResult<Answer> {
    run(py, |_| attnscope::read_audit(&folder, by.as_deref(), 0)).map(Answer::new)
}

/// Two audits side by side: two models, or two corpora.
///
/// >>> import attnscope as at, pathlib, tempfile
/// >>> folder = pathlib.Path(tempfile.mkdtemp())
/// >>> _ = (folder / "pairs.tsv").write_text("A dog runs.\tEin Hund läuft.\nA man sleeps.\tEin Mann schläft.\n", "utf-8")
/// >>> for heads in (4, 8):
/// ...     _ = at.audit(at.open("demo", heads=heads), folder / f"{heads}-heads", pairs=folder / "pairs.tsv")
/// >>> at.compare_audits(folder / "4-heads", folder / "8-heads")["paired"]["mean"] > 0
/// True
#[pyfunction]
pub(crate) fn compare_audits(py: Python<'_>, a: PathBuf, b: PathBuf) -> PyResult<Answer> {
    run(py, |_| attnscope::compare_audits(&a, &b)).map(Answer::new)
}
