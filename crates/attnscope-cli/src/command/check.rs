//! `check`: a worked example, claim by claim; or a saved trace against its own model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use attnscope_diagnose::worked::{Example, ExampleError, MOST_BYTES, judge, parse};
use attnscope_render::audit::AuditPage;
use attnscope_render::{json, worked};
use clap::Args;
use serde_json::{Value, json};

use super::{Output, OutputArgs, TextOrJson};
use crate::near::nearest;
use crate::text_file::read_text;
use attnscope::Failure;
use attnscope::Traced;

/// How a worked example is written: what `check --help` and examples/worked/README.md show.
const EXAMPLE: &str = r#"title = "two words, one head"
heads = 1
scale = "sqrt(d_head)"        # or "sqrt(d_model)", "none", or the number to divide by
mask = "none"                 # or "causal", or a matrix of 0 and "-inf"
tolerance = 0.006             # or decimals = 2; without either: to the last digit written

# X (and C, where queries come from it), W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O;
# or Q, K, V, products, scores, masked_scores, weights, context
[given]
X = [[-0.1, 0.1, 0.3], [0.4, -1.1, -0.3]]
W_V = [[-0.41, 0.39, -0.65], [-0.40, -0.07, -0.34], [-0.55, -0.13, -0.29]]

# Q, K, V, products (Q·Kᵀ), scores (scaled), masked_scores, weights, context, output
[claims]
V = [[-0.16, -0.09, -0.06], [0.44, 0.27, 0.20]]
"#;

fn format_help() -> String {
    format!(
        "A worked example:\n\n{EXAMPLE}\nVectors are rows: Q = X·W_Q. With several heads, a head's matrix is weights.0, \
         weights.1 and so on. In words, scale and squash = \"softmax\" can be claimed too. Without [claims] every step \
         is worked out and shown. More in examples/worked of the repository."
    )
}

#[derive(Debug, Args)]
#[command(after_long_help = format_help())]
pub(super) struct Check {
    /// Worked examples in TOML, - for standard input: what is given and, if there are any, the numbers that are claimed; --help
    /// shows how one is written. With --trace, the MODEL that was traced [default: the one that the trace names]
    #[arg(value_name = "FILE", required_unless_present = "trace")]
    files: Vec<PathBuf>,
    /// Compute every tensor of a saved trace again, in f64, from the tensors it was made of
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Check {
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let output = Output::new(&self.output);
        let right = match &self.trace {
            Some(folder) => self.check_trace(folder, &output)?,
            None => self.check_examples(&output)?,
        };
        Ok(if right { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// Whether every claim is right.
    fn check_examples(&self, output: &Output<'_>) -> Result<bool, Failure> {
        let (mut texts, mut values, mut right) = (Vec::new(), Vec::new(), true);
        let mut failures = Vec::new();
        for file in &self.files {
            let example = match read(file) {
                Ok(example) => example,
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            };
            let (name, judgement) = (file.display().to_string(), judge(&example));
            right &= judgement.is_right();
            match self.format {
                TextOrJson::Text => {
                    let text =
                        worked::example_text(&name, &example, &judgement, output.layout(), output.style());
                    // A title does not say which of the files it is in.
                    let titled = self.files.len() > 1 && !example.title.is_empty();
                    texts.push(if titled { format!("{name}\n{text}") } else { text });
                }
                TextOrJson::Json => values.push(worked::example_json(&name, &example, &judgement)),
            }
        }
        // One file that cannot be read takes nothing from the others.
        if failures.len() < self.files.len() {
            output.write(&match self.format {
                TextOrJson::Text => output.glyphs_text(&texts.join("\n\n")),
                TextOrJson::Json => {
                    json::pretty(&json!({ "schema": json::SCHEMA, "examples": Value::Array(values) }))
                }
            })?;
        }
        match failures.into_iter().reduce(both) {
            Some(failure) => Err(failure),
            None => Ok(right),
        }
    }

    /// Whether rounding explains every difference.
    fn check_trace(&self, folder: &Path, output: &Output<'_>) -> Result<bool, Failure> {
        let model = match self.files.as_slice() {
            [] => None,
            [model] => Some(model.display().to_string()),
            [_, second, ..] => {
                return Err(Failure::new(
                    format!("{}: with --trace, one MODEL is checked", second.display()),
                    "give check --trace DIR MODEL",
                ));
            }
        };
        let traced = Traced::open(folder, model.as_deref())?;
        let audit = traced.audit()?;
        if audit.checked.is_empty() {
            return Err(Failure::new(
                format!(
                    "{}: nothing could be checked: no tensor in it is there together with the tensors it is made of",
                    folder.display()
                ),
                "save the whole run: `attnscope trace MODEL --save DIR`, without --layer and --snapshots",
            ));
        }
        let page = AuditPage {
            trace: &folder.display().to_string(),
            model: &traced.opened.name,
            precision: traced.precision,
            graph: &traced.opened.model()?.graph,
            audit: &audit,
        };
        output.write(&match self.format {
            TextOrJson::Text => output.glyphs_text(&page.text(output.layout())),
            TextOrJson::Json => {
                let mut value = json!({ "schema": json::SCHEMA });
                if let (Value::Object(to), Value::Object(from)) = (&mut value, page.json()) {
                    to.extend(from);
                }
                json::pretty(&value)
            }
        })?;
        Ok(audit.checked.iter().all(|checked| !checked.beyond()))
    }
}

/// Two failures as one; the first's way out is the way to begin.
fn both(first: Failure, second: Failure) -> Failure {
    Failure::new(format!("{}; {}", first.error, second.error), first.help)
}

fn read(file: &Path) -> Result<Example, Failure> {
    let text = read_text(file, MOST_BYTES, "give a worked example in TOML")?;
    parse(&text).map_err(|e| failure(&file.display().to_string(), &e))
}

/// An example's error with its file, and for a name that is not known the nearest one.
fn failure(file: &str, e: &ExampleError) -> Failure {
    let line = e.line.map(|line| format!(":{line}")).unwrap_or_default();
    let help = match &e.unknown {
        Some(unknown) => match nearest(&unknown.name, unknown.known.iter().copied()).first() {
            Some(near) => format!("is it {near}? {}", e.help),
            None => e.help.clone(),
        },
        None => e.help.clone(),
    };
    Failure::new(format!("{file}{line}: {e}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_help_is_the_documents_and_right() {
        let example = parse(EXAMPLE).unwrap();
        assert!(judge(&example).is_right());
        // The help is wrapped at this width: a broken line would be no TOML.
        assert!(EXAMPLE.lines().all(|line| line.chars().count() <= 100));
        let document = include_str!("../../../../examples/worked/README.md");
        assert!(document.contains(EXAMPLE), "examples/worked/README.md shows another");
    }
}
