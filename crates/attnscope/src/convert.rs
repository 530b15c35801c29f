//! A checkpoint in another format, bit for bit, or a refusal with its reason.

use std::path::Path;

use attnscope_checkpoint::{Checkpoint, DType, Remedy, Replace, Target, TensorInfo, check_output, write};
use serde_json::{Map, Value};

use crate::answer::{AcceptedLoss, Conversion, SCHEMA};
use crate::failure::Failure;
use crate::open::Opened;

/// What is written, and what it may cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConvertOptions {
    /// The format to write, where the ending of the file's name does not say.
    pub to: Option<Target>,
    /// The losses that are accepted; every other is refused.
    pub allow: Vec<Loss>,
}

/// What a conversion may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Tensors that share their bytes are written as copies.
    Untie,
    /// Quantised tensors become f32.
    Dequantize,
    /// Types that the target lacks become the next wider one: bf16 becomes f32, i16 becomes i64.
    Widen,
    /// Metadata and pickled objects that the target has no place for are left out.
    Metadata,
}

impl Loss {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untie => "untie",
            Self::Dequantize => "dequantize",
            Self::Widen => "widen",
            Self::Metadata => "metadata",
        }
    }
}

/// A loss that a conversion would bring, and what it would be.
struct Would {
    lose: Loss,
    what: String,
}

/// Writes a checkpoint in another format. What would be lost and is not accepted is refused, and nothing is written then.
///
/// ```
/// use attnscope::{ConvertOptions, Loss, convert};
///
/// let folder = std::env::temp_dir().join(format!("attnscope-convert-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let to = folder.join("demo.npz");
/// // NumPy's archives have no place for the config.
/// assert!(convert("demo", &to, &ConvertOptions::default()).is_err());
/// let allow = vec![Loss::Metadata, Loss::Untie, Loss::Widen];
/// let written = convert("demo", &to, &ConvertOptions { allow, ..ConvertOptions::default() })?;
/// assert_eq!(written.format, "npz");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Where the input cannot be read, the output cannot be written, or something would be lost that is not accepted.
pub fn convert(input: &str, output: &Path, options: &ConvertOptions) -> Result<Conversion, Failure> {
    let target = target(output, options.to)?;
    let opened = Opened::open(input, None)?;
    check_output(output, Replace::Nothing)?;
    let checkpoint = &opened.checkpoint;
    checkpoint.verify()?;
    let (metadata, clashes) = metadata(checkpoint, target);
    let mut losses = ties(checkpoint, target);
    losses.extend(leftovers(checkpoint, target, &metadata, &clashes));
    let mut entries = Vec::new();
    for tensor in checkpoint.tensors() {
        if target.holds(tensor.dtype) {
            entries.push(checkpoint.entry(tensor));
            continue;
        }
        losses.push(widening(input, tensor, target)?);
        entries.push(checkpoint.widened(tensor));
    }
    check(input, &losses, &options.allow)?;
    let metadata = if target.holds_metadata() { metadata } else { Map::new() };
    write(target, output, entries, &metadata)?;
    Ok(Conversion {
        schema: SCHEMA,
        input: input.to_owned(),
        output: output.display().to_string(),
        format: target.name().to_owned(),
        tensors: checkpoint.tensors().len(),
        losses: losses
            .into_iter()
            .map(|would| AcceptedLoss { loss: would.lose.name(), what: would.what })
            .collect(),
    })
}

fn target(output: &Path, to: Option<Target>) -> Result<Target, Failure> {
    let ending = output.extension().and_then(|e| e.to_str()).unwrap_or_default();
    match (to, ending) {
        (Some(target), _) => Ok(target),
        (None, "safetensors") => Ok(Target::Safetensors),
        (None, "apr") => Ok(Target::Apr),
        (None, "npz") => Ok(Target::Npz),
        (None, _) => Err(Failure::new(
            format!("{}: no format is known by this ending", output.display()),
            Remedy::OutputFormat,
        )),
    }
}

/// Refuses what was not allowed, all of it at once.
fn check(input: &str, losses: &[Would], allow: &[Loss]) -> Result<(), Failure> {
    let mut refused: Vec<&Would> = Vec::new();
    for loss in losses.iter().filter(|l| !allow.contains(&l.lose)) {
        if !refused.iter().any(|r| r.lose == loss.lose) {
            refused.push(loss);
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    let what: Vec<&str> = refused.iter().map(|l| l.what.as_str()).collect();
    let losses = refused.iter().map(|l| l.lose.name()).collect();
    Err(Failure::new(format!("{input}: {}", what.join("; ")), Remedy::AcceptLosses(losses)))
}

/// What it costs to write a tensor of a type that the target lacks, or why it cannot be written.
fn widening(input: &str, t: &TensorInfo, target: Target) -> Result<Would, Failure> {
    let refuse = |why: &str, remedy: Remedy| {
        Err(Failure::new(format!("{input}: tensor {:?} is {}, {why}", t.name, t.dtype), remedy))
    };
    match t.dtype {
        DType::Opaque { .. } => refuse("a type that is listed and not read", Remedy::TypeThatIsRead),
        DType::F64 | DType::I64 | DType::U64 => {
            refuse("which no type of the target holds exactly", "write another format".into())
        }
        dtype => {
            let lose = if dtype.is_plain() { Loss::Widen } else { Loss::Dequantize };
            let what = format!("tensor {:?} is {dtype}, which {} cannot hold", t.name, target.name());
            Ok(Would { lose, what })
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
