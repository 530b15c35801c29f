//! `check`: a worked example, claim by claim; or a saved trace against its own model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use attnscope::answer::WorkedExamples;
use attnscope::{Failure, Limits, Outcome, check_example, check_trace};
use attnscope_diagnose::worked::MOST_BYTES;
use attnscope_render::{trace_check, worked};
use clap::Args;

use super::remedies::error_line;
use super::{Output, OutputArgs, TextOrJson};
use crate::text_file::read_text;

/// The format of a worked example, as shown by `check --help` and examples/worked/README.md.
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
         weights.1 and so on. In words, scale and squash = \"softmax\" can be claimed, too. Without [claims] every \
         step is computed and shown. More in examples/worked of the repository."
    )
}

#[derive(Debug, Args)]
#[command(after_long_help = format_help())]
pub(super) struct Check {
    /// Worked examples in TOML, - for standard input: given matrices and, if there are any, claimed numbers; --help shows the
    /// format. With --trace, the MODEL that was traced [default: the one that the trace names]
    #[arg(value_name = "FILE", required_unless_present = "trace")]
    files: Vec<PathBuf>,
    /// Compute every tensor of a saved trace again, in f64, from its inputs
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
        let output = Output::new(&self.output)?;
        let outcome = match &self.trace {
            Some(folder) => self.check_trace(folder, &output)?,
            None => self.check_examples(&output)?,
        };
        Ok(super::exit(outcome))
    }

    fn check_examples(&self, output: &Output<'_>) -> Result<Outcome, Failure> {
        let mut answer = WorkedExamples { of_many: self.files.len() > 1, ..WorkedExamples::default() };
        let mut failures = Vec::new();
        for file in &self.files {
            let text = read_text(file, MOST_BYTES, "give a worked example in TOML");
            match text.and_then(|text| check_example(&file.display().to_string(), &text)) {
                Ok(judged) => answer.examples.push(judged),
                Err(failure) => failures.push(failure),
            }
        }
        // One unreadable file does not prevent the check of the others.
        if !answer.examples.is_empty() {
            match self.format {
                TextOrJson::Text => output.write(&worked::text(&answer, output.layout(), output.style())),
                TextOrJson::Json => output.write_json(&answer),
            }?;
        }
        match failures.into_iter().reduce(both) {
            Some(failure) => Err(failure),
            None => Ok(answer.outcome()),
        }
    }

    fn check_trace(&self, folder: &Path, output: &Output<'_>) -> Result<Outcome, Failure> {
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
        let answer = check_trace(folder, model.as_deref(), &Limits::default())?;
        match self.format {
            TextOrJson::Text => output.write(&trace_check::text(&answer, output.layout())),
            TextOrJson::Json => output.write_json(&answer),
        }?;
        Ok(answer.outcome())
    }
}

/// Two failures as one, with the remedy of the first.
fn both(first: Failure, second: Failure) -> Failure {
    Failure::new(format!("{}; {}", error_line(&first), error_line(&second)), first.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_help_is_the_documents_and_right() {
        assert!(check_example("help", EXAMPLE).unwrap().judgement.is_right());
        // The help is wrapped at this width: a broken line would not be TOML.
        assert!(EXAMPLE.lines().all(|line| line.chars().count() <= 100));
        let document = include_str!("../../../../examples/worked/README.md");
        assert!(document.contains(EXAMPLE), "examples/worked/README.md shows another");
    }
}
