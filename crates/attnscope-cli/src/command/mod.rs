//! The command line: one enum of commands, and how each is run.

mod audit;
mod check;
mod convert;
mod diff;
mod doctor;
mod evaluate;
mod explain;
mod flow;
mod generate;
mod input;
mod inspect;
mod interrupt;
mod limits;
mod masks;
mod notes;
mod output;
mod page_remedies;
mod predict;
mod progress;
mod remedies;
mod report;
mod serve;
mod shell;
mod summary;
mod tour;
mod trace;
mod train;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use attnscope::{Failure, Model, Outcome};
use output::Output;

/// A debugger for Transformers: open a checkpoint, recognise the model, see how data flows through it.
#[derive(Debug, Parser)]
#[command(name = "attnscope", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 fine; 1 a finding, a wrong claim or a difference; 2 could not do it (bad usage, a file that cannot be read or contradicts itself)."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    limits: limits::Limits,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What a checkpoint is: format, family, every fact with its source, what is missing
    Inspect(inspect::Inspect),
    /// Draw how data flows through the model, from the checkpoint's headers alone
    Flow(flow::Flow),
    /// A table of layers: shapes, parameters, multiply-adds, memory
    Summary(summary::Summary),
    /// Run the model on an input and show, print or save every tensor
    Trace(trace::Trace),
    /// Translate, transcribe or continue, and say which part of the source each word came from
    Generate(generate::Generate),
    /// The masks of a model for an input, and the proof that nothing leaks through them
    Masks(masks::Masks),
    /// Explain a tensor, one cell of it, an idea, a question or a rule, with the numbers of the given model
    Explain(explain::Explain),
    /// Check a worked example of attention, claim by claim, or a saved trace against its model
    Check(check::Check),
    /// Say what is wrong with a model, and why
    Doctor(doctor::Doctor),
    /// Measure a corpus, every sentence, head and layer, to Parquet; join shards; compare two models or corpora
    Audit(audit::Audit),
    /// Find where two runs diverge: two traces, or a trace and another program's dump
    Diff(diff::Diff),
    /// Everything above about a model and a run of it as one HTML file, which needs no network
    Report(report::Report),
    /// The same page, live, on a loopback port: type a source and see its run
    Serve(serve::Serve),
    /// Train a classifier or an encoder-decoder by a recipe, with attention watched while it learns
    Train(train::Train),
    /// Judge what was trained on a split that nothing was learned from
    Evaluate(evaluate::Evaluate),
    /// What a trained model makes of texts
    Predict(predict::Predict),
    /// Write a checkpoint in another format without losing a bit
    Convert(convert::Convert),
    /// A script that completes commands and options in a shell: `attnscope completions bash > FILE`
    Completions(shell::Completions),
    /// The manual, or that of a command, for `man`: `attnscope man | man -l -`
    Man(shell::Man),
}

/// The model that a command works on.
#[derive(Debug, Clone, Args)]
struct ModelArgs {
    /// A checkpoint file, a Hugging Face-style folder, the folder of a training run, or a built-in: `demo` (a trained model) or
    /// `toy` (random weights); where no values are needed also a recipe (.toml, or the name of a shipped one)
    #[arg(default_value = "demo")]
    model: String,
    /// The number of attention heads, where the file does not give it (or is wrong)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    heads: Option<u32>,
    /// The wiring, where the file does not give it (or is wrong): fields that `inspect` lists, as in
    /// `norm_place=pre,activation=gelu`
    #[arg(long, value_name = "FIELD=VALUE", value_delimiter = ',')]
    wiring: Vec<String>,
}

/// Where results go and how they look.
#[derive(Debug, Args)]
struct OutputArgs {
    /// Write the result to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace that file whatever it holds, but for models, tensors and inputs; without it, results of before that say so are
    /// replaced: JSON, SARIF, SVG, HTML, DOT, Mermaid
    #[arg(long, requires = "output")]
    force: bool,
    /// Columns of text output [default: the terminal's, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(60..=1000))]
    width: Option<u16>,
    /// Plain ASCII instead of Unicode drawing characters
    #[arg(long)]
    ascii: bool,
    /// Colour on a terminal, always, or never
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    color: Color,
    /// No notes on standard error
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TextOrJson {
    Text,
    Json,
}

impl OutputArgs {
    /// The default settings.
    fn usual() -> Self {
        Self { output: None, force: false, width: None, ascii: false, color: Color::Auto, quiet: false }
    }
}

impl ModelArgs {
    fn open(&self) -> Result<attnscope::Opened, Failure> {
        let mut opened = attnscope::Opened::open(&self.model, self.heads.map(|n| n as usize))?;
        opened.set_wiring(&self.wiring)?;
        Ok(opened)
    }

    fn model(&self) -> Result<Model, Failure> {
        Ok(self.open()?.into())
    }
}

/// Parses a command line, runs the command, reports what went wrong. Signals are its own from then on: a process calls it once.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    interrupt::watch();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(e) => {
            // --help and --version are not errors; everything else is bad usage.
            if !e.use_stderr() {
                let _ = e.print();
                return ExitCode::SUCCESS;
            }
            let _ = write!(std::io::stderr(), "{}", usage_error(&e, &arguments));
            return ExitCode::from(2);
        }
    };
    cli.limits.set();
    let fine = |()| ExitCode::SUCCESS;
    let result = match &cli.command {
        None => tour::run().map(fine),
        Some(Command::Inspect(c)) => c.run().map(fine),
        Some(Command::Flow(c)) => c.run().map(fine),
        Some(Command::Summary(c)) => c.run().map(fine),
        Some(Command::Trace(c)) => c.run().map(fine),
        Some(Command::Doctor(c)) => c.run(),
        Some(Command::Audit(c)) => c.run().map(fine),
        Some(Command::Explain(c)) => c.run().map(fine),
        Some(Command::Check(c)) => c.run(),
        Some(Command::Generate(c)) => c.run().map(fine),
        Some(Command::Diff(c)) => c.run(),
        Some(Command::Masks(c)) => c.run(),
        Some(Command::Report(c)) => c.run().map(fine),
        Some(Command::Serve(c)) => c.run().map(fine),
        Some(Command::Train(c)) => c.run(),
        Some(Command::Evaluate(c)) => c.run().map(fine),
        Some(Command::Predict(c)) => c.run().map(fine),
        Some(Command::Convert(c)) => c.run().map(fine),
        Some(Command::Completions(c)) => c.run().map(fine),
        Some(Command::Man(c)) => c.run().map(fine),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            let (error, help) = (remedies::error_line(&failure), remedies::words(&failure.remedy));
            let _ = writeln!(std::io::stderr(), "error: {}\nhelp: {}", line(&error), line(&help));
            ExitCode::from(2)
        }
    }
}

/// The exit code of what an answer comes to.
fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Fine => ExitCode::SUCCESS,
        Outcome::Found => ExitCode::from(1),
    }
}

/// What clap says of a command line, with its last line as the `help:` that every error ends with.
fn usage_error(error: &clap::Error, arguments: &[OsString]) -> String {
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = if coloured { error.render().ansi().to_string() } else { error.render().to_string() };
    let said = text.split("\nFor more information").next().unwrap_or(&text).trim_end();
    let help = match error.kind() {
        clap::error::ErrorKind::InvalidUtf8 => {
            "rename the file, or give a link to it, so that its name is UTF-8: `ln -s FILE model`".to_owned()
        }
        _ => format!("`{} --help` lists its options", command_name(arguments)),
    };
    format!("{said}\n\nhelp: {help}\n")
}

/// `attnscope diff` where the first word is a command.
fn command_name(arguments: &[OsString]) -> String {
    let first = arguments.get(1).and_then(|word| word.to_str());
    let known = first.filter(|word| Cli::command().find_subcommand(word).is_some());
    known.map_or_else(|| "attnscope".to_owned(), |word| format!("attnscope {word}"))
}

/// One line, without terminal control characters.
fn line(text: &str) -> String {
    attnscope_render::clean(text)
}
