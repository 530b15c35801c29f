//! Where results go: standard output or a file, whole or not at all.

use std::io::{ErrorKind, IsTerminal, Write};

use attnscope_checkpoint::{Replace, check_output};
use attnscope_render::{Glyphs, Options, Style};

use super::{Color, OutputArgs};
use attnscope::answer::Answer;
use attnscope::{Failure, Note};

/// The settings of one command's output, worked out from flags, terminal and locale.
pub(super) struct Output<'a> {
    args: &'a OutputArgs,
}

impl<'a> Output<'a> {
    /// Refuses a file that may not be replaced now, before work that takes long.
    pub(super) fn new(args: &'a OutputArgs) -> Result<Self, Failure> {
        let output = Self { args };
        output.check()?;
        Ok(output)
    }

    pub(super) fn width(&self) -> usize {
        let from_env = || std::env::var("COLUMNS").ok().and_then(|c| c.parse::<usize>().ok());
        let detected = || from_env().or_else(terminal_width).filter(|&w| w > 0);
        match self.args.width {
            Some(width) => usize::from(width),
            None => detected().unwrap_or(100).clamp(60, 160),
        }
    }

    pub(super) fn glyphs(&self) -> Glyphs {
        if self.args.ascii || !locale_is_utf8() { Glyphs::Ascii } else { Glyphs::Unicode }
    }

    /// Text of several lines in the characters that the output can show. Colours are kept.
    pub(super) fn glyphs_text(&self, text: &str) -> String {
        self.glyphs().lines(text)
    }

    pub(super) fn style(&self) -> Style {
        let to_terminal = self.is_terminal();
        let color = match self.args.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => to_terminal && std::env::var_os("NO_COLOR").is_none(),
        };
        Style { color }
    }

    pub(super) fn layout(&self) -> Options {
        Options { width: self.width(), glyphs: self.glyphs(), ..Options::default() }
    }

    /// Prints the notes of the library.
    pub(super) fn listener(&self) -> impl Fn(&Note) + Send + Sync + 'static {
        let quiet = self.args.quiet;
        move |note| {
            if !quiet {
                super::notes::lines(note).iter().for_each(|line| say(line));
            }
        }
    }

    /// Writes an answer for programs.
    pub(super) fn write_json(&self, answer: &impl Answer) -> Result<(), Failure> {
        self.write(&answer.to_json().map_err(no_json)?)
    }

    /// An answer for a page: in one line.
    pub(super) fn json_line(&self, answer: &impl Answer) -> Result<String, Failure> {
        serde_json::to_string(answer).map_err(no_json)
    }

    /// Whether the result would be printed on a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.args.output.is_none() && std::io::stdout().is_terminal()
    }

    /// Refuses a file that may not be replaced.
    fn check(&self) -> Result<(), Failure> {
        let Some(path) = &self.args.output else { return Ok(()) };
        let replace = if self.args.force { Replace::Anything } else { Replace::Results };
        Ok(check_output(path, replace)?)
    }

    /// Writes the result: to a temporary name that is renamed when whole, or to standard output.
    pub(super) fn write(&self, text: &str) -> Result<(), Failure> {
        match &self.args.output {
            Some(path) => {
                // Again: by now it may be an input.
                self.check()?;
                let written = attnscope_checkpoint::write_file(path, |mut file| {
                    let failed =
                        |e| attnscope_checkpoint::Error::new(path, attnscope_checkpoint::ErrorKind::Write(e));
                    file.write_all(text.as_bytes()).map_err(failed)
                });
                Ok(written?)
            }
            None => match std::io::stdout().lock().write_all(text.as_bytes()) {
                // The reader closed the pipe, as in `attnscope flow | head`.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
                Err(e) => Err(Failure::new(format!("standard output: {e}"), "check where the output goes")),
                Ok(()) => Ok(()),
            },
        }
    }
}

fn no_json(e: serde_json::Error) -> Failure {
    Failure::new(format!("the answer: {e}"), "please report this")
}

fn say(note: &str) {
    let _ = writeln!(std::io::stderr(), "note: {}", super::line(note));
}

fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// A locale that is set and not UTF-8 gets ASCII; without a locale, Unicode.
fn locale_is_utf8() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    set.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
