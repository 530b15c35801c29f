//! `inspect`: what a checkpoint is, the source of each fact, and what is missing.

use attnscope::{Detail, Failure};
use attnscope_render::inspect;
use clap::Args;

use super::{ModelArgs, Output, OutputArgs, TextOrJson};

#[derive(Debug, Args)]
pub(super) struct Inspect {
    #[command(flatten)]
    model: ModelArgs,
    /// List every tensor: name, type, shape, bytes
    #[arg(long)]
    tensors: bool,
    /// Also read every tensor: min, max, mean, std, zeros, NaN, Inf
    #[arg(long)]
    stats: bool,
    /// The form of the result
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    output: OutputArgs,
}

impl Inspect {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let detail = match (self.tensors, self.stats) {
            (_, true) => Detail::Values,
            (true, false) => Detail::Tensors,
            (false, false) => Detail::Headers,
        };
        let output = Output::new(&self.output)?;
        let answer = self.model.model()?.inspect(detail)?;
        match self.format {
            TextOrJson::Text => output.write(&inspect::text(&answer, output.layout())),
            TextOrJson::Json => output.write_json(&answer),
        }
    }
}
