//! From the MODEL of the command line to a checkpoint and what it was recognised as.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use attnscope_checkpoint::{Checkpoint, TensorInfo};
use attnscope_graph::{Config, Model, OtherKind, Recognised, TensorSpec, recognise};

use crate::failure::Failure;

/// The trained model that the binary carries: English to German, 1.2 M parameters.
const DEMO: [(&str, &[u8]); 3] = [
    ("model.safetensors", include_bytes!("../models/demo/model.safetensors")),
    ("config.json", include_bytes!("../models/demo/config.json")),
    ("tokenizer.json", include_bytes!("../models/demo/tokenizer.json")),
];

/// A checkpoint that is open, and what it is.
#[derive(Debug)]
pub struct Opened {
    /// The MODEL as given.
    pub name: String,
    /// Its tensors.
    pub checkpoint: Checkpoint,
    /// What they are.
    pub recognised: Recognised,
}

impl Opened {
    /// Opens a file, a folder or a built-in. `heads` is the user's word for the head count.
    pub fn open(name: &str, heads: Option<usize>) -> Result<Self, Failure> {
        let checkpoint = match name {
            "demo" => Checkpoint::from_memory("demo", DEMO.map(|(n, b)| (n, Cow::Borrowed(b))).to_vec())?,
            _ => Checkpoint::open(Path::new(name))?,
        };
        let configs: Vec<Config<'_>> =
            checkpoint.configs().iter().map(|c| Config { source: &c.source, facts: &c.facts }).collect();
        let recognised = recognise(specs(&checkpoint), &configs, heads).map_err(|e| {
            Failure::new(
                format!("{}: {e}", checkpoint.path().display()),
                format!(
                    "correct {:?} in {}, or remove it: sizes are read off the tensors",
                    e.key, e.source_name
                ),
            )
        })?;
        Ok(Self { name: name.to_owned(), checkpoint, recognised })
    }

    /// The model, or why there is nothing to draw.
    pub fn encoder_decoder(&self) -> Result<&Model, Failure> {
        match &self.recognised {
            Recognised::EncoderDecoder(model) => Ok(model),
            Recognised::Other(other) => {
                let what = match other.kind {
                    OtherKind::Unknown => "not recognised as an encoder-decoder",
                    OtherKind::EncoderDecoder => "an encoder-decoder of a family that is not known",
                    OtherKind::DecoderOnly => "a decoder-only model: there is no cross-attention in it",
                    OtherKind::EncoderOnly => "an encoder-only model: there is no cross-attention in it",
                };
                Err(Failure::new(
                    format!("{}: {what} ({})", self.name, other.because),
                    format!("`attnscope inspect {} --tensors` lists what it holds", self.name),
                ))
            }
        }
    }
}

/// The listing as the graph wants it, with tensors that are one under two names marked.
fn specs(checkpoint: &Checkpoint) -> Vec<TensorSpec> {
    let mut seen = HashMap::new();
    let spec = |t: &TensorInfo, storage: usize| TensorSpec {
        name: t.name.clone(),
        shape: t.shape.clone(),
        dtype: t.dtype.name(),
        bytes: t.bytes(),
        storage,
    };
    let tensors = checkpoint.tensors().iter().enumerate();
    tensors.map(|(i, t)| spec(t, *seen.entry(t.identity()).or_insert(i))).collect()
}
