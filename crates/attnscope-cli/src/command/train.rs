//! `train`: a classifier or an encoder-decoder, by a recipe, with attention watched while it learns.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use attnscope::answer::RunEnd;
use attnscope::training::{Metric, StepReport, TrainWatcher};
use attnscope::{Failure, TrainOptions};
use attnscope_render::training;
use clap::Args;

use super::progress::drawn;
use super::{Output, OutputArgs, TextOrJson, interrupt};

#[derive(Debug, Args)]
pub(super) struct Train {
    /// A recipe's file (.toml), or the name of a shipped one: toy, imdb-rnn, imdb-bilstm, imdb-mlp, imdb-conv,
    /// imdb-conv-maxpool, imdb-attention, multi30k-en-de
    recipe: String,
    /// The data: JSON lines, CSV, tab-separated pairs, the aclImdb folder, or a folder with the recipe's files; plain or gzip
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// The run's folder: recipe, metrics, curves, the latest and the best weights
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Go on where the run in --out stopped; it ends with the same bits as one that never stopped
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Begin with the weights and the tokenizer of a model that attnscope opens
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "resume")]
    init: Option<String>,
    /// Pass over bad rows, and count them
    #[arg(long)]
    skip_bad: bool,
    /// What weights, order and dropout are drawn from [default: the recipe's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// So many steps, in place of the recipe's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Say what it would take, and train nothing
    #[arg(long)]
    dry_run: bool,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

/// What a process ends with that was interrupted, as shells have it.
const INTERRUPTED: u8 = 130;

impl Train {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let output = Output::new(&self.output)?;
        let recipe = attnscope::recipe(&self.recipe)?;
        let mut options = TrainOptions {
            data: self.data.clone(),
            skip_bad: self.skip_bad,
            resume: self.resume,
            init: self.init.clone(),
            seed: self.seed,
            steps: self.steps,
            ..TrainOptions::default()
        };
        let Some(folder) = self.out.as_ref().filter(|_| !self.dry_run) else {
            let plan = attnscope::plan_training(&self.recipe, recipe, &options)?;
            match self.format {
                TextOrJson::Text => output.write(&training::plan_text(&plan, output.layout()))?,
                TextOrJson::Json => output.write_json(&plan)?,
            }
            return Ok(ExitCode::SUCCESS);
        };
        options.stop = interrupt::stop_first(
            "note: interrupted: the step under way is finished and saved; a second signal ends at once\n",
        );
        let mut watcher = Watcher {
            line: ProgressLine::new(!self.output.quiet),
            title: self.recipe.clone(),
            folder,
            warned: 0,
            quiet: self.output.quiet,
        };
        let answer = attnscope::train(&self.recipe, recipe, folder, &options, &mut watcher)?;
        watcher.draw(&answer.metrics);
        drop(watcher);
        match self.format {
            TextOrJson::Text => output.write(&training::text(&answer, output.layout()))?,
            TextOrJson::Json => output.write_json(&answer)?,
        }
        Ok(match answer.ended {
            RunEnd::Interrupted => ExitCode::from(INTERRUPTED),
            RunEnd::Diverged => ExitCode::from(1),
            _ if answer.has_warnings() => ExitCode::from(1),
            _ => ExitCode::SUCCESS,
        })
    }
}

/// Shows progress, says what monitors say, and draws the curves.
struct Watcher<'a> {
    line: ProgressLine,
    title: String,
    folder: &'a Path,
    warned: usize,
    quiet: bool,
}

impl TrainWatcher for Watcher<'_> {
    fn stepped(&mut self, report: &StepReport) {
        self.line.show(report);
    }

    fn measured(&mut self, metrics: &[Metric]) {
        let warnings = metrics.iter().filter_map(|line| match line {
            Metric::Warning(warning) => Some(warning),
            _ => None,
        });
        for warning in warnings.skip(self.warned) {
            self.warned += 1;
            self.line.clear();
            if !self.quiet {
                let _ = writeln!(
                    std::io::stderr(),
                    "warning: step {}: {}",
                    warning.step,
                    super::line(&warning.says)
                );
            }
        }
        if let Some(Metric::Validation(validation)) = metrics.last() {
            self.line.bleu = validation.bleu;
        }
        if matches!(metrics.last(), Some(Metric::Validation(_) | Metric::Monitor(_))) {
            self.draw(metrics);
        }
    }
}

impl Watcher<'_> {
    /// Curves are for looking at: where they cannot be written, learning goes on.
    fn draw(&self, metrics: &[Metric]) {
        let _ = training::write_curves(self.folder, &self.title, metrics);
    }
}

/// A line on standard error that says how far a run is; only on a terminal.
struct ProgressLine {
    visible: bool,
    written: Option<Instant>,
    /// Of the last validation.
    bleu: Option<f64>,
}

/// Cells of its bar: the numbers beside it need the room.
const CELLS: usize = 12;

/// How often the line is written anew.
const PAUSE: Duration = Duration::from_millis(200);

impl ProgressLine {
    fn new(wanted: bool) -> Self {
        Self { visible: wanted && std::io::stderr().is_terminal(), written: None, bleu: None }
    }

    fn show(&mut self, report: &StepReport) {
        if !self.visible || self.written.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.written = Some(Instant::now());
        let bleu = self.bleu.map(|bleu| format!(" · BLEU {bleu:.1}")).unwrap_or_default();
        let _ = write!(
            std::io::stderr(),
            "\r{} · step {} of {} · loss {:.3} · {:.1} % right{bleu} · {:.0} tokens/s · {} left\x1b[K",
            drawn(report.step as usize, report.steps as usize, CELLS),
            report.step,
            report.steps,
            report.loss,
            100.0 * report.accuracy,
            report.tokens_per_second,
            training::duration(report.seconds_left)
        );
    }

    fn clear(&mut self) {
        if self.written.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}
