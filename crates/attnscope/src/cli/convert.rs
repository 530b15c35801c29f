//! `convert`: a checkpoint in another format, bit for bit, or a refusal with its reason.

use std::path::PathBuf;

use attnscope_checkpoint::{Checkpoint, DType, Entry, Target, TensorInfo, write};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::open::Opened;

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

impl Convert {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let target = self.target()?;
        let mut opened = Opened::open(&self.input, None)?;
        opened.checkpoint.verify()?;
        let checkpoint = &opened.checkpoint;
        self.check_ties(checkpoint, target)?;
        let metadata = self.metadata(checkpoint, target)?;
        let entries = checkpoint
            .tensors()
            .iter()
            .map(|t| self.entry(checkpoint, t, target))
            .collect::<Result<Vec<Entry<'_>>, Failure>>()?;
        write(target, &self.output, &checkpoint.paths(), entries, &metadata)?;
        if !self.quiet {
            eprintln!(
                "note: {} tensors written to {}",
                checkpoint.tensors().len(),
                super::line(&self.output.display().to_string())
            );
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

    fn allows(&self, loss: Loss) -> bool {
        self.allow.contains(&loss)
    }

    /// None of the targets can say that two names are one tensor.
    fn check_ties(&self, checkpoint: &Checkpoint, target: Target) -> Result<(), Failure> {
        let shared = checkpoint.shared();
        let Some(group) = shared.first().filter(|_| !self.allows(Loss::Untie)) else { return Ok(()) };
        let names: Vec<&str> = group.iter().map(|t| t.name.as_str()).collect();
        Err(Failure::new(
            format!(
                "{}: {} share their bytes; {} would hold copies",
                self.input,
                names.join(" and "),
                target.name()
            ),
            "--allow untie writes copies",
        ))
    }

    /// Everything the input says about itself that is not a tensor.
    fn metadata(&self, checkpoint: &Checkpoint, target: Target) -> Result<Map<String, Value>, Failure> {
        let mut metadata = Map::new();
        for config in checkpoint.configs() {
            if config.source == "generation_config.json" {
                continue;
            }
            match (target, config.source.as_str()) {
                // A string a key is all that safetensors holds: a config goes in as one JSON text.
                (Target::Safetensors, "config.json") => {
                    metadata.insert(
                        "config".into(),
                        Value::String(Value::Object(config.facts.clone()).to_string()),
                    );
                }
                _ => {
                    for (key, value) in &config.facts {
                        metadata.entry(key.clone()).or_insert_with(|| value.clone());
                    }
                }
            }
        }
        let own = metadata.keys().any(|key| key != "format");
        let lost = (!target.holds_metadata() && own) || !checkpoint.placeholders().is_empty();
        if lost && !self.allows(Loss::Metadata) {
            return Err(Failure::new(
                format!("{}: {} has no place for its metadata or pickled objects", self.input, target.name()),
                "--allow metadata leaves them out; `attnscope inspect` lists them",
            ));
        }
        Ok(if target.holds_metadata() { metadata } else { Map::new() })
    }

    fn entry<'c>(
        &self,
        checkpoint: &'c Checkpoint,
        t: &'c TensorInfo,
        target: Target,
    ) -> Result<Entry<'c>, Failure> {
        if target.holds(t.dtype) {
            return Ok(checkpoint.entry(t));
        }
        let (loss, flag, wider) = match t.dtype {
            DType::I16 | DType::I8 | DType::U8 | DType::U16 | DType::U32 | DType::Bool => {
                (Loss::Widen, "widen", DType::I64)
            }
            d if d.is_plain() => (Loss::Widen, "widen", DType::F32),
            _ => (Loss::Dequantize, "dequantize", DType::F32),
        };
        let exact = !matches!(t.dtype, DType::F64 | DType::U64 | DType::I64);
        if self.allows(loss) && exact && target.holds(wider) {
            return Ok(checkpoint.entry_as(t, wider));
        }
        if let DType::Opaque { .. } = t.dtype {
            return Err(Failure::new(
                format!(
                    "{}: tensor {:?} is {}, a type that is listed and not read",
                    self.input, t.name, t.dtype
                ),
                "write the file again with a type that is read: see `attnscope inspect --tensors`",
            ));
        }
        let help = if exact {
            format!("--allow {flag} writes it as {wider}")
        } else {
            format!("{} has no type that holds {} exactly; write another format", target.name(), t.dtype)
        };
        Err(Failure::new(
            format!(
                "{}: tensor {:?} is {}, which {} cannot hold",
                self.input,
                t.name,
                t.dtype,
                target.name()
            ),
            help,
        ))
    }
}
