//! Where two runs, or two weight files, diverge.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Dump, Remedy};
use attnscope_diagnose::diff::{
    DiffError, File, Known, NameMap, Options, Side, TOLERANCE, compare, compare_weights,
};
use attnscope_diagnose::rounding::Precision;
use attnscope_run::{Limits, Weights};

use crate::answer::{Difference, Party, Trace};
use crate::failure::{Argument, Failure};
use crate::model::Model;
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
    /// The relative difference from which accumulated rounding counts.
    pub tolerance: Option<f64>,
    /// The precision of the dump, where its values do not show it.
    pub their_precision: Option<Precision>,
    /// What the comparison may use, what ends it, and who is told how far it is.
    pub limits: Limits,
}

/// A run that is compared: on disk, or in this process.
#[derive(Debug)]
pub enum Run<'a> {
    /// A trace's folder, or another program's dump.
    At(&'a Path),
    /// A run of this library. What was kept of it is compared.
    Trace(&'a Trace),
    /// What another program in this process computed.
    Dump(Dump),
}

impl<'a> From<&'a Path> for Run<'a> {
    fn from(path: &'a Path) -> Self {
        Self::At(path)
    }
}

impl<'a> From<&'a PathBuf> for Run<'a> {
    fn from(path: &'a PathBuf) -> Self {
        Self::At(path)
    }
}

impl<'a> From<&'a Trace> for Run<'a> {
    fn from(trace: &'a Trace) -> Self {
        Self::Trace(trace)
    }
}

impl From<Dump> for Run<'_> {
    fn from(dump: Dump) -> Self {
        Self::Dump(dump)
    }
}

impl<'a> Run<'a> {
    fn open(self) -> Result<Side, Failure> {
        match self {
            Self::At(path) => open(path),
            Self::Trace(trace) => trace.side(),
            Self::Dump(dump) => Ok(Side::of_dump(dump)),
        }
    }

    /// The model, where the run is one of this process.
    fn model(&self) -> Option<&'a Model> {
        match self {
            Self::Trace(trace) => Some(trace.model()),
            Self::At(_) | Self::Dump(_) => None,
        }
    }
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
/// A run in this process needs no folder:
///
/// ```
/// use attnscope::{DiffOptions, Input};
///
/// let model = attnscope::open("demo")?;
/// let runs = ["Two dogs play.", "Two dogs play."].map(|text| model.trace(&Input::text(text), "*"));
/// let [a, b] = runs.map(Result::unwrap);
/// assert!(!attnscope::diff(&a, &b, &DiffOptions::default())?.report.differs());
/// # Ok::<(), attnscope::Failure>(())
/// ```
///
/// # Errors
/// Where one cannot be read, nothing of one is in the other, or it is cancelled.
pub fn diff<'a>(
    a: impl Into<Run<'a>>,
    b: impl Into<Run<'a>>,
    options: &DiffOptions,
) -> Result<Difference, Failure> {
    diff_noting(a, b, options, |_| {})
}

/// The same, with a callback for notes, which is also called before an error.
///
/// # Errors
/// As [`diff`].
pub fn diff_noting<'a>(
    a: impl Into<Run<'a>>,
    b: impl Into<Run<'a>>,
    options: &DiffOptions,
    listener: impl Fn(&Note) + Send + Sync + 'static,
) -> Result<Difference, Failure> {
    let notes = Notes::new(Some(std::sync::Arc::new(listener)));
    let (a, b) = (a.into(), b.into());
    options.limits.install(|| compared(a, b, options, notes))?
}

fn compared(a: Run<'_>, b: Run<'_>, options: &DiffOptions, mut notes: Notes) -> Result<Difference, Failure> {
    if let Some(tolerance) = options.tolerance.filter(|x| !x.is_finite() || *x < 0.0) {
        let help = "1e-4 is usual: a ten-thousandth of a tensor's largest value";
        let failure = Failure::new("expected a number from 0 on", help);
        return Err(failure.about(Argument::Tolerance(tolerance.to_string())));
    }
    let at_hand = a.model().or_else(|| b.model()).filter(|_| options.model.is_none());
    let (a, b) = (a.open()?, b.open()?);
    let opened = match at_hand {
        Some(_) => None,
        None => traced_model(&a, &b, options, &mut notes)?,
    };
    let ready = match (at_hand, &opened) {
        (Some(model), _) => {
            Some((model.opened().model()?, model.prepared()?.weights().clone().widened(&options.limits)?))
        }
        (None, Some(opened)) => {
            let model = opened.model()?;
            Some((
                model,
                Weights::load_within(model, &opened.checkpoint, &options.limits)?.widened(&options.limits)?,
            ))
        }
        (None, None) => None,
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
            limits: options.limits.clone(),
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
/// Where one cannot be read, or it is cancelled.
pub fn diff_weights(a: &Path, b: &Path, limits: &Limits) -> Result<Difference, Failure> {
    let opened = |path: &Path| Opened::open(&path.display().to_string(), None);
    let (a, b) = (opened(a)?, opened(b)?);
    let report = limits.install(|| compare_weights(file(&a), file(&b), limits).map_err(Failure::from))??;
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

/// Files without a recognised model are compared by the names in them.
fn file(opened: &Opened) -> File<'_> {
    File { checkpoint: &opened.checkpoint, model: opened.model().ok() }
}

fn open(path: &Path) -> Result<Side, Failure> {
    let absent = std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    Side::open(path).map_err(|e| match absent {
        false => e.into(),
        true => Failure::new(format!("{}: no such file or folder", path.display()), Remedy::TwoRuns),
    })
}
