//! The command line: one enum of commands, one way to run each.

mod check;
mod convert;
mod diff;
mod doctor;
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
mod progress;
mod summary;
mod tour;
mod trace;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use attnscope::{Failure, Model};
use output::Output;

/// A debugger for encoder-decoder Transformers: open a checkpoint, know the model, see how data flows through it.
#[derive(Debug, Parser)]
#[command(name = "attnscope", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 fine; 1 a finding, a wrong claim or a difference; 2 could not do it (bad usage, a file that cannot be read or believed)."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    limits: limits::Limits,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What a checkpoint is: format, family, every fact and who says so, what is missing
    Inspect(inspect::Inspect),
    /// Draw how data flows through the model, from the checkpoint's headers alone
    Flow(flow::Flow),
    /// A table of layers: shapes, parameters, multiply-adds, memory
    Summary(summary::Summary),
    /// Run the model on an input and show, print or keep every tensor
    Trace(trace::Trace),
    /// Translate or transcribe, and say which part of the source each word came from
    Generate(generate::Generate),
    /// The three masks of a model for an input, and the proof that nothing leaks past them
    Masks(masks::Masks),
    /// Explain a tensor, one cell of it, an idea, a question or a rule, with the numbers of the model at hand
    Explain(explain::Explain),
    /// Check a worked example of attention, claim by claim, or a saved trace against its model
    Check(check::Check),
    /// Say what is wrong with a model, and why
    Doctor(doctor::Doctor),
    /// Say where two runs part: two traces, or a trace and another program's dump
    Diff(diff::Diff),
    /// Write a checkpoint in another format without losing a bit
    Convert(convert::Convert),
}

/// The model that a command works on.
#[derive(Debug, Clone, Args)]
struct ModelArgs {
    /// A checkpoint file, a Hugging Face-style folder, or a built-in: `demo` (a trained model) or `toy` (random weights)
    #[arg(default_value = "demo")]
    model: String,
    /// The number of attention heads, where the file does not say (or says it wrongly)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    heads: Option<u32>,
    /// How the parts are joined, where the file does not say (or says it wrongly): fields that `inspect` lists, as in
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

/// Parses the command line, runs the command, reports what went wrong.
pub(crate) fn main() -> ExitCode {
    interrupt::watch();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // --help and --version are not errors; everything else is bad usage.
            if !e.use_stderr() {
                let _ = e.print();
                return ExitCode::SUCCESS;
            }
            let _ = write!(std::io::stderr(), "{}", usage_error(&e));
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
        Some(Command::Explain(c)) => c.run().map(fine),
        Some(Command::Check(c)) => c.run(),
        Some(Command::Generate(c)) => c.run().map(fine),
        Some(Command::Diff(c)) => c.run(),
        Some(Command::Masks(c)) => c.run(),
        Some(Command::Convert(c)) => c.run().map(fine),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            let _ =
                writeln!(std::io::stderr(), "error: {}\nhelp: {}", line(&failure.error), line(&failure.help));
            ExitCode::from(2)
        }
    }
}

/// What clap says of a command line, with its last line as the `help:` that every error ends with.
fn usage_error(error: &clap::Error) -> String {
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = if coloured { error.render().ansi().to_string() } else { error.render().to_string() };
    let said = text.split("\nFor more information").next().unwrap_or(&text).trim_end();
    let help = match error.kind() {
        clap::error::ErrorKind::InvalidUtf8 => {
            "rename the file, or give a link to it, so that its name is UTF-8: `ln -s FILE model`".to_owned()
        }
        _ => format!("`{} --help` says what it takes", command_name()),
    };
    format!("{said}\n\nhelp: {help}\n")
}

/// `attnscope diff` where the first word is a command.
fn command_name() -> String {
    let first = std::env::args_os().nth(1).and_then(|word| word.into_string().ok());
    let known = first.filter(|word| Cli::command().find_subcommand(word).is_some());
    known.map_or_else(|| "attnscope".to_owned(), |word| format!("attnscope {word}"))
}

/// One line, with nothing in it that a terminal would obey.
fn line(text: &str) -> String {
    attnscope_render::clean(text)
}
