//! `audit`: a corpus measured, sentence by sentence and head by head; its shards joined, and two audits side by side.

use std::path::PathBuf;

use attnscope::corpus::{ColumnNames, Shard};
use attnscope::{AuditCorpus, AuditOptions, Device, Failure, Input, Limits, Progress};
use attnscope_render::audit;
use clap::{Args, Subcommand};

use super::input::device;
use super::progress::Bar;
use super::{ModelArgs, Output, OutputArgs, TextOrJson};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Audit {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Join the folders of all shards in a new folder
    Merge(Merge),
    /// Two audits side by side: two models, or two corpora
    Compare(Compare),
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    model: ModelArgs,
    /// Sources and targets: tab-separated lines, JSON lines or Parquet, plain or gzip
    #[arg(long, value_name = "FILE", group = "corpus")]
    pairs: Option<PathBuf>,
    /// Texts for a decoder-only model: a line each, JSON lines or Parquet
    #[arg(long, value_name = "FILE", group = "corpus")]
    text: Option<PathBuf>,
    /// Recordings and their transcripts for an audio model, as --pairs; names are relative to the file's folder
    #[arg(long, value_name = "FILE", group = "corpus")]
    audio: Option<PathBuf>,
    /// The folder for the parts, in Parquet
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the audit that is in --out: what is committed is not measured again
    #[arg(long)]
    resume: bool,
    /// Measure one of n shards, from 0: `--shard 2/8`; `audit merge` joins them
    #[arg(long, value_name = "I/N", value_parser = shard, default_value = "0/1")]
    shard: Shard,
    /// Columns of the corpus that are kept in the output, separated by commas. Tab-separated lines then have a header
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    keep: Vec<String>,
    /// Which columns hold what: `source=de,target=en`, or `text=body`; `a.b` is b within a
    #[arg(long, value_name = "SIDE=COLUMN", value_delimiter = ',', value_parser = named)]
    columns: Vec<(Side, String)>,
    /// Sum up by the values of a kept column, too
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// Write the source token of each target token, too
    #[arg(long)]
    alignments: bool,
    /// Measure only what sentences cost, not what heads and layers do
    #[arg(long)]
    no_measures: bool,
    /// Cut each side to so many tokens [default: the model's positions, or 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Rows of a part: what a run that is killed loses at most [default: 2048]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    part_rows: Option<u32>,
    /// The source's language, by the model's own code, for a multilingual model
    #[arg(long, value_name = "CODE")]
    src_lang: Option<String>,
    /// The target's language
    #[arg(long, value_name = "CODE")]
    tgt_lang: Option<String>,
    /// What the model runs on: `cpu`, or `reference` (plain loops in f64)
    #[arg(long, value_name = "NAME", default_value = "cpu", value_parser = device)]
    device: Device,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, Args)]
struct Merge {
    /// The folders of the shards
    #[arg(required = true)]
    shards: Vec<PathBuf>,
    /// The new folder
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Sum up by the values of a kept column, too
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, Args)]
struct Compare {
    /// The folder of an audit
    a: PathBuf,
    /// The folder of another
    b: PathBuf,
    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, Args)]
struct Shown {
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

/// What a column can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
    Text,
}

/// `2/8`
fn shard(text: &str) -> Result<Shard, String> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((index, count)) if index < count => Ok(Shard { index, count }),
        Some((index, count)) => {
            Err(format!("expected a number below {count} before the slash, found {index}"))
        }
        None => Err("expected a number, a slash and how many there are, as 0/4".into()),
    }
}

/// `source=de`
fn named(text: &str) -> Result<(Side, String), String> {
    let side = |name: &str| match name.trim() {
        "source" => Some(Side::Source),
        "target" => Some(Side::Target),
        "text" => Some(Side::Text),
        _ => None,
    };
    let parts = text.split_once('=').and_then(|(name, column)| Some((side(name)?, column.trim().to_owned())));
    parts
        .filter(|(_, column)| !column.is_empty())
        .ok_or_else(|| "expected source=, target= or text= and a column".into())
}

impl Audit {
    pub(super) fn run(&self) -> Result<(), Failure> {
        match &self.command {
            None => self.run.run(),
            Some(AuditCommand::Merge(merge)) => merge.run(),
            Some(AuditCommand::Compare(compare)) => compare.run(),
        }
    }
}

impl Run {
    fn run(&self) -> Result<(), Failure> {
        let corpus = match (&self.pairs, &self.text, &self.audio) {
            (Some(file), _, _) => AuditCorpus::Pairs(file.clone()),
            (_, Some(file), _) => AuditCorpus::Text(file.clone()),
            (_, _, Some(file)) => AuditCorpus::Audio(file.clone()),
            (None, None, None) => {
                let help = "give one with --pairs FILE, --text FILE or --audio FILE";
                return Err(Failure::new("there is no corpus to measure", help));
            }
        };
        let Some(out) = &self.out else {
            return Err(Failure::new("there is no folder to write to", "give one with --out DIR"));
        };
        let output = self.shown.output()?;
        let bar = Bar::new(!self.shown.output.quiet, "sentences");
        let progress = Progress::new(move |step| bar.show(step.done, step.total));
        // The bar is there as long as the model that holds it.
        let model = self.model.model()?.on(self.device);
        let model = model.with_limits(Limits { progress, ..Limits::default() });
        let answer = model.audit(&corpus, out, &self.options())?;
        drop(model);
        self.shown.audit(&output, &answer)
    }

    fn options(&self) -> AuditOptions {
        let column = |side: Side| {
            let named = self.columns.iter().rev().find(|(own, _)| *own == side);
            named.map(|(_, column)| column.clone())
        };
        let count = |n: Option<u32>| n.and_then(|n| usize::try_from(n).ok());
        AuditOptions {
            columns: ColumnNames {
                source: column(Side::Source),
                target: column(Side::Target),
                text: column(Side::Text),
                keep: self.keep.clone(),
            },
            languages: Input {
                source_language: self.src_lang.clone(),
                target_language: self.tgt_lang.clone(),
                ..Input::default()
            },
            measures: !self.no_measures,
            alignments: self.alignments,
            max_tokens: count(self.max_tokens),
            part_rows: count(self.part_rows),
            shard: self.shard,
            resume: self.resume,
            by: self.by.clone(),
        }
    }
}

impl Merge {
    fn run(&self) -> Result<(), Failure> {
        let output = self.shown.output()?;
        self.shown.audit(&output, &attnscope::merge_audits(&self.shards, &self.out, self.by.as_deref())?)
    }
}

impl Compare {
    fn run(&self) -> Result<(), Failure> {
        let output = self.shown.output()?;
        let answer = attnscope::compare_audits(&self.a, &self.b)?;
        match self.shown.format {
            TextOrJson::Text => output.write(&audit::comparison(&answer, output.layout())),
            TextOrJson::Json => output.write_json(&answer),
        }
    }
}

impl Shown {
    /// Where the summary goes; what may not be replaced is refused before work that takes long.
    fn output(&self) -> Result<Output<'_>, Failure> {
        Output::new(&self.output)
    }

    fn audit(&self, output: &Output<'_>, answer: &attnscope::answer::Audit) -> Result<(), Failure> {
        match self.format {
            TextOrJson::Text => output.write(&audit::text(answer, output.layout())),
            TextOrJson::Json => output.write_json(answer),
        }
    }
}
