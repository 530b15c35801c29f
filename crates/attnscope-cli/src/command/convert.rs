//! `convert`: a checkpoint in another format, bit for bit, or a refusal with its reason.

use std::io::Write;
use std::path::PathBuf;

use attnscope_checkpoint::{Checkpoint, DType, Target, TensorInfo, check_output, write};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use attnscope::Failure;
use attnscope::Opened;

#[derive(Debug, Args)]
pub(super) struct Convert {
    /// The checkpoint to read: a file of any format, a folder, or `demo`
    input: String,
    /// The file to write; its ending says the format: .safetensors, .apr or .npz
    output: PathBuf,
    /// The format to write, where the ending does not say
    #[arg(long, value_enum)]
    to: Option<To>,
    /// A loss to accept; may be given more than once
    #[arg(long, value_enum, value_name = "LOSS")]
    allow: Vec<Loss>,
    /// No notes on standard error
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    Safetensors,
    Apr,
    Npz,
}

/// What a conversion may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Loss {
    /// Tensors that share their bytes are written as copies
    Untie,
    /// Quantised tensors become f32
    Dequantize,
    /// Types that the target lacks become the next wider one: bf16 becomes f32, i16 becomes i64
    Widen,
    /// Metadata and pickled objects that the target has no place for are left out
    Metadata,
}

/// A loss that a conversion would bring, and what it would be.
struct Would {
    lose: Loss,
    what: String,
}

impl Convert {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let target = self.target()?;
        let opened = Opened::open(&self.input, None)?;
        check_output(&self.output)?;
        opened.checkpoint.verify()?;
        let checkpoint = &opened.checkpoint;
        let (metadata, clashes) = metadata(checkpoint, target);
        let mut losses = ties(checkpoint, target);
        losses.extend(leftovers(checkpoint, target, &metadata, &clashes));
        let mut entries = Vec::new();
        for tensor in checkpoint.tensors() {
            if target.holds(tensor.dtype) {
                entries.push(checkpoint.entry(tensor));
                continue;
            }
            losses.push(self.widening(tensor, target)?);
            entries.push(checkpoint.widened(tensor));
        }
        self.check(&losses)?;
        let metadata = if target.holds_metadata() { metadata } else { Map::new() };
        write(target, &self.output, entries, &metadata)?;
        if !self.quiet {
            let (n, to) = (checkpoint.tensors().len(), super::line(&self.output.display().to_string()));
            let _ = writeln!(std::io::stderr(), "note: {n} tensors written to {to}");
        }
        Ok(())
    }

    fn target(&self) -> Result<Target, Failure> {
        let ending = self.output.extension().and_then(|e| e.to_str()).unwrap_or_default();
        match (self.to, ending) {
            (Some(To::Safetensors), _) | (None, "safetensors") => Ok(Target::Safetensors),
            (Some(To::Apr), _) | (None, "apr") => Ok(Target::Apr),
            (Some(To::Npz), _) | (None, "npz") => Ok(Target::Npz),
            (None, _) => Err(Failure::new(
                format!("{}: no format is known by this ending", self.output.display()),
                "end the name in .safetensors, .apr or .npz, or give --to",
            )),
        }
    }

    /// Refuses what was not allowed, all of it at once.
    fn check(&self, losses: &[Would]) -> Result<(), Failure> {
        let mut refused: Vec<&Would> = Vec::new();
        for loss in losses.iter().filter(|l| !self.allow.contains(&l.lose)) {
            if !refused.iter().any(|r| r.lose == loss.lose) {
                refused.push(loss);
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        let what: Vec<&str> = refused.iter().map(|l| l.what.as_str()).collect();
        let flags: Vec<String> = refused.iter().map(|l| format!("--allow {}", l.lose.name())).collect();
        Err(Failure::new(
            format!("{}: {}", self.input, what.join("; ")),
            format!("accept it with {}", flags.join(" ")),
        ))
    }

    /// What it costs to write a tensor of a type that the target lacks, or why it cannot be written.
    fn widening(&self, t: &TensorInfo, target: Target) -> Result<Would, Failure> {
        let refuse = |why: &str, help: &str| {
            Err(Failure::new(format!("{}: tensor {:?} is {}, {why}", self.input, t.name, t.dtype), help))
        };
        match t.dtype {
            DType::Opaque { .. } => refuse(
                "a type that is listed and not read",
                "write the file again with a type that is read: see `attnscope inspect --tensors`",
            ),
            DType::F64 | DType::I64 | DType::U64 => {
                refuse("which no type of the target holds exactly", "write another format")
            }
            dtype => {
                let lose = if dtype.is_plain() { Loss::Widen } else { Loss::Dequantize };
                let what = format!("tensor {:?} is {dtype}, which {} cannot hold", t.name, target.name());
                Ok(Would { lose, what })
            }
        }
    }
}

impl Loss {
    fn name(self) -> &'static str {
        match self {
            Self::Untie => "untie",
            Self::Dequantize => "dequantize",
            Self::Widen => "widen",
            Self::Metadata => "metadata",
        }
    }
}

/// None of the targets can say that two names are one tensor.
fn ties(checkpoint: &Checkpoint, target: Target) -> Vec<Would> {
    let shared = checkpoint.shared();
    let words = |group: &Vec<&TensorInfo>| {
        let names: Vec<&str> = group.iter().take(3).map(|t| t.name.as_str()).collect();
        let more = if group.len() > 3 { format!(" and {} more", group.len() - 3) } else { String::new() };
        format!(
            "{}{more} share their bytes, of which {} would hold copies",
            names.join(" and "),
            target.name()
        )
    };
    shared.first().map(|group| Would { lose: Loss::Untie, what: words(group) }).into_iter().collect()
}

/// Everything the input says about itself in words and numbers, and the keys on which two documents differ.
fn metadata(checkpoint: &Checkpoint, target: Target) -> (Map<String, Value>, Vec<String>) {
    let mut metadata = Map::new();
    let mut clashes = Vec::new();
    for config in checkpoint.configs() {
        let whole = Value::Object(config.facts.clone());
        match (target, config.source.as_str()) {
            // A string a key is all that safetensors holds: a document goes in as one JSON text.
            (Target::Safetensors, "config.json") => {
                metadata.insert("config".into(), Value::String(whole.to_string()));
            }
            (Target::Safetensors, "generation_config.json") => {
                metadata.insert("generation_config".into(), Value::String(whole.to_string()));
            }
            (_, "generation_config.json") => {
                metadata.insert("generation_config".into(), whole);
            }
            _ => {
                for (key, value) in &config.facts {
                    if metadata.entry(key.clone()).or_insert_with(|| value.clone()) != value {
                        clashes.push(key.clone());
                    }
                }
            }
        }
    }
    (metadata, clashes)
}

/// What is neither tensor nor fact, and what the target has no place for.
fn leftovers(
    checkpoint: &Checkpoint,
    target: Target,
    metadata: &Map<String, Value>,
    clashes: &[String],
) -> Vec<Would> {
    let mut lost: Vec<String> = checkpoint.left_out().to_vec();
    lost.extend(checkpoint.placeholders().iter().take(3).map(|p| format!("the pickled {}", p.global)));
    lost.extend(clashes.iter().take(3).map(|key| format!("one of two values of {key:?}")));
    // `format: pt` says how safetensors files came to be, and nothing about the model.
    if !target.holds_metadata() && metadata.keys().any(|key| key != "format") {
        lost.push("the metadata".into());
    }
    if lost.is_empty() {
        return Vec::new();
    }
    let what = format!("{} would be left out: {} has no place for it", lost.join(", "), target.name());
    vec![Would { lose: Loss::Metadata, what }]
}
