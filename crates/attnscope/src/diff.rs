//! Where two runs part, or two weight files.

use std::path::Path;

use attnscope_diagnose::diff::{
    DiffError, File, Known, NameMap, Options, Report, Side, TOLERANCE, compare, compare_weights,
};
use attnscope_diagnose::rounding::Precision;
use attnscope_run::Weights;

use crate::failure::Failure;
use crate::note::{Note, Notes};
use crate::open::Opened;
use crate::traced::{open_model, same_files};

/// How two runs are compared.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// The model that was traced, where it is not the one that the trace names.
    pub model: Option<String>,
    /// Its number of heads, where the file does not say.
    pub heads: Option<usize>,
    /// Names that belong together.
    pub map: NameMap,
    /// The difference from which rounding that has grown step by step counts.
    pub tolerance: Option<f64>,
    /// What the dump that is not a trace was computed in, where its values do not show it.
    pub their_precision: Option<Precision>,
}

/// Two runs or files and where they part.
#[derive(Debug)]
pub struct Difference {
    /// What is compared.
    pub parties: [Party; 2],
    /// Where they part.
    pub report: Report,
    /// What a user may not expect.
    pub notes: Vec<Note>,
}

/// What is compared: where it is, what it is, and how many tensors it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// Its path, as given.
    pub path: String,
    /// A trace, a dump of another program, a weight file.
    pub kind: String,
    /// How many tensors.
    pub tensors: usize,
}

/// Compares two runs: traces, or a trace and another program's dump.
///
/// ```no_run
/// use std::path::Path;
///
/// let options = attnscope::DiffOptions::default();
/// let difference = attnscope::diff(Path::new("trace"), Path::new("dump.npz"), &options)?;
/// assert!(!difference.report.differs());
/// # Ok::<(), attnscope::Failure>(())
/// ```
///
/// # Errors
/// Where one cannot be read, or nothing of one is in the other.
pub fn diff(a: &Path, b: &Path, options: &DiffOptions) -> Result<Difference, Failure> {
    diff_noting(a, b, options, |_| {})
}

/// The same, telling of what a user may not expect when it comes up, also before an error.
///
/// # Errors
/// As [`diff`].
pub fn diff_noting(
    a: &Path,
    b: &Path,
    options: &DiffOptions,
    listener: impl Fn(&Note) + Send + Sync + 'static,
) -> Result<Difference, Failure> {
    let mut notes = Notes::new(Some(std::sync::Arc::new(listener)));
    let (a, b) = (open(a)?, open(b)?);
    let opened = traced_model(&a, &b, options, &mut notes)?;
    let ready = match &opened {
        Some(opened) => {
            let model = opened.model()?;
            Some((model, Weights::load(model, &opened.checkpoint)?))
        }
        None => None,
    };
    let known = ready.as_ref().map(|(model, weights)| Known { model, weights });
    let compared = compare(
        &a,
        &b,
        known,
        &Options {
            tolerance: options.tolerance.unwrap_or(TOLERANCE),
            strict: options.tolerance.is_some(),
            their_precision: options.their_precision,
            map: options.map.clone(),
        },
    );
    if let Err(DiffError::NothingMatched { proposal, .. }) = &compared
        && !proposal.is_empty()
    {
        notes.add([Note::ProposedMap(proposal.clone())]);
    }
    let party = |side: &Side| Party {
        path: side.path().display().to_string(),
        kind: side.kind().to_owned(),
        tensors: side.count(),
    };
    Ok(Difference { report: compared?, parties: [party(&a), party(&b)], notes: notes.all })
}

/// Compares the weights of two models or weight files.
///
/// # Errors
/// Where one cannot be read.
pub fn diff_weights(a: &Path, b: &Path) -> Result<Difference, Failure> {
    let opened = |path: &Path| Opened::open(&path.display().to_string(), None);
    let (a, b) = (opened(a)?, opened(b)?);
    let report = compare_weights(file(&a), file(&b))?;
    let party = |opened: &Opened| Party {
        path: opened.name.clone(),
        kind: opened.checkpoint.format().name().to_owned(),
        tensors: opened.checkpoint.tensors().len(),
    };
    Ok(Difference { report, parties: [party(&a), party(&b)], notes: Vec::new() })
}

/// The model that was given, or the one that a trace names, if it is still there and the same.
fn traced_model(
    a: &Side,
    b: &Side,
    options: &DiffOptions,
    notes: &mut Notes,
) -> Result<Option<Opened>, Failure> {
    let Some(trace) = a.trace().or_else(|| b.trace()) else {
        return options.model.as_ref().map(|name| Opened::open(name, options.heads)).transpose();
    };
    if let Some(name) = &options.model {
        return open_model(trace, name, options.heads).map(Some);
    }
    let Some(name) = trace.model() else { return Ok(None) };
    match open_model(trace, name, options.heads) {
        Ok(opened) if same_files(&opened, trace).is_ok() => return Ok(Some(opened)),
        Ok(_) => notes.add([Note::TracedModelChanged(name.to_owned())]),
        Err(failure) => notes.add([Note::TracedModelAbsent(failure.to_string())]),
    }
    Ok(None)
}

/// What is not an encoder-decoder is compared by the names in the files.
fn file(opened: &Opened) -> File<'_> {
    File { checkpoint: &opened.checkpoint, model: opened.model().ok() }
}

fn open(path: &Path) -> Result<Side, Failure> {
    let absent = std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    Side::open(path).map_err(|e| match absent {
        false => Failure::new(e.to_string(), e.help()),
        true => Failure::new(
            format!("{}: no such file or folder", path.display()),
            "give two traces, or a trace and a dump; `attnscope trace --save DIR` makes a trace",
        ),
    })
}
