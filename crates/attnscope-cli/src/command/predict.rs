//! `predict`: what a trained model makes of texts.

use std::path::PathBuf;

use attnscope::{Device, Failure};
use attnscope_render::training;
use clap::Args;

use super::{Output, OutputArgs, TextOrJson};
use crate::text_file::read_text;

/// More than anybody waits for.
const MOST_TEXT: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct Predict {
    /// A folder that `attnscope train --out` has written; its best weights are used
    folder: PathBuf,
    /// A text; may be given several times
    #[arg(long, value_name = "TEXT", required_unless_present = "text_file")]
    text: Vec<String>,
    /// A file with a text a line
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    text_file: Option<PathBuf>,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Predict {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output)?;
        let texts = match &self.text_file {
            Some(file) => {
                let text = read_text(file, MOST_TEXT, "give a file with a text a line, in UTF-8")?;
                text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
            }
            None => self.text.clone(),
        };
        let answer = attnscope::predict(&self.folder, &texts, Device::default())?;
        answer.notes.iter().for_each(output.listener());
        match self.format {
            TextOrJson::Text => output.write(&training::prediction_text(&answer, output.layout())),
            TextOrJson::Json => output.write_json(&answer),
        }
    }
}
