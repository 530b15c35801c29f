//! `diff`: where two runs, or two weight files, diverge.

use std::path::PathBuf;
use std::process::ExitCode;

use attnscope::answer::Difference;
use attnscope::{DiffOptions, Failure, Limits, diff_noting, diff_weights};
use attnscope_diagnose::diff::NameMap;
use attnscope_diagnose::rounding::Precision;
use attnscope_render::diff;
use clap::Args;

use super::{Output, OutputArgs, TextOrJson};
use crate::text_file::read_text;

/// More than any map of names.
const MOST_MAP_BYTES: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// A trace (the folder of `trace --save`), or a dump of another program: a folder or archive of .npy, .npz,
    /// .safetensors or .pt, the output of Hugging Face's model debugger, Polygraphy's saved outputs, JSON
    a: PathBuf,
    /// What it is compared with, in any of these forms
    b: PathBuf,
    /// A and B are weight files or models: compare their weights
    #[arg(long, conflicts_with_all = ["map", "model", "tolerance"])]
    checkpoint: bool,
    /// Names that belong together: one name of A and one of B (or a node's path) per line, in two columns or as TOML; a word
    /// in braces stands for the same on both sides, as in `enc.layer.{i}.attn = encoder.{i}.self_attn.out`
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// The model that was traced [default: the one that the trace names]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// With --model: the number of attention heads, where the file does not say
    #[arg(long, value_name = "N", requires = "model", value_parser = clap::value_parser!(u32).range(1..=65536))]
    heads: Option<u32>,
    /// The difference, relative to a tensor's largest value, from which accumulated rounding counts [default: never where every
    /// step was computed again and is rounding, else 1e-4]
    #[arg(long, value_name = "X")]
    tolerance: Option<f64>,
    /// The precision of the dump, where its values do not show it. Half precision is recognised: its values have few digits,
    /// whatever type stores them
    #[arg(long, value_enum, value_name = "TYPE", conflicts_with = "checkpoint")]
    their_precision: Option<TheirPrecision>,
    /// Every compared node, not only those around the first divergence
    #[arg(long)]
    full: bool,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

/// The type that another program computed in.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TheirPrecision {
    /// Single precision throughout
    F32,
    /// f32 with 11 bits for the operands of matrix products, as GPUs do by default for convolutions
    Tf32,
    /// bfloat16
    Bf16,
    /// IEEE half precision
    Fp16,
}

impl From<TheirPrecision> for Precision {
    fn from(precision: TheirPrecision) -> Self {
        match precision {
            TheirPrecision::F32 => Self::F32,
            TheirPrecision::Tf32 => Self::TF32,
            TheirPrecision::Bf16 => Self::BF16,
            TheirPrecision::Fp16 => Self::F16,
        }
    }
}

impl Diff {
    /// 0 where the two agree, 1 where they do not.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let output = Output::new(&self.output)?;
        if self.checkpoint {
            return self.show(&diff_weights(&self.a, &self.b, &Limits::default())?, &output);
        }
        let map = match &self.map {
            Some(file) => {
                NameMap::parse(file, &read_text(file, MOST_MAP_BYTES, "give a file of names, two per line")?)?
            }
            None => NameMap::default(),
        };
        let options = DiffOptions {
            model: self.model.clone(),
            heads: self.heads.and_then(|n| usize::try_from(n).ok()),
            map,
            tolerance: self.tolerance,
            their_precision: self.their_precision.map(Precision::from),
            limits: Limits::default(),
        };
        self.show(&diff_noting(&self.a, &self.b, &options, output.listener())?, &output)
    }

    fn show(&self, answer: &Difference, output: &Output<'_>) -> Result<ExitCode, Failure> {
        match self.format {
            TextOrJson::Text => output.write(&diff::text(answer, self.full, output.layout())),
            TextOrJson::Json => output.write_json(answer),
        }?;
        Ok(super::exit(answer.outcome()))
    }
}
