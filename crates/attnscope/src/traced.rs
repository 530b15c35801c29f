//! A trace on disk together with the model and the input it was made from.

use std::path::Path;

use attnscope_diagnose::audit::{Audit, audit};
use attnscope_diagnose::rounding::Precision;
use attnscope_graph::{Dim, Side};
use attnscope_run::trace::Trace;
use attnscope_run::{Features, Input, Sequence, Weights};

use crate::failure::Failure;
use crate::open::Opened;

/// A trace whose model is at hand: the file's checksums are those that the trace names.
#[derive(Debug)]
pub struct Traced {
    trace: Trace,
    /// The model.
    pub opened: Opened,
    /// `f32` or `f64`.
    pub precision: &'static str,
}

impl Traced {
    /// Opens a trace and its model: the one given, or the one that the trace names.
    pub fn open(folder: &Path, model: Option<&str>) -> Result<Self, Failure> {
        let trace = Trace::open(folder)?;
        let precision = if trace.about["precision"] == "f64" { "f64" } else { "f32" };
        let name = model.or_else(|| trace.model()).unwrap_or_default();
        let opened = open_model(&trace, name, None).map_err(|e| {
            let help = format!("give the model that was traced: check --trace {} MODEL", folder.display());
            if model.is_none() { Failure::new(e.error, help) } else { e }
        })?;
        same_files(&opened, &trace)?;
        Ok(Self { trace, opened, precision })
    }

    /// Every captured tensor, computed again.
    pub fn audit(&self) -> Result<Audit, Failure> {
        let model = self.opened.model()?;
        let weights = Weights::load(model, &self.opened.checkpoint)?;
        let input = self.input()?;
        let precision = if self.precision == "f64" { Precision::F64 } else { Precision::F32 };
        Ok(audit(model, &weights, &self.trace, &input, precision)?)
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
            "give a folder that `attnscope trace --save` has written",
        )
    }

    /// The features that were captured. Where they were not, only their shape is needed, and their values are no numbers.
    fn features(&self) -> Result<Features, Failure> {
        let node = self.trace.nodes.iter().find(|node| node.op == "features");
        let node = node.ok_or_else(|| self.damaged("nodes", "one of features"))?;
        let [batch, mels, frames] = node.shape[..] else {
            return Err(self.damaged(&node.path, "three dimensions"));
        };
        let values = match self.trace.read(&node.path)? {
            Some(kept) => kept.values.iter().map(|&x| x as f32).collect(),
            // No more than the model could have heard, whatever the document says.
            None => {
                let model = self.opened.model()?;
                let sizes = &model.sizes;
                let window = sizes.get(Dim::Positions(Side::Source)).map(|n| model.graph.frames_of(n));
                let heard = sizes.get(Dim::Mels) == Some(mels) && window.is_some_and(|most| frames <= most);
                if !heard || batch != self.trace.tokens(Side::Target)?.batch() {
                    return Err(self.damaged(&node.path, "the shape of what the model hears"));
                }
                vec![f32::NAN; batch * mels * frames]
            }
        };
        Ok(Features { values, batch, mels, frames })
    }
}

/// Opens a model as it was when it was traced: with the heads that the user may have given then, a toy with the words it
/// was traced with. Whether its weights are still the same is for [`same_files`] to say.
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
        "give the model that was traced: check --trace DIR MODEL",
    ))
}
