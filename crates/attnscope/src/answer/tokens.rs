//! The tokens of an input.

use attnscope_graph::Side;
use attnscope_run::Input;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ready::{Ready, Token};

/// Every row of every side, with ids and pieces.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InputTokens {
    /// One list per row; `null` for audio and for a model without an encoder.
    pub source: Option<Vec<Vec<Token>>>,
    /// One list per row; `null` for a model without a decoder.
    pub target: Option<Vec<Vec<Token>>>,
    /// Whether the model generated the target itself.
    pub generated: bool,
    /// With `--audio`: the recording that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<ReadRecording>,
    /// Rows of the batch.
    #[serde(skip)]
    pub batch: usize,
    /// What an audio model's encoder reads.
    #[serde(skip)]
    pub features: Option<FeatureShape>,
    /// Whether there are a source and a target; a model of one stack has one text.
    #[serde(skip)]
    pub two_sides: bool,
}

/// How much of a recording was read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ReadRecording {
    /// How long it is.
    pub seconds: f64,
    /// How much of it is read at most.
    pub window_seconds: f64,
}

/// The sizes of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureShape {
    /// Recordings.
    pub batch: usize,
    /// Mel bands.
    pub mels: usize,
    /// Frames.
    pub frames: usize,
    /// Positions that the encoder makes of the frames.
    pub positions: usize,
}

impl InputTokens {
    /// Of a run's input.
    pub fn of(ready: &Ready<'_>, input: &Input, generated: bool) -> Self {
        let tokens = |side: Side| input.rows(side).map(|rows| ready.tokens(side, rows));
        let features = |f: &attnscope_run::Features| FeatureShape {
            batch: f.batch,
            mels: f.mels,
            frames: f.frames,
            positions: ready.model.graph.positions_of(f.frames),
        };
        let recording = |(seconds, window_seconds)| ReadRecording { seconds, window_seconds };
        Self {
            source: tokens(Side::Source),
            target: tokens(Side::Target),
            generated,
            recording: ready.recorded().map(recording),
            batch: input.batch(),
            features: input.features().map(features),
            two_sides: ready.model.architecture.has_cross_attention(),
        }
    }

    /// The labels of a side's positions in one row: tokens, or the numbers of an audio model's positions.
    pub fn labels(&self, side: Side, row: usize) -> Vec<String> {
        let label = |token: &Token| if token.padding { "(pad)".to_owned() } else { token.label() };
        let rows = match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        };
        match rows {
            Some(rows) => rows.get(row).map(|row| row.iter().map(label).collect()).unwrap_or_default(),
            None => {
                let positions = self.features.map_or(0, |features| features.positions);
                (0..positions).map(|at| at.to_string()).collect()
            }
        }
    }
}
