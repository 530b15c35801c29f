//! `evaluate`: what a trained model is worth on a split that nothing was learned from.

use std::path::PathBuf;

use attnscope::{Device, Failure};
use attnscope_render::training;
use clap::Args;

use super::progress::Bar;
use super::{Output, OutputArgs, TextOrJson};

#[derive(Debug, Args)]
pub(super) struct Evaluate {
    /// A folder that `attnscope train --out` has written; its best weights are judged
    folder: PathBuf,
    /// The data: of a file with splits, the test split; of one without, every row
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Pass over bad rows, and count them
    #[arg(long)]
    skip_bad: bool,
    /// Text for people, JSON for programs
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Evaluate {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let output = Output::new(&self.output)?;
        let bar = Bar::new(!self.output.quiet, "evaluating");
        let progress = |done: usize, all: usize| bar.show(done, all);
        let data = self.data.as_deref();
        let answer = attnscope::evaluate(&self.folder, data, self.skip_bad, Device::default(), &progress)?;
        drop(bar);
        match self.format {
            TextOrJson::Text => output.write(&training::evaluation_text(&answer, output.layout())),
            TextOrJson::Json => output.write_json(&answer),
        }
    }
}
