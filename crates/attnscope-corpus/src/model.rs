//! A model as the kernel uses it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_graph::{Dim, Model, Side};
use attnscope_run::align::Head;
use attnscope_run::{Prepared, Shift, Tokenizer, computed_positions, position_limit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a row of the corpus is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A source sentence and its target.
    Pairs,
    /// A recording and its transcript.
    Audio,
    /// One text, of which a model predicts each token from those before.
    Text,
}

impl Task {
    /// What a model reads.
    pub fn of(model: &Model) -> Self {
        match (model.graph.reads_audio(), model.architecture.has_cross_attention()) {
            (true, _) => Self::Audio,
            (false, true) => Self::Pairs,
            (false, false) => Self::Text,
        }
    }
}

/// A model, its tokenizer, and what its documents say. Loaded once, shared by all threads.
#[derive(Debug)]
pub struct AuditModel {
    /// What the user calls it.
    pub name: String,
    /// SHA-256 of its files and of its wiring, so that another model of that name is told apart.
    pub fingerprint: String,
    /// The model with its weights.
    pub prepared: Arc<dyn Prepared>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// How the decoder's input is made from a target.
    pub shift: Shift,
    /// The pad id.
    pub pad: u32,
    /// The tokens that end a sentence.
    pub ends: Vec<u32>,
    /// The heads that alignments are computed from.
    pub alignment_heads: Vec<Head>,
}

/// Where neither the file nor its documents give a number of positions, longer texts are cut here.
const USUAL_POSITIONS: usize = 1024;

impl AuditModel {
    /// The model itself.
    pub fn model(&self) -> &Model {
        self.prepared.model()
    }

    /// What it reads.
    pub fn task(&self) -> Task {
        Task::of(self.model())
    }

    /// The positions of a side: of its table, or of its documents where they are computed; `None` where nothing says.
    pub(crate) fn positions(&self, side: Side) -> Option<usize> {
        let model = self.model();
        position_limit(model, side)
            .or_else(|| computed_positions(model, side))
            .or_else(|| model.sizes.get(Dim::Positions(side)))
    }

    /// The most tokens of a side that are read.
    pub(crate) fn room(&self, side: Side, wanted: Option<usize>) -> usize {
        let limit = position_limit(self.model(), side).unwrap_or(usize::MAX);
        let usual = self.positions(side).unwrap_or(USUAL_POSITIONS);
        wanted.unwrap_or(usual).min(limit).max(1)
    }

    /// Mel bands and frames of an audio model's window.
    pub(crate) fn window(&self) -> Option<(usize, usize)> {
        let model = self.model();
        let mels = model.sizes.get(Dim::Mels).filter(|_| model.graph.reads_audio())?;
        Some((mels, model.graph.frames_of(model.sizes.get(Dim::Positions(Side::Source))?)))
    }
}

/// A recording's file: names are relative to the folder of the corpus.
pub(crate) fn recording(base: &Path, name: &str) -> PathBuf {
    base.join(name.trim())
}

impl AuditModel {
    /// Where tokens end a sentence.
    pub(crate) fn ends_in(&self, ids: &[u32]) -> Vec<usize> {
        let is_end = |(_, id): &(usize, &u32)| self.ends.contains(id);
        ids.iter().enumerate().filter(is_end).map(|(place, _)| place).collect()
    }

    /// Bytes that are held for each position of a source: the encoder's output, and what a recording takes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let width = self.model().sizes.get(Dim::Model).unwrap_or(1);
        let recorded = self
            .window()
            .map_or(0, |(mels, frames)| mels * frames / self.model().graph.positions_of(frames).max(1));
        (width + recorded) * size_of::<f32>()
    }
}
