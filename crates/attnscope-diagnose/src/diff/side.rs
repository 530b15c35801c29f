//! One side of a comparison: a trace of ours, or whatever another program left behind.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Dump, DumpKind, DumpTensor, Elements, Error};
use attnscope_run::trace::{Trace, TraceError};
use attnscope_run::{Features, Input, Rows, Source};
use serde_json::Value;

use super::measure::{PIECE, Pieces};

/// Tensors by name, and what is known of the run that made them.
#[derive(Debug)]
pub struct Side {
    path: PathBuf,
    pub(super) dump: Dump,
    pub(super) trace: Option<Trace>,
}

impl Side {
    /// Opens a trace's folder, or a dump in any form that is read.
    ///
    /// # Errors
    /// When it is neither, or is damaged.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        if path.is_dir() && Trace::is_one(path) {
            let trace = Trace::open(path)?;
            let dump = Dump::open(trace.tensors().path())?;
            return Ok(Self { path: path.to_owned(), dump, trace: Some(trace) });
        }
        Ok(Self { path: path.to_owned(), dump: Dump::open(path)?, trace: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is: a trace of ours, or what made the dump.
    pub fn kind(&self) -> &'static str {
        match (&self.trace, self.dump.kind()) {
            (Some(_), _) => "trace",
            (None, DumpKind::Arrays) => "arrays",
            (None, kind) => kind.name(),
        }
    }

    /// How many tensors it holds.
    pub fn count(&self) -> usize {
        self.dump.tensors().len()
    }

    /// The description of the run, where the side is a trace.
    pub fn about(&self) -> Option<&Value> {
        self.trace.as_ref().map(|trace| &trace.about)
    }

    /// What the traced model was given to read.
    pub(super) fn input(&self) -> Option<Input> {
        let tokens = &self.about()?["tokens"];
        let source = match self.dump.tensor("audio.mel") {
            Some(mel) => Source::Features(self.features(mel)?),
            None => Source::Tokens(rows(&tokens["source"])?),
        };
        Some(Input { source, target: rows(&tokens["target"])? })
    }

    fn features(&self, mel: &DumpTensor) -> Option<Features> {
        let [batch, mels, frames] = mel.shape[..] else { return None };
        let values = self.dump.read(mel).ok()?.into_iter().map(|x| x as f32).collect();
        Some(Features { values, batch, mels, frames })
    }

    pub(super) fn pieces(&self, tensor: &DumpTensor) -> Result<InFile, Error> {
        Ok(InFile(self.dump.values(tensor)?))
    }
}

/// Rows of ids as `trace.json` keeps them, padding marked.
fn rows(value: &Value) -> Option<Rows> {
    let mut pad = 0;
    let mut rows = Vec::new();
    for row in value.as_array()? {
        let mut ids = Vec::new();
        for token in row.as_array()? {
            let id = u32::try_from(token["id"].as_u64()?).ok()?;
            match token["padding"].as_bool()? {
                true => pad = id,
                false => ids.push(id),
            }
        }
        rows.push(ids);
    }
    Some(Rows::new(&rows, pad))
}

/// Values that stay in their file.
pub(super) struct InFile(Elements);

impl Pieces for InFile {
    fn get(&self, from: usize, out: &mut Vec<f64>) -> Result<(), Error> {
        self.0.get(from..from.saturating_add(PIECE), out)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Values that had to be brought into another order.
pub(super) struct InMemory(pub(super) Vec<f64>);

impl Pieces for InMemory {
    fn get(&self, from: usize, out: &mut Vec<f64>) -> Result<(), Error> {
        out.clear();
        let to = from.saturating_add(PIECE).min(self.0.len());
        out.extend_from_slice(self.0.get(from..to).unwrap_or_default());
        Ok(())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
