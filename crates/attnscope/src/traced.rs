//! A trace on disk with its model and its input.

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::Remedy;
use attnscope_diagnose::recompute::{Checked, Recomputed, Unchecked, Why, recompute};
use attnscope_diagnose::rounding::Precision;
use attnscope_graph::{Dim, NodeId, Side};
use attnscope_run::trace::Trace;
use attnscope_run::{Features, Input, Limits, Sequence, Weights};

use crate::answer::{CheckedCell, CheckedTensor, SCHEMA, TraceCheck, UncheckedReason, UncheckedTensor};
use crate::failure::Failure;
use crate::open::Opened;

/// Computes every tensor of a saved trace again, in f64, from its inputs. The model is the one given, or the
/// one that the trace names.
///
/// ```no_run
/// let answer = attnscope::check_trace("trace".as_ref(), None, &attnscope::Limits::default())?;
/// assert!(answer.right);
/// # Ok::<(), attnscope::Failure>(())
/// ```
///
/// # Errors
/// Where the trace or its model cannot be read, nothing in it can be checked, or it is cancelled.
pub fn check_trace(folder: &Path, model: Option<&str>, limits: &Limits) -> Result<TraceCheck, Failure> {
    checked(folder, Traced::open(folder, model)?, limits)
}

/// The same against a model that is open.
pub(crate) fn check_trace_of(
    folder: &Path,
    opened: Arc<Opened>,
    limits: &Limits,
) -> Result<TraceCheck, Failure> {
    let trace = Trace::open(folder)?;
    same_files(&opened, &trace)?;
    checked(folder, Traced::of(trace, opened), limits)
}

fn checked(folder: &Path, traced: Traced, limits: &Limits) -> Result<TraceCheck, Failure> {
    let recomputed = limits.install(|| traced.recompute(limits))??;
    if recomputed.checked.is_empty() {
        return Err(Failure::new(
            format!(
                "{}: nothing could be checked: no tensor in it comes with all of its inputs",
                folder.display()
            ),
            Remedy::SaveWholeRun,
        ));
    }
    traced.answer(folder, &recomputed)
}

/// A trace whose model was found: its files have the checksums in the trace.
#[derive(Debug)]
struct Traced {
    trace: Trace,
    opened: Arc<Opened>,
    /// `f32` or `f64`.
    precision: &'static str,
}

impl Traced {
    /// Opens a trace and its model: the one given, or the one that the trace names.
    fn open(folder: &Path, model: Option<&str>) -> Result<Self, Failure> {
        let trace = Trace::open(folder)?;
        let name = model.or_else(|| trace.model()).unwrap_or_default();
        let opened = open_model(&trace, name, None).map_err(|e| {
            let remedy = Remedy::TracedModel(Some(folder.display().to_string()));
            if model.is_none() { e.with_remedy(remedy) } else { e }
        })?;
        same_files(&opened, &trace)?;
        Ok(Self::of(trace, Arc::new(opened)))
    }

    fn of(trace: Trace, opened: Arc<Opened>) -> Self {
        let precision = if trace.about["precision"] == "f64" { "f64" } else { "f32" };
        Self { trace, opened, precision }
    }

    /// Every captured tensor, computed again.
    fn recompute(&self, limits: &Limits) -> Result<Recomputed, Failure> {
        let model = self.opened.model()?;
        let weights = Weights::load_within(model, &self.opened.checkpoint, limits)?;
        // Those that do not fit in memory are read where a node needs them.
        let weights = if weights.unread().is_some() { weights } else { weights.widened(limits)? };
        let input = self.input()?;
        let precision = if self.precision == "f64" { Precision::F64 } else { Precision::F32 };
        Ok(recompute(model, &weights, &self.trace, &input, precision, limits)?)
    }

    fn answer(&self, folder: &Path, recomputed: &Recomputed) -> Result<TraceCheck, Failure> {
        let graph = &self.opened.model()?.graph;
        let path = |node: NodeId| graph.node(node).path.to_string();
        let checked = |checked: &Checked| CheckedTensor {
            node: path(checked.node),
            op: graph.node(checked.node).op.facets().name,
            error: checked.error,
            largest: checked.largest,
            relative: if checked.error == 0.0 { 0.0 } else { checked.error / checked.largest },
            share: checked.share,
            beyond: checked.beyond(),
            worst: checked.worst.as_ref().map(|cell| CheckedCell {
                at: cell.at.clone(),
                captured: cell.captured,
                derived: cell.derived,
            }),
        };
        let unchecked = |unchecked: &Unchecked| {
            let (why, input) = match unchecked.why {
                Why::NotSaved => (UncheckedReason::NotSaved, None),
                Why::InputNotSaved(input) => (UncheckedReason::InputNotSaved, Some(path(input))),
                Why::Given => (UncheckedReason::Given, None),
            };
            UncheckedTensor { node: path(unchecked.node), why, input }
        };
        let mut ranked: Vec<usize> = (0..recomputed.checked.len()).collect();
        ranked.sort_by(|&a, &b| recomputed.checked[b].share.total_cmp(&recomputed.checked[a].share));
        let first = recomputed.checked.iter().find(|checked| checked.beyond());
        Ok(TraceCheck {
            schema: SCHEMA,
            trace: folder.display().to_string(),
            model: self.opened.name.clone(),
            precision: self.precision,
            right: first.is_none(),
            first_mistake: first.map(|first| path(first.node)),
            checked: recomputed.checked.iter().map(checked).collect(),
            ranked,
            unchecked: recomputed.unchecked.iter().map(unchecked).collect(),
        })
    }

    /// What the run was given.
    fn input(&self) -> Result<Input, Failure> {
        let model = self.opened.model()?;
        let sequence = |side: Side| {
            Ok(match side == Side::Source && model.graph.reads_audio() {
                true => (side, Sequence::Features(self.features()?)),
                false => (side, Sequence::Tokens(self.trace.tokens(side)?)),
            })
        };
        let sequences = model.architecture.sides().map(sequence).collect::<Result<Vec<_>, Failure>>()?;
        Input::of_all(sequences).ok_or_else(|| self.damaged("tokens", "rows of tokens"))
    }

    fn damaged(&self, place: &str, expected: &str) -> Failure {
        Failure::new(
            format!("{}: {place}: expected {expected}", self.trace.folder().join("trace.json").display()),
            Remedy::SavedTrace,
        )
    }

    /// The captured features. If they were not captured, only their shape is needed, and their values are NaN.
    fn features(&self) -> Result<Features, Failure> {
        let node = self.trace.nodes.iter().find(|node| node.op == "features");
        let node = node.ok_or_else(|| self.damaged("nodes", "one of features"))?;
        let [batch, mels, frames] = node.shape[..] else {
            return Err(self.damaged(&node.path, "three dimensions"));
        };
        let values = match self.trace.read(&node.path)? {
            Some(kept) => kept.values.iter().map(|&x| x as f32).collect(),
            // At most the model's audio window, whatever the document says.
            None => {
                let model = self.opened.model()?;
                let sizes = &model.sizes;
                let window = sizes.get(Dim::Positions(Side::Source)).map(|n| model.graph.frames_of(n));
                let heard = sizes.get(Dim::Mels) == Some(mels) && window.is_some_and(|most| frames <= most);
                if !heard || batch != self.trace.tokens(Side::Target)?.batch() {
                    return Err(self.damaged(&node.path, "the shape of the model's audio window"));
                }
                vec![f32::NAN; batch * mels * frames]
            }
        };
        Ok(Features { values, batch, mels, frames })
    }
}

/// Opens a model as it was when it was traced: with the heads that the user may have given then, a toy with the words it
/// was traced with. [`same_files`] checks whether its weights are still the same.
pub(crate) fn open_model(trace: &Trace, name: &str, heads: Option<usize>) -> Result<Opened, Failure> {
    let opened = Opened::open(name, heads.or_else(|| trace.heads()))?;
    if name != "toy" || same_files(&opened, trace).is_ok() {
        return Ok(opened);
    }
    // Its vocabularies are the words that it is given.
    let toy = Opened::toy(trace.sentences(Side::Source), trace.sentences(Side::Target))?;
    Ok(if same_files(&toy, trace).is_ok() { toy } else { opened })
}

/// Whether the weights are those that were traced.
pub(crate) fn same_files(opened: &Opened, trace: &Trace) -> Result<(), Failure> {
    let (found, expected) = (opened.checkpoint.sha256()?, trace.checksums());
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "{}: its weights are not those that were traced: SHA-256 {}, and the trace names {}",
            opened.name,
            found.join(", "),
            if expected.is_empty() { "none".into() } else { expected.join(", ") }
        ),
        Remedy::TracedModel(None),
    ))
}
