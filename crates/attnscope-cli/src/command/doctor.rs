//! `doctor`: what is wrong with a model, and why.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use attnscope::{DoctorOptions, Failure, Limits, Progress, rules_named};
use attnscope_diagnose::{Severity, Thresholds};
use attnscope_render::findings::{Shown, text};
use attnscope_render::sarif;
use clap::{Args, ValueEnum};

use super::input::{SourceArgs, TargetArgs};
use super::progress::Bar;
use super::remedies;
use super::{ModelArgs, Output, OutputArgs};
use crate::thresholds_file::read_thresholds;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Only these rules, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    rules: Vec<String>,
    /// Print every number that was measured, head by head and sublayer by sublayer; JSON always has them
    #[arg(long)]
    measures: bool,
    /// The most seconds for trying repairs of the weights on the pairs (misconverted-weight), and other wirings of audio
    /// models; 0 tries none
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    repair_time: Duration,
    /// End with 1 when a finding is at least this bad
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Other thresholds: a TOML file with keys such as `wiring_gain = 0.02`
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    /// Text for people, JSON for programs, SARIF for code hosts
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    format: Form,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Error,
    Warning,
    Info,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
    Sarif,
}

/// Seconds, whole or not.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number.ok_or_else(|| "give a number of seconds, 0 or more".to_owned())
}

impl Doctor {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let output = Output::new(&self.output)?;
        let rules = rules_named(&self.rules)?;
        let thresholds = self.thresholds()?;
        let model = self.source.model(&self.model, Some(&self.target))?;
        let bar = Bar::new(!self.output.quiet, "other wirings and repairs");
        let progress = Progress::new(move |step| bar.show(step.done, step.total));
        // The bar is there as long as the model that holds it.
        let model = model.with_limits(Limits { progress, ..Limits::default() });
        let answer = model.doctor(&DoctorOptions {
            pairs: self.source.pair_lines()?,
            input: self.source.input(Some(&self.target))?,
            rules,
            thresholds,
            repair_time: self.repair_time,
            words: remedies::words,
        })?;
        drop(model);
        match self.format {
            Form::Text => output.write(&text(&answer, self.shown(), output.layout(), output.style())),
            Form::Json => output.write_json(&answer),
            Form::Sarif => output.write(&sarif(&answer)),
        }?;
        Ok(super::exit(answer.outcome(self.least(), &self.rules)?))
    }

    fn shown(&self) -> Shown {
        if self.measures { Shown::EveryMeasure } else { Shown::Summary }
    }

    /// The least severity that counts.
    fn least(&self) -> Option<Severity> {
        match self.fail_on {
            FailOn::Error => Some(Severity::Error),
            FailOn::Warning => Some(Severity::Warning),
            FailOn::Info => Some(Severity::Info),
            FailOn::Never => None,
        }
    }

    fn thresholds(&self) -> Result<Thresholds, Failure> {
        self.thresholds.as_deref().map_or_else(|| Ok(Thresholds::default()), read_thresholds)
    }
}
