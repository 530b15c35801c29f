//! `check`: a worked example, claim by claim; or a saved trace against its own model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use attnscope_diagnose::worked::{Example, ExampleError, MOST_BYTES, judge, parse};
use attnscope_render::{json, worked};
use clap::Args;
use serde_json::{Value, json};

use super::{Output, OutputArgs, TextOrJson};
use crate::failure::Failure;
use crate::near::nearest;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Worked examples in TOML: what is given and, if there are any, the numbers that are claimed
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Check {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let output = Output::new(&self.output);
        // A file that cannot be read is said before any result.
        let examples =
            self.files.iter().map(|file| Ok((file, read(file)?))).collect::<Result<Vec<_>, Failure>>()?;
        let (mut texts, mut values, mut right) = (Vec::new(), Vec::new(), true);
        for (file, example) in &examples {
            let name = file.display().to_string();
            let judgement = judge(example);
            right &= judgement.is_right();
            match self.format {
                TextOrJson::Text => {
                    texts.push(worked::example_text(
                        &name,
                        example,
                        &judgement,
                        output.layout(),
                        output.style(),
                    ));
                }
                TextOrJson::Json => values.push(worked::example_json(&name, example, &judgement)),
            }
        }
        output.write(&match self.format {
            TextOrJson::Text => output.glyphs_text(&texts.join("\n\n")),
            TextOrJson::Json => {
                json::pretty(&json!({ "schema": json::SCHEMA, "examples": Value::Array(values) }))
            }
        })?;
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

fn read(file: &Path) -> Result<Example, Failure> {
    let name = file.display();
    let refused = |why: String| Failure::new(format!("{name}: {why}"), "give a worked example in TOML");
    let size = std::fs::metadata(file).map_err(|e| refused(e.to_string()))?.len();
    if size > MOST_BYTES {
        return Err(refused(format!("expected at most {MOST_BYTES} bytes, found {size}")));
    }
    let bytes = std::fs::read(file).map_err(|e| refused(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|e| refused(format!("expected UTF-8: {e}")))?;
    parse(&text).map_err(|e| failure(&name.to_string(), &e))
}

/// An example's error with its file, and for a name that is not known the nearest one.
fn failure(file: &str, e: &ExampleError) -> Failure {
    let line = e.line.map(|line| format!(":{line}")).unwrap_or_default();
    let help = match &e.unknown {
        Some((name, known)) => match nearest(name, known.iter().copied()).first() {
            Some(near) => format!("is it {near}? {}", e.help),
            None => e.help.clone(),
        },
        None => e.help.clone(),
    };
    Failure::new(format!("{file}{line}: {e}"), help)
}
