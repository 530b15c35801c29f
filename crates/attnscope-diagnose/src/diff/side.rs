//! One side of a comparison: a trace, or the dump of another program.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Dump, DumpKind, DumpTensor, Elements, Error};
use attnscope_graph::{self as graph, Model};
use attnscope_run::trace::{Trace, TraceError};
use attnscope_run::{Features, Input, Rows, Sequence, pad_token};

use super::measure::{PIECE, Pieces};

/// Tensors by name, and what is known about the run that made them.
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

    /// The dump of another program that is in this process.
    pub fn of_dump(dump: Dump) -> Self {
        Self { path: dump.path().to_owned(), dump, trace: None }
    }

    /// A trace with its tensors, which are in this process.
    pub fn of_trace(trace: Trace, dump: Dump) -> Self {
        Self { path: dump.path().to_owned(), dump, trace: Some(trace) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is: a trace, or the program that made the dump.
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

    /// The trace, where the side is one.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// The input of the traced model.
    pub(super) fn input(&self) -> Option<Input> {
        let trace = self.trace()?;
        let mel = graph::Role::Audio(graph::AudioStep::Mel).to_string();
        let audio = match self.dump.tensor(&mel) {
            Some(mel) => Some((graph::Side::Source, Sequence::Features(self.features(mel)?))),
            None => None,
        };
        let tokens = trace.all_tokens().ok()?.into_iter();
        Input::of_all(audio.into_iter().chain(tokens.map(|(side, rows)| (side, Sequence::Tokens(rows)))))
    }

    /// The model's input, from the ids or features that another program dumped.
    pub(super) fn dumped_input(&self, model: &Model) -> Option<Input> {
        let find = |names: &[&str]| {
            let all = self.dump.tensors().iter();
            all.into_iter()
                .find(|t| names.iter().any(|name| t.name == *name || t.name.ends_with(&format!(".{name}"))))
        };
        let pad = pad_token(model).ok().flatten();
        let rows = |ids: &[&str], open: &[&str]| {
            let ids = find(ids)?;
            let open = find(open).filter(|open| open.shape == ids.shape);
            let open = open.and_then(|open| self.dump.read(open).ok());
            dumped_rows(&ids.shape, &self.dump.read(ids).ok()?, open.as_deref(), pad)
        };
        let one_stack = model.architecture.stacks.len() == 1;
        let sequence = |side: graph::Side| {
            let mel = find(&["audio.mel", "input_features"]);
            if let (graph::Side::Source, Some(mel)) = (side, mel) {
                return Some((side, Sequence::Features(self.features(mel)?)));
            }
            // A model of one stack has no decoder_input_ids, whichever stack it is.
            let own = [format!("{}.ids", side.name()), format!("{}.open", side.name())];
            let others = match side {
                _ if one_stack => ["input_ids", "attention_mask"],
                graph::Side::Source => ["input_ids", "attention_mask"],
                graph::Side::Target => ["decoder_input_ids", "decoder_attention_mask"],
            };
            let tokens = rows(&[&own[0], others[0]], &[&own[1], others[1]])?;
            Some((side, Sequence::Tokens(tokens)))
        };
        Input::of_all(model.architecture.sides().map(sequence).collect::<Option<Vec<_>>>()?)
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

/// Rows of ids as they were dumped: [batch, length]. Where nothing marks padding, pad ids at the end of a row are padding.
fn dumped_rows(shape: &[usize], ids: &[f64], open: Option<&[f64]>, pad: Option<u32>) -> Option<Rows> {
    let [_, length] = *shape else { return None };
    let id = |x: &f64| (x.fract() == 0.0 && (0.0..f64::from(u32::MAX)).contains(x)).then_some(*x as u32);
    let ids: Vec<u32> = ids.iter().map(id).collect::<Option<_>>()?;
    let length = length.max(1);
    let tokens = |(r, row): (usize, &[u32])| {
        let marked =
            open.map(|open| open.iter().skip(r * length).take(length).filter(|x| **x != 0.0).count());
        let unpadded = || row.len() - row.iter().rev().take_while(|id| Some(**id) == pad).count();
        row.iter().take(marked.unwrap_or_else(unpadded)).copied().collect::<Vec<u32>>()
    };
    let rows: Vec<Vec<u32>> = ids.chunks(length).enumerate().map(tokens).collect();
    let made = Rows::new(&rows, pad.unwrap_or(0));
    // A batch whose longest row is padded, too, would become shorter.
    (made.length() == length).then_some(made)
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

/// Values that were reordered.
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
