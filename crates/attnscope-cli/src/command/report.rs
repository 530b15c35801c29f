//! `report`: a model and a run of it as one HTML file.

use std::path::PathBuf;
use std::time::Duration;

use attnscope::answer::Difference;
use attnscope::{
    DiffOptions, DoctorOptions, Failure, Limits, Model, PairLines, Progress, ReportOptions, RunOptions,
    TraceOptions,
};
use attnscope_render::audit_page;
use attnscope_render::html::{self, Place};
use clap::{Args, ValueEnum};

use super::doctor::seconds;
use super::flow::layout_failed;
use super::input::{SourceArgs, TargetArgs};
use super::progress::Bar;
use super::{ModelArgs, Output, OutputArgs, remedies};

#[derive(Debug, Args)]
pub(super) struct Report {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// The row of the batch that pictures show
    #[arg(long, value_name = "N", default_value_t = 0)]
    row: usize,
    /// Another run of the same model on the same input, a trace or another program's dump: where it parts from this one
    #[arg(long, value_name = "RUN")]
    diff: Option<PathBuf>,
    /// The folder of a training run: its curves
    #[arg(long, value_name = "DIR")]
    train: Option<PathBuf>,
    /// The folder of an audit: the page shows the corpus that was measured, and nothing is run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "diff", "train", "doctor_pairs"])]
    audit: Option<PathBuf>,
    /// A column that the audit kept: the page sums up by its values, too
    #[arg(long, value_name = "COLUMN", requires = "audit")]
    by: Option<String>,
    /// Pairs that the doctor judges the model on [default: demo has its own; other models are judged on the input]
    #[arg(long, value_name = "FILE")]
    doctor_pairs: Option<PathBuf>,
    /// The most seconds that the doctor tries repairs of the weights, and other wirings of audio models
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    repair_time: Duration,
    /// One HTML file for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Html)]
    format: Form,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Html,
    Json,
}

impl Report {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output)?;
        if self.format == Form::Html && output.is_terminal() {
            let help = "give --output report.html, or send it on: attnscope report ... > report.html";
            return Err(Failure::new("a terminal cannot show the page, which is HTML", help));
        }
        if let Some(folder) = &self.audit {
            let answer = attnscope::read_audit(folder, self.by.as_deref(), 0)?;
            return match self.format {
                Form::Html => output.write(&audit_page::page(&answer)),
                Form::Json => output.write_json(&answer),
            };
        }
        let model = self.source.model(&self.model, Some(&self.target))?.on_note(output.listener());
        let bar = Bar::new(!self.output.quiet, "report");
        let progress = Progress::new(move |step| bar.show(step.done, step.total));
        // The bar is there as long as the model that holds it.
        let model = model.with_limits(Limits { progress, ..Limits::default() });
        let input = self.source.input(Some(&self.target))?;
        let report = model.report(ReportOptions {
            run: Some(RunOptions { input: input.clone(), row: self.row }),
            doctor: Some(self.doctor(&model, input)?),
            diff: self.difference(&model)?,
            training: self.train.clone(),
        })?;
        drop(model);
        if self.format == Form::Json {
            return output.write_json(&report);
        }
        let json = output.json_line(&report)?;
        let commands = self.commands();
        let page = html::report(&report, &json, Place::File { commands: &commands });
        output.write(&page.map_err(layout_failed)?)
    }

    /// What the model is judged on: given pairs, the demo's own, or the input.
    fn doctor(&self, model: &Model, input: attnscope::Input) -> Result<DoctorOptions, Failure> {
        let usual = DoctorOptions {
            repair_time: self.repair_time,
            words: remedies::words,
            ..DoctorOptions::default()
        };
        Ok(match &self.doctor_pairs {
            Some(file) => {
                let lines = attnscope_run::read_pairs(crate::text_file::opened_as(file))?;
                DoctorOptions { pairs: PairLines { lines, file: file.clone() }, ..usual }
            }
            None if model.opened().name == "demo" => usual,
            None => DoctorOptions { input, ..usual },
        })
    }

    /// This run compared with the other. A comparison reads traces, so that this one is written for as long as it takes.
    fn difference(&self, model: &Model) -> Result<Option<Difference>, Failure> {
        let Some(other) = &self.diff else { return Ok(None) };
        let failed = |e: std::io::Error| {
            Failure::new(
                format!("a folder for this run: {e}"),
                "check that the folder of temporary files can be written to",
            )
        };
        let folder = tempfile::tempdir().map_err(failed)?;
        let own = folder.path().join("run");
        let options = TraceOptions { save: Some(own.clone()), row: self.row, ..TraceOptions::default() };
        // Nobody needs to know of a folder that is gone when this ends.
        let quiet = model.clone().on_note(|_| ());
        quiet.trace(&self.source.input(Some(&self.target))?, options)?;
        let options = DiffOptions {
            model: Some(self.model.model.clone()),
            heads: self.model.heads.map(|n| n as usize),
            limits: model.limits().clone(),
            ..DiffOptions::default()
        };
        let mut difference = attnscope::diff(&own, other, &options)?;
        difference.parties[0].path = format!("this run of {}", self.model.model);
        Ok(Some(difference))
    }

    /// Commands that show what the file has no room for, as a user would type them.
    fn commands(&self) -> String {
        let given: Vec<String> = self.source.given().into_iter().chain(self.target.given()).collect();
        let given = given.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ");
        let model = quoted(&self.model.model);
        let heads = self.model.heads.map(|n| format!(" --heads {n}")).unwrap_or_default();
        let wiring = match self.model.wiring.is_empty() {
            true => String::new(),
            false => format!(" --wiring {}", quoted(&self.model.wiring.join(","))),
        };
        let about = format!("{model}{heads}{wiring} {given}");
        let about = about.trim_end();
        serde_json::json!({
            "explain": format!("attnscope explain {{node}} {about} --at {{at}}"),
            "trace": format!("attnscope trace {about} --layer {{node}} --payload"),
            "keep": format!("attnscope trace {about} --layer {{node}} --save DIR"),
            "save": format!("attnscope trace {about} --save DIR"),
            "masks": format!("attnscope masks {about}"),
            "align": format!("attnscope generate {about} --align"),
        })
        .to_string()
    }
}

/// An argument as a shell reads it back.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn arguments_survive_a_shell() {
        assert_eq!(quoted("--src"), "--src");
        assert_eq!(quoted("It's a dog."), r"'It'\''s a dog.'");
        assert_eq!(quoted("$(rm -r /)"), "'$(rm -r /)'");
        assert_eq!(quoted(""), "''");
    }
}
