//! `summary`: a table of layers in the style of torchinfo, with what torchinfo leaves out.

use attnscope::{Failure, Lengths};
use attnscope_render::summary;
use clap::Args;

use super::{ModelArgs, Output, OutputArgs, TextOrJson};

#[derive(Debug, Args)]
pub(super) struct Summary {
    #[command(flatten)]
    model: ModelArgs,
    /// Sentences in the batch [default: as a recipe has them, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: Option<u32>,
    /// Source positions [default: 128, or the audio model's full window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    src_len: Option<u32>,
    /// Target positions
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    tgt_len: u32,
    /// The form of the result
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Summary {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let lengths = Lengths {
            batch: self.batch.map(|n| n as usize),
            source: self.src_len.map(|n| n as usize),
            target: self.tgt_len as usize,
        };
        let output = Output::new(&self.output)?;
        let answer = self.model.model()?.on_note(output.listener()).summary(&lengths)?;
        match self.format {
            TextOrJson::Text => output.write(&summary::text(&answer, output.layout())),
            TextOrJson::Json => output.write_json(&answer),
        }
    }
}
