//! The tensors that a fixture's maker saw, and the input that it gave.

use std::path::Path;

use attnscope::checkpoint::Checkpoint;
use attnscope::graph::Side;
use attnscope::run::{Features, Input, Rows, Sequence};

use super::fixture;

/// The trace beside a fixture.
pub struct Trace(pub Checkpoint);

impl Trace {
    pub fn open(model: &str) -> Self {
        let (folder, file) = model.split_once('/').unwrap_or((model, ""));
        // The same weights in another file.
        let folder = if folder == "whisper-ggml" { "whisper-openai" } else { folder };
        let which = file.strip_suffix(".pt").and_then(|f| f.strip_prefix("checkpoint_"));
        let name = which.map_or("trace.safetensors".to_owned(), |w| format!("trace_{w}.safetensors"));
        Self(Checkpoint::open(Path::new(&fixture(&format!("{folder}/{name}")))).unwrap())
    }

    pub fn get(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let tensor = self.0.tensor(name)?;
        Some((tensor.shape.clone(), self.0.read_f32(tensor).unwrap()))
    }

    /// Ids without their padding, which is on the right.
    pub fn rows(&self, side: &str) -> Option<Rows> {
        let (shape, ids) = self.get(&format!("{side}.ids"))?;
        let open = self.get(&format!("{side}.open")).map_or(vec![1.0; ids.len()], |(_, open)| open);
        let row = |b: usize| {
            let row = b * shape[1]..(b + 1) * shape[1];
            row.filter(|&i| open[i] != 0.0).map(|i| ids[i] as u32).collect::<Vec<_>>()
        };
        Some(Rows::new(&(0..shape[0]).map(row).collect::<Vec<_>>(), 1))
    }

    /// The sequences that its maker gave: one or both.
    pub fn input(&self) -> Input {
        let audio = self.get("audio.mel").map(|(s, values)| {
            Sequence::Features(Features { values, batch: s[0], mels: s[1], frames: s[2] })
        });
        let tokens = |side: Side| self.rows(side.name()).map(Sequence::Tokens);
        let source = audio.or_else(|| tokens(Side::Source)).map(|sequence| (Side::Source, sequence));
        let target = tokens(Side::Target).map(|sequence| (Side::Target, sequence));
        let mut sequences = source.into_iter().chain(target);
        let (side, first) = sequences.next().unwrap();
        sequences.fold(Input::of(side, first), |input, (side, sequence)| input.with(side, sequence))
    }

    /// The trace of one long row, where the fixture has one.
    pub fn long(model: &str) -> Self {
        Self(Checkpoint::open(Path::new(&fixture(&format!("{model}/trace_long.safetensors")))).unwrap())
    }
}
