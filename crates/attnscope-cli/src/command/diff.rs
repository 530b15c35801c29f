//! `diff`: where two runs part, or two weight files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use attnscope_diagnose::diff::{
    DiffError, File, Known, NameMap, Options, Report, Side, TOLERANCE, compare, compare_weights,
};
use attnscope_diagnose::rounding::Precision;
use attnscope_render::diff::Party;
use attnscope_render::{diff, json};
use attnscope_run::Weights;
use clap::Args;

use super::{Output, OutputArgs, TextOrJson};
use crate::text_file::read_text;
use attnscope::Failure;
use attnscope::Opened;
use attnscope::{open_model, same_files};

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
    /// Names that belong together: a name of A and one of B (or a node's path) a line, in two columns or as TOML; a word
    /// in braces stands for the same on both sides, as in `enc.layer.{i}.attn = encoder.{i}.self_attn.out`
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// The model that was traced [default: the one that the trace names]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// With --model: the number of attention heads, where the file does not say
    #[arg(long, value_name = "N", requires = "model", value_parser = clap::value_parser!(u32).range(1..=65536))]
    heads: Option<u32>,
    /// The difference, in terms of a tensor's largest value, from which rounding that has grown step by step counts
    /// [default: not at all where every step was computed again and is rounding, 1e-4 elsewhere]
    #[arg(long, value_name = "X")]
    tolerance: Option<f64>,
    /// What the dump that is not a trace was computed in, where its values do not show it. Half precision shows: its values
    /// have few digits, whatever type they are stored in
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
    /// f32 with 11 digits of what enters a matrix product, as GPUs do by default for convolutions
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
        let output = Output::new(&self.output);
        if let Some(tolerance) = self.tolerance.filter(|x| !x.is_finite() || *x < 0.0) {
            return Err(Failure::new(
                format!("--tolerance {tolerance}: expected a number from 0 on"),
                "1e-4 is usual: a ten-thousandth of a tensor's largest value",
            ));
        }
        if self.checkpoint {
            return self.weights(&output);
        }
        let (a, b) = (open(&self.a)?, open(&self.b)?);
        let map = match &self.map {
            Some(file) => {
                NameMap::parse(file, &read_text(file, MOST_MAP_BYTES, "give a file of names, two a line")?)?
            }
            None => NameMap::default(),
        };
        let model = self.model(&a, &b, &output)?;
        let ready = match &model {
            Some(opened) => {
                let model = opened.model()?;
                Some((model, Weights::load(model, &opened.checkpoint)?))
            }
            None => None,
        };
        let options = Options {
            tolerance: self.tolerance.unwrap_or(TOLERANCE),
            strict: self.tolerance.is_some(),
            their_precision: self.their_precision.map(Precision::from),
            map,
        };
        let known = ready.as_ref().map(|(model, weights)| Known { model, weights });
        let compared = compare(&a, &b, known, &options);
        if let Err(DiffError::NothingMatched { proposal, .. }) = &compared
            && !proposal.is_empty()
        {
            output.note("no name fits, but this map may; read it before it is used");
            proposal.iter().for_each(|line| output.note(line));
        }
        let report = compared?;
        let party = |side: &Side| Party {
            path: side.path().display().to_string(),
            kind: side.kind().to_owned(),
            tensors: side.count(),
        };
        self.show(&report, &[party(&a), party(&b)], &output)
    }

    /// Two weight files.
    fn weights(&self, output: &Output<'_>) -> Result<ExitCode, Failure> {
        let opened = |path: &Path| Opened::open(&path.display().to_string(), None);
        let (a, b) = (opened(&self.a)?, opened(&self.b)?);
        let report = compare_weights(file(&a), file(&b))?;
        let party = |opened: &Opened| Party {
            path: opened.name.clone(),
            kind: opened.checkpoint.format().name().to_owned(),
            tensors: opened.checkpoint.tensors().len(),
        };
        self.show(&report, &[party(&a), party(&b)], output)
    }

    fn show(&self, report: &Report, parties: &[Party; 2], output: &Output<'_>) -> Result<ExitCode, Failure> {
        let text = match self.format {
            TextOrJson::Text => output.glyphs_text(&diff::text(report, parties, self.full, output.layout())),
            TextOrJson::Json => json::pretty(&diff::json(report, parties)),
        };
        output.write(&text)?;
        Ok(if report.differs() { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    /// The model that was given, or the one that a trace names, if it is still there and the same.
    fn model(&self, a: &Side, b: &Side, output: &Output<'_>) -> Result<Option<Opened>, Failure> {
        let heads = self.heads.and_then(|n| usize::try_from(n).ok());
        let Some(trace) = a.trace().or_else(|| b.trace()) else {
            return self.model.as_ref().map(|name| Opened::open(name, heads)).transpose();
        };
        if let Some(name) = &self.model {
            return open_model(trace, name, heads).map(Some);
        }
        let Some(name) = trace.model() else { return Ok(None) };
        match open_model(trace, name, heads) {
            Ok(opened) if same_files(&opened, trace).is_ok() => return Ok(Some(opened)),
            Ok(_) => output.note(&format!(
                "{name} has changed since it was traced, and is not used; --model gives another"
            )),
            Err(failure) => output
                .note(&format!("the model that was traced is not at hand ({failure}); --model gives it")),
        }
        Ok(None)
    }
}

/// What is not an encoder-decoder is compared by the names in the files.
fn file(opened: &Opened) -> File<'_> {
    File { checkpoint: &opened.checkpoint, model: opened.model().ok() }
}

fn open(path: &Path) -> Result<Side, Failure> {
    let absent = std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    Side::open(path).map_err(|e| match absent {
        false => Failure::new(e.to_string(), e.help()),
        true => Failure::new(
            format!("{}: no such file or folder", path.display()),
            "give two traces, or a trace and a dump; `attnscope trace --save DIR` makes a trace",
        ),
    })
}
