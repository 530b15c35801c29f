//! `doctor`: what is wrong with a model, and why.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use attnscope::{DoctorOptions, Failure};
use attnscope_diagnose::{Diagnosis, Rule, Severity, Thresholds, rules};
use attnscope_render::findings::{Shown, text};
use attnscope_render::json::pretty;
use attnscope_render::sarif;
use clap::{Args, ValueEnum};

use super::input::{SourceArgs, TargetArgs};
use super::progress::Bar;
use super::{ModelArgs, Output, OutputArgs};
use crate::near::nearest;
use crate::thresholds_file::read_thresholds;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// Only these rules, with commas between
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    rules: Vec<String>,
    /// Print every number that was measured, head by head and sublayer by sublayer; JSON always has them
    #[arg(long)]
    measures: bool,
    /// The most seconds for trying repairs of the weights on the pairs (misconverted-weight); 0 tries none
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    repair_time: Duration,
    /// End with 1 when a finding is at least this bad
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Other numbers to decide by: a TOML file with keys such as `wiring_gain = 0.02`
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
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number.ok_or_else(|| "give a number of seconds, 0 or more".to_owned())
}

impl Doctor {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let output = Output::new(&self.output);
        let rules = self.picked()?;
        let thresholds = self.thresholds()?;
        let model = self.source.model(&self.model, Some(&self.target))?;
        let bar = Bar::new(!self.output.quiet, "other wirings and repairs");
        let answer = model.doctor(&DoctorOptions {
            pairs: self.source.pair_lines()?,
            input: self.source.input(Some(&self.target))?,
            rules,
            thresholds,
            repair_time: self.repair_time,
            progress: &|done, total| bar.show(done, total),
        })?;
        bar.clear();
        match self.format {
            Form::Text => output.write(&text(&answer, self.shown(), output.layout(), output.style())),
            Form::Json => output.write_json(&answer),
            Form::Sarif => output.write(&pretty(&sarif(&answer))),
        }?;
        self.exit(&answer.diagnosis)
    }

    fn shown(&self) -> Shown {
        if self.measures { Shown::EveryMeasure } else { Shown::Summary }
    }

    /// By what was found; and what was asked for by name and could not be checked is no success.
    fn exit(&self, diagnosis: &Diagnosis) -> Result<ExitCode, Failure> {
        let fails = match self.fail_on {
            FailOn::Error => diagnosis.reaches(Severity::Error),
            FailOn::Warning => diagnosis.reaches(Severity::Warning),
            FailOn::Info => diagnosis.reaches(Severity::Info),
            FailOn::Never => false,
        };
        match diagnosis.not_checked.first() {
            _ if fails => Ok(ExitCode::from(1)),
            Some((rule, missing)) if !self.rules.is_empty() => Err(Failure::new(
                format!("--rules {rule}: not checked: {}", missing.why),
                missing.how.clone(),
            )),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    fn picked(&self) -> Result<Vec<&'static Rule>, Failure> {
        if self.rules.is_empty() {
            return Ok(rules().to_vec());
        }
        let find = |id: &String| {
            rules().iter().copied().find(|rule| rule.id == id.trim()).ok_or_else(|| {
                let near = nearest(id, rules().iter().map(|rule| rule.id));
                Failure::new(
                    format!("--rules: there is no rule {id:?}"),
                    format!("the nearest are {}", near.join(", ")),
                )
            })
        };
        self.rules.iter().map(find).collect()
    }

    fn thresholds(&self) -> Result<Thresholds, Failure> {
        self.thresholds.as_deref().map_or_else(|| Ok(Thresholds::default()), read_thresholds)
    }
}
